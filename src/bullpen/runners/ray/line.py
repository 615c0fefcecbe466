"""The line to `driver`, the process that speaks with Ray, seen from the one that runs the team."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bullpen.errors import RunnerUnavailable, UsageError

CONNECT_SECONDS = 60.0
REACH_SECONDS = 5.0
GOODBYE_SECONDS = 10.0
MAX_LINE = 2**20
AUTO = "auto"


class Line:
    """`log` is where Ray's own words go."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self.log = log

    def say(self, **order: Any) -> None:
        """Nobody waits: if the driver is gone, `hear` says so."""
        assert self._process.stdin is not None
        with suppress(ConnectionError):
            self._process.stdin.write(json.dumps(order).encode() + b"\n")

    async def hear(self) -> Mapping[str, Any]:
        """The next answer; RunnerUnavailable when there will be none."""
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise RunnerUnavailable(f"the connection to Ray is lost; what it said is in {self.log}")
        heard: Mapping[str, Any] = json.loads(line)
        return heard


@asynccontextmanager
async def open_line(address: str | None, log: Path) -> AsyncIterator[Line]:
    """A driver that is connected. UsageError and RunnerUnavailable as of `find_cluster`."""
    address = await find_cluster(address)
    process = await _start(address, log)
    try:
        line = Line(process, log)
        await _connect(line, address)
        yield line
    finally:
        await _end(process)


async def find_cluster(address: str | None) -> str:
    """Its address, where something answers; Ray itself would try for a minute. Whether a cluster runs on this machine,
    if none is named, only Ray knows. UsageError without Ray, RunnerUnavailable where nothing answers."""
    if find_spec("ray") is None:
        raise UsageError("Ray needs an extra: pip install 'bullpen[ray]'")
    address = address or os.environ.get("RAY_ADDRESS") or AUTO
    if address == AUTO:
        return address
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"{address[:80]!r} is no address of a Ray cluster: HOST:PORT, as `ray start` prints it")
    try:
        async with asyncio.timeout(REACH_SECONDS):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        writer.close()
    except (OSError, TimeoutError, OverflowError) as error:
        raise RunnerUnavailable(
            f"no Ray cluster answers at {address}: `ray start --head` begins one, --ray-address HOST:PORT names it"
        ) from error
    return address


async def _start(address: str, log: Path) -> asyncio.subprocess.Process:
    log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with log.open("ab") as output:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            # Nothing is imported from where it runs, and it runs where no agent writes: see the package.
            "-P",
            "-m",
            "bullpen.runners.ray.driver",
            address,
            cwd="/",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=output,
            limit=MAX_LINE,
            # Ctrl-C is for who runs the team: it sees the actors off first.
            start_new_session=True,
        )


async def _connect(line: Line, address: str) -> None:
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            heard = await line.hear()
    except TimeoutError:
        raise RunnerUnavailable(f"Ray does not answer at {address}; what it said is in {line.log}") from None
    if heard["what"] == "refused":
        if address == AUTO:
            raise RunnerUnavailable(
                "no Ray cluster runs on this machine: `ray start --head` begins one, --ray-address HOST:PORT names it"
            )
        raise RunnerUnavailable(f"Ray at {address} refuses: {heard['why']}; more is in {line.log}")


async def _end(process: asyncio.subprocess.Process) -> None:
    """It ends when its input does."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        async with asyncio.timeout(GOODBYE_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
