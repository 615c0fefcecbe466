"""Reading append-only logs of JSON lines: events, turns, outcomes of operations.

Invariant: a line without its newline is not there yet. Lines are written through
the journal, so one that is torn belongs to a verb that is about to be completed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from bullpen.domain.event import Event
from bullpen.errors import UsageError
from bullpen.stores.files.foreign import moment_of, moment_of_ns
from bullpen.stores.files.form import line_bytes, parse_object
from bullpen.stores.files.layout import OPERATIONS
from bullpen.stores.files.view import View

_CHUNK = 1 << 18


def lines(view: View, path: str, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """Each whole line behind `start`, with the offset at which it ends."""
    rest, position = b"", start
    while chunk := view.slice(path, position, position + _CHUNK):
        rest += chunk
        position += len(chunk)
        *whole, rest = rest.split(b"\n")
        end = position - len(rest) - sum(len(line) + 1 for line in whole)
        for line in whole:
            end += len(line) + 1
            yield end, line


def lines_backwards(view: View, path: str) -> Iterator[bytes]:
    """Each whole line, the last one first, as far as they are asked for."""
    end = view.size(path)
    tail: list[bytes] = []
    # What stands behind the last newline is not there yet.
    is_whole = False
    while end > 0:
        begin = max(0, end - _CHUNK)
        first, *others = view.slice(path, begin, end).split(b"\n")
        end = begin
        if not others:
            tail.insert(0, first)
            continue
        *middle, last = others
        if is_whole:
            yield b"".join([last, *tail])
        yield from reversed(middle)
        tail, is_whole = [first], True
    if is_whole:
        yield b"".join(tail)


def find_line(view: View, path: str, beginning: bytes) -> bytes | None:
    """The first whole line that begins so."""
    data = view.slice(path, 0)
    start = 0 if data.startswith(beginning) else data.find(b"\n" + beginning) + 1
    if start == 0 and not data.startswith(beginning):
        return None
    return data[start : data.find(b"\n", start)]


# -- events --------------------------------------------------------------------------------


def event_bytes(kind: str, at: str, actor: str, data: Mapping[str, Any]) -> bytes:
    return line_bytes({"kind": kind, "at": at, "actor": actor, "data": data})


def read_events(view: View, path: str, team_id: int, after: str, limit: int) -> list[Event]:
    start = _offset(view, path, after)
    found: list[Event] = []
    if limit <= 0:
        return found
    for end, line in lines(view, path, start):
        raw = parse_object(line)
        # Somebody's edit is passed over; the log goes on behind it.
        if raw is not None and "kind" in raw:
            found.append(
                Event(
                    team_id=team_id,
                    position=str(end),
                    kind=str(raw["kind"]),
                    at=moment_of(raw.get("at")) or moment_of_ns(0),
                    actor=str(raw.get("actor", "")),
                    data=raw.get("data") or {},
                )
            )
            if len(found) >= limit:
                break
    return found


def last_position(view: View, path: str) -> str:
    size = view.size(path)
    while size and view.slice(path, size - 1, size) != b"\n":
        size -= 1
    return str(size)


def _offset(view: View, path: str, after: str) -> int:
    if not after:
        return 0
    offset = int(after) if after.isascii() and after.isdigit() and len(after) < 16 else -1
    is_known = offset == 0 or (0 < offset <= view.size(path) and view.slice(path, offset - 1, offset) == b"\n")
    if not is_known:
        raise UsageError(f"{after[:40]!r} is not a position of this store's log")
    return offset


# -- operations ----------------------------------------------------------------------------


def find_operation(view: View, operation_id: str) -> Mapping[str, Any] | None:
    line = find_line(view, _shard(operation_id), _beginning(operation_id))
    raw = None if line is None else parse_object(line)
    return None if raw is None else raw["outcome"]


def save_operation(view: View, operation_id: str, outcome: Mapping[str, Any]) -> None:
    view.append(_shard(operation_id), line_bytes({"operation": operation_id, "outcome": outcome}))


def _shard(operation_id: str) -> str:
    return f"{OPERATIONS}/{hashlib.sha256(operation_id.encode('utf-8', 'replace')).hexdigest()[:2]}.jsonl"


def _beginning(operation_id: str) -> bytes:
    return line_bytes({"operation": operation_id})[:-2] + b","
