"""What a bubblewrap shows of the machine, as its options.

The root is there read-only. On top of it lie mounts, the deeper over the higher, whatever the order of their making:

    write, read    a path of the host, at its own place
    mask           nothing: an empty directory, or a file that cannot be opened
    rebuild        a directory whose hidden entries are left out, now and when they appear later
    scratch        another directory, writable: /tmp

A mount cannot be renamed or removed from inside, but a directory above it could be, within something writable: then
outside the protected thing would lie elsewhere. So the directories between are mounts as well.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from enum import Enum
from pathlib import Path


class Show(Enum):
    WRITE = "write"
    READ = "read"
    MASK = "mask"
    REBUILD = "rebuild"
    SCRATCH = "scratch"
    LINK = "link"


class View:
    def __init__(self) -> None:
        self._shown: dict[Path, Show] = {}
        self._sources: dict[Path, Path] = {}

    def write(self, *paths: Path) -> None:
        self._show(Show.WRITE, paths)

    def read(self, *paths: Path) -> None:
        self._show(Show.READ, paths)

    def replace(self, target: Path, source: Path | None) -> None:
        """Another directory of the host at this place, writable; None: an empty one that is forgotten at the end."""
        self._shown[target] = Show.SCRATCH
        if source is not None:
            self._sources[target] = source

    def guard(self, *paths: Path) -> None:
        """Not written, inside of what is."""
        self._show(Show.READ, paths)
        for path in paths:
            self._pin(path.resolve())

    def hide(self, *paths: Path) -> None:
        """Not seen. What is reached through a link is hidden where it really is."""
        for path in paths:
            # Most of the usual places do not exist, and to resolve a path is slow.
            if not os.path.exists(path):
                continue
            real = path.resolve()
            if self._is_of_host(real):
                self._shown[real] = Show.MASK
                self._pin(real)

    def rebuild(self, directory: Path, hidden: frozenset[Path]) -> None:
        """Read-only, without what is hidden. Where it is written as a whole, what exists is hidden singly."""
        above = self._above(directory)
        if above is None or self._shown[above] is Show.READ:
            self._rebuild(directory, hidden, {parent for path in hidden for parent in path.parents})
        self.hide(*hidden)

    def options(self, *, read_only: bool) -> list[str]:
        """`read_only`: what would be writable is not."""
        options: list[str] = []
        for path in sorted(self._shown, key=lambda path: len(path.parts)):
            options += self._option(path, read_only=read_only)
        for path, show in self._shown.items():
            if show is Show.REBUILD or (show is Show.MASK and os.path.isdir(path)):
                options += ["--remount-ro", str(path)]
        return options

    def _option(self, path: Path, *, read_only: bool) -> list[str]:
        match self._shown[path]:
            case Show.SCRATCH if path in self._sources:
                return ["--bind", str(self._sources[path]), str(path)]
            case Show.WRITE if not read_only:
                return ["--bind", str(path), str(path)]
            case Show.WRITE | Show.READ:
                return ["--ro-bind", str(path), str(path)]
            case Show.LINK:
                return ["--symlink", os.readlink(path), str(path)]
            case Show.MASK if not os.path.isdir(path):
                return ["--ro-bind", "/dev/null", str(path)]
            case _:
                return ["--tmpfs", str(path)]

    def _rebuild(self, directory: Path, hidden: frozenset[Path], above_hidden: set[Path]) -> None:
        self._shown[directory] = Show.REBUILD
        for entry in _entries(directory):
            path = Path(entry.path)
            if path in hidden or path in self._shown:
                continue
            if entry.is_symlink():
                self._shown[path] = Show.LINK
            elif entry.is_dir() and path in above_hidden:
                self._rebuild(path, hidden, above_hidden)
            # Not sockets: who listens there may hold keys.
            elif entry.is_dir() or entry.is_file():
                self._shown[path] = Show.READ

    def _show(self, show: Show, paths: Iterable[Path]) -> None:
        for path in paths:
            if os.path.exists(path):
                self._shown[path.resolve()] = show

    def _above(self, path: Path) -> Path | None:
        """The next mount on the way up, or at the path itself."""
        return next((place for place in (path, *path.parents) if place in self._shown), None)

    def _is_of_host(self, path: Path) -> bool:
        """Whether what the host has at this path is what would be seen there."""
        above = self._above(path)
        return above is None or self._shown[above] in (Show.WRITE, Show.READ)

    def _pin(self, path: Path) -> None:
        above = self._above(path.parent)
        if above is not None and self._shown[above] is Show.WRITE:
            for parent in path.parents:
                if parent == above:
                    break
                self._shown[parent] = Show.WRITE


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return [entry for entry in entries if _is_reachable(entry)]
    except OSError:
        return []


def _is_reachable(entry: os.DirEntry[str]) -> bool:
    """A broken network or FUSE mount cannot be shown, and must not keep the rest from it."""
    try:
        entry.stat(follow_symlinks=False)
    except OSError:
        return False
    return True
