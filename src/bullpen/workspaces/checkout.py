"""The user's own checkout: what its files, its index and its HEAD are. Looking touches none of them.

Whoever changes something holds git's own lock of the index meanwhile, so that neither another git nor another `apply`
comes in between. Ours says so in its text and is held by `flock`: one that a kill left behind is known, and removed.
Each git that is called meanwhile holds it, too: one that outlives its caller still writes, and is waited for.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import stat
import tempfile
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from bullpen.errors import Conflict, UsageError
from bullpen.workspaces.git import Git
from bullpen.workspaces.trees import Entry, own_index

LOCK_TEXT = b"bullpen apply\n"
LOCK_PREFIX = "bullpen-lock-"
LOCK_SECONDS = 5.0
"""So long a lock of ours is waited for: what holds it is done in a moment, or soon after its caller was killed."""
_LOOK_AGAIN_SECONDS = 0.02
BRANCHES = "refs/heads/"
_GOING_ON = {
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
}


@dataclass(frozen=True, slots=True)
class Head:
    """`ref` is the branch's full name, or HEAD itself if it is detached."""

    commit: str
    ref: str

    @property
    def name(self) -> str:
        return self.ref.removeprefix(BRANCHES) if self.ref != "HEAD" else "the detached HEAD"


@dataclass(frozen=True, slots=True)
class Files:
    """`tree` is a commit's, with what the files hold at some paths. `obstacles` are paths at which something lies that
    git could not hold there: a directory, a pipe, a link on the way."""

    tree: str
    obstacles: tuple[str, ...]


class Checkout:
    def __init__(self, root: Path, git_directory: Path) -> None:
        self.root = root
        self.git_directory = git_directory
        self.index = git_directory / "index"
        self.git = Git(root)

    @classmethod
    async def open(cls, root: Path | str) -> Checkout:
        if not Path(root).is_dir():
            raise UsageError(f"the repository {root} is not on this machine: if you have moved it, call this in it")
        return cls(Path(root), Path(await Git(root).run("rev-parse", "--absolute-git-dir")))

    async def get_head(self) -> Head:
        """Conflict if there is no commit on it."""
        branch = (await self.git.ask("symbolic-ref", "--quiet", "HEAD")).text.strip()
        commit = await self.git.find("HEAD")
        if commit is None:
            raise Conflict(f"there is no commit on {branch.removeprefix(BRANCHES)} yet: commit once, then apply")
        return Head(commit, branch or "HEAD")

    async def check_quiet(self) -> None:
        """Conflict while the user is in the middle of something."""
        for name, what in _GOING_ON.items():
            if (self.git_directory / name).exists():
                raise Conflict(f"a {what} is going on in {self.root}: finish or abort it first")
        if await self.git.run("ls-files", "--unmerged", "-z"):
            raise Conflict(f"there are unresolved conflicts in {self.root}: resolve them first")

    # -- files ---------------------------------------------------------------------------------------------------

    async def look(self, commit: str, paths: Collection[str], *, absent: Collection[str] = ()) -> Files:
        """The commit's tree, with what the files hold at these paths. `absent`: of a sparse checkout."""
        known = frozenset(paths)
        looked = known - frozenset(absent)
        obstacles = [path for path in sorted(looked) if self.is_obstructed(path, known)]
        # Where a directory stands, or something else on the way, there is no file.
        gone = [path for path in looked if path not in obstacles and not self._has_place(path)]
        there = looked.difference(obstacles, gone)
        async with own_index() as env:
            await self.git.run("read-tree", commit, env=env)
            for how, names in (("--force-remove", gone), ("--remove", there)):
                listed = "".join(f"{name}\0" for name in names)
                if listed:
                    await self.git.run("update-index", "--add", how, "-z", "--stdin", text=listed, env=env)
            return Files(await self.git.run("write-tree", env=env), tuple(obstacles))

    def is_obstructed(self, path: str, known: frozenset[str]) -> bool:
        """Is there something where this file is, or is to be, that none of the known paths accounts for?"""
        if (blocking := _find_blocking(self.root, path)) is not None:
            return blocking not in known
        try:
            mode = os.lstat(self.root / path).st_mode
        except FileNotFoundError:
            return False
        if stat.S_ISDIR(mode):
            return any(found.relative_to(self.root).as_posix() not in known for found in _files_below(self.root / path))
        return not (stat.S_ISREG(mode) or stat.S_ISLNK(mode))

    def _has_place(self, path: str) -> bool:
        """Is a file there, or nothing?"""
        place = self.root / path
        return _find_blocking(self.root, path) is None and (place.is_symlink() or not place.is_dir())

    # -- the index -----------------------------------------------------------------------------------------------

    async def staged(self, paths: Collection[str]) -> dict[str, Entry]:
        """What the index has at these paths."""
        found = {}
        for line in (await self.git.run("ls-files", "--stage", "-z")).split("\0"):
            meta, _, path = line.partition("\t")
            if path in paths:
                mode, name, _ = meta.split(" ")
                found[path] = Entry(mode, name)
        return found

    async def left_out(self) -> frozenset[str]:
        """The paths that a sparse checkout leaves out."""
        lines = (await self.git.run("ls-files", "-v", "-z")).split("\0")
        marked = (line[2:] for line in lines if line[:1] in ("S", "s"))
        return frozenset(path for path in marked if not os.path.lexists(self.root / path))

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Conflict if another git is at work here."""
        lock = self.index.with_name("index.lock")
        await _outwait(lock)
        # With its text from its first moment on: a kill leaves no lock that nobody knows.
        with tempfile.NamedTemporaryFile(dir=self.git_directory, prefix=LOCK_PREFIX) as ours:
            ours.write(LOCK_TEXT)
            ours.flush()
            fcntl.flock(ours, fcntl.LOCK_EX)
            try:
                os.link(ours.name, lock)
            except FileExistsError:
                raise Conflict(
                    f"another git is at work in {self.root}: wait for it, or remove {lock} if there is none"
                ) from None
            self.git.inherits = (ours.fileno(),)
            try:
                yield
            finally:
                self.git.inherits = ()
                lock.unlink(missing_ok=True)


def _find_blocking(root: Path, path: str) -> str | None:
    """What stands on the way to a path and is no directory: a file, or a link that leads elsewhere."""
    for parent in reversed(PurePosixPath(path).parents[:-1]):
        try:
            mode = os.lstat(root / parent).st_mode
        except FileNotFoundError:
            return None
        if not stat.S_ISDIR(mode):
            return parent.as_posix()
    return None


def _files_below(directory: Path) -> Iterator[Path]:
    for found, directories, names in os.walk(directory):
        yield from (Path(found) / name for name in names)
        yield from (Path(found) / name for name in directories if (Path(found) / name).is_symlink())


async def _outwait(lock: Path) -> None:
    """A lock of ours, until its holder is gone; not for ever, and none of anybody else's."""
    for _ in range(int(LOCK_SECONDS / _LOOK_AGAIN_SECONDS)):
        if _remove_left_behind(lock):
            return
        await asyncio.sleep(_LOOK_AGAIN_SECONDS)


def _remove_left_behind(lock: Path) -> bool:
    """A lock of ours whose holder is gone; False if it is not."""
    try:
        descriptor = os.open(lock, os.O_RDONLY)
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.read(descriptor, len(LOCK_TEXT) + 1) == LOCK_TEXT:
            held = os.fstat(descriptor)
            for path in (lock, *lock.parent.glob(f"{LOCK_PREFIX}*")):
                with suppress(FileNotFoundError):
                    if os.path.samestat(os.lstat(path), held):
                        path.unlink()
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
