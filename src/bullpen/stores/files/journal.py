"""The redo journal: what makes many files change as one, for one flush of the disk.

    gather after-images ──> append a record, flush ──> apply ──> note how far it is applied
                                      │
                                      └─ from here on the verbs have happened, whatever dies

    header: the machine's boot id, and up to where records have been applied
    record: checksum, length, and what files look like after it
    room:   zeros, for the records to come

- Whoever gets the lock and finds a record that is not applied applies it, which
  changes nothing that is already there. A record that is not whole never counted
  and is cut off.
- Room is made for many records at once: to flush bytes of a file that keeps its length is several times quicker
  than to flush one that has grown.
- Files are not flushed when they are written: after a power cut, which another boot
  id tells, all records are applied again, in their order.
- Whatever is applied late, a task file that some other program wrote meanwhile is left
  as it is: not what it had written before, which the record says that it replaces.
- When the journal has grown, and when a process leaves, everything that it names is
  flushed, and it is emptied (`checkpoint`). A directory moves only between two
  checkpoints: records before it would name files by their old paths.

Whole files are replaced by rename. Appends never overwrite: a program that knows
nothing of our lock may have written behind us, so the line is looked for, then a
torn beginning of it is completed, else it is appended, after a newline if the last
byte is none. Marks are derived and never flushed.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from bullpen.stores.files.layout import INBOX_FILE, JOURNAL
from bullpen.stores.files.obstacle import is_regular, without_waiting
from bullpen.stores.life import boot_id

MAX_BYTES = 1 << 19

# Gone, a directory, a socket, a link to nowhere, another user's.
_ANOTHERS = (
    errno.ENOENT,
    errno.EISDIR,
    errno.ENOTDIR,
    errno.ENXIO,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.EACCES,
    errno.EPERM,
)
_ROOM_BYTES = 1 << 16

ForeignState = Callable[[str, bytes], str | None]
"""Of a file's path and content: None, or if somebody else wrote it, which of its states this is."""

_MAGIC = "bullpen-journal 1"
_APPLIED_WIDTH = 15
_HEADER_LENGTH = 96
_RECORD_HEAD_LENGTH = 64 + 1 + 15 + 1


@dataclass(slots=True)
class Changes:
    """After-images, by path relative to the store's directory. Moves come first, in their order."""

    moves: list[tuple[str, str]] = field(default_factory=list)
    files: dict[str, bytes | None] = field(default_factory=dict)
    appends: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    """Where the file ended when this was decided, and what follows."""
    marks: dict[str, bool] = field(default_factory=dict)
    replaced: dict[str, str] = field(default_factory=dict)
    """Of files that another program had written, which state of theirs these take the place of."""

    def is_empty(self) -> bool:
        return not (self.moves or self.files or self.appends or self.marks)


