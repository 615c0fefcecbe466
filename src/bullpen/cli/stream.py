"""The two streams that are written to, when one of them takes no more: full, or nobody reads it."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TextIO


def remark_beside(line: str) -> None:
    """On stderr. Where that cannot be written, what is done and how it ends stays the same: nobody misses the remark
    who gave it no place."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        drop(sys.stderr)


def drop(stream: TextIO) -> None:
    """Python flushes once more at its end, and would end with 120: let that go nowhere."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
