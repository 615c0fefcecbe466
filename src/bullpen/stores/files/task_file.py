"""A task as a JSON object: the seeds' keys where they have one, and ours beside them.

    id subject description activeForm status owner blockedBy blocks      as the seeds write them
    waitingFor       those of blockedBy that are unfinished: what `open_blockers` counts
    rev              a checksum of the rest: right as long as we were the last to write

Keys that we do not know, and the spelling of those we do (`blocked_by`), survive an
update. A file whose `rev` is missing or wrong was written by somebody else and is
taken up by the next reconcile.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from bullpen.domain.codec import decode, encode
from bullpen.domain.files import parse_files
from bullpen.domain.task import Evidence, Handover, Task
from bullpen.errors import UsageError
from bullpen.stores.files.foreign import moment_of, number_of, numbers_of, pick, status_of, text_of, text_or_none
from bullpen.stores.files.form import canonical, file_bytes, parse_foreign
from bullpen.stores.files.layout import TASK_FILE

Raw = dict[str, Any]

# Our name of a field -> how it is written, and how else it may be.
_SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "subject": ("subject", "title"),
    "description": ("description",),
    "active_form": ("activeForm", "active_form"),
    "status": ("status",),
    "owner": ("owner",),
    "role": ("role",),
    "check": ("check",),
    "files": ("files",),
    "result": ("result",),
    "evidence": ("evidence",),
    "attempt": ("attempt",),
    "verifying": ("verifying",),
    "submission": ("submission",),
    "commit": ("commit",),
    "created_by": ("createdBy", "created_by"),
    "created_at": ("createdAt", "created_at"),
    "updated_at": ("updatedAt", "updated_at"),
    "claimed_at": ("claimedAt", "claimed_at"),
    "finished_at": ("finishedAt", "finished_at"),
    "reserved_until": ("reservedUntil", "reserved_until"),
    "handovers": ("handovers",),
}
_BLOCKED_BY = ("blockedBy", "blocked_by")
_ALWAYS = frozenset({"subject", "description", "active_form", "status", "owner"})
_KNOWN = frozenset({"id", "blocks", "waitingFor", "rev", *_BLOCKED_BY}).union(*_SPELLINGS.values())


def parse_task(data: bytes) -> Raw | None:
    """None for a torn file, no object, or a status that nobody knows."""
    raw = parse_foreign(data)
    return None if raw is None or status_of(raw.get("status")) is None else raw


def is_ours(raw: Raw) -> bool:
    return "rev" in raw and foreign_state(raw) is None


def foreign_file_state(path: str, data: bytes) -> str | None:
    """Of a task that somebody else wrote last; what is torn is nobody's."""
    raw = parse_task(data) if TASK_FILE.fullmatch(path.rpartition("/")[2]) else None
    return None if raw is None else foreign_state(raw)


def foreign_state(raw: Raw) -> str | None:
    """None if it is ours, else which of the states this is in which somebody else left it."""
    state = _rev(raw)
    return None if raw.get("rev") == state else state


def task_bytes(raw: Raw) -> bytes:
    return file_bytes({**raw, "rev": _rev(raw)})


def _rev(raw: Raw) -> str:
    return f"{zlib.crc32(canonical({key: value for key, value in raw.items() if key != 'rev'})):08x}"


# -- edges -------------------------------------------------------------------------------


def blockers_in(raw: Raw, number: int) -> tuple[int, ...]:
    """Without itself: a task that waits for itself waits for nothing."""
    return tuple(blocker for blocker in numbers_of(pick(raw, *_BLOCKED_BY)) if blocker != number)


def with_blockers(raw: Raw, blockers: tuple[int, ...]) -> Raw:
    key = _spelling(raw, _BLOCKED_BY)
    return {**raw, key: _ids_like(raw, key, blockers)}


def waiting_in(raw: Raw, number: int) -> tuple[int, ...] | None:
    """What it still waits for, as we wrote it; None if that has not been counted yet."""
    blockers = blockers_in(raw, number)
    if not blockers:
        return ()
    if "waitingFor" not in raw:
        return None
    waiting = numbers_of(raw["waitingFor"])
    return tuple(blocker for blocker in blockers if blocker in waiting)


def with_waiting(raw: Raw, waiting: tuple[int, ...]) -> Raw:
    if not waiting and "waitingFor" not in raw and not pick(raw, *_BLOCKED_BY):
        return raw
    return {**raw, "waitingFor": list(waiting)}


def blocks_in(raw: Raw) -> tuple[int, ...]:
    return tuple(sorted(numbers_of(raw.get("blocks"))))


