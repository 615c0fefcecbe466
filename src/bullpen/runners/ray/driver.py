"""The process that speaks with Ray: told what to do in JSON lines on its standard input, it answers in such lines.

    {"do": "start", "number": 3, "recipe": {…}, "num_cpus": 1, "resources": {"gpu": 0.001}}
    {"do": "leave", "number": 3, "drain_seconds": 5, "within_seconds": 10}      drain_seconds null: all end
    {"do": "drop", "number": 3}                                                 ended at once, not restarted

    {"what": "connected"}   {"what": "refused", "why": "…"}
    {"what": "ended", "number": 3, "why": null | "…", "may_pass": true}

When its input ends it ends, and Ray ends the actors of a driver that is gone. What Ray prints goes to the standard
error, which is a log.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import suppress
from typing import IO, Any

import ray
from ray.exceptions import RayError

from bullpen.runners.ray.actor import HostActor, Recipe

MAX_LINE = 2**24


class Driver:
    def __init__(self, answers: IO[str]) -> None:
        self._answers = answers
        self._handles: dict[int, Any] = {}
        self._hosting: dict[int, asyncio.Task[None]] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._actor = ray.remote(HostActor)

    async def run(self) -> None:
        self._say(what="connected")
        reader = asyncio.StreamReader(limit=MAX_LINE)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            order = json.loads(line)
            getattr(self, f"_{order.pop('do')}")(**order)

    def _say(self, **facts: Any) -> None:
        with suppress(BrokenPipeError):
            print(json.dumps(facts), file=self._answers, flush=True)

    # -- orders --------------------------------------------------------------------------------------

    def _start(self, number: int, recipe: dict[str, Any], num_cpus: float, resources: dict[str, float]) -> None:
        self._handles[number] = self._actor.options(
            num_cpus=num_cpus,
            resources=resources,
            # A machine that dies should take few with it.
            scheduling_strategy="SPREAD",
            max_restarts=-1,
            # So `host` goes on in a restarted one.
            max_task_retries=-1,
        ).remote(Recipe.of(recipe))
        self._hosting[number] = asyncio.create_task(self._host(number))

    def _leave(self, number: int, drain_seconds: float | None, within_seconds: float) -> None:
        if number in self._handles:
            task = asyncio.create_task(self._see_off(number, drain_seconds, within_seconds))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    def _drop(self, number: int) -> None:
        if (handle := self._handles.pop(number, None)) is not None:
            ray.kill(handle, no_restart=True)

    # -- actors --------------------------------------------------------------------------------------

    async def _host(self, number: int) -> None:
        """As long as it hosts, in however many processes one after the other."""
        try:
            trouble = await self._handles[number].host.remote()
        except RayError as error:
            trouble = {"why": _first_line(error), "may_pass": True}
        self._drop(number)
        self._say(what="ended", number=number, **(trouble or {"why": None, "may_pass": True}))

    async def _see_off(self, number: int, drain_seconds: float | None, within_seconds: float) -> None:
        """Its `host` ends by it; whoever cannot be reached is dropped."""
        with suppress(RayError, TimeoutError):
            async with asyncio.timeout(within_seconds):
                await self._handles[number].leave.remote(drain_seconds)
                await asyncio.wait({self._hosting[number]})
        self._drop(number)


def _first_line(error: BaseException) -> str:
    """Ray's own texts are pages long, and quote tracebacks: their last line says what it was."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if "Traceback" in str(error) else lines[0])[:300] if lines else type(error).__name__


def main(address: str) -> None:
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        # Not what the actors print: their worker says what happens in the store.
        ray.init(address=address, log_to_driver=False, namespace="bullpen")
    except (Exception, SystemExit) as error:
        print(json.dumps({"what": "refused", "why": _first_line(error)}), file=answers, flush=True)
        os._exit(1)
    asyncio.run(Driver(answers).run())
    ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
