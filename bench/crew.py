"""Processes that do what they are told, one thing at a time: where everything that is measured runs.

They live through a section and keep what they opened between two orders, so that
measuring in turns does not measure start-up. Their event loop stands still between orders.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Child:
    """The inside of such a process, handed to every function that runs there."""

    def __init__(self, connection: Connection[Any, Any], runner: asyncio.Runner) -> None:
        self._connection = connection
        self.runner = runner
        self.kept: dict[str, Any] = {}

    def say(self, word: Any) -> None:
        """Something for the parent before the function returns."""
        self._connection.send(("said", word))


class Helper:
    """The outside: `start` an order, `result` when it is done."""

    def __init__(self) -> None:
        # Not fork: the parent has threads, and a fresh process is what the stores meet in life.
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def start(self, function: Callable[Concatenate[Child, P], Any], *args: P.args, **kwargs: P.kwargs) -> None:
        self._connection.send((function, args, kwargs))

    def hear(self) -> Any:
        """What the running function says."""
        kind, word = self._connection.recv()
        if kind == "failed":
            raise RuntimeError(f"in a process of the benchmark:\n{word}")
        return word

    def call(self, function: Callable[Concatenate[Child, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        self.start(function, *args, **kwargs)
        result: T = self.hear()
        return result

    def stop(self) -> None:
        self._connection.close()
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()


class Crew:
    def __init__(self, size: int) -> None:
        self.helpers = [Helper() for _ in range(size)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for helper in self.helpers:
            helper.stop()

    def call(
        self, count: int, function: Callable[Concatenate[Child, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> list[T]:
        """In the first `count` processes at once."""
        for helper in self.helpers[:count]:
            helper.start(function, *args, **kwargs)
        return [helper.hear() for helper in self.helpers[:count]]


def _serve(connection: Connection[Any, Any]) -> None:
    with asyncio.Runner() as runner:
        child = Child(connection, runner)
        while True:
            try:
                function, args, kwargs = connection.recv()
            except (EOFError, KeyboardInterrupt):
                return
            try:
                connection.send(("returned", function(child, *args, **kwargs)))
            except Exception:
                connection.send(("failed", traceback.format_exc()))
