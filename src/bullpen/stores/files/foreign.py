"""Reading what other programs wrote: the seeds' own, people, newer and older versions.

Every function takes any JSON value and gives something usable or says None; what
they cannot use stays in the file untouched.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from bullpen.domain.task import TaskStatus, parse_task_id, parse_task_status
from bullpen.domain.text import MAX_TEXT_LENGTH, NAME_PATTERN, clean
from bullpen.errors import UsageError

_FIRST_MOMENT = datetime(2, 1, 1, tzinfo=UTC)
_LAST_MOMENT = datetime(9999, 1, 1, tzinfo=UTC)


def pick(raw: Mapping[str, Any], *keys: str) -> Any:
    """The first of these keys that says something."""
    for key in keys:
        value = raw.get(key)
        if value is not None:
            return value
    return None


def text_of(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        value = json.dumps(value, ensure_ascii=False)
    return clean(value[:MAX_TEXT_LENGTH])


def text_or_none(value: Any) -> str | None:
    return text_of(value).strip() or None


def moment_of(value: Any) -> datetime | None:
    """ISO text or seconds since 1970; a moment without a zone is UTC. At the ends of the calendar there are moments
    that do not exist in every zone: whoever shows one in his own would fail."""
    try:
        moment = _parse_moment(value)
        return moment if moment is not None and _FIRST_MOMENT < moment < _LAST_MOMENT else None
    except (ValueError, OverflowError, OSError):
        return None


def _parse_moment(value: Any) -> datetime | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return datetime.fromtimestamp(value, UTC)
    if isinstance(value, str):
        moment = datetime.fromisoformat(value)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return None


def moment_of_ns(nanoseconds: int) -> datetime:
    """Of a file, which may say that it was written in any year: then the nearest that there is."""
    seconds = nanoseconds // 1000 / 1e6
    return datetime.fromtimestamp(min(max(seconds, _FIRST_MOMENT.timestamp()), _LAST_MOMENT.timestamp()), UTC)


def whole_of(value: Any) -> Any:
    """Programs whose numbers are all floating (Java's, JavaScript's) write 3 back as 3.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def number_of(value: Any) -> int | None:
    value = whole_of(value)
    try:
        return parse_task_id(value) if isinstance(value, int | str) else None
    except UsageError:
        return None


def numbers_of(value: Any) -> tuple[int, ...]:
    """Ids in any form, each once, in their order; what is none is passed over."""
    if not isinstance(value, Iterable) or isinstance(value, str | Mapping):
        value = [] if value is None else [value]
    found = (number_of(entry) for entry in value)
    return tuple(dict.fromkeys(number for number in found if number is not None))


def status_of(value: Any) -> TaskStatus | None:
    """None if it is no status that we know."""
    if value is None or value == "":
        return TaskStatus.PENDING
    try:
        return parse_task_status(str(value))
    except UsageError:
        return None


def name_of(value: Any) -> str | None:
    """A name that may become a path, or None."""
    return value if isinstance(value, str) and NAME_PATTERN.fullmatch(value) else None


def check_path_name(value: Any) -> None:
    """ValueError: what stands in a record of ours may be another's edit, and a name becomes a path."""
    if name_of(value) is None:
        raise ValueError(f"{str(value)[:80]!r} is no name")
