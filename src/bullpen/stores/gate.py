"""The gate between processes, and how long one of them stays inside."""

from __future__ import annotations

import time
from typing import Protocol

LATE_SECONDS = 0.05
"""Who leaves the gate so much later than it should may not stay inside for `HURRY_SECONDS`."""
HURRY_SECONDS = 30.0


class Gate(Protocol):
    """Who may write just now, among all processes."""

    stay_seconds: float
    """For how long a process that had to wait may stay inside for the verbs that follow; 0 for one group only."""

    def enter(self) -> None:
        """Blocks until it is free."""
        ...

    def try_enter(self) -> bool:
        """Never blocks; False if it is not free, or if it is somebody else's turn."""
        ...

    def leave(self) -> None: ...

    def holder(self) -> str:
        """For whoever waits: a name for who is inside."""
        ...


class Visit:
    """This process at the gate; called by whoever has the writer's turn.

    Each change of the process inside costs a switch of the processor, and what the next one knew of the pages that
    were changed: where several write all the time, more than half of all. So whoever had to wait stays for
    `stay_seconds`, and the verbs that follow run where they are called, like those of a process that is alone. It
    leaves before that when nothing follows. Whoever could not leave in time (its process was busy with something that
    lets no other thread go on) does not stay again for a while.
    """

    def __init__(self, gate: Gate) -> None:
        self.stays = False
        self._gate = gate
        self._stays_until = 0.0
        self._hurries_until = 0.0

    @property
    def left_seconds(self) -> float:
        return max(0.0, self._stays_until - time.monotonic())

    def try_enter(self) -> bool:
        return self.stays or self._gate.try_enter()

    def enter(self) -> None:
        if not self.try_enter():
            self._gate.enter()
            now = time.monotonic()
            if self._gate.stay_seconds and now >= self._hurries_until:
                self.stays, self._stays_until = True, now + self._gate.stay_seconds

    def leave(self, *, at_once: bool = False) -> None:
        """At once, or if it must not stay."""
        if not self.stays:
            self._gate.leave()
        elif at_once or not self.left_seconds:
            now = time.monotonic()
            if now > self._stays_until + LATE_SECONDS:
                self._hurries_until = now + HURRY_SECONDS
            self.stays = False
            self._gate.leave()
