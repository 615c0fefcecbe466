"""Bytes to JSON and back, forgiving when reading, readable when written.

What is read may have been written by any program, torn by a kill or edited by
hand: `parse_object` says None instead of raising.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from bullpen.domain.codec import decode
from bullpen.errors import StoreUnavailable

MAX_DEPTH = 100

# Inside a text these end a line for some: the seeds' programs cut an inbox up with Python's `splitlines`.
_LINE_ENDS = {end.encode(): json.dumps(end).strip('"').encode() for end in "\x85\u2028\u2029"}


def parse_object(data: bytes) -> dict[str, Any] | None:
    """The JSON object that these bytes are, or None if they are anything else."""
    try:
        value = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def parse_foreign(data: bytes) -> dict[str, Any] | None:
    """`parse_object` for what anybody may have written. None, too, for what is nested so deeply that it could be read
    but not written back: every verb that comes by would fail with it."""
    value = parse_object(data)
    if value is None or data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return value
    return value if _is_shallow(value) else None


@contextmanager
def whole(path: str) -> Iterator[None]:
    """While inside, this file of ours is read, whatever somebody has made of it by hand."""
    try:
        yield
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise StoreUnavailable(f"{path} is damaged ({error}): repair it, nothing is written over it") from error


def record(kind: type[Any], fields: Mapping[str, Any], path: str) -> Any:
    """The record of ours that stands there."""
    with whole(path):
        return decode(kind, fields)


def _is_shallow(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _inside(outer)]
    return not level


def _inside(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def file_bytes(value: Any) -> bytes:
    """A whole file: indented, for people and `git diff`."""
    return _encode(value, indent=2)


def line_bytes(value: Any) -> bytes:
    """One line of a log, for whatever takes which character for the end of one."""
    line = _encode(value, indent=None)
    for end, escaped in _LINE_ENDS.items():
        line = line.replace(end, escaped)
    return line


def _encode(value: Any, indent: int | None) -> bytes:
    try:
        return (json.dumps(value, ensure_ascii=False, indent=indent) + "\n").encode()
    except UnicodeEncodeError:
        # A lone surrogate, escaped in a foreign file, can only be written back escaped.
        return (json.dumps(value, indent=indent) + "\n").encode()


def canonical(value: Any) -> bytes:
    """The same value, the same bytes, whoever wrote it and in whatever order."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
