"""Time, as one object that can be replaced in tests.

Two readings that are never mixed: `now` is for people and records (aware UTC,
may jump), `monotonic` is for measuring how long something took (never jumps,
means nothing in another process). No decision about life or death of a worker
compares readings of two machines; see `maintenance.lapse`.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

# Where there is no such clock (macOS), the one that is there counts it too.
_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    def now(self) -> datetime:
        """The wall clock: aware, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds since some moment, never going backwards. The sleep of a machine counts: others were awake."""
        ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.clock_gettime(_SINCE_BOOT)


class FakeClock:
    """A clock that moves only when a test says so; `jump` moves the wall clock alone."""

    def __init__(self, start: datetime | None = None) -> None:
        self._now = start or datetime(2026, 1, 1, tzinfo=UTC)
        self._monotonic = 1000.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds

    def jump(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)
