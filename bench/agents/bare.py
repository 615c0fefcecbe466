"""The best schedule as this machine plays it: the same board, and clients that do nothing but ask.

No store, no transcript, no tools, one small request for each turn: what is longer than the computed schedule here is
the machine, the network and the server.
"""

from __future__ import annotations

import asyncio
import json
import time

from bench.agents.schedule import Job
from bench.agents.stage import Stage
from bench.crew import Child
from tests.support.protocol_server.server import KEY

_BODY = json.dumps({"model": "bare", "max_tokens": 100, "messages": [{"role": "user", "content": "Go on."}]}).encode()
_REQUEST = (
    f"POST /v1/messages HTTP/1.1\r\nhost: bare\r\nx-api-key: {KEY}\r\nanthropic-version: 2023-06-01\r\n"
    f"content-type: application/json\r\ncontent-length: {len(_BODY)}\r\n\r\n"
).encode() + _BODY


def play_bare(child: Child, stage: Stage, jobs: list[Job], teammates: int) -> float:
    """Seconds from the first claim to the last completion."""
    return child.runner.run(_Bare(stage, jobs).play(teammates))


class _Bare:
    def __init__(self, stage: Stage, jobs: list[Job]) -> None:
        self._stage = stage
        self._jobs = jobs
        self._waiting = list(range(1, len(jobs) + 1))
        self._done: set[int] = set()
        self._changed = asyncio.Condition()

    async def play(self, teammates: int) -> float:
        began = time.monotonic()
        ended = await asyncio.gather(*(self._work() for _ in range(teammates)))
        return max(ended) - began

    async def _work(self) -> float:
        completed = time.monotonic()
        reader, writer = await asyncio.open_connection("127.0.0.1", self._stage.port)
        while (number := await self._claim()) is not None:
            turns = self._jobs[number - 1].turns
            for turn in range(1, turns + 1):
                await _ask(reader, writer)
                if turn == turns - 1:
                    completed = time.monotonic()
                    await self._complete(number)
        writer.close()
        return completed

    async def _claim(self) -> int | None:
        async with self._changed:
            while self._waiting:
                for number in self._waiting:
                    if self._done.issuperset(self._jobs[number - 1].blocked_by):
                        self._waiting.remove(number)
                        return number
                await self._changed.wait()
        return None

    async def _complete(self, number: int) -> None:
        async with self._changed:
            self._done.add(number)
            self._changed.notify_all()


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(_REQUEST)
    head = await reader.readuntil(b"\r\n\r\n")
    assert b" 200 " in head, head
    length = int(head.lower().partition(b"content-length:")[2].split()[0])
    await reader.readexactly(length)
