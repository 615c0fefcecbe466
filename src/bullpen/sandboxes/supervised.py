"""What both sandboxes share: private directories, the long-lived cell, and calls in a cell of their own.

A cell is started by the first command that needs it, and again by the next one if it has died.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from bullpen.errors import SandboxUnavailable
from bullpen.sandbox import OUTPUT_CHARACTERS, CommandResult, Guarantees, ProcessIdentity, SandboxSpec
from bullpen.sandboxes.cell import Cell, Launch
from bullpen.sandboxes.command import SupervisedCommand, TooLate
from bullpen.sandboxes.environment import SANDBOX_MARK, WORKER_MARK, clean_environment
from bullpen.sandboxes.git import planted_pointers, write_identity
from bullpen.sandboxes.output import LIMIT_BYTES, OutputDirectory
from bullpen.sandboxes.process import environments, identify, is_running, kill_trees

TIMEOUT_GRACE_SECONDS = 1.0
START_ATTEMPTS = 3

IDLE_SECONDS = 60.0
"""After so long without any process its cell is ended: what a member keeps lies in files, and the next command starts
another one. So who is idle costs no memory."""


class SupervisedSandbox(ABC):
    def __init__(self, spec: SandboxSpec, *, idle_seconds: float = IDLE_SECONDS) -> None:
        private = spec.private_directory.resolve()
        self.spec = spec = replace(spec, workspace=spec.workspace.resolve(), private_directory=private)
        self.home, self.temporary, self.output = private / "home", private / "tmp", private / "output"
        self._worker = _this_process()
        self._mark = f"{self._worker}.{secrets.token_hex(8)}"
        self._environment = clean_environment(spec, home=self.home, worker=self._mark, ours=os.environ)
        self._outputs = OutputDirectory(self.output)
        self._forbidden: tuple[Path, ...] = ()
        self._shell = find_shell()
        self._cell: Cell | None = None
        self._own_cells: dict[SupervisedCommand, asyncio.Task[None]] = {}
        self._opening = asyncio.Lock()
        self._half_open: set[asyncio.Task[Cell]] = set()
        self._idle_seconds = idle_seconds
        self._clock: asyncio.TimerHandle | None = None
        self._retiring: asyncio.Task[None] | None = None
        self._is_prepared = False

    @property
    @abstractmethod
    def name(self) -> str: ...

    @property
    @abstractmethod
    def guarantees(self) -> Guarantees: ...

    @abstractmethod
    def describe(self) -> str: ...

    @abstractmethod
    def _needs_own_cell(self, *, network: bool, read_only: bool) -> bool: ...

    @abstractmethod
    def _launch(self, *, network: bool, read_only: bool) -> Launch:
        """How the cell for such commands is started; SandboxUnavailable where there is none."""

    def _environment_for(self, *, read_only: bool) -> dict[str, str]:
        # With a HOME that cannot be written, caches need another place.
        return {**self._environment, "XDG_CACHE_HOME": "/tmp/.cache"} if read_only else self._environment

    @abstractmethod
    async def _sweep(self) -> None:
        """Kill what outlived a cell that has ended."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        closing = asyncio.create_task(self._close())
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            # Cut off while it closes: what runs in it must be dead all the same.
            await asyncio.wait({closing})
            raise

    async def _close(self) -> None:
        closing = list(self._own_cells.values())
        for command in list(self._own_cells):
            command.hang_up()
        await asyncio.gather(*closing)
        if self._clock is not None:
            self._clock.cancel()
        if self._retiring is not None:
            await self._retiring
        if self._half_open:
            await asyncio.wait(self._half_open)
        if self._cell is not None:
            await self._bury(self._cell)
        self._remove_planted()

    async def run(
        self,
        command: str,
        *,
        timeout_seconds: float = 120.0,
        network: bool | None = None,
        read_only: bool = False,
        directory: Path | None = None,
    ) -> CommandResult:
        began = time.monotonic()
        running = await self.start(command, network=network, read_only=read_only, directory=directory)
        timed_out = False
        try:
            if await running.wait(timeout_seconds) is None:
                timed_out = True
                await running.stop(grace_seconds=TIMEOUT_GRACE_SECONDS)
        except asyncio.CancelledError:
            await asyncio.shield(running.stop(grace_seconds=0.0))
            raise
        finally:
            self._remove_planted()
        if closing := self._own_cells.get(running):
            await asyncio.shield(closing)
        return CommandResult(
            exit_code=running.exit_code,
            output=running.read(limit=OUTPUT_CHARACTERS),
            output_path=running.output_path,
            seconds=time.monotonic() - began,
            timed_out=timed_out,
        )

    async def start(
        self,
        command: str,
        *,
        network: bool | None = None,
        read_only: bool = False,
        directory: Path | None = None,
    ) -> SupervisedCommand:
        wants_network = self.spec.network if network is None else network
        request = {
            "argv": [self._shell, "-c", command],
            "directory": str(directory or self.spec.workspace),
            "environment": self._environment_for(read_only=read_only),
            "output_limit": LIMIT_BYTES,
        }
        if self._needs_own_cell(network=wants_network, read_only=read_only):
            return await self._start_alone(request, network=wants_network, read_only=read_only)
        for _ in range(START_ATTEMPTS):
            cell = await self._shared_cell()
            try:
                return await self._start_in(cell, request)
            except ConnectionError:
                await self._bury(cell)
        raise SandboxUnavailable("the sandbox ends as soon as it is started")

    async def kill_leftovers(self, known: Sequence[ProcessIdentity] = ()) -> list[ProcessIdentity]:
        marked = await asyncio.to_thread(self._marked, lambda mark: mark.rpartition(".")[0] != self._worker)
        found = list(dict.fromkeys((*filter(is_running, known), *marked)))
        await kill_trees(found)
        return found

    def _marked(self, by: Callable[[str], bool]) -> list[ProcessIdentity]:
        """Processes of this member whose worker's mark answers to `by`."""
        ours = str(self.spec.private_directory)
        pids = (
            pid for pid, env in environments(ours) if env.get(SANDBOX_MARK) == ours and by(env.get(WORKER_MARK, ""))
        )
        return [identity for identity in map(identify, pids) if identity is not None]

    async def _start_alone(self, request: dict[str, Any], *, network: bool, read_only: bool) -> SupervisedCommand:
        await self._prepare()
        cell = await Cell.open(await asyncio.to_thread(self._launch, network=network, read_only=read_only))
        try:
            command = await self._start_in(cell, request)
        except ConnectionError as error:
            await cell.close()
            raise SandboxUnavailable("the sandbox ended before the command was started; try again") from error
        except BaseException:
            await asyncio.shield(cell.close())
            raise
        self._own_cells[command] = asyncio.create_task(self._close_after(command, cell))
        return command

    async def _close_after(self, command: SupervisedCommand, cell: Cell) -> None:
        try:
            with contextlib.suppress(SandboxUnavailable):
                await command.wait()
        finally:
            await cell.close()
            self._own_cells.pop(command, None)

    async def _start_in(self, cell: Cell, request: dict[str, Any]) -> SupervisedCommand:
        try:
            descriptor, path = self._outputs.create()
        except OSError as error:
            raise SandboxUnavailable(f"there is no place for the command's output: {error}") from error
        try:
            while True:
                # The moment first: what it is frozen for after that shortens its leave.
                asked_at = time.monotonic()
                until = asked_at + await self.spec.leave()
                with contextlib.suppress(TooLate):
                    return await cell.start(request, descriptor, path, until=until)
        finally:
            os.close(descriptor)

    async def _shared_cell(self) -> Cell:
        await self._prepare()
        # Seen through although the caller is cut off: a cell that is half open would be nobody's to close.
        opening = asyncio.create_task(self._open_shared_cell())
        self._half_open.add(opening)
        opening.add_done_callback(self._half_open.discard)
        return await asyncio.shield(opening)

    async def _open_shared_cell(self) -> Cell:
        async with self._opening:
            if self._cell is None:
                launch = await asyncio.to_thread(self._launch, network=self.spec.network, read_only=False)
                self._cell = await Cell.open(launch)
                self._cell.when_empty = self._wind_up
            return self._cell

    def _wind_up(self) -> None:
        """Nothing runs (any more): end the cell if it stays so."""
        if self._clock is not None:
            self._clock.cancel()
        self._clock = asyncio.get_running_loop().call_later(self._idle_seconds, self._retire)

    def _retire(self) -> None:
        # Who is just starting a command in it finds it gone, and opens another.
        if self._cell is not None and self._cell.is_empty:
            self._retiring = asyncio.create_task(self._bury(self._cell))

    async def _bury(self, cell: Cell) -> None:
        async with self._opening:
            if self._cell is cell:
                self._cell = None
                await cell.close()
                await self._sweep()

    async def _prepare(self) -> None:
        if self._is_prepared:
            return
        if not self.spec.workspace.is_dir():
            raise SandboxUnavailable(f"the workspace {self.spec.workspace} is gone")
        try:
            self.spec.private_directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            for path, mode in ((self.home, 0o700), (self.temporary, 0o1777), (self.output, 0o700)):
                path.mkdir(exist_ok=True)
                path.chmod(mode)
            await write_identity(self.spec, self.home, self._environment)
        except OSError as error:
            raise SandboxUnavailable(f"the member's own directory cannot be made: {error}") from error
        self._forbidden = planted_pointers(self.spec.workspace)
        self._is_prepared = True

    def _remove_planted(self) -> None:
        for path in self._forbidden:
            # A link on the way would lead us to remove somebody else's.
            if os.path.lexists(path) and path.parent.resolve() == path.parent:
                with contextlib.suppress(OSError):
                    path.unlink()


def find_shell() -> str:
    return "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"


def _this_process() -> str:
    identity = identify(os.getpid())
    return f"{os.getpid()}.{identity.start_ticks if identity else 0}"
