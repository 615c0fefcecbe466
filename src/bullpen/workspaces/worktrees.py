"""Making worktrees: one for each member below one directory, each whole or not at all.

A worktree is ready when its mark is there. One that a kill left half made is made again; a member has not been in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bullpen.domain.trunk import PREFIX, Trunk
from bullpen.errors import UsageError
from bullpen.sandbox import Sandbox
from bullpen.workspaces.git import Git, GitFailed
from bullpen.workspaces.origin import not_here
from bullpen.workspaces.worktree import CONFIG, EXCLUDE, OwnWorktree, pattern_of

DIRECTORY = "worktrees"
INTEGRATION = ".integration"
"""Where results are checked: no member can have this name."""
ATTEMPTS = 5
"""Git reads what another one is just writing: of worktrees that are added at the same moment some fail (`failed to read
…/commondir: Success`, one in a hundred was measured), whatever processes add them."""
CACHES = ("__pycache__/", "*.pyc", ".pytest_cache/", ".mypy_cache/", ".ruff_cache/", "node_modules/", ".DS_Store")
"""What tools leave behind wherever they run, and nobody hands in: a repository without a .gitignore is common, and what
everybody's tests write would be in everybody's way."""
READY = ".ready"
"""Beside them, where no member can write."""


@dataclass(frozen=True, slots=True)
class Made:
    """`own`: what git keeps of it in the repository."""

    root: Path
    own: Path
    is_new: bool


Enter = Callable[[Made], AbstractAsyncContextManager[Sandbox]]
"""The sandbox of who works there."""


class Trees(Protocol):
    """Where members of one team work on this machine."""

    async def make(self, name: str, incarnation: int, enter: Enter) -> Made:
        """Where this incarnation works, made if it is not there, with what the one before it had in work. UsageError if
        it cannot be. A name with a dot in front is nobody's: there only commits are looked at."""
        ...

    def open(self, made: Made, name: str, sandbox: Sandbox) -> OwnWorktree: ...

    async def leave(self, made: Made) -> None:
        """What was in work there has been saved: it is needed no longer."""
        ...


class Worktrees:
    """Those of one team in the user's own repository, in the state directory of this machine. They stay: whoever is
    the member next goes on in its files as they are."""

    def __init__(self, trunk: Trunk, state_directory: Path, *, include: Sequence[str] = ()) -> None:
        self._trunk = trunk
        self._git = Git(trunk.repository)
        self._include = include
        self._state_directory = state_directory
        self.directory = state_directory / DIRECTORY / trunk.branch.removeprefix(PREFIX)

    async def make(self, name: str, incarnation: int = 0, enter: Enter | None = None) -> Made:
        root = self.directory / name
        if (own := own_directory(root)) is not None and self._mark(name).exists():
            return Made(root, own, is_new=False)
        try:
            if not await self._git.is_there():
                raise UsageError(not_here(self._trunk))
            return await self._add(root, await self._start(name))
        except (GitFailed, OSError) as error:
            await asyncio.to_thread(shutil.rmtree, root, ignore_errors=True)
            gone = await self._git.find(self._trunk.ref) is None
            why = f"the branch {self._trunk.branch} is gone from {self._trunk.repository}" if gone else error
            raise UsageError(f"no worktree could be made in {root}: {why}") from error

    async def list_made(self) -> list[Made | Path]:
        """Those that are there; of one that was never whole, or that git does not know any more, only the place."""
        found: list[Made | Path] = []
        for root in sorted(self.directory.glob("*")):
            if root.name != READY:
                own = own_directory(root) if self._mark(root.name).exists() else None
                found.append(root if own is None else Made(root, own, is_new=False))
        return found

    async def forget_missing(self) -> None:
        """Those that somebody removed without telling git."""
        for line in (await self._git.run("worktree", "list", "--porcelain")).splitlines():
            root = Path(line.removeprefix("worktree "))
            if line.startswith("worktree ") and root.parent == self.directory and not root.exists():
                await self.remove(root.name)

    def is_ready(self, name: str) -> bool:
        """Has a member been in it?"""
        return self._mark(name).exists()

    async def remove(self, name: str) -> None:
        """Whatever is in it: its mark first, so that what a kill leaves of it is taken for nothing."""
        root = self.directory / name
        self._mark(name).unlink(missing_ok=True)
        await asyncio.to_thread(_remove_tree, root)
        # The directory is gone, so git looks at nothing that a member wrote.
        await self._git.ask("worktree", "remove", "--force", "--force", str(root))
        for empty in (self.directory / READY, self.directory, self.directory.parent):
            with contextlib.suppress(OSError):
                empty.rmdir()

    def open(self, made: Made, name: str, sandbox: Sandbox) -> OwnWorktree:
        return OwnWorktree(self._trunk, name, made.root, made.own, sandbox)

    async def leave(self, made: Made) -> None:
        pass

    def _mark(self, name: str) -> Path:
        return self.directory / READY / name

    async def _start(self, name: str) -> str:
        """Where it begins: what the member made and is not on the trunk, else the trunk."""
        made = await self._git.find(self._trunk.member_ref(name))
        if made is not None and not await self._git.contains(self._trunk.ref, made):
            return made
        return self._trunk.ref

    async def _add(self, root: Path, start: str) -> Made:
        root.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._mark(root.name).unlink(missing_ok=True)
        if root.exists():
            await asyncio.to_thread(shutil.rmtree, root)
        own = await add_worktree(self._git, root, start)
        copied = await asyncio.to_thread(self._copy, root)
        await write_excludes(self._git, own, copied)
        (root / self._trunk.prefix).mkdir(parents=True, exist_ok=True)
        self._mark(root.name).parent.mkdir(exist_ok=True)
        self._mark(root.name).touch()
        return Made(root, own, is_new=True)

    def _copy(self, root: Path) -> list[str]:
        """Files that git does not have, such as `.env`: what the settings name, and nothing that is there already."""
        source, copied = Path(self._trunk.repository), []
        for pattern in self._include:
            for path in sorted(source.glob(pattern)):
                name = path.relative_to(source)
                if os.path.lexists(root / name) or not self._may_copy(name, root):
                    continue
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                if path.is_dir() and not path.is_symlink():
                    shutil.copytree(path, root / name, symlinks=True)
                else:
                    shutil.copy2(path, root / name, follow_symlinks=False)
                copied.append(name.as_posix())
        return copied

    def _may_copy(self, name: Path, root: Path) -> bool:
        """Neither git's nor ours, and no link on the way leads out of the repository, or out of the worktree."""
        source = Path(self._trunk.repository).resolve()
        found = (source / name.parent).resolve() / name.name
        taboo = (source / ".git", self._state_directory.resolve())
        leads_out = not (root / name.parent).resolve().is_relative_to(root.resolve())
        return found.is_relative_to(source) and not leads_out and not any(map(found.is_relative_to, taboo))


