"""Who touches what: the files of a task as globs, and whether two tasks could touch the same one.

A glob is relative to the workspace. `*` and `?` stay within a name, `[a-c]` and `[!a]` are one character, `**` is any
number of directories, none too. One that ends with a plain name also covers what is below it: `src/api` may be a
directory. `{a,b}` is written out when it is read.

Overlap is decided exactly, not by looking at a disk: is there any path that both would match? Each name is a sequence
of characters and stars, each glob a sequence of names and `**`; in both cases two sequences are walked side by side.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import TypeVar

from bullpen.domain.task import Task, TaskStatus
from bullpen.errors import UsageError

HAS_FILES = "has_files"
"""Among a team's settings: some task of its board names files, so that claims look at them."""

MAX_FILES = 100
MAX_LENGTH = 500

T = TypeVar("T")

Character = tuple[tuple[int, int], ...]
"""Which characters it may be: ranges, in order."""
Name = tuple[Character | None, ...]
"""Of one file or directory; None is a star: any number of any characters."""
Glob = tuple[Name | None, ...]
"""None is `**`."""

_ANY: Character = ((1, ord("/") - 1), (ord("/") + 1, sys.maxunicode))
_CLASS = re.compile(r"\[([!^]?)(\]?[^\]/]*)\]")
_WILD = re.compile(r"[*?\[]")


# -- reading ----------------------------------------------------------------------------------------------------


def parse_files(given: str | Iterable[str]) -> tuple[str, ...]:
    """Each glob once, as it is kept: `./src/` is `src/**`. UsageError, in one line, for what lies outside."""
    texts = [given] if isinstance(given, str) else given
    globs = (_tidy(glob) for text in texts for part in _split(text) for glob in _expand(part))
    found = tuple(dict.fromkeys(islice(filter(None, globs), MAX_FILES + 1)))
    if len(found) > MAX_FILES:
        raise UsageError(f"these are too many globs for one task, at most {MAX_FILES}: name directories")
    return found


def _split(text: str) -> Iterator[str]:
    """At commas and line ends, but not inside of braces."""
    for part in re.split(r"\n|,(?![^{]*\})", text):
        if len(part) > MAX_LENGTH:
            raise UsageError(f"a glob of {len(part):,} characters is too long, at most {MAX_LENGTH}: {part[:40]!r}…")
        yield part


def _expand(text: str) -> Iterator[str]:
    """`a/{b,c}` is `a/b` and `a/c`."""
    braces = re.search(r"\{([^{}]*)\}", text)
    if braces is None:
        yield text
        return
    for choice in braces[1].split(","):
        yield from _expand(f"{text[: braces.start()]}{choice.strip()}{text[braces.end() :]}")


def _tidy(glob: str) -> str:
    text = glob.strip().strip("`'\"").replace("\\", "/")
    if text.startswith(("/", "~")) or re.match(r"[A-Za-z]:/", text):
        raise UsageError(f"{glob[:80]!r} is not below the workspace: files of a task are globs relative to it")
    names = [name for name in text.split("/") if name not in ("", ".")]
    if ".." in names:
        raise UsageError(f"{glob[:80]!r} leads out of the workspace: files of a task are globs below it, without '..'")
    if text in (".", "./"):
        names = ["**"]
    elif text.endswith("/"):
        names.append("**")
    return "/".join(names)


@lru_cache(maxsize=4096)
def _parse(glob: str) -> Glob:
    names = glob.split("/")
    parsed: list[Name | None] = [None if name == "**" else _parse_name(name) for name in names]
    if not _WILD.search(names[-1]):
        parsed.append(None)
    return tuple(parsed)


def _parse_name(name: str) -> Name:
    found: list[Character | None] = []
    position = 0
    while position < len(name):
        character = name[position]
        inside = _CLASS.match(name, position) if character == "[" else None
        if inside is not None and inside[2]:
            found.append(_parse_class(inside[2], is_negated=bool(inside[1])))
            position = inside.end()
            continue
        if character != "*":
            found.append(_ANY if character == "?" else _just(character))
        elif not found or found[-1] is not None:
            found.append(None)
        position += 1
    return tuple(found)