def with_blocks(raw: Raw, blocks: tuple[int, ...]) -> Raw:
    return {**raw, "blocks": _ids_like(raw, "blocks", sorted(set(blocks)))}


def _ids_like(raw: Raw, key: str, numbers: Collection[int]) -> list[Any]:
    """These ids, as whoever wrote the file writes ids: a program that has texts does not find its own among numbers.
    What is no id is not ours to remove."""
    old = raw.get(key)
    if not isinstance(old, list) or (all(type(entry) is int for entry in old) and not isinstance(raw.get("id"), str)):
        return list(numbers)
    kept = [entry for entry in old if number_of(entry) is None or number_of(entry) in numbers]
    is_text = isinstance(raw.get("id"), str) or any(isinstance(entry, str) for entry in kept)
    new = (number for number in numbers if number not in numbers_of(kept))
    return [*kept, *(str(number) if is_text else number for number in new)]


# -- fields ------------------------------------------------------------------------------


def task_of(raw: Raw, team_id: int, number: int, waiting: tuple[int, ...], written_at: datetime) -> Task:
    """`written_at` stands in for moments that the file does not tell."""
    get = {field: pick(raw, *keys) for field, keys in _SPELLINGS.items()}
    status = status_of(get["status"])
    assert status is not None
    created_at = moment_of(get["created_at"]) or written_at
    return Task(
        team_id=team_id,
        id=number,
        subject=text_of(get["subject"]).strip() or f"task {number}",
        description=text_of(get["description"]),
        active_form=text_of(get["active_form"]),
        status=status,
        owner=owner_in(raw),
        role=role_in(raw),
        check=text_or_none(get["check"]),
        files=_files(get["files"]),
        result=None if get["result"] is None else text_of(get["result"]),
        evidence=_decoded(Evidence, get["evidence"]),
        attempt=number_of(get["attempt"]) or 0,
        verifying=get["verifying"] is True,
        submission=number_of(get["submission"]),
        commit=text_or_none(get["commit"]),
        blocked_by=blockers_in(raw, number),
        blocks=blocks_in(raw),
        open_blockers=len(waiting),
        created_by=text_of(get["created_by"]),
        created_at=created_at,
        updated_at=moment_of(get["updated_at"]) or written_at,
        claimed_at=moment_of(get["claimed_at"]),
        finished_at=moment_of(get["finished_at"]),
        reserved_until=moment_of(get["reserved_until"]),
        handovers=_decoded(tuple[Handover, ...], get["handovers"]) or (),
        extra={key: value for key, value in raw.items() if key not in _KNOWN},
    )


def owner_in(raw: Raw) -> str | None:
    # The seeds' programs ask `not task.get("owner")`: false and 0 are nobody, too.
    owner = pick(raw, *_SPELLINGS["owner"])
    return text_or_none(owner) if owner else None


def role_in(raw: Raw) -> str | None:
    return text_or_none(pick(raw, *_SPELLINGS["role"]))


def raw_of(task: Task, raw: Raw) -> Raw:
    """The object with the task's fields in it. What says the same already stays as its writer wrote it: an empty owner,
    seconds since 1970, more text than we read. Edges are left alone."""
    changed = {"id": task.id, **raw}
    there = task_of(raw, task.team_id, task.id, (), task.created_at)
    # 3.0 is understood here, but would become `task_3.0.json` elsewhere.
    if number_of(changed["id"]) != task.id or isinstance(changed["id"], float):
        changed["id"] = task.id
    for field, keys in _SPELLINGS.items():
        key = _spelling(raw, keys)
        if key in raw and getattr(task, field) == getattr(there, field):
            continue
        value = _like(getattr(task, field), raw.get(key))
        if field in _ALWAYS or key in raw or value not in (None, "", 0, False, []):
            changed[key] = value
    for key, empty in (("blockedBy", _BLOCKED_BY), ("blocks", ("blocks",))):
        if not any(name in changed for name in empty):
            changed[key] = []
    return changed


def _like(value: Any, old: Any) -> Any:
    """Whoever writes moments as seconds since 1970 reads them so."""
    is_seconds = isinstance(old, int | float) and moment_of(old) is not None
    return value.timestamp() if is_seconds and isinstance(value, datetime) else encode(value)


def _spelling(raw: Raw, keys: tuple[str, ...]) -> str:
    return next((key for key in keys if key in raw), keys[0])


def _files(value: Any) -> tuple[str, ...]:
    """Globs of others that make no sense are none."""
    texts = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    try:
        return parse_files(text for text in texts if isinstance(text, str))
    except UsageError:
        return ()


def _decoded(hint: Any, value: Any) -> Any:
    try:
        return None if value is None else decode(hint, value)
    except (TypeError, ValueError, KeyError, AttributeError):
        return None
