"""A room: where one member works on this machine. Its directory, its sandbox, and its worktree if it has one."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bullpen.agent.house import House
from bullpen.config import Settings
from bullpen.domain.member import USER, Team
from bullpen.domain.text import name_key
from bullpen.domain.trunk import Trunk
from bullpen.errors import Conflict, SandboxUnavailable, StoreUnavailable, UsageError
from bullpen.sandbox import Sandbox, SandboxSpec
from bullpen.sandboxes import open_sandbox
from bullpen.workspaces.clones import Clones
from bullpen.workspaces.origin import LocalOrigin, Origin
from bullpen.workspaces.remote import RemoteOrigin
from bullpen.workspaces.worktree import OwnWorktree, environment_of
from bullpen.workspaces.worktrees import INTEGRATION, Enter, Made, Trees, Worktrees

SETUP_SECONDS = 1800.0
# So long who leaves may take to save what it has in work.
SAVE_SECONDS = 5.0
TAIL_CHARACTERS = 1_000


@dataclass(frozen=True, slots=True)
class Room:
    workspace: Path
    private_directory: Path
    sandbox: Sandbox
    worktree: OwnWorktree | None


@asynccontextmanager
async def open_room(
    house: House,
    team: Team,
    settings: Settings,
    name: str,
    *,
    incarnation: int,
    workspace: Path | None = None,
) -> AsyncIterator[Room]:
    """`workspace`: where it works if the team has no trunk; `incarnation` of a room that is no member's: any number
    that nobody else gives it. UsageError if there can be no such room here."""
    private = house.state_directory / "members" / str(team.id) / name_key(name)
    private.mkdir(parents=True, exist_ok=True, mode=0o700)
    trunk = Trunk.of(team.settings)
    if trunk is None:
        place = workspace or house.workspace_of(team)
        async with _sandbox(_spec(house, settings, name, place, private), settings) as box:
            yield Room(place, private, box, None)
        return
    trees, enter = trees_of(house, team, settings, trunk), entrance(house, team, settings, trunk, name)
    made = await trees.make(name, incarnation, enter)
    is_left = False
    try:
        async with enter(made) as box:
            worktree = trees.open(made, name, box)
            if settings.worktree.setup:
                await _set_up(worktree, box, private, made, settings.worktree.setup)
            try:
                yield Room(made.root / trunk.prefix, private, box, worktree)
                is_left = True
            except BaseException as error:
                # Who waits for the store goes on here.
                is_left = not isinstance(error, StoreUnavailable)
                raise
            finally:
                is_left = (name.startswith(".") or await _save_in_time(worktree)) and is_left
    finally:
        if is_left:
            await trees.leave(made)


def trees_of(house: House, team: Team, settings: Settings, trunk: Trunk) -> Trees:
    """Where members of this team work on this machine."""
    if not trunk.is_remote:
        return Worktrees(trunk, house.state_directory, include=settings.worktree.include)

    async def tell(why: str) -> None:
        text = f"{why.removesuffix('.')}. On {socket.gethostname()} members wait for it; nothing is lost."
        with suppress(StoreUnavailable, Conflict):
            await house.store.notify(team.id, USER, text)

    return Clones(trunk, house.mirror_of(trunk.repository), tell=tell)


def origin_of(house: House, trunk: Trunk) -> Origin:
    """For who only looks at what others made; does not wait."""
    return RemoteOrigin(trunk, house.mirror_of(trunk.repository)) if trunk.is_remote else LocalOrigin(trunk)


def entrance(house: House, team: Team, settings: Settings, trunk: Trunk, name: str) -> Enter:
    """The sandbox of this member in any of its worktrees."""
    private = house.state_directory / "members" / str(team.id) / name_key(name)

    def enter(made: Made) -> AbstractAsyncContextManager[Sandbox]:
        spec = _spec(house, settings, name, made.root / trunk.prefix, private, made)
        return _sandbox(spec, settings)

    return enter


def _sandbox(spec: SandboxSpec, settings: Settings) -> Sandbox:
    try:
        return open_sandbox(spec, kind=settings.sandbox.kind)
    except SandboxUnavailable as error:
        # What this machine lacks; trying again would not help.
        raise UsageError(str(error)) from error


async def _save_in_time(worktree: OwnWorktree) -> bool:
    """Whoever goes on elsewhere needs it; but who leaves is waited for, and a repository may be away for long."""
    saving = asyncio.ensure_future(worktree.save())
    loop = asyncio.get_running_loop()
    until = loop.time() + SAVE_SECONDS
    while not saving.done() and loop.time() < until:
        # That it is to leave is known already.
        with suppress(asyncio.CancelledError):
            await asyncio.wait({saving}, timeout=until - loop.time())
    saving.cancel()
    return saving.done() and not saving.cancelled() and saving.exception() is None and saving.result()


def _spec(
    house: House, settings: Settings, name: str, workspace: Path, private: Path, made: Made | None = None
) -> SandboxSpec:
    environment = {name: os.environ[name] for name in settings.sandbox.env if name in os.environ}
    if made is not None and "GIT_CONFIG_COUNT" not in environment:
        environment |= environment_of(made.own)
    if name == INTEGRATION:
        # Python takes what it compiled for good if second and size of the source are the same: between two commits that
        # are shown within a second, that would be the code of another commit.
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
    return SandboxSpec(
        member=name,
        workspace=workspace,
        worktree=None if made is None else made.root,
        private_directory=private,
        hidden=house.hidden,
        readable=_paths(settings.sandbox.readable),
        writable=_paths(settings.sandbox.writable),
        environment=environment,
        network=settings.sandbox.network == "on",
        leave=house.confirm,
    )


async def _set_up(worktree: OwnWorktree, sandbox: Sandbox, private: Path, made: Made, command: str) -> None:
    """The human's command, once in each new worktree: with network, but in the sandbox, for it runs what members may
    have written. What it leaves behind is nobody's work."""
    mark = private / f"set-up-{hashlib.sha256(command.encode()).hexdigest()[:16]}"
    if mark.exists() and not made.is_new:
        return
    before = await worktree.list_untracked()
    done = await sandbox.run(command, timeout_seconds=SETUP_SECONDS, network=True)
    if done.exit_code != 0 or done.timed_out:
        how = "takes too long" if done.timed_out else f"exits {done.exit_code}"
        raise UsageError(f"worktree.setup `{command}` {how} in {made.root}: {done.output[-TAIL_CHARACTERS:].strip()}")
    await worktree.pass_over(await worktree.list_untracked() - before)
    mark.touch()


def _paths(texts: tuple[str, ...]) -> tuple[Path, ...]:
    return tuple(Path(text).expanduser() for text in texts)
