"""Removing a store that is in use, as `rm -rf` or `git clean -fdx` does, again if somebody wrote into it meanwhile."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

BOUND_SECONDS = 30.0


def remove_in_use(directory: Path) -> None:
    until = time.monotonic() + BOUND_SECONDS
    while directory.exists():
        assert time.monotonic() < until, f"{directory} is made anew all the time"
        shutil.rmtree(directory, ignore_errors=True)
