"""When a loop is due for a turn, where verbs run at once and would never give it one."""

from __future__ import annotations

import asyncio
import time

TURN_SECONDS = 0.002
"""How long one task may call verb after verb before the loop has a turn in between."""


class Pace:
    """Says when the loop is due for a turn before a verb that could run at once.

    A turn costs a tenth of a verb, and mixes what several tasks do, so that all are done at the end instead of one
    after the other. So a task is given `TURN_SECONDS` for its verbs; another one comes only after a turn of the loop.
    Whoever finds somebody waiting for that turn waits, too, and all of them are committed in one group.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._last_task = 0
        self._until = 0.0

    def is_due(self) -> bool:
        # By its id, which keeps nothing alive; another task that gets the same one merely has what is left of its time.
        task, now = id(asyncio.current_task(self._loop)), time.monotonic()
        if task == self._last_task and now < self._until:
            return False
        is_due = task == self._last_task
        self._last_task, self._until = task, now + TURN_SECONDS
        return is_due