class Journal:
    """Every method but `is_pending` only with the lock held."""

    def __init__(self, root: str, foreign_state: ForeignState) -> None:
        self._root = root
        self._path = os.path.join(root, JOURNAL)
        self._foreign_state = foreign_state
        self._end = 0
        """Of the record that was committed last."""

    def commit(self, changes: Changes) -> None:
        """Write and flush. When this returns, the changes have happened; when it raises, nothing has."""
        with self._open() as descriptor:
            header = _parse_header(os.pread(descriptor, _HEADER_LENGTH, 0))
            # With the lock held there is nothing that is not applied.
            start = 0 if header is None else header[1]
            data = _pack(changes) if start else _header() + _pack(changes)
            self._end = start + len(data)
            if self._end > os.fstat(descriptor).st_size:
                data += bytes(_ROOM_BYTES - self._end % _ROOM_BYTES)
            try:
                _write_all(descriptor, data, start)
                _flush_data(descriptor)
            except BaseException:
                with suppress(OSError):
                    os.ftruncate(descriptor, start)
                raise
            if start == 0:
                _sync_directory(os.path.dirname(self._path))

    def apply(self, changes: Changes) -> None:
        """The record that was committed last."""
        apply(self._root, changes)
        with self._open() as descriptor:
            _note_applied(descriptor, self._end)

    def is_pending(self) -> bool:
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            head = os.pread(descriptor, _HEADER_LENGTH, 0)
            header = _parse_header(head)
            if header is None or header[0] != boot_id():
                return bool(head)
            around = os.pread(descriptor, 2, header[1] - 1)
            return not around or around[1:] not in (b"", b"\0")
        finally:
            os.close(descriptor)

    def is_full(self) -> bool:
        """After the record that was committed last."""
        return self._end > MAX_BYTES

    def recover(self) -> bool:
        """Finish what a dead process, or a dead machine, had begun. True if files may have changed."""
        with self._open() as descriptor:
            data = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
            header = _parse_header(data[:_HEADER_LENGTH])
            if header is None:
                os.ftruncate(descriptor, 0)
                return False
            boot, applied = header
            is_new_boot = boot != boot_id()
            records = list(_records(data, _HEADER_LENGTH if is_new_boot else applied))
            for _, changes in records:
                _find_again(changes)
                apply(self._root, changes, self._foreign_state)
            end = records[-1][0] if records else min(applied, len(data))
            os.ftruncate(descriptor, end)
            _note_applied(descriptor, end)
        if is_new_boot:
            self.checkpoint()
        return bool(records)

    def checkpoint(self) -> None:
        """Flush all that the journal names, then empty it."""
        if not os.path.exists(self._path):
            return
        with self._open() as descriptor:
            data = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
            if not data:
                return
            paths: set[str] = set()
            for _, changes in _records(data, _HEADER_LENGTH):
                paths.update(changes.files, changes.appends, *changes.moves)
            _flush(self._root, paths)
            # Not flushed: should it come back, applying it again changes nothing.
            os.ftruncate(descriptor, 0)

    @contextmanager
    def _open(self) -> Iterator[int]:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


# -- what it looks like ------------------------------------------------------------------


def _header() -> bytes:
    width = _HEADER_LENGTH - 1 - _APPLIED_WIDTH
    return f"{_MAGIC} {boot_id()}".ljust(width)[:width].encode() + f"{_HEADER_LENGTH:>{_APPLIED_WIDTH}}\n".encode()


def _note_applied(descriptor: int, end: int) -> None:
    os.pwrite(descriptor, f"{end:>{_APPLIED_WIDTH}}".encode(), _HEADER_LENGTH - 1 - _APPLIED_WIDTH)


def _parse_header(head: bytes) -> tuple[str, int] | None:
    """The boot id and how far records have been applied."""
    words = head.decode("ascii", "replace").split()
    if len(head) < _HEADER_LENGTH or " ".join(words[:2]) != _MAGIC or len(words) != 4 or not words[3].isdigit():
        return None
    return words[2], int(words[3])


def _pack(changes: Changes) -> bytes:
    body = json.dumps(
        {
            "moves": changes.moves,
            "files": {path: None if data is None else data.decode() for path, data in changes.files.items()},
            "appends": {path: [offset, data.decode()] for path, (offset, data) in changes.appends.items()},
            "marks": changes.marks,
            "replaced": changes.replaced,
        },
        ensure_ascii=False,
    ).encode()
    return f"{hashlib.sha256(body).hexdigest()} {len(body):>15}\n".encode() + body + b"\n"


def _records(data: bytes, position: int) -> Iterator[tuple[int, Changes]]:
    """Each whole record behind `position`, with where it ends; nothing behind the first that is not whole."""
    while True:
        head = data[position : position + _RECORD_HEAD_LENGTH].decode("ascii", "replace")
        checksum, _, length = head.partition(" ")
        if not length.strip().isdigit():
            return
        start = position + _RECORD_HEAD_LENGTH
        body = data[start : start + int(length)]
        if len(body) != int(length) or hashlib.sha256(body).hexdigest() != checksum:
            return
        position = start + len(body) + 1
        yield position, _unpack(json.loads(body))


def _unpack(data: dict[str, Any]) -> Changes:
    return Changes(
        moves=[(source, target) for source, target in data["moves"]],
        files={path: None if text is None else text.encode() for path, text in data["files"].items()},
        appends={path: (offset, text.encode()) for path, (offset, text) in data["appends"].items()},
        marks=data["marks"],
        replaced=data.get("replaced", {}),
    )


# -- applying ----------------------------------------------------------------------------


