"""The real command `bullpen` as a process: in a directory of its own, behind a pipe or on a terminal."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from bullpen.team import Team, open_team
from tests.support.machines import Machine

T = TypeVar("T")

BOUND_SECONDS = 60.0
"""Far above what anything here takes: only a hang is as slow."""

COMMAND = [str(Path(sys.executable).with_name("bullpen"))]


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Bullpen:
    entering: tuple[str, ...] = ()
    """What is put before the command."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        inherited = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("BULLPEN_", "PYTHON", "COMP_"))
            and key not in ("NO_COLOR", "COLUMNS", "LINES", "TERM")
        }
        self.environment = {
            **inherited,
            "TERM": "xterm-256color",
            "TZ": "UTC",
            "LC_ALL": "C.UTF-8",
            "HOME": str(directory),
        }

    @property
    def store(self) -> str:
        return f"sqlite:///{self.directory}/.bullpen/bullpen.db"

    # -- behind pipes ------------------------------------------------------------------------

    def __call__(self, *words: str, cwd: Path | None = None, code: int | None = 0, **environment: str) -> Ran:
        process = self.start(*words, cwd=cwd, **environment)
        out, err = process.communicate(timeout=BOUND_SECONDS)
        ran = Ran(process.returncode, out.decode(), err.decode())
        assert code is None or ran.code == code, f"{words} ended with {ran.code}: {ran.out}{ran.err}"
        assert "Traceback" not in ran.err, ran.err
        return ran

    def read(self, *words: str) -> Any:
        """What it prints as JSON."""
        return json.loads(self(*words, "--json").out)

    def refused(self, *words: str, code: int = 2, cwd: Path | None = None, **environment: str) -> str:
        """One line on stderr and nothing else; returns it without its beginning."""
        ran = self(*words, code=code, cwd=cwd, **environment)
        assert ran.out == ""
        [line] = ran.err.splitlines()
        assert line.startswith("bullpen: ")
        return line.removeprefix("bullpen: ")

    def start(self, *words: str, cwd: Path | None = None, **environment: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*self.entering, *COMMAND, *words],
            cwd=cwd or self.directory,
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    # -- on a terminal -----------------------------------------------------------------------

    def on_terminal(
        self, *words: str, columns: int = 80, types: str = "", when: str = "", **environment: str
    ) -> tuple[int, str]:
        """What a person sees; `types` is typed once `when` is on the screen."""
        keyboard, screen = pty.openpty()
        fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = self.start_on(screen, *words, **environment)
        try:
            seen = self._watch(keyboard, types, when)
        finally:
            os.close(keyboard)
        return process.wait(BOUND_SECONDS), seen.replace("\r\n", "\n")

    def start_on(self, screen: int, *words: str, **environment: str) -> subprocess.Popen[bytes]:
        """The command with this end of a pseudo-terminal as its own."""
        process = subprocess.Popen(
            [*COMMAND, *words],
            cwd=self.directory,
            env={**self.environment, **environment},
            stdin=screen,
            stdout=screen,
            stderr=screen,
            start_new_session=True,
            # Its controlling terminal: else Ctrl-C is only a character.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0) and None,
        )
        os.close(screen)
        return process

    def _watch(self, keyboard: int, types: str, when: str) -> str:
        seen = b""
        while True:
            ready, _, _ = select.select([keyboard], [], [], BOUND_SECONDS)
            assert ready, f"nothing more came after {seen!r}"
            try:
                some = os.read(keyboard, 65536)
            except OSError:  # Linux says EIO when the last writer is gone
                some = b""
            if not some:
                return seen.decode()
            seen += some
            if types and when in seen.decode(errors="ignore"):
                os.write(keyboard, types.encode())
                types = ""

    # -- what was there before -----------------------------------------------------------------

    def prepare(self, work: Callable[[Team], Awaitable[T]], team: str = "default", **settings: Any) -> T:
        """Through the library, in the same store."""

        async def run() -> T:
            async with open_team(team, store=self.store, **settings) as opened:
                return await work(opened)

        return asyncio.run(run())


class Elsewhere(Bullpen):
    """The command on a store that is not beside it."""

    def __init__(self, directory: Path, url: str) -> None:
        super().__init__(directory)
        self.environment["BULLPEN_STORE"] = url

    @property
    def store(self) -> str:
        return self.environment["BULLPEN_STORE"]


class There(Elsewhere):
    """The command on another machine, in a directory that all of them see."""

    def __init__(self, directory: Path, machine: Machine) -> None:
        super().__init__(directory, machine.url)
        self.environment |= machine.environment
        self.entering = machine.entering


def read_line(process: subprocess.Popen[bytes]) -> str:
    """The next line that a running command prints; the test fails instead of hanging."""
    assert process.stdout is not None
    line = b""
    until = time.monotonic() + BOUND_SECONDS
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([process.stdout], [], [], max(0.0, until - time.monotonic()))
        assert ready, f"no whole line came, only {line!r}"
        some = os.read(process.stdout.fileno(), 1)
        assert some, f"it ended after {line!r}"
        line += some
    return line.decode()


async def three_tasks(team: Team) -> None:
    await team.create_task("Analyse the endpoints")
    await team.create_task("Design the schema", blocked_by=[1], role="backend", description="As SDL.\nNo types twice.")
    await team.create_task("Write the resolvers")
