"""Making records and changed copies of them, for those who do it with every verb.

`dataclasses.replace` asks every field whether it may be set and then runs an `__init__`
that writes each past the guard of a frozen class: 9 us for a task, which a claim or a
completion does several times. Here the slots are filled directly, which takes 3. So it
is only for what has nothing else to do when it is made: a frozen dataclass with slots
and without `__post_init__`.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import repeat
from operator import attrgetter, call
from typing import Any, TypeVar

T = TypeVar("T")


def replace(record: T, /, **changes: Any) -> T:
    """A copy with some fields changed, like `dataclasses.replace`."""
    kind: Any = type(record)
    places, values_of, make = _layout(kind)
    values = list(values_of(record))
    for name, value in changes.items():
        if name not in places:
            raise TypeError(f"{kind.__name__} has no field {name!r}")
        values[places[name]] = value
    made: T = make(values)
    return made


def maker(kind: type[T], names: Sequence[str]) -> Callable[[Iterable[Any]], T]:
    """What makes a record of the values of all its fields, given in the order of `names`."""
    if sorted(names) != sorted(field.name for field in dataclasses.fields(kind)) or hasattr(kind, "__post_init__"):  # type: ignore[arg-type]
        raise TypeError(f"{kind.__name__} is not made of {', '.join(names)} alone")
    setters = [getattr(kind, name).__set__ for name in names]
    new: Callable[[type[T]], T] = object.__new__

    def make(values: Iterable[Any]) -> T:
        record = new(kind)
        # A loop, without a step of the interpreter for each field.
        deque(map(call, setters, repeat(record), values), maxlen=0)
        return record

    return make


def taker(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """What takes the values of these attributes out of a record."""
    if len(names) > 1:
        return attrgetter(*names)
    # Of a single one `attrgetter` would return the value alone.
    return lambda record: tuple(getattr(record, name) for name in names)


@cache
def _layout(kind: type) -> tuple[dict[str, int], Callable[[Any], tuple[Any, ...]], Callable[[Iterable[Any]], Any]]:
    """Where each field stands among the values, how they are taken out of a record, and how one is made of them."""
    names = [field.name for field in dataclasses.fields(kind)]
    return {name: place for place, name in enumerate(names)}, taker(names), maker(kind, names)
