"""A verb on its way through the writer: whoever called it waits, and may think better of it until it has begun.

Two threads meet here. The one that runs the verb begins it and writes down its outcome; the loop of the caller
waits, and takes it back when it is cancelled or out of patience. Begun or taken back: one of the two, under a lock.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

from bullpen.errors import StoreUnavailable
from bullpen.stores.transaction import Ring

T = TypeVar("T")


class Job(Generic[T]):
    """A body to run, and where its outcome goes."""

    __slots__ = ("_begun", "_done", "_dropped", "_error", "_result", "body", "loop", "rings")

    _lock = threading.Lock()
    """One for all of them: it is held for a moment, and only for those in the queue."""

    def __init__(self, body: Callable[[Any], T]) -> None:
        self.body = body
        self.rings: list[Ring] = []
        # Only for a job that is waited for: to find out which loop runs is a call of the system.
        self.loop: asyncio.AbstractEventLoop | None = None
        self._done: asyncio.Event | None = None
        self._begun = False
        self._dropped = False
        self._result: T | None = None
        self._error: BaseException | None = None

    # -- in the writer's thread --------------------------------------------------------

    def begin(self) -> bool:
        """False if its caller has gone."""
        with self._lock:
            self._begun = not self._dropped
            return self._begun

    def succeed(self, result: T) -> None:
        self._result = result

    def fail(self, error: BaseException) -> None:
        self._error = error

    @property
    def has_failed(self) -> bool:
        return self._error is not None

    # -- in the caller's loop ------------------------------------------------------------

    def settle(self) -> None:
        if self._done is not None:
            self._done.set()

    def drop(self) -> bool:
        """Take it back; False if it has begun."""
        with self._lock:
            self._dropped = not self._begun
            return self._dropped

    @property
    def outcome(self) -> T:
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]

    async def wait(self, patience_seconds: float, holder: Callable[[], str]) -> None:
        """To be called before the loop has another turn, which could settle it."""
        assert self.loop is not None
        done = self._done = asyncio.Event()
        # A timer, not `asyncio.timeout`: a job that has begun is waited for, and it costs a third.
        timer = self.loop.call_later(patience_seconds, self._lose_patience, patience_seconds, holder)
        try:
            await done.wait()
        except asyncio.CancelledError:
            # One that has begun is waited for, however often its caller is cancelled meanwhile.
            while not self.drop() and not done.is_set():
                with suppress(asyncio.CancelledError):
                    await done.wait()
            raise
        finally:
            timer.cancel()

    def _lose_patience(self, patience_seconds: float, holder: Callable[[], str]) -> None:
        if self.drop():
            self.fail(
                StoreUnavailable(
                    f"waited {patience_seconds:g} s to write, {holder()} holds the store; nothing was changed"
                )
            )
            self.settle()
