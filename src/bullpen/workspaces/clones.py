"""Members' clones of a repository that lies elsewhere: one for each incarnation, in directories of its own.

A clone is a worktree of this machine's copy (`mirror`): git works in it without any network, and there is neither an
address nor a password in it. A predecessor that is not dead yet, on this machine or another, has another directory and
another hold on the member's ref, and so cannot get in the way.

What an incarnation begins with, the first that there is:

    what its predecessor had in its files, if that was on this machine and nobody has gone on with it elsewhere since
    what a predecessor had saved, wherever that was
    the newest trunk

Files that were left here and did not become anybody's beginning are kept under a name before their clone is removed.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bullpen.domain.trunk import PREFIX, Trunk
from bullpen.errors import SandboxUnavailable, UsageError
from bullpen.sandbox import Sandbox
from bullpen.workspaces.git import Git, GitFailed
from bullpen.workspaces.merging import tree_of
from bullpen.workspaces.mirror import Mirror
from bullpen.workspaces.origin import State
from bullpen.workspaces.remote import NOTHING, Hold, RemoteOrigin, Tell
from bullpen.workspaces.worktree import OwnWorktree
from bullpen.workspaces.worktrees import READY, Enter, Made, add_worktree, own_directory, write_excludes

logger = logging.getLogger(__name__)

TEAMS = "teams"
# What git-lfs would fetch here it would have to ask for where nobody has told it to.
_PLAIN = {"GIT_LFS_SKIP_SMUDGE": "1"}


@dataclass(frozen=True, slots=True)
class Clone:
    """As its directory is called: `ana.3`. What is nobody's has a dot in front: `.integration.7`, of worker 7."""

    name: str
    incarnation: int

    @property
    def is_members(self) -> bool:
        return not self.name.startswith(".")

    def __str__(self) -> str:
        return f"{self.name}.{self.incarnation}"


