"""A command of the human's own, outside of any sandbox: as they would type it, but bounded.

Invariant: when `run_outside` returns or raises, nothing is left of what the command started; and when this process
dies, nothing is left of it either (see `supervisor`).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from pathlib import Path

from bullpen.errors import SandboxUnavailable
from bullpen.sandbox import CommandResult
from bullpen.sandboxes.cell import Cell, Launch
from bullpen.sandboxes.environment import PROVIDER_KEYS
from bullpen.sandboxes.output import LIMIT_BYTES, OutputDirectory
from bullpen.sandboxes.supervised import TIMEOUT_GRACE_SECONDS, find_shell


async def run_outside(
    command: str, *, directory: Path, text: str, outputs: Path, timeout_seconds: float, output_characters: int
) -> CommandResult:
    """`text` is its standard input; what it prints becomes a file in `outputs`. SandboxUnavailable or UsageError if it
    cannot be started."""
    began = time.monotonic()
    environment = human_environment(os.environ)
    request = {
        "argv": [find_shell(), "-c", command],
        "directory": str(directory),
        "environment": environment,
        "input": text,
        "output_limit": LIMIT_BYTES,
    }
    descriptor, path = _create_output(outputs)
    try:
        cell = await Cell.open(Launch(environment=environment))
        try:
            running = await cell.start(request, descriptor, path)
            timed_out = await running.wait(timeout_seconds) is None
            if timed_out:
                await running.stop(grace_seconds=TIMEOUT_GRACE_SECONDS)
        except ConnectionError as error:
            raise SandboxUnavailable("the command's supervisor was killed; try again") from error
        finally:
            await asyncio.shield(cell.close())
    finally:
        os.close(descriptor)
    return CommandResult(
        exit_code=running.exit_code,
        output=running.read(limit=output_characters),
        output_path=path,
        seconds=time.monotonic() - began,
        timed_out=timed_out,
    )


def human_environment(ours: Mapping[str, str]) -> dict[str, str]:
    """All that the human has set, but what pays for models."""
    return {name: value for name, value in ours.items() if name not in PROVIDER_KEYS}


def _create_output(outputs: Path) -> tuple[int, Path]:
    try:
        outputs.mkdir(parents=True, exist_ok=True, mode=0o700)
        return OutputDirectory(outputs).create()
    except OSError as error:
        raise SandboxUnavailable(f"there is no place for the command's output: {error}") from error
