"""A cell: one supervisor process, wrapped by bubblewrap or not, and the commands that run under it."""

from __future__ import annotations

import array
import asyncio
import contextlib
import math
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bullpen.errors import SandboxUnavailable
from bullpen.sandboxes import supervisor
from bullpen.sandboxes.command import START_SECONDS, SupervisedCommand

CLOSE_SECONDS = 10.0
PING_SECONDS = 10.0

SCRIPT = Path(supervisor.__file__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a supervisor is started. `wrapper` is a bubblewrap and its options; `script` is seen from inside."""

    environment: Mapping[str, str]
    wrapper: Sequence[str] = ()
    script: Path = SCRIPT


class Cell:
    def __init__(self, process: asyncio.subprocess.Process, control: socket.socket) -> None:
        self._process = process
        self._control = control
        self._commands: set[SupervisedCommand] = set()
        self.when_empty: Callable[[], None] | None = None
        self._sending = asyncio.Lock()

    @classmethod
    async def open(cls, launch: Launch) -> Cell:
        control, theirs = socket.socketpair()
        control.setblocking(False)
        try:
            with theirs:
                process = await _spawn(launch, theirs.fileno())
        except BaseException as error:
            control.close()
            if not isinstance(error, OSError):
                raise
            raise SandboxUnavailable(f"the sandbox cannot be started: {error}") from error
        cell = cls(process, control)
        try:
            if not await cell._answered(b"r", START_SECONDS):
                reason = await cell._last_words()
                raise SandboxUnavailable(f"the sandbox cannot be started: {reason}")
        except BaseException:
            await asyncio.shield(cell.close())
            raise
        return cell

    async def start(
        self, request: dict[str, Any], output: int, output_path: Path, *, until: float = math.inf
    ) -> SupervisedCommand:
        """ConnectionError if the supervisor was gone already, TooLate if it could not begin before `until`: nothing has
        been run then, it is safe to try again."""
        link, theirs = socket.socketpair()
        command = SupervisedCommand(link, output_path, self.is_alive)
        self._commands.add(command)
        command.when_gone = lambda: self._forget(command)
        try:
            with theirs:
                async with self._sending:
                    await self._send(b"c", [theirs.fileno(), output])
            await command.begin({**request, "until": until})
        except BaseException:
            command.drop()
            raise
        return command

    @property
    def is_empty(self) -> bool:
        return not self._commands

    async def is_alive(self) -> bool:
        """Whether the supervisor answers; if so, what fell to it is dead. If not, it has ended (or does not end)."""
        async with self._sending:
            with contextlib.suppress(ConnectionError):
                await self._send(b"p", [])
                if await self._answered(b"p", PING_SECONDS):
                    return True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._process.wait()
        return False

    async def close(self) -> None:
        """Everything in it is dead when this returns."""
        self.when_empty = None
        async with self._sending:
            self._control.close()
        for command in list(self._commands):
            command.hang_up()
        try:
            # Not killed: process 1 of a namespace ends when all others have, and bubblewrap when that has.
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        # Not before: who stops a command may rely on its end.
        for command in list(self._commands):
            command.drop()

    def _forget(self, command: SupervisedCommand) -> None:
        self._commands.discard(command)
        if self.is_empty and self.when_empty is not None:
            self.when_empty()

    async def _answered(self, word: bytes, timeout_seconds: float) -> bool:
        try:
            async with asyncio.timeout(timeout_seconds):
                return await asyncio.get_running_loop().sock_recv(self._control, 1) == word
        except (TimeoutError, OSError):
            return False

    async def _send(self, word: bytes, descriptors: list[int]) -> None:
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        while True:
            try:
                self._control.sendmsg([word], ancillary)
            except BlockingIOError:
                await _until_writable(self._control)
            except OSError as error:
                raise ConnectionError(str(error)) from error
            else:
                return

    async def _last_words(self) -> str:
        self._control.close()
        text = b""
        if self._process.stderr is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    text = await self._process.stderr.read(4000)
        lines = text.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it ended without a word"


async def _spawn(launch: Launch, control: int) -> asyncio.subprocess.Process:
    # -I -S: nothing of the user's, the workspace's or the virtual environment's Python is imported.
    python = (os.path.realpath(getattr(sys, "_base_executable", sys.executable)), "-I", "-S", "-B")
    inner = (*python, str(launch.script), str(control))
    async with _options(launch.wrapper) as (wrapper, descriptors):
        return await asyncio.create_subprocess_exec(
            *wrapper,
            *inner,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=_with_libraries(launch.environment),
            cwd="/",
            pass_fds=(control, *descriptors),
            # Ctrl-C on the worker's terminal is for the worker.
            start_new_session=True,
        )


@asynccontextmanager
async def _options(wrapper: Sequence[str]) -> AsyncIterator[tuple[Sequence[str], Sequence[int]]]:
    """Bubblewrap's options are many: handed over in a file without a name, not on the command line."""
    if not wrapper:
        yield (), ()
        return
    descriptor = os.memfd_create("bullpen-sandbox")
    try:
        os.write(descriptor, b"".join(os.fsencode(option) + b"\0" for option in wrapper[1:]))
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield (wrapper[0], "--args", str(descriptor), "--"), (descriptor,)
    finally:
        os.close(descriptor)


def _with_libraries(environment: Mapping[str, str]) -> dict[str, str]:
    """Some builds of Python find their own library only through this; commands do not get it."""
    path = os.environ.get("LD_LIBRARY_PATH")
    return {**environment, **({"LD_LIBRARY_PATH": path} if path else {})}


async def _until_writable(end: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_writer(end, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_writer(end)