def apply(root: str, changes: Changes, foreign_state: ForeignState | None = None) -> None:
    """Every step can be repeated. `foreign_state`: leave alone what somebody else has written since."""
    for source, target in changes.moves:
        _move(os.path.join(root, source), os.path.join(root, target))
    for path, data in changes.files.items():
        full = os.path.join(root, path)
        state = None if foreign_state is None else foreign_state(path, _content_of(full))
        if state not in (None, changes.replaced.get(path)):
            continue
        if data is None:
            with suppress(FileNotFoundError):
                os.unlink(full)
        else:
            _replace(full, data)
    for path, (offset, data) in changes.appends.items():
        _append(os.path.join(root, path), offset, data)
    for path, is_set in changes.marks.items():
        _mark(os.path.join(root, path), is_set)


def _find_again(changes: Changes) -> None:
    """Another program may have emptied an inbox since: then our lines may stand anywhere. Each has an id of its own."""
    for path, (_, data) in changes.appends.items():
        if INBOX_FILE.fullmatch(path.rpartition("/")[2]):
            changes.appends[path] = (0, data)


def _content_of(path: str) -> bytes:
    """Nothing, if it is no file or not ours to read."""
    with suppress(OSError), open(path, "rb", opener=without_waiting) as file:
        return file.read() if is_regular(file) else b""
    return b""


def _move(source: str, target: str) -> None:
    # Done before, if the target is there: what stands at the source by now is its successor.
    if os.path.lexists(target) or not os.path.lexists(source):
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)
    os.rename(source, target)


def _replace(path: str, data: bytes) -> None:
    directory, name = os.path.split(path)
    temporary = os.path.join(directory, f".{name}.new")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    except FileNotFoundError:
        os.makedirs(directory, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        _write_all(descriptor, data, 0)
        # The file system's clock ticks so slowly that two versions could look alike to who remembers their times.
        moment = time.time_ns()
        os.utime(descriptor, ns=(moment, moment))
    finally:
        os.close(descriptor)
    os.replace(temporary, path)


def _append(path: str, offset: int, data: bytes) -> None:
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o666)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        descriptor = os.open(path, flags, 0o666)
    try:
        rest = _missing_part(descriptor, offset, data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    finally:
        os.close(descriptor)


def _missing_part(descriptor: int, offset: int, data: bytes) -> bytes:
    """What has still to be appended of `data`, which was meant for `offset`."""
    size = os.fstat(descriptor).st_size
    start = max(0, min(offset, size) - 1)
    tail = os.pread(descriptor, size - start, start)
    before, since = (tail[:1], tail[1:]) if offset else (b"", tail)
    if not since:
        return data if before in (b"\n", b"") else b"\n" + data
    *whole, fragment = since.split(b"\n")
    there = Counter(whole)
    missing = b""
    for line in data.split(b"\n")[:-1]:
        if there[line]:
            there[line] -= 1
        else:
            missing += line + b"\n"
    if not fragment or missing.startswith(fragment):
        return missing[len(fragment) :]
    return b"\n" + missing if missing else b""


def _mark(path: str, is_set: bool) -> None:
    if is_set:
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666))
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666))
        return
    with suppress(FileNotFoundError):
        os.unlink(path)
    # An empty shard would be listed by every claim.
    with suppress(OSError):
        os.rmdir(os.path.dirname(path))


# -- flushing ----------------------------------------------------------------------------


def _flush(root: str, paths: set[str]) -> None:
    directories = {""}
    for path in sorted(paths):
        _flush_file(os.path.join(root, path))
        while path:
            path = path.rpartition("/")[0]
            directories.add(path)
    for directory in sorted(directories):
        with suppress(FileNotFoundError):
            _sync_directory(os.path.join(root, directory))


def _flush_file(path: str) -> None:
    """If it is still ours: what another program or user has put in its place is not ours to flush."""
    try:
        with open(path, "rb", opener=without_waiting) as file:
            if is_regular(file):
                os.fsync(file.fileno())
    except OSError as error:
        if error.errno not in _ANOTHERS:
            raise


# Not everywhere; what it leaves out, such as times, nobody needs.
_flush_data = getattr(os, "fdatasync", os.fsync)


def _write_all(descriptor: int, data: bytes, position: int) -> None:
    while data:
        written = os.pwrite(descriptor, data[: 1 << 24], position)
        data, position = data[written:], position + written


def _sync_directory(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