class Clones:
    """Those of one team on this machine. `tell` is heard once while the repository is away and members wait for it."""

    def __init__(self, trunk: Trunk, mirror: Mirror, *, tell: Tell | None = None) -> None:
        self._trunk = trunk
        self._mirror = mirror
        self._git = mirror.git
        self._tell = tell
        self.directory = mirror.directory / TEAMS / trunk.branch.removeprefix(PREFIX)

    async def make(self, name: str, incarnation: int, enter: Enter) -> Made:
        clone = Clone(name, incarnation)
        if (made := self._find(clone)) is not None:
            return made
        try:
            origin = self._origin(clone)
            tip = await origin.newest(everything=clone.is_members)
            state = State(tip, await tree_of(self._git, tip))
            if clone.is_members:
                state = await self._begin(clone, origin, state, enter)
            return await self._add(clone, state)
        except (GitFailed, OSError) as error:
            await self._remove(clone)
            raise UsageError(f"no clone could be made in {self._root(clone)}: {error}") from error

    def open(self, made: Made, name: str, sandbox: Sandbox) -> OwnWorktree:
        clone = Clone(name, int(made.root.name.rpartition(".")[2]))
        return OwnWorktree(self._trunk, name, made.root, made.own, sandbox, self._origin(clone))

    async def leave(self, made: Made) -> None:
        name, _, number = made.root.name.rpartition(".")
        await self._remove(Clone(name, int(number)))

    def find_all(self) -> list[Clone]:
        """Those that are here, also half made, the oldest first."""
        found = []
        with suppress(OSError):
            for entry in os.scandir(self.directory):
                name, _, number = entry.name.rpartition(".")
                if name and number.isdigit() and entry.is_dir(follow_symlinks=False):
                    found.append(Clone(name, int(number)))
        return sorted(found, key=lambda clone: clone.incarnation)

    async def retire(self, clone: Clone, enter: Enter, *, known_tree: str = "") -> str | None:
        """Remove one that nobody works in any more. The name under which what was not saved of it is kept; what is
        `known_tree` is elsewhere already."""
        with self._claimed(clone) as is_mine:
            if not is_mine:
                return None
            kept = None
            if clone.is_members and (made := self._find(clone)) is not None:
                kept = await self._keep(clone, made, enter, known_tree)
            await self._remove(clone)
            return kept

    # -- what an incarnation begins with -----------------------------------------------------------------------------

    async def _begin(self, clone: Clone, origin: RemoteOrigin, fresh: State, enter: Enter) -> State:
        """From here on the member's ref is this incarnation's."""
        older = [one for one in self.find_all() if one.name == clone.name and one.incarnation < clone.incarnation]
        while True:
            shared = await origin.find_shared(clone.name)
            state = await self._find_left(older, shared, enter)
            if state is None and shared is not None and not await self._git.contains(fresh.head, shared):
                state = await origin.read_state(shared)
            state = state or fresh
            if clone.incarnation == 1:
                # There is no predecessor that it would have to be taken from.
                Hold(self._hold_path(clone)).write(shared or NOTHING)
                return state
            mark = await origin.mark(clone.name, state, str(clone.incarnation))
            if await origin.take_over(clone.name, mark, shared):
                break
        for one in older:
            try:
                await self.retire(one, enter, known_tree=state.tree)
            except (GitFailed, SandboxUnavailable) as error:
                logger.warning("%s stays as it was left: %s", self._root(one), error)
        return state

    async def _find_left(self, older: list[Clone], shared: str | None, enter: Enter) -> State | None:
        """What is in the files of the last one here, if its hold says that nobody went on since."""
        for clone in reversed(older):
            with self._claimed(clone) as is_mine:
                made = self._find(clone)
                if not is_mine or made is None or not Hold(self._hold_path(clone)).is_at(shared):
                    continue
                try:
                    async with enter(made) as sandbox:
                        # Of a predecessor that was killed, or froze, things may still run, and write.
                        await sandbox.kill_leftovers()
                        return await self.open(made, clone.name, sandbox).look()
                except (GitFailed, SandboxUnavailable) as error:
                    logger.warning("what is in %s cannot be taken up: %s", made.root, error)
        return None

    async def _keep(self, clone: Clone, made: Made, enter: Enter, known_tree: str) -> str | None:
        async with enter(made) as sandbox:
            worktree = self.open(made, clone.name, sandbox)
            known = [one for one in Hold(self._hold_path(clone)).read() if one != NOTHING]
            trees = {known_tree, *[await tree_of(self._git, commit) for commit in known]}
            return None if (await worktree.look()).tree in trees else await worktree.keep()

    # -- making and removing -------------------------------------------------------------------------------------------

    def _origin(self, clone: Clone) -> RemoteOrigin:
        hold = Hold(self._hold_path(clone)) if clone.is_members else None
        return RemoteOrigin(self._trunk, self._mirror, hold=hold, tell=self._tell)

    async def _add(self, clone: Clone, state: State) -> Made:
        root = self._root(clone)
        root.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if root.exists():
            await asyncio.to_thread(shutil.rmtree, root)
        own = await add_worktree(self._git, root, state.head, env=_PLAIN)
        if state.tree != await tree_of(self._git, state.head):
            # Nobody has been in it yet: nothing that could be run is there but what git knows.
            await Git(root).run("read-tree", "-u", "--reset", state.tree, env=_PLAIN)
        await write_excludes(self._git, own)
        (root / self._trunk.prefix).mkdir(parents=True, exist_ok=True)
        self._mark(clone).parent.mkdir(exist_ok=True, mode=0o700)
        self._mark(clone).touch()
        return Made(root, own, is_new=True)

    async def _remove(self, clone: Clone) -> None:
        root = self._root(clone)
        own = self._own(root)
        self._mark(clone).unlink(missing_ok=True)
        for directory in (root, own):
            if directory is not None:
                await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
        for path in (self._hold_path(clone), self._claim_path(clone)):
            path.unlink(missing_ok=True)

    def _find(self, clone: Clone) -> Made | None:
        root = self._root(clone)
        own = self._own(root)
        return Made(root, own, is_new=False) if own is not None and self._mark(clone).exists() else None

    def _own(self, root: Path) -> Path | None:
        """What git keeps of it. Members can write beside the pointer to it, so it must point back."""
        own = own_directory(root)
        if own is None or own.resolve().parent != (self._git.directory / "worktrees").resolve():
            return None
        try:
            back = Path((own / "gitdir").read_text().strip())
        except OSError:
            return None
        return own if back.parent.resolve() == root.resolve() else None

    def _root(self, clone: Clone) -> Path:
        return self.directory / str(clone)

    def _mark(self, clone: Clone) -> Path:
        return self.directory / READY / str(clone)

    def _hold_path(self, clone: Clone) -> Path:
        return self.directory / ".hold" / str(clone)

    def _claim_path(self, clone: Clone) -> Path:
        return self.directory / ".claim" / str(clone)

    @contextmanager
    def _claimed(self, clone: Clone) -> Iterator[bool]:
        """Of all that would take it up or remove it, one. Not waited for: who has it may be frozen."""
        path = self._claim_path(clone)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with path.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield False
                return
            yield True
