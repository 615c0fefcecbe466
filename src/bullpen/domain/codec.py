"""Domain objects to JSON and back, driven by their type hints.

Used for what a store keeps as JSON: the outcome of an operation, evidence,
a whole record in a file. Unknown keys are ignored when reading, missing ones
take the field's default, so that older and newer versions read each other. A value of
another type than `encode` wrote is a TypeError or a ValueError.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Any

# Exactly these: an Enum is a str too, and is written by its value.
_PLAIN = frozenset({str, int, float, bool, type(None)})

# What JSON has for them. Looked at when read: what was edited by hand is told there, and not where it is used.
_KINDS: Mapping[Any, tuple[type, ...]] = {
    str: (str,),
    int: (int,),
    float: (float, int),
    bool: (bool,),
    Mapping: (dict,),
}


def encode(value: Any) -> Any:
    """What `json.dumps` can write."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is dict or isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, tuple | list | set | frozenset):
        return [encode(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, str | int | float):
        return value
    raise TypeError(f"{type(value).__name__} has no JSON form")


def decode(hint: Any, data: Any) -> Any:
    """The object of type `hint` that `encode` made `data` of."""
    return decoder(hint)(data)


@cache
def decoder(hint: Any) -> Callable[[Any], Any]:
    """`decode` for one type, for those who need it often."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return _union(typing.get_args(hint))
    if origin is tuple:
        return _tuple(typing.get_args(hint))
    if origin is list:
        item = decoder(typing.get_args(hint)[0])
        return lambda data: [item(entry) for entry in _entries(data)]
    if isinstance(hint, type):
        if issubclass(hint, Enum):
            return hint
        if issubclass(hint, datetime):
            return datetime.fromisoformat
        if dataclasses.is_dataclass(hint):
            return _record(hint)
    kinds = _KINDS.get(origin or hint)
    return _same if kinds is None else _plain(kinds)


def _same(data: Any) -> Any:
    return data


def _plain(kinds: tuple[type, ...]) -> Callable[[Any], Any]:
    def read(data: Any) -> Any:
        if type(data) not in kinds:
            raise TypeError(f"{data!r:.40} where {kinds[0].__name__} belongs")
        return data

    return read


_entries = _plain((list, tuple))


def _union(members: tuple[Any, ...]) -> Callable[[Any], Any]:
    some = [member for member in members if member is not type(None)]
    if len(some) != 1:
        raise TypeError(f"only `T | None` can be decoded, not {members}")
    inner = decoder(some[0])
    return lambda data: None if data is None else inner(data)


def _tuple(members: tuple[Any, ...]) -> Callable[[Any], Any]:
    if len(members) == 2 and members[1] is Ellipsis:
        item = decoder(members[0])
        return lambda data: tuple(item(entry) for entry in _entries(data))
    items = [decoder(member) for member in members]
    return lambda data: tuple(item(entry) for item, entry in zip(items, _entries(data), strict=True))


def _record(cls: type) -> Callable[[Any], Any]:
    hints = typing.get_type_hints(cls)
    fields = [(field.name, decoder(hints[field.name])) for field in dataclasses.fields(cls)]

    def build(data: Mapping[str, Any]) -> Any:
        return cls(**{name: read(data[name]) for name, read in fields if name in data})

    return build
