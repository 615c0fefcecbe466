"""A git that comes to nothing at one of its commands, so that what waits for it can be cut off just there."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

from tests.acceptance.command import BOUND_SECONDS


def stuck_git(directory: Path, *, at: str) -> tuple[Path, Path]:
    """For PATH, and the mark that it leaves once it is stuck. `at`: quoted words that its arguments contain."""
    mark, program = directory / "mark", directory / "git"
    stuck = f"touch {mark}; exec sleep {BOUND_SECONDS:g}"
    program.write_text(f'#!/bin/sh\ncase "$*" in *{at}*) {stuck};; esac\nexec {shutil.which("git")} "$@"\n')
    program.chmod(0o755)
    return directory, mark


def wait_for(mark: Path) -> None:
    until = time.monotonic() + BOUND_SECONDS
    while not mark.exists():
        assert time.monotonic() < until, f"nothing left {mark}"
        threading.Event().wait(0.01)
