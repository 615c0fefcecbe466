"""Real processes for tests: forked in milliseconds, synchronised by lines, killed and frozen at will.

A test cannot wait for a hundred interpreters to start, so one process, the `Nursery`, imports everything once
and forks a child for each `start`. A child is a real process: its own interpreter state, event loop, threads,
connections and locks; nothing of a store is open in the nursery when it forks.

A child plays a *role*: a coroutine function at the top of some module, `async def role(line, **arguments)`.
Test and child talk in JSON lines over a socket pair; nobody ever sleeps. What crashes in a child fails the test
with the child's traceback. Children never outlive their test, nor the nursery its session.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Coroutine, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

BOUND_SECONDS = 180.0
"""How long a test waits for what must happen. Far above what it takes, though thirty others run beside it on a slow
machine: only a hang is as slow."""

PRELOADED = (
    "pytest",
    "bullpen.stores.sqlite",
    "bullpen.stores.files",
    "bullpen.stores.postgresql",
    "tests.support.stores",
    "tests.support.performance",
)

Role = Callable[..., Coroutine[Any, Any, None]]
Report = dict[str, Any]


class HungUp(Exception):
    """The other end of the line is gone."""


class Line:
    """One end of the line between a test and its child: words with facts, in both directions."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._end = end
        self._buffer = bytearray()
        self._saying = asyncio.Lock()

    async def say(self, word: str, /, **facts: Any) -> None:
        text = json.dumps({"word": word, **facts}).encode() + b"\n"
        async with self._saying:
            await asyncio.get_running_loop().sock_sendall(self._end, text)

    async def hear(self, word: str | None = None) -> Report:
        """The next line; its word is checked if one is given. HungUp at the end, whatever half a line is left."""
        while (end := self._buffer.find(b"\n")) < 0:
            try:
                data = await asyncio.get_running_loop().sock_recv(self._end, 65536)
            except ConnectionResetError:
                data = b""
            if not data:
                raise HungUp
            self._buffer += data
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        report: Report = json.loads(line)
        assert word is None or report["word"] in (word, "crashed"), f"expected {word!r}, heard {report}"
        return report

    async def meet(self) -> Report:
        """For a child: say that it is ready, then wait until the test releases everyone."""
        await self.say("ready")
        return await self.hear("go")

    def close(self) -> None:
        self._end.close()


class Child:
    """A running role, seen from the test."""

    def __init__(self, nursery: Nursery, pid: int, name: str, line: Line) -> None:
        self.pid = pid
        self.name = name
        self.is_over = False
        self._nursery = nursery
        self._line = line

    async def say(self, word: str, /, **facts: Any) -> None:
        try:
            await self._line.say(word, **facts)
        except (BrokenPipeError, ConnectionResetError):
            # It has ended: if it crashed, its last word says how.
            await self.join()
            pytest.fail(f"{self.name} (pid {self.pid}) ended before it was told {word!r}")

    async def hear(self, word: str | None = None, *, bound_seconds: float = BOUND_SECONDS) -> Report:
        """Its next report, within the bound. HungUp when it has ended; a crash fails the test."""
        try:
            async with asyncio.timeout(bound_seconds):
                report = await self._line.hear(word)
        except TimeoutError:
            pytest.fail(f"{self.name} (pid {self.pid}) said nothing for {bound_seconds:g} s, expected {word!r}")
        if report["word"] == "crashed":
            pytest.fail(f"{self.name} (pid {self.pid}) crashed:\n{report['traceback']}")
        return report

    async def join(self, word: str | None = None) -> list[Report]:
        """Wait until it ends by itself, in good order; what it said until then (only this word, if given)."""
        reports = []
        with contextlib.suppress(HungUp):
            while True:
                reports.append(await self.hear())
        code = self._reap()
        assert code == 0, f"{self.name} (pid {self.pid}) ended with {code}"
        return [report for report in reports if word is None or report["word"] == word]

    def kill(self) -> None:
        """SIGKILL; when this returns, the kernel has freed all that it held. What it said before can still be heard."""
        os.kill(self.pid, signal.SIGKILL)
        self._reap()

    def freeze(self) -> None:
        """SIGSTOP: it holds all that it holds, and does nothing."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def end(self) -> None:
        if not self.is_over:
            os.kill(self.pid, signal.SIGKILL)
            self._reap()
        self._line.close()

    def _reap(self) -> int:
        self.is_over = True
        return self._nursery.reap(self.pid)


class Nursery:
    """The process that forks the children, and is their parent."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                cwd=Path(__file__).parents[2],
                stdin=subprocess.DEVNULL,
            )

    def fork(self, role: Role, arguments: dict[str, Any]) -> Child:
        ours, theirs = socket.socketpair()
        with theirs:
            request = {"role": [role.__module__, role.__qualname__], "arguments": arguments}
            pid = self._ask(request, theirs.fileno())
        return Child(self, pid, role.__qualname__, Line(ours))

    def reap(self, pid: int) -> int:
        """Its exit code, negative for a signal; blocks until it is dead."""
        return self._ask({"reap": pid})

    def close(self) -> None:
        self._control.close()
        self._process.wait(timeout=BOUND_SECONDS)

    def _ask(self, request: dict[str, Any], *descriptors: int) -> int:
        # A request is larger than nothing and smaller than the buffer: the descriptors go with its first byte.
        text = json.dumps(request).encode() + b"\n"
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        sent = self._control.sendmsg([text], ancillary)
        self._control.sendall(text[sent:])
        answer = b""
        while not answer.endswith(b"\n"):
            data = self._control.recv(4096)
            if not data:
                raise RuntimeError("the nursery has died")
            answer += data
        return int(answer)


