"""Tools of files: read_file, write_file, edit_file.

Invariants: a write is whole or not at all (a new file takes the old one's place), and it never covers what its
member has not seen. Bytes that a call does not mean to change stay as they are: line ends, marks, odd encodings.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from bullpen.errors import ToolError
from bullpen.sandbox import OUTPUT_CHARACTERS
from bullpen.tool import Changes, Kind, Parameter, Tool, ToolContext, ToolOutput
from bullpen.tools.fence import MAX_BYTES, Fence, Place, is_small, parent_of, read_bytes, read_entry, told
from bullpen.tools.near import hint
from bullpen.tools.outside import show_written
from bullpen.tools.seen import FilesSeen

LINES = 2_000
LINE_CHARACTERS = 2_000
LOCK_SECONDS = 5.0
SHOWN_AROUND = 3

_BOM = "\ufeff"


# -- reading ---------------------------------------------------------------------------


async def _read(context: ToolContext, arguments: Mapping[str, Any]) -> str:
    place = context.resource(Fence).to_read(arguments["path"])
    seen = context.resource(FilesSeen)
    offset, limit = arguments.get("offset", 1), arguments.get("limit", LINES)
    read = partial(_read_now, place, seen, offset, max(1, limit))
    # The way to a thread and back takes longer than that.
    return read() if is_small(place) else await asyncio.to_thread(read)


def _read_now(place: Place, seen: FilesSeen, offset: int, limit: int) -> str:
    with told(place):
        data, _ = read_bytes(place)
    _refuse_binary(place, data)
    seen.note_read(place, data)
    lines = _lines(data.decode("utf-8", "replace").removeprefix(_BOM))
    if not lines:
        return f"[{place.shown} is empty]"
    first = max(1, len(lines) + 1 + offset) if offset < 0 else max(1, offset)
    if first > len(lines):
        raise ToolError(f"{place.shown} has only {len(lines)} lines")
    last = min(len(lines), first + limit - 1)
    text = _window(lines, first, last, OUTPUT_CHARACTERS)
    if last < len(lines):
        text += f"\n[{place.shown} has {len(lines):,} lines: go on with offset={last + 1}]"
    return text


def _refuse_binary(place: Place, data: bytes) -> None:
    if b"\0" in data[:8192]:
        raise ToolError(f"{place.shown} is binary ({len(data):,} bytes): look at it with bash (file, strings, xxd)")


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def _window(lines: list[str], first: int, last: int, limit: int) -> str:
    """Lines with their numbers; head and tail of them where all would be too much."""
    numbered = [_numbered(number, lines[number - 1]) for number in range(first, last + 1)]
    if sum(map(len, numbered)) + len(numbered) <= limit:
        return "\n".join(numbered)
    head = _fitting(numbered, limit * 3 // 4)
    tail = _fitting(numbered[: head - 1 : -1], limit // 5)
    left_out = f"[… lines {first + head} to {last - tail} left out: read_file with offset={first + head} shows them …]"
    return "\n".join([*numbered[:head], left_out, *numbered[len(numbered) - tail :]])


def _numbered(number: int, line: str) -> str:
    if len(line) > LINE_CHARACTERS:
        line = f"{line[:LINE_CHARACTERS]} [… {len(line) - LINE_CHARACTERS:,} more characters in this line]"
    return f"{number:>6}\t{line}"


def _fitting(lines: list[str], limit: int) -> int:
    """How many of them fit."""
    used = 0
    for count, line in enumerate(lines):
        used += len(line) + 1
        if used > limit:
            return count
    return len(lines)


# -- writing ---------------------------------------------------------------------------


Change = Callable[[bytes | None], bytes]
"""From what a file holds (None: it does not exist) to what it shall hold; ToolError if that makes no sense."""


async def _write(context: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput:
    place = context.resource(Fence).to_write(arguments["path"])
    data = _encoded(arguments["content"])
    was = await asyncio.to_thread(_replace, place, context.resource(FilesSeen), lambda _: data, make=True)
    lines = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
    text = f"{'created' if was is None else 'wrote'} {place.shown} ({lines:,} lines, {len(data):,} bytes)"
    return ToolOutput(text=text, remarks=await show_written(context, "/".join(place.parts)))


async def _edit(context: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput:
    place = context.resource(Fence).to_write(arguments["path"])
    old, new = arguments["old_text"], arguments["new_text"]
    if old == new:
        raise ToolError("old_text and new_text are the same: nothing would change")
    if not old:
        raise ToolError("old_text is empty: say what is to be replaced, or write the whole file with write_file")
    edit = _Edit(place, old, new, replaces_all=arguments.get("replace_all", False))
    await asyncio.to_thread(_replace, place, context.resource(FilesSeen), edit, make=False)
    return ToolOutput(text=edit.report(), remarks=await show_written(context, "/".join(place.parts)))


class _Edit:
    def __init__(self, place: Place, old: str, new: str, *, replaces_all: bool) -> None:
        self._place, self._old, self._new, self._replaces_all = place, old, new, replaces_all
        self._starts: list[int] = []
        self._after = ""

    def __call__(self, data: bytes | None) -> bytes:
        if data is None:
            raise ToolError(f"there is no {self._place.shown}: make it with write_file")
        _refuse_binary(self._place, data)
        text = data.decode("utf-8", "surrogateescape")
        old, new = self._old, self._new
        if old not in text and "\r\n" in text:
            # The model saw the lines without their ends.
            old, new = (re.sub("\r?\n", "\r\n", part) for part in (old, new))
        self._starts = [found.start() for found in re.finditer(re.escape(old), text)]
        self._check(text)
        self._after = text.replace(old, new)
        return _encoded(self._after)

    def _check(self, text: str) -> None:
        if not self._starts:
            raise ToolError(f"old_text was not found in {self._place.shown}. {hint(text, self._old)}")
        if len(self._starts) > 1 and not self._replaces_all:
            places = ", ".join(str(number) for number in self._numbers(text)[:20])
            raise ToolError(
                f"old_text matches {len(self._starts)} places in {self._place.shown}, at lines {places}: "
                "add lines around it until it matches one, or set replace_all"
            )

    def _numbers(self, text: str) -> list[int]:
        return [text.count("\n", 0, start) + 1 for start in self._starts]

    def report(self) -> str:
        first = self._after.count("\n", 0, self._starts[0]) + 1
        if len(self._starts) > 1:
            return f"edited {self._place.shown}: {len(self._starts)} places, the first at line {first}"
        lines = _lines(self._after.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
        last = min(len(lines), first + self._new.count("\n") + SHOWN_AROUND)
        shown = _window(lines, max(1, first - SHOWN_AROUND), last, 2_000)
        return f"edited {self._place.shown}, it now reads\n{shown}"


def _encoded(text: str) -> bytes:
    try:
        data = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise ToolError("the text holds half a character (a lone surrogate), which no file can keep") from None
    if len(data) > MAX_BYTES:
        raise ToolError(f"{len(data):,} bytes are too many for one file")
    return data


def _replace(place: Place, seen: FilesSeen, change: Change, *, make: bool) -> bytes | None:
    """Look, compare with what was seen, write: nobody else's file tool comes between. Returns what was there."""
    with told(place):
        if not place.parts:
            raise IsADirectoryError
        with parent_of(place, make=make) as directory, _alone_in(directory, place):
            data, found = _look(directory, place)
            if data is not None and found is not None:
                seen.check(place, data, found)
            wanted = change(data)
            seen.note_written(place, wanted, _put(directory, place.parts[-1], wanted, found))
            return data


