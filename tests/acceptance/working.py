"""`bullpen worker` as a process of a test."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.acceptance.command import BOUND_SECONDS, Bullpen, read_line


class Working:
    """A `bullpen worker --json`."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.id: int = self.hear("ready")["worker"]["id"]

    def hear(self, what: str) -> dict[str, Any]:
        """Its next line of this kind."""
        while True:
            line: dict[str, Any] = json.loads(read_line(self.process))
            if line["what"] == what:
                return line

    def hear_all(self, what: str, members: set[str]) -> None:
        while members:
            members = members - {self.hear(what)["member"]}

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(BOUND_SECONDS)


@contextmanager
def working(bullpen: Bullpen, *words: str) -> Iterator[Working]:
    # Named: it may be there before anybody has begun the store.
    process = bullpen.start("worker", "--json", *words, BULLPEN_STORE=bullpen.store)
    with process:
        try:
            yield Working(process)
        finally:
            process.kill()
