"""A person at a terminal: the real command behind a pseudo-terminal, and what its screen shows after each key."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import termios
import time
from collections.abc import Callable
from typing import Self

import pexpect
import pyte
from pexpect.fdpexpect import fdspawn

from tests.acceptance.command import BOUND_SECONDS, Bullpen

ENTER, ESCAPE, TAB, CTRL_C, CTRL_D, UP = "\r", "\x1b", "\t", "\x03", "\x04", "\x1b[A"


class Tty:
    """`with Tty(bullpen, "chat") as tty:` ends the command, however the test ends."""

    def __init__(self, bullpen: Bullpen, *words: str, columns: int = 80, rows: int = 24, **environment: str) -> None:
        self._keyboard, screen = pty.openpty()
        self._set_size(columns, rows)
        # Not `pexpect.spawn`, which forks: the workers of xdist have threads.
        self._process = bullpen.start_on(screen, *words, **environment)
        self._line = fdspawn(self._keyboard, timeout=BOUND_SECONDS)
        self._screen = pyte.HistoryScreen(columns, rows, history=1000)
        self._stream = pyte.ByteStream(self._screen)
        self.raw = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(BOUND_SECONDS)
        if self._keyboard >= 0:
            os.close(self._keyboard)

    # -- what one does -----------------------------------------------------------------------------

    def type(self, keys: str) -> None:
        os.write(self._keyboard, keys.encode())

    def enter(self, line: str) -> None:
        self.type(line + ENTER)

    def resize(self, columns: int, rows: int) -> None:
        self._set_size(columns, rows)
        self._screen.resize(rows, columns)
        os.kill(self._process.pid, signal.SIGWINCH)

    def kill(self) -> None:
        self._process.kill()

    def hang_up(self) -> Callable[[], int]:
        """Close the window; what waits for the exit code of what ran in it."""
        os.close(self._keyboard)
        self._keyboard = -1
        return lambda: self._process.wait(BOUND_SECONDS)

    # -- what one sees -----------------------------------------------------------------------------

    @property
    def lines(self) -> list[str]:
        """The screen, from its first line to the last that is not blank."""
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip().split("\n")

    @property
    def text(self) -> str:
        """Everything that has scrolled by, and the screen."""
        width = self._screen.columns
        past = ["".join(row[column].data for column in range(width)).rstrip() for row in self._screen.history.top]
        return "\n".join([*past, *self.lines])

    @property
    def typed(self) -> str:
        """The line that is being typed in."""
        return next((line for line in reversed(self.lines) if line.startswith(">")), "")

    def echoes(self) -> bool:
        """As a shell wants it: keys are shown, lines edited, Ctrl-C is a signal. Not while a console is shown."""
        wanted = termios.ECHO | termios.ICANON | termios.ISIG
        return int(termios.tcgetattr(self._keyboard)[3]) & wanted == wanted

    def until(self, sees: str | Callable[[Tty], bool]) -> str:
        """Wait until this text has been on the screen, or until this holds; the text."""
        matches = (lambda tty: sees in tty.text) if isinstance(sees, str) else sees
        by = time.monotonic() + BOUND_SECONDS
        while not matches(self):
            assert self._read(by - time.monotonic()), f"{sees!r} never came:\n{self.text}"
        return self.text

    def ended(self) -> int:
        """The exit code, once it has ended by itself; everything that it wrote has been read."""
        by = time.monotonic() + BOUND_SECONDS
        while self._read(by - time.monotonic()):
            pass
        return self._process.wait(max(by - time.monotonic(), 0.1))

    def _read(self, seconds: float) -> bool:
        """False at the end, and when nothing came in time."""
        try:
            some = self._line.read_nonblocking(65536, timeout=max(seconds, 0.0))
        except (pexpect.EOF, pexpect.TIMEOUT):
            return False
        self.raw += some
        self._stream.feed(some)
        return True

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._keyboard, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