async def add_worktree(git: Git, root: Path, start: str, env: Mapping[str, str] | None = None) -> Path:
    """What git keeps of it in the repository."""
    for attempt in range(ATTEMPTS):
        try:
            # Forced twice: git may remember one at this place that is gone, locked if it was killed as it made it.
            await git.run("worktree", "add", "--force", "--force", "--detach", str(root), start, env=env)
            break
        except GitFailed:
            if attempt == ATTEMPTS - 1:
                raise
            await asyncio.to_thread(shutil.rmtree, root, ignore_errors=True)
    own = own_directory(root)
    if own is None:
        raise GitFailed(f"git made no worktree in {root}")
    return own


async def write_excludes(git: Git, own: Path, copied: Sequence[str] = ()) -> None:
    (own / EXCLUDE).write_text(await _excludes(git, copied))
    quoted = str(own / EXCLUDE).replace("\\", "\\\\").replace('"', '\\"')
    (own / CONFIG).write_text(f'[core]\n\texcludesFile = "{quoted}"\n')


async def _excludes(git: Git, copied: Sequence[str]) -> str:
    """What the human's own git passes over, and what was copied: in the sandbox HOME is another. Caches first, so that
    a pattern of the human's can take them back."""
    found = await git.ask("config", "--type=path", "--get", "core.excludesFile")
    configured = found.text.strip() or os.path.join(
        os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config"), "git", "ignore"
    )
    try:
        theirs = Path(configured).read_text(errors="replace")
    except OSError:
        theirs = ""
    return "\n".join([*CACHES, theirs, *map(pattern_of, copied), ""])


def own_directory(root: Path) -> Path | None:
    """`.git` of a worktree is a file that says where git keeps the rest."""
    try:
        text = (root / ".git").read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
    own = Path(text.removeprefix("gitdir:").strip())
    return own if own.is_dir() else None


def _remove_tree(root: Path) -> None:
    """Also where a member took away the right to write."""
    if root.is_symlink() or not root.is_dir():
        root.unlink(missing_ok=True)
        return
    for directory, _, _ in os.walk(root):
        os.chmod(directory, 0o700)
    shutil.rmtree(root)
