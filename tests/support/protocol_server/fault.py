"""Faults that the server injects instead of an answer, or into one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.support.protocol_server.conversation import Heard


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """An HTTP error. 429, 500 and 529 come with the words that the API has for them; held back until `until` is set."""

    status: int
    message: str | None = None
    retry_after: str | None = None
    kind: str | None = None
    code: str | None = None
    until: asyncio.Event | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The connection breaks off after so many events, or in the middle of a plain reply; `clean`: a proper end."""

    events: int = 4
    clean: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamError:
    """An error event in a stream that had begun well."""

    events: int = 4
    kind: str = "overloaded_error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Garbage:
    """A 200 with something else in it."""

    body: str = "<html>gateway</html>"
    content_type: str = "application/json"


@dataclass(frozen=True, slots=True)
class HangUp:
    """No answer at all: the connection is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    """The answer comes when `until` is set (never, by itself); `heard` is set when the request is there."""

    until: asyncio.Event = field(default_factory=asyncio.Event)
    heard: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Halt:
    """A stream that says nothing more after so many events, until `until` is set."""

    events: int = 4
    until: asyncio.Event = field(default_factory=asyncio.Event)


Fault = Status | Cut | StreamError | Garbage | HangUp | Slow | Halt

WORDS = {
    429: ("rate_limit_error", "This request would exceed your organization's rate limit"),
    500: ("api_error", "Internal server error"),
    502: ("api_error", "Bad gateway"),
    503: ("api_error", "Service unavailable"),
    529: ("overloaded_error", "Overloaded"),
}


@dataclass(slots=True)
class Planned:
    fault: Fault
    times: int
    when: Callable[[Heard], bool]


class Plan:
    """What will go wrong: the first that fits a request is used, so many times."""

    def __init__(self) -> None:
        self._planned: list[Planned] = []

    def add(self, fault: Fault, *, times: int = 1, when: Callable[[Heard], bool] = lambda heard: True) -> None:
        self._planned.append(Planned(fault, times, when))

    def take(self, heard: Heard) -> Fault | None:
        for planned in self._planned:
            if planned.times > 0 and planned.when(heard):
                planned.times -= 1
                return planned.fault
        return None

    @property
    def left(self) -> int:
        return sum(planned.times for planned in self._planned)
