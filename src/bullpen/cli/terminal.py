"""Where the output goes: how wide it is, and whether it shows colours and symbols."""

from __future__ import annotations

import os
import shutil
import sys
import termios
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TextIO

_CODES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "blue": 34, "magenta": 35, "cyan": 36}


@dataclass(frozen=True)
class Terminal:
    width: int | None
    """None: no person looks at it, so nothing is cut (`| grep` finds the whole subject)."""
    has_colours: bool
    has_symbols: bool
    now: datetime

    def paint(self, text: str, style: str) -> str:
        if not (self.has_colours and style and text):
            return text
        return f"\x1b[{_CODES[style]}m{text}\x1b[0m"


def is_screen(environ: Mapping[str, str] = os.environ) -> bool:
    """Can what was printed be drawn over?"""
    return sys.stdout.isatty() and environ.get("TERM") != "dumb"


def can_converse(environ: Mapping[str, str] = os.environ) -> bool:
    """Does a person look at it who can type, too?"""
    return sys.stdin.isatty() and is_screen(environ)


def remember_terminal() -> Callable[[], None]:
    """What gives it back as it is now, for a process that ends without coming to its end: a shell in which nothing is
    echoed, and Ctrl-C does nothing, helps nobody."""
    if not can_converse():
        return lambda: None
    keyboard, screen = sys.stdin.fileno(), sys.stdout.fileno()
    before = termios.tcgetattr(keyboard)

    def give_back() -> None:
        with suppress(OSError, termios.error):
            if termios.tcgetattr(keyboard) != before:
                termios.tcsetattr(keyboard, termios.TCSANOW, before)
                # The line that was typed in stays; what is below it goes, with the cursor and pasting as usual.
                os.write(screen, b"\r\n\x1b[J\x1b[?2004l\x1b[?25h")

    return give_back


def remember_screen() -> Callable[[], None]:
    """What puts nothing in the terminal's place, wherever that is read or written, once it has been closed: else each
    word to it would be an error, and nobody could leave in good order."""
    shown = [
        stream.fileno() for stream in (sys.stdin, sys.stdout, sys.stderr) if stream is not None and _is_shown(stream)
    ]

    def take_its_place() -> None:
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in shown:
            os.dup2(nothing, descriptor)
        os.close(nothing)

    return take_its_place


def _is_shown(stream: TextIO) -> bool:
    try:
        return stream.isatty() and stream.fileno() >= 0
    except (OSError, ValueError):
        return False


def terminal_of(stream: TextIO | None = None, environ: Mapping[str, str] = os.environ) -> Terminal:
    stream = stream or sys.stdout
    is_terminal = stream.isatty()
    is_dumb = environ.get("TERM") == "dumb"
    return Terminal(
        width=max(40, shutil.get_terminal_size().columns) if is_terminal else None,
        has_colours=is_terminal and not is_dumb and not environ.get("NO_COLOR"),
        has_symbols=(stream.encoding or "").lower().replace("-", "") == "utf8",
        now=datetime.now(UTC),
    )
