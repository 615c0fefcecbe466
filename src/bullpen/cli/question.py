"""A question to the human in front of the terminal, before anything has begun: yes, no, or gone."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from bullpen.cli.text import one_line
from bullpen.errors import BullpenError

YES, NO = ("y", "yes"), ("n", "no", "")


class Unanswered(BullpenError):
    """left without an answer: nothing was begun"""

    exit_code = 130


def ask(question: str) -> bool:
    """An empty answer is a no. Unanswered if the human leaves, with Ctrl-C or Ctrl-D."""
    asked = f"{one_line(question)} [y/N]: "
    while True:
        answer = _read_line(asked).strip().lower()
        if answer in YES or answer in NO:
            return answer in YES
        asked = "y or n? [y/N]: "


def _read_line(asked: str) -> str:
    try:
        with _interruptible():
            print(asked, end="", file=sys.stderr, flush=True)
            line = sys.stdin.readline()
    except KeyboardInterrupt:
        line = ""
    if not line:
        # What is said next begins on a line of its own.
        print(file=sys.stderr)
        raise Unanswered
    return line


@contextmanager
def _interruptible() -> Iterator[None]:
    """asyncio answers the first Ctrl-C by cancelling its task, which cannot notice while it waits for a line."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