def _just(character: str) -> Character:
    return ((ord(character), ord(character)),)


def _parse_class(inside: str, *, is_negated: bool) -> Character:
    ranges, position = [], 0
    while position < len(inside):
        first = last = ord(inside[position])
        if inside[position + 1 : position + 2] == "-" and position + 2 < len(inside):
            last = ord(inside[position + 2])
            position += 2
        position += 1
        if first <= last:
            ranges.append((first, last))
    chosen = tuple(sorted(ranges))
    return _meet(_ANY, _complement(chosen) if is_negated else chosen)


def _complement(ranges: Character) -> Character:
    found, begin = [], 0
    for first, last in ranges:
        if begin < first:
            found.append((begin, first - 1))
        begin = max(begin, last + 1)
    return (*found, (begin, sys.maxunicode)) if begin <= sys.maxunicode else tuple(found)


def _meet(first: Character, second: Character) -> Character:
    both = ((max(a, c), min(b, d)) for a, b in first for c, d in second)
    return tuple((low, high) for low, high in both if low <= high)


# -- comparing --------------------------------------------------------------------------------------------------


def do_overlap(first: Sequence[str], second: Sequence[str]) -> bool:
    """Is there a path that a glob of each would match? Nothing overlaps with none."""
    return any(_share(_parse(one), _parse(other)) for one in first for other in second)


def covers(files: Sequence[str], path: str) -> bool:
    """Is this path, relative to the workspace, among the files?"""
    exactly: Glob = tuple(tuple(_just(character) for character in name) for name in path.split("/"))
    return any(_share(_parse(glob), exactly) for glob in files)


@lru_cache(maxsize=16384)
def _share(first: Glob, second: Glob) -> bool:
    return _can_walk(first, second, _share_name)


@lru_cache(maxsize=16384)
def _share_name(first: Name, second: Name) -> bool:
    return _can_walk(first, second, lambda one, other: bool(_meet(one, other)))


def _can_walk(first: Sequence[T | None], second: Sequence[T | None], may_be_one: Callable[[T, T], bool], /) -> bool:
    """Can both be walked to their ends side by side, where None stands for any number of steps?"""
    reached, waiting = {(0, 0)}, [(0, 0)]
    while waiting:
        i, j = waiting.pop()
        if (i, j) == (len(first), len(second)):
            return True
        steps = set(_steps(first[i:], second[j:], may_be_one))
        new = {(i + ahead, j + beside) for ahead, beside in steps} - reached
        reached |= new
        waiting += new
    return False


def _steps(
    first: Sequence[T | None], second: Sequence[T | None], may_be_one: Callable[[T, T], bool], /
) -> Iterator[tuple[int, int]]:
    if first and first[0] is None:
        yield 1, 0
        if second:
            yield 0, 1
    if second and second[0] is None:
        yield 0, 1
        if first:
            yield 1, 0
    if first and second and first[0] is not None and second[0] is not None and may_be_one(first[0], second[0]):
        yield 1, 1


# -- on the board -----------------------------------------------------------------------------------------------


def find_overlaps(task: Task, board: Iterable[Task]) -> list[Task]:
    """Those of others that are in progress and could touch the same files."""
    if not task.files:
        return []
    return [
        other
        for other in board
        if other.status is TaskStatus.IN_PROGRESS
        and other.id != task.id
        and other.files
        and (task.owner is None or not other.is_owned_by(task.owner))
        and do_overlap(task.files, other.files)
    ]


def overlap_text(others: Sequence[Task]) -> str:
    """`files overlap with #3 of ana`; empty if there are none."""
    return f"files overlap with {', '.join(f'#{other.id} of {other.owner}' for other in others)}" if others else ""
