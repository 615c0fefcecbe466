"""Any record of the domain, made from its type hints: so a new field is tested without a word here."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from hypothesis import strategies as st

# What a store keeps: no NUL, no lone surrogate.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
names = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")
moments = st.datetimes(timezones=st.just(UTC))
integers = st.integers(-(2**53) + 1, 2**53 - 1)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


def values(hint: Any) -> st.SearchStrategy[Any]:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*(values(member) for member in inner))
    if origin is tuple:
        return st.lists(values(inner[0]), max_size=3).map(tuple)
    if origin is list:
        return st.lists(values(inner[0]), max_size=3)
    if origin is not None and issubclass(origin, Mapping):
        return st.dictionaries(texts, json_values, max_size=3)
    if isinstance(hint, type) and hint is not Any:
        if issubclass(hint, Enum):
            return st.sampled_from(hint)
        if dataclasses.is_dataclass(hint):
            return records(hint)
        plain: dict[type, st.SearchStrategy[Any]] = {
            type(None): st.none(),
            bool: st.booleans(),
            int: integers,
            float: st.floats(allow_nan=False, allow_infinity=False),
            str: texts,
            datetime: moments,
        }
        return plain[hint]
    return json_values


def records(kind: type, **given: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(kind)
    build: Callable[..., Any] = kind
    fields = [field.name for field in dataclasses.fields(kind)]
    return st.builds(build, **{name: given[name] if name in given else values(hints[name]) for name in fields})