def _look(directory: int, place: Place) -> tuple[bytes, os.stat_result] | tuple[None, None]:
    try:
        return read_entry(directory, place)
    except FileNotFoundError:
        return None, None


@contextmanager
def _alone_in(directory: int, place: Place) -> Iterator[None]:
    """Between members, in this process and in others: a lock on the directory that dies with us."""
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise ToolError(f"another program keeps the directory of {place.shown} locked; try again") from None
            time.sleep(0.01)
        except OSError:
            break  # a file system without locks
    yield


def _put(directory: int, name: str, data: bytes, before: os.stat_result | None) -> os.stat_result:
    temporary = f".bullpen-{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(temporary, flags, 0o666, dir_fd=directory), "wb") as file:
        try:
            if before is not None:
                with suppress(OSError):
                    os.fchown(file.fileno(), before.st_uid, before.st_gid)
                os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
            file.write(data)
            file.flush()
            os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            os.unlink(temporary, dir_fd=directory)
            raise
        return os.fstat(file.fileno())


# -- the tools -------------------------------------------------------------------------

_PATH = Parameter(
    name="path",
    kind=Kind.TEXT,
    description="In the workspace: relative to it, or absolute.",
    is_required=True,
    aliases=("file_path", "filename", "file"),
)

READ_FILE = Tool(
    name="read_file",
    description=f"""Read a text file of the workspace. Lines come with their numbers, which are not part of the file. \
Without offset and limit the first {LINES:,} lines; a long file is shown in parts.

Good: read_file(path="src/api/users.py"), and read_file(path="app.log", offset=-50) for the end of a long one.
Bad: reading a file again that you have just written: you know what is in it.

It also reads the files that hold the whole output of your commands.""",
    parameters=(
        _PATH,
        Parameter(
            name="offset", kind=Kind.INTEGER, description="First line, from 1; negative: that many before the end."
        ),
        Parameter(name="limit", kind=Kind.INTEGER, description="How many lines."),
    ),
    run=_read,
    is_read_only=True,
    is_repeatable=True,
)

WRITE_FILE = Tool(
    name="write_file",
    description="""Write a whole file; directories on the way are made. An existing file must be read first, and is \
refused if somebody has changed it since, because you would undo their work.

Good: a new file, or a short one that changes everywhere.
Bad: writing a long file again to change three lines: use edit_file.""",
    parameters=(
        _PATH,
        Parameter(
            name="content",
            kind=Kind.TEXT,
            description="All of it, as it shall be.",
            is_required=True,
            aliases=("contents", "text", "file_text"),
        ),
    ),
    run=_write,
    changes=Changes.WORKSPACE,
)

EDIT_FILE = Tool(
    name="edit_file",
    description="""Replace a piece of text in a file that you have read. old_text must stand there exactly, with its \
indentation and without line numbers, and only once.

Good: old_text with the line to change and one or two lines around it.
Bad: old_text "return None" (matches many places), or half a file (one wrong space and nothing matches).""",
    parameters=(
        _PATH,
        Parameter(
            name="old_text",
            kind=Kind.TEXT,
            description="What stands there now.",
            is_required=True,
            aliases=("old_string", "old_str", "old"),
        ),
        Parameter(
            name="new_text",
            kind=Kind.TEXT,
            description="What shall stand there; empty: nothing.",
            is_required=True,
            aliases=("new_string", "new_str", "new"),
        ),
        Parameter(name="replace_all", kind=Kind.BOOLEAN, description="Replace every place that matches, not just one."),
    ),
    run=_edit,
    changes=Changes.WORKSPACE,
)

TOOLS = (READ_FILE, WRITE_FILE, EDIT_FILE)
