"""What turns a function over a transaction into a verb of the store.

    @write
    async def claim_task(tx: Transaction, by: MemberRef, task_id: int, *, operation_id: str | None = None) -> Task: ...

becomes the method `store.claim_task(by, task_id)`: it runs in one transaction,
and a repeated operation id returns the first outcome instead of running again.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from bullpen.domain.codec import decode, encode
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

    @functools.wraps(function)
    async def method(self: Runner, /, *args: P.args, **kwargs: P.kwargs) -> T:
        operation_id = kwargs.get("operation_id")
        if operation_id is None:
            return await self._write(lambda tx: function(tx, *args, **kwargs))
        return await self._write(lambda tx: _once(tx, str(operation_id), function, *args, **kwargs))

    return method


def read(
    function: Callable[Concatenate[Transaction, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """A verb that only looks."""

    @functools.wraps(function)
    async def method(self: Runner, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._read(lambda tx: function(tx, *args, **kwargs))

    return method


async def _once(
    tx: Transaction,
    operation_id: str,
    function: Callable[Concatenate[Transaction, P], Awaitable[T]],
    *args: P.args,
    **kwargs: P.kwargs,
) -> T:
    if not 0 < len(operation_id) <= 200:
        raise UsageError("an operation id has 1 to 200 characters")
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
