"""The files as a verb sees them: what is on disk, under what its group and it itself have changed.

Two layers lie over the disk. A verb writes into its own; if it succeeds, that is
merged into the group's, else dropped. The group's becomes one journal record.
A file is either replaced whole or only appended to, for all its life.

Invariant: nothing here writes to the disk. One view is used by one thread.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import merge
from typing import Any, TypeVar, cast

from bullpen.errors import StoreUnavailable
from bullpen.stores.files.form import parse_object
from bullpen.stores.files.journal import Changes
from bullpen.stores.files.obstacle import (
    check_append,
    check_directory,
    check_move,
    check_replace,
    is_regular,
    without_waiting,
)

T = TypeVar("T")

Signature = tuple[int, int, int]

SHARD_SIZE = 1000

# A file this young may be written again within the same tick of the file system's clock.
SETTLED_NS = 50_000_000

# A link that leads to itself, or to a name that no file can have.
_NOWHERE = (errno.ELOOP, errno.ENAMETOOLONG)
# Not ours to read, or a socket.
_UNREADABLE = (errno.EACCES, errno.EPERM, errno.ENXIO, *_NOWHERE)

# How long somebody may be about to write what he has emptied, and how long that is worth waiting for at a time.
_YOUNG_SECONDS = 0.2
_PATIENCE_SECONDS = 0.1
_PAUSE_SECONDS = 0.0005


@dataclass(slots=True)
class Layer:
    files: dict[str, bytes | None] = field(default_factory=dict)
    replaced: dict[str, str] = field(default_factory=dict)
    appends: dict[str, bytes] = field(default_factory=dict)
    marks: dict[str, dict[int, bool]] = field(default_factory=dict)
    """By bucket (a directory of markers), then by number."""
    moves: list[tuple[str, str]] = field(default_factory=list)
    children: dict[str, set[str]] = field(default_factory=dict)
    """Names that files of this layer add to directories."""

    def is_empty(self) -> bool:
        return not (self.files or self.appends or self.marks or self.moves)

    def absorb(self, other: Layer) -> None:
        self.files.update(other.files)
        self.replaced.update(other.replaced)
        for path, data in other.appends.items():
            self.appends[path] = self.appends.get(path, b"") + data
        for bucket, numbers in other.marks.items():
            self.marks.setdefault(bucket, {}).update(numbers)
        self.moves.extend(other.moves)
        for directory, names in other.children.items():
            self.children.setdefault(directory, set()).update(names)

    def enter(self, path: str) -> None:
        """Remember the names along the path."""
        while "/" in path:
            path, _, name = path.rpartition("/")
            names = self.children.setdefault(path, set())
            if name in names:
                return
            names.add(name)


class View:
    def __init__(self, root: str) -> None:
        self.root = root
        self._group = Layer()
        self._verb: Layer | None = None
        self.disk_version = 0
        """Grows whenever something on disk may have changed."""
        self._version = 0
        self._versions: dict[str, int] = {}
        self._kept: dict[str, tuple[Signature, bytes]] = {}
        self._decoded: dict[str, tuple[bytes, Any]] = {}

    # -- layers ----------------------------------------------------------------------

    def begin(self) -> None:
        self._verb = Layer()

    def drop(self) -> None:
        self._verb = None
        self._version += 1

    def keep(self) -> None:
        if self._verb is not None:
            self._group.absorb(self._verb)
            self._verb = None

    @property
    def has_moves(self) -> bool:
        return self._verb is not None and bool(self._verb.moves)

    @property
    def group_is_empty(self) -> bool:
        return self._group.is_empty()

    def take_changes(self) -> Changes:
        """What the group changed; the view forgets it."""
        group = self._group
        changes = Changes(
            moves=group.moves,
            files=group.files,
            replaced=group.replaced,
            appends={path: (self._disk_size(path), data) for path, data in group.appends.items()},
            marks={
                f"{bucket}/{shard_of(number)}/{number}": is_set
                for bucket, numbers in group.marks.items()
                for number, is_set in numbers.items()
            },
        )
        self._group = Layer()
        return changes

    def written(self, changes: Changes) -> None:
        """These are on disk now. An inode number is soon used again, so no signature tells old from new."""
        self._version += 1
        self.disk_version += 1
        for path in changes.files:
            self._kept.pop(path, None)
        if changes.moves:
            self._kept.clear()

    def forget(self) -> None:
        """Another process wrote, or this one failed to: what was read before is worth nothing."""
        self._group = Layer()
        self._verb = None
        self._kept.clear()
        self._version += 1
        self.disk_version += 1

    def _layers(self) -> tuple[Layer, ...]:
        return (self._group,) if self._verb is None else (self._verb, self._group)

    def _top(self) -> Layer:
        if self._verb is None:
            raise RuntimeError("a read must not write")
        return self._verb

    # -- whole files -------------------------------------------------------------------

    def read(self, path: str) -> bytes | None:
        for layer in self._layers():
            if path in layer.files:
                return layer.files[path]
        return self._disk_read(path)

    def read_kept(self, path: str) -> bytes | None:
        """Like `read`, for small files that are read by nearly every verb and replaced whole by us."""
        for layer in self._layers():
            if path in layer.files:
                return layer.files[path]
        return self._disk_read_kept(path)

    def decode(self, path: str, decoder: Callable[[bytes], T]) -> T | None:
        """What `decoder` makes of the file, made once for the same bytes. It must not be changed."""
        data = self.read_kept(path)
        if data is None:
            return None
        known = self._decoded.get(path)
        if known is None or known[0] is not data:
            known = self._decoded[path] = (data, decoder(data))
        return cast(T, known[1])

    def settled(self, path: str, parse: Callable[[bytes], T | None]) -> T | None:
        """What `parse` makes of a file that others write in place. They empty it first: as long as it is young and
        nothing can be made of it, it is looked at again, for a moment."""
        data = self.read(path)
        found = None if data is None else parse(data)
        until = time.monotonic() + _PATIENCE_SECONDS
        while found is None and data is not None and self._is_young(path) and time.monotonic() < until:
            time.sleep(_PAUSE_SECONDS)
            data = self.read(path)
            found = None if data is None else parse(data)
        return found

    def _is_young(self, path: str) -> bool:
        written = self.stat(path)
        return written is not None and abs(time.time() - written.st_mtime) < _YOUNG_SECONDS

    def read_disk(self, path: str) -> bytes | None:
        return self._disk_read(path)

    def object(self, path: str) -> dict[str, Any] | None:
        """The JSON object in it; None if there is none, or it is no JSON."""
        data = self.read(path)
        return None if data is None else parse_object(data)

    def write(self, path: str, data: bytes, *, replaces: str | None = None) -> None:
        """`replaces`: the state in which another program had left it, for who applies this after a power cut."""
        layer = self._top()
        if path not in layer.files:
            self._refuse(path, check_replace)
        layer.files[path] = data
        if replaces is not None:
            layer.replaced[path] = replaces
        layer.enter(path)
        self._count_change(path)

    def remove(self, path: str) -> None:
        self._top().files[path] = None
        self._count_change(path)

    def _count_change(self, path: str) -> None:
        directory = path.rpartition("/")[0]
        self._versions[directory] = self._versions.get(directory, 0) + 1

    def version_of(self, directory: str) -> tuple[int, int]:
        """What was derived from the files of a directory holds as long as this is the same."""
        return self._version, self._versions.get(directory, 0)

    def pending(self, directory: str) -> dict[str, bytes]:
        """Files of this directory that are written, but not yet on disk."""
        found: dict[str, bytes] = {}
        for layer in reversed(self._layers()):
            for name in layer.children.get(directory, ()):
                data = layer.files.get(f"{directory}/{name}")
                if data is not None:
                    found[name] = data
        return found

    def signatures(self, directory: str) -> dict[str, Signature]:
        """Of the files on disk; the same signature, the same content."""
        base = self._base(directory)
        found: dict[str, Signature] = {}
        if base is None:
            return found
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(base) as entries:
            for entry in entries:
                # One that is gone meanwhile, or leads nowhere, must not hide the others.
                with suppress(FileNotFoundError):
                    if not entry.name.startswith("."):
                        found[entry.name] = _signature(entry.stat())
        return found

    def exists(self, path: str) -> bool:
        for layer in self._layers():
            if path in layer.files:
                return layer.files[path] is not None
            if path in layer.appends:
                return True
        base = self._base(path)
        return base is not None and os.path.lexists(base)

    def may_read(self, path: str) -> bool:
        """False for a file that is there and is not ours to read."""
        base = self._base(path)
        if base is None or os.access(base, os.R_OK):
            return True
        try:
            os.stat(base)
        except PermissionError:
            return False
        except OSError:
            return True
        return False

    def is_directory(self, path: str) -> bool:
        if any(path in layer.children for layer in self._layers()):
            return True
        base = self._base(path)
        return base is not None and os.path.isdir(base)

    def stat(self, path: str) -> os.stat_result | None:
        """Of what is on disk; a link to where we may not look leads nowhere."""
        base = self._base(path)
        try:
            return None if base is None else os.stat(base)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno not in _NOWHERE and not os.path.islink(base or ""):
                raise
            return None

    def names(self, directory: str) -> list[str]:
        base = self._base(directory)
        names: set[str] = set()
        if base is not None:
            with suppress(FileNotFoundError, NotADirectoryError):
                names.update(os.listdir(base))
        for layer in reversed(self._layers()):
            names.difference_update(source.rpartition("/")[2] for source, _ in layer.moves if _is_in(source, directory))
            names.update(target.rpartition("/")[2] for _, target in layer.moves if _is_in(target, directory))
            names.update(layer.children.get(directory, ()))
            prefix = f"{directory}/"
            for path, data in layer.files.items():
                if data is None and path.startswith(prefix):
                    names.discard(path[len(prefix) :])
        return sorted(names)

    # -- logs ----------------------------------------------------------------------------

    def append(self, path: str, data: bytes) -> None:
        layer = self._top()
        if path not in layer.appends:
            self._refuse(path, check_append)
        layer.appends[path] = layer.appends.get(path, b"") + data
        layer.enter(path)

    def size(self, path: str) -> int:
        return self._disk_size(path) + len(self._appended(path))

    def size_on_disk(self, path: str) -> int:
        """Without the appends that are still to be made."""
        return self._disk_size(path)

    def slice(self, path: str, start: int, end: int | None = None) -> bytes:
        """The bytes of a log, as if all appends had been made."""
        size = self._disk_size(path)
        data = self._disk_slice(path, start, size if end is None else min(end, size)) if start < size else b""
        appended = self._appended(path)
        if not appended or (end is not None and end <= size):
            return data
        return data + appended[max(0, start - size) : None if end is None else end - size]

    def _appended(self, path: str) -> bytes:
        data = b"".join(layer.appends[path] for layer in reversed(self._layers()) if path in layer.appends)
        if not data:
            return b""
        size = self._disk_size(path)
        ends_well = not size or self._disk_slice(path, size - 1, size) == b"\n"
        return data if ends_well else b"\n" + data

    # -- markers ---------------------------------------------------------------------------

    def mark(self, bucket: str, number: int, is_set: bool) -> None:
        layer = self._top()
        if bucket not in layer.marks:
            self._refuse(bucket, check_directory)
        layer.marks.setdefault(bucket, {})[number] = is_set
        layer.enter(bucket)

    def is_marked(self, bucket: str, number: int) -> bool:
        for layer in self._layers():
            if number in (numbers := layer.marks.get(bucket, {})):
                return numbers[number]
        base = self._base(bucket)
        return base is not None and os.path.lexists(f"{base}/{shard_of(number)}/{number}")

    def marked(self, bucket: str) -> Iterator[int]:
        """The numbers in a bucket, ascending, read a shard at a time."""
        over: dict[int, bool] = {}
        for layer in reversed(self._layers()):
            over.update(layer.marks.get(bucket, {}))
        added = sorted(number for number, is_set in over.items() if is_set)
        last = -1
        for number in merge(self._disk_marked(bucket), added):
            if number != last and over.get(number, True):
                yield number
            last = number

    def _disk_marked(self, bucket: str) -> Iterator[int]:
        for shard in self._disk_numbers(bucket):
            yield from self._disk_numbers(f"{bucket}/{shard}")

    def _disk_numbers(self, directory: str) -> list[int]:
        base = self._base(directory)
        if base is None:
            return []
        try:
            return sorted(int(name) for name in os.listdir(base) if name.isdigit())
        except (FileNotFoundError, NotADirectoryError):
            return []

    # -- moves -----------------------------------------------------------------------------

    def move(self, source: str, target: str) -> None:
        """A directory goes to another place. The first thing that a verb does, and it is a group of its own."""
        place = self._base(target)
        self._refuse(source, lambda base: None if place is None else check_move(base, place))
        self._top().moves.append((source, target))
        self._version += 1
        self.disk_version += 1

    def _base(self, path: str) -> str | None:
        """Where the file lies now, before the moves of these layers; None if what lies there is another's."""
        for layer in self._layers():
            for source, target in reversed(layer.moves):
                if path == target or path.startswith(f"{target}/"):
                    path = source + path[len(target) :]
                elif path == source or path.startswith(f"{source}/"):
                    return None
        return os.path.join(self.root, path)

    # -- the disk ----------------------------------------------------------------------------

    def _refuse(self, path: str, check: Callable[[str], str | None]) -> None:
        """Raise what stands in the way on disk, if anything does."""
        base = self._base(path)
        why = None if base is None else check(base)
        if why is not None:
            raise StoreUnavailable(why)

    def _disk_read(self, path: str) -> bytes | None:
        base = self._base(path)
        if base is None:
            return None
        try:
            with open(base, "rb", opener=without_waiting) as file:
                return file.read() if is_regular(file) else b""
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as error:
            if error.errno not in _UNREADABLE:
                raise
            # It is there, but for us it is as good as torn.
            return b""

    def _disk_read_kept(self, path: str) -> bytes | None:
        found = self.stat(path)
        if found is None:
            # A record behind a link to where we may not look is there, and must not be taken for one that is not.
            return self._disk_read(path)
        signature = _signature(found)
        known = self._kept.get(path)
        if known is not None and known[0] == signature:
            return known[1]
        data = self._disk_read(path)
        if data is None:
            return None
        self._kept[path] = (signature, data)
        return data

    def _disk_size(self, path: str) -> int:
        found = self.stat(path)
        return 0 if found is None else found.st_size

    def _disk_slice(self, path: str, start: int, end: int) -> bytes:
        base = self._base(path)
        if base is None:
            return b""
        try:
            with open(base, "rb", opener=without_waiting) as file:
                if not is_regular(file):
                    return b""
                file.seek(start)
                return file.read(end - start)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return b""


def _signature(found: os.stat_result) -> Signature:
    return (found.st_mtime_ns, found.st_size, found.st_ino)


def _is_in(path: str, directory: str) -> bool:
    return path.rpartition("/")[0] == directory


def shard_of(number: int) -> int:
    return number // SHARD_SIZE
