"""Any record of the domain, made from its type hints: so a new field is tested without a word here."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from typing import Any

from hypothesis import strategies as st

# What a store keeps: no NUL, no lone surrogate.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=10)
names = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")
moments = st.datetimes(timezones=st.just(UTC))
integers = st.integers(-(2**53) + 1, 2**53 - 1)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)


@cache
def values(hint: Any) -> st.SearchStrategy[Any]:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*(values(member) for member in inner))
    if origin is tuple:
        return st.lists(values(inner[0]), max_size=2).map(tuple)
    if origin is list:
        return st.lists(values(inner[0]), max_size=2)
    if origin is not None and issubclass(origin, Mapping):
        return st.dictionaries(texts, json_values, max_size=2)
    if isinstance(hint, type) and hint is not Any:
        if issubclass(hint, Enum):
            return st.sampled_from(hint)
        if dataclasses.is_dataclass(hint):
            return whole(hint)
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


@cache
def whole(kind: type) -> st.SearchStrategy[Any]:
    """Every field drawn."""
    hints = typing.get_type_hints(kind)
    build: Callable[..., Any] = kind
    return st.builds(build, **{field.name: values(hints[field.name]) for field in dataclasses.fields(kind)})


def records(kind: type, **given: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Those fields drawn that matter: the given ones, and those without a default."""
    hints = typing.get_type_hints(kind)
    build: Callable[..., Any] = kind
    required = [field.name for field in dataclasses.fields(kind) if not has_default(field)]
    return st.builds(build, **{**{name: values(hints[name]) for name in required}, **given})


def has_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
