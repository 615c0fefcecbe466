"""What turns a function over a transaction into a verb of the store.

    @write
    async def claim_task(tx: Transaction, by: MemberRef, task_id: int, *, operation_id: str | None = None) -> Task: ...

becomes the method `store.claim_task(by, task_id)`: it runs in one transaction,
and a repeated operation id returns the first outcome instead of running again.

What cannot be stored does not come past here: texts are made storable, numbers
that no store has a column for are refused. A number may come as a text, as it
does out of JSON: no engine is asked what it makes of one, each would say another thing.
Nor what it makes of a number where a text belongs: one would keep it, and find it damaged.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import operator
import re
import typing
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from itertools import chain, repeat
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

from bullpen.domain.budget import Settlement
from bullpen.domain.codec import decode, encode
from bullpen.domain.member import MemberRef
from bullpen.domain.task import CheckRun, TaskChanges
from bullpen.domain.text import check_key, storable
from bullpen.errors import UsageError
from bullpen.stores.transaction import Transaction

P = ParamSpec("P")
T = TypeVar("T")

Body = Callable[[Transaction], Coroutine[Any, Any, T]]


class Runner(Protocol):
    """What an implementation provides for the verbs to run in."""

    async def _write(self, body: Body[T]) -> T: ...

    async def _read(self, body: Body[T]) -> T: ...


def write(
    function: Callable[Concatenate[Transaction, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """A verb that changes the store."""
    asked = _asked(function)

    @functools.wraps(function)
    async def method(self: Runner, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            given: Any = list(map(_usable, args, chain(asked.values(), repeat(_UNASKED))))
            named: Any = {name: _usable(value, asked.get(name, _UNASKED)) for name, value in kwargs.items()}
            operation_id = named.get("operation_id")
            if operation_id is None:
                return await self._write(lambda tx: function(tx, *given, **named))
            return await self._write(lambda tx: _once(tx, str(operation_id), function, *given, **named))
        except RecursionError:
            # Wherever it was too much: nothing has been written.
            raise UsageError(f"what was given to {function.__name__} is nested too deeply to be stored") from None

    return method


def read(
    function: Callable[Concatenate[Transaction, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """A verb that only looks."""
    asked = _asked(function)

    @functools.wraps(function)
    async def method(self: Runner, /, *args: P.args, **kwargs: P.kwargs) -> T:
        given: Any = list(map(_usable, args, chain(asked.values(), repeat(_UNASKED))))
        named: Any = {name: _usable(value, asked.get(name, _UNASKED)) for name, value in kwargs.items()}
        return await self._read(lambda tx: function(tx, *given, **named))

    return method


MAX_NUMBER = 2**53
# These hold whatever JSON can, numbers of any size too: they are kept as text.
_FREE_FORM = frozenset({"content", "counters", "settings", "payload"})


class _Asked(NamedTuple):
    """What a verb's signature says of an argument."""

    name: str
    is_number: bool = False
    are_numbers: bool = False
    kind: type | None = None
    """What it is, if that is a plain one of these."""


_KINDS: dict[str, type] = {"str": str, "bool": bool, "Mapping[str, Any]": Mapping}
_WORDS = {str: "a text", bool: "True or False", Mapping: "an object with names"}

_UNASKED = _Asked("")


def _asked(function: Callable[..., Any]) -> dict[str, _Asked]:
    given = list(inspect.signature(function).parameters.values())[1:]
    return {parameter.name: _asked_by(parameter.name, str(parameter.annotation)) for parameter in given}


def _asked_by(name: str, annotation: str) -> _Asked:
    # Whatever names a deed is made a text of.
    kind = None if name == "operation_id" else _KINDS.get(annotation.removesuffix(" | None"))
    return _Asked(name, bool(re.match(r"int\b", annotation)), annotation == "Sequence[int]", kind)


_WITHOUT_NUMBERS = (str, type(None), bool)


def _usable(value: Any, asked: _Asked) -> Any:
    """The argument, as it can be stored; UsageError for a number that makes no sense."""
    kind = type(value)
    if kind is MemberRef:
        return _usable_member(value)
    if asked.kind is not None and kind is not asked.kind and not isinstance(value, asked.kind | None):
        raise UsageError(f"{value!r:.40} makes no sense as {asked.name}, which is {_WORDS[asked.kind]}")
    if asked.is_number and kind is not int and value is not None:
        value = _number(value, asked.name)
    elif asked.are_numbers:
        value = _numbers(value, asked.name)
    elif kind is TaskChanges:
        value = dataclasses.replace(value, **{edge: _numbers(getattr(value, edge), edge) for edge in _EDGES})
    if type(value) not in _WITHOUT_NUMBERS:
        _check_numbers_in(value, asked.name)
    return storable(value)


_EDGES = ("add_blocked_by", "remove_blocked_by", "add_blocks")


def _number(value: Any, name: str) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value[:20])
    try:
        return operator.index(value)
    except TypeError:
        raise UsageError(f"{value!r:.40} makes no sense as {name}, which is a number") from None


def _numbers(values: Any, name: str) -> tuple[int, ...]:
    # A text is a sequence, too: of its digits, which nobody means.
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise UsageError(f"{values!r:.40} makes no sense as {name}, which are numbers: [3, 4]")
    return tuple([value if type(value) is int else _number(value, name) for value in values])


# The same few come again with every verb.
@functools.lru_cache(maxsize=4096)
def _usable_member(by: MemberRef) -> MemberRef:
    _check_numbers_in(by, "by")
    usable: MemberRef = storable(by)
    return usable


def _check_numbers_in(value: Any, name: str) -> None:
    if name in _FREE_FORM:
        return
    for number in _numbers_in(value):
        if not -MAX_NUMBER < number < MAX_NUMBER or (name == "limit" and number < 0):
            raise UsageError(f"{str(number)[:40]} makes no sense as {name}")


def _numbers_in(value: Any) -> Iterable[int]:
    match value:
        case MemberRef():
            return (value.team_id, value.incarnation)
        case int():
            return (value,)
        case list() | tuple():
            return [item for item in value if isinstance(item, int)]
        case TaskChanges():
            return (*value.add_blocked_by, *value.remove_blocked_by, *value.add_blocks)
        case CheckRun():
            return (value.task_id, value.attempt)
        case Settlement():
            used = value.usage
            tokens = (used.input_tokens, used.output_tokens, used.cache_read_tokens, used.cache_write_tokens)
            return (value.reservation_id, *tokens)
    return ()


async def _once(
    tx: Transaction,
    operation_id: str,
    function: Callable[Concatenate[Transaction, P], Awaitable[T]],
    /,
    *args: P.args,
    **kwargs: P.kwargs,
) -> T:
    if not check_key(operation_id, what="operation id"):
        raise UsageError("an operation id has at least one character")
    verb = function.__name__
    stored = await tx.find_operation(operation_id)
    if stored is not None:
        if stored["verb"] != verb:
            raise UsageError(f"operation id {operation_id!r} was used for {stored['verb']}, not {verb}: use a new one")
        return typing.cast(T, decode(_returns(function), stored["outcome"]))
    outcome = await function(tx, *args, **kwargs)
    await tx.save_operation(operation_id, {"verb": verb, "outcome": encode(outcome)})
    return outcome


@functools.cache
def _returns(function: Callable[..., Any]) -> Any:
    return typing.get_type_hints(function)["return"]