class Crew:
    """The children of one test."""

    def __init__(self, nursery: Nursery) -> None:
        self._nursery = nursery
        self._children: list[Child] = []

    def start(self, role: Role, /, **arguments: Any) -> Child:
        child = self._nursery.fork(role, arguments)
        self._children.append(child)
        return child

    def close(self) -> None:
        for child in self._children:
            child.end()


async def release(children: Iterable[Child]) -> None:
    """A barrier: when all have said that they are ready, all are let go."""
    waiting = list(children)
    for child in waiting:
        await child.hear("ready")
    for child in waiting:
        await child.say("go")


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture
def crew(nursery: Nursery) -> Iterator[Crew]:
    crew = Crew(nursery)
    yield crew
    crew.close()


@pytest.fixture
def chance() -> random.Random:
    """Random choices that can be repeated: the seed is shown when the test fails."""
    seed = int(os.environ.get("BULLPEN_TEST_SEED") or random.SystemRandom().randrange(10**9))
    print(f"to choose the same again: BULLPEN_TEST_SEED={seed}")
    return random.Random(seed)


# -- in the nursery's process ------------------------------------------------------------


def serve(control: socket.socket) -> None:
    """Fork and reap as asked, until whoever asks is gone; then nobody is left behind."""
    children: set[int] = set()
    buffer = b""
    descriptors: list[int] = []
    while True:
        data, received, _, _ = socket.recv_fds(control, 65536, 1)
        if not data:
            break
        descriptors += received
        buffer += data
        if not buffer.endswith(b"\n"):
            continue
        request, buffer = json.loads(buffer), b""
        if "reap" in request:
            _, status = os.waitpid(request["reap"], 0)
            children.discard(request["reap"])
            answer = os.waitstatus_to_exitcode(status)
        else:
            line = descriptors.pop()
            answer = os.fork()
            if answer == 0:
                control.close()
                _be_born(socket.socket(fileno=line), request)
            os.close(line)
            children.add(answer)
        control.sendall(f"{answer}\n".encode())
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _be_born(end: socket.socket, request: dict[str, Any]) -> None:
    code = 1
    try:
        module, name = request["role"]
        asyncio.run(_play(getattr(import_module(module), name), Line(end), request["arguments"]))
        code = 0
    except BaseException:
        # Not again through a loop: the one that there was is over.
        crash = json.dumps({"word": "crashed", "traceback": traceback.format_exc()}).encode() + b"\n"
        with contextlib.suppress(OSError):
            end.setblocking(True)
            end.sendall(crash)
    finally:
        os._exit(code)


async def _play(role: Role, line: Line, arguments: dict[str, Any]) -> None:
    try:
        await role(line, **arguments)
    except HungUp:
        # The test has ended and nobody listens any more.
        return


def main() -> None:
    for module in PRELOADED:
        # A store that is not there yet, or whose library is not installed, has no tests either.
        with contextlib.suppress(ImportError):
            import_module(module)
    serve(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    # Under its own name, so that roles and nursery mean the same classes.
    import_module("tests.support.processes").main()
