"""Text that every store can keep and every terminal can show.

Invariant: what has passed `clean` contains no NUL and no lone surrogate, so it
can be written as UTF-8, into PostgreSQL and into JSON, and comes back the same.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache, lru_cache
from typing import Any

from bullpen.errors import UsageError

NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
RESERVED_NAMES = frozenset({"lead", "user", "system"})
MAX_TEXT_LENGTH = 1_000_000
MAX_KEY_LENGTH = 200
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def clean(text: str, *, what: str = "text") -> str:
    """Replace what cannot be stored, refuse what is absurdly long."""
    if len(text) > MAX_TEXT_LENGTH:
        raise UsageError(
            f"the {what} has {len(text):,} characters, at most {MAX_TEXT_LENGTH:,} are kept; "
            "put it into a file and name the file"
        )
    return _UNSTORABLE.sub("\ufffd", text)


def check_key(key: str, *, what: str) -> str:
    """By it a store finds something, so it stands in an index, and what fits into one is far less than a text."""
    if len(key) > MAX_KEY_LENGTH:
        raise UsageError(f"the {what} has {len(key):,} characters, at most {MAX_KEY_LENGTH} are kept")
    return key


def check_role(role: str | None) -> str | None:
    return None if role is None else check_key(role, what="role")


def storable(value: Any) -> Any:
    """The same value, with every text in it, however deep, such that it can be stored."""
    kind: Any = type(value)
    return _way_for(kind)(value)


_WITHOUT_TEXT = (int, bool, float, type(None), datetime)


# Asked for with every argument of every verb: how it is done is decided once for each type.
@cache
def _way_for(kind: type) -> Callable[[Any], Any]:
    if kind in _WITHOUT_TEXT:
        return lambda value: value
    if issubclass(kind, str):
        return lambda value: _UNSTORABLE.sub("\ufffd", value) if _UNSTORABLE.search(value) else value
    if issubclass(kind, Mapping):
        return lambda value: {storable(key): storable(item) for key, item in value.items()}
    if issubclass(kind, list):
        return lambda value: [storable(item) for item in value]
    if issubclass(kind, tuple):
        return lambda value: tuple([storable(item) for item in value])
    if dataclasses.is_dataclass(kind):
        names = tuple(field.name for field in dataclasses.fields(kind) if field.init)
        return lambda value: _storable_fields(value, names)
    return lambda value: value


def _storable_fields(record: Any, names: tuple[str, ...]) -> Any:
    changed = {}
    for name in names:
        old = getattr(record, name)
        new = storable(old)
        if new is not old and new != old:
            changed[name] = new
    return dataclasses.replace(record, **changed) if changed else record


def check_name(name: str, *, what: str = "name") -> str:
    """A name that is also safe as a file name, a branch and an SQL value; else UsageError."""
    if not NAME_PATTERN.fullmatch(name):
        raise UsageError(
            f"{what} {name[:80]!r} is not allowed: letters, digits, '-' and '_', "
            "beginning with a letter or digit, at most 64 characters"
        )
    return name


@lru_cache(maxsize=4096)
def name_key(name: str) -> str:
    """Names that differ only in case are the same name. Only ASCII has names, so nothing else folds into one."""
    return name.lower() if name.isascii() else name


@lru_cache(maxsize=1024)
def normalise_role(role: str | None) -> str:
    """`Back End`, `back-end` and `back_end` are one role; no role is the empty string."""
    return re.sub(r"[\s_-]+", "-", (role or "").strip().casefold()).strip("-")
