"""A file system of its own at a directory, where the test may mount one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(directory: Path, *, size: str | None = None) -> Iterator[None]:
    directory.mkdir()
    limits = [] if size is None else ["-o", f"size={size}"]
    command = ["mount", "-t", "tmpfs", *limits, "bullpen-test", str(directory)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("only root can mount a file system")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)
