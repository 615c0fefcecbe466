"""The worker's side of one command: the link to its keeper, and what the keeper has said."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bullpen.errors import SandboxUnavailable, UsageError
from bullpen.sandbox import OUTPUT_CHARACTERS, ProcessIdentity
from bullpen.sandboxes.output import excerpt
from bullpen.sandboxes.process import DEATH_SECONDS, identify, is_running

START_SECONDS = 30.0
KILLED = 128 + 9

_CREDENTIALS = struct.Struct("3i")


class TooLate(Exception):
    """The leave was over when the command was about to begin: nothing has been run."""


class SupervisedCommand:
    """Dropping the link ends the command: its keeper reads the end of file."""

    def __init__(self, link: socket.socket, output_path: Path, is_cell_alive: Callable[[], Awaitable[bool]]) -> None:
        self.identity = ProcessIdentity(pid=0, start_ticks=0)
        self.output_path = output_path
        self.when_gone: Callable[[], None] | None = None
        self._link = link
        self._is_cell_alive = is_cell_alive
        self._unread = b""
        self._exit_code: int | None = None
        self._failure: str | None = None
        self._is_late = False
        self._started = asyncio.Event()
        self._exited = asyncio.Event()
        self._gone = asyncio.Event()
        self._is_lost = False
        self._was_cut = False
        link.setblocking(False)
        if sys.platform == "linux":
            link.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(link, self._listen)

    # What the contract has

    def poll(self) -> int | None:
        return self._exit_code

    async def wait(self, timeout_seconds: float | None = None) -> int | None:
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._exited.wait()
        except TimeoutError:
            return None
        if self._is_lost and not await self._is_cell_alive():
            raise SandboxUnavailable("the sandbox ended while the command ran (killed, or out of memory); try again")
        return self._exit_code

    def read(self, *, limit: int = OUTPUT_CHARACTERS) -> str:
        try:
            return excerpt(self.output_path, limit)
        except OSError as error:
            # Removed by somebody, together with the directory of the state.
            raise SandboxUnavailable(f"{self.output_path} cannot be read: {error.strerror}") from error

    async def stop(self, *, grace_seconds: float = 1.0) -> None:
        try:
            async with asyncio.timeout(grace_seconds + DEATH_SECONDS):
                if not self._gone.is_set():
                    with contextlib.suppress(OSError):
                        await self._loop.sock_sendall(self._link, json.dumps({"stop": grace_seconds}).encode() + b"\n")
                await self._gone.wait()
                while self._was_cut and is_running(self.identity):  # noqa: ASYNC110 - not our child
                    await asyncio.sleep(0.005)
        except TimeoutError:
            raise SandboxUnavailable(f"process {self.identity.pid} cannot be killed: look at it") from None
        if self._was_cut:
            # Its keeper was killed: what was below it fell to the supervisor, which has dealt with it when it answers.
            await self._is_cell_alive()

    @property
    def exit_code(self) -> int:
        """Of a command that has ended."""
        return KILLED if self._exit_code is None else self._exit_code

    # What the cell needs

    async def begin(self, request: dict[str, Any]) -> None:
        """Hand over the request; it runs when this returns, or it was TooLate."""
        try:
            async with asyncio.timeout(START_SECONDS):
                with contextlib.suppress(OSError):
                    await self._loop.sock_sendall(self._link, json.dumps(request).encode() + b"\n")
                await self._started.wait()
        except TimeoutError:
            self.drop()
            raise SandboxUnavailable(f"no command could be started within {START_SECONDS:.0f} seconds") from None
        if self._is_late:
            raise TooLate
        if self._failure is not None:
            _explain(self._failure, request)
        # A keeper that has been heard of and is gone was killed by what it started: that is for `wait` to tell.
        if not self.identity.pid:
            raise SandboxUnavailable("the sandbox ended before the command was started; try again")

    def hang_up(self) -> None:
        """Let go of the link: the keeper ends everything. Whoever stops it still waits, until `drop`."""
        if self._link.fileno() < 0:
            return
        self._loop.remove_reader(self._link)
        self._link.close()
        if self._exit_code is None:
            self._exit_code = KILLED
            self._is_lost = True
        self._started.set()
        self._exited.set()

    def drop(self) -> None:
        """Hang up, and wait for nothing more."""
        self.hang_up()
        if not self._gone.is_set():
            self._gone.set()
            if self.when_gone is not None:
                self.when_gone()

    def _listen(self) -> None:
        ancillary: list[tuple[int, int, bytes]] = []
        try:
            data, ancillary, _, _ = self._link.recvmsg(65536, socket.CMSG_SPACE(_CREDENTIALS.size))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._was_cut = True
            self.drop()
            return
        self._unread += data
        while b"\n" in self._unread:
            line, _, self._unread = self._unread.partition(b"\n")
            self._note(json.loads(line), ancillary)

    def _note(self, fact: dict[str, Any], ancillary: list[tuple[int, int, bytes]]) -> None:
        if "keeper" in fact:
            # In a namespace of processes it has another number than here: the kernel translates it.
            seen = _sender(ancillary) or int(fact["keeper"])
            self.identity = identify(seen) or ProcessIdentity(pid=seen, start_ticks=0)
        elif "started" in fact:
            self._started.set()
        elif "late" in fact:
            self._is_late = True
            self._started.set()
        elif "failed" in fact:
            self._failure = str(fact["failed"])
            self._started.set()
        elif "exited" in fact:
            self._exit_code = int(fact["exited"])
            self._exited.set()
        elif "gone" in fact:
            self.drop()


def _sender(ancillary: list[tuple[int, int, bytes]]) -> int | None:
    if sys.platform == "linux":
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS) and len(data) >= _CREDENTIALS.size:
                pid: int = _CREDENTIALS.unpack_from(data)[0]
                return pid or None
    return None


def _explain(failure: str, request: dict[str, Any]) -> None:
    code, _, text = failure.partition(" ")
    match code:
        case "ENOENT" | "ENOTDIR" | "EACCES":
            raise UsageError(f"no such directory in the sandbox: {request['directory']}")
        case "E2BIG":
            raise UsageError("this command is too long for the system (128 KB): write it to a file and run that")
        case "":
            raise UsageError(f"this command cannot be run: {text}")
        case _:
            raise SandboxUnavailable(f"no process could be started: {text}")
