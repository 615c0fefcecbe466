"""Commands of the human's own: bounded, and gone with whoever ran them."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from bullpen.errors import UsageError
from bullpen.sandbox import CommandResult
from bullpen.sandboxes.outside import run_outside
from tests.support.sandboxes import Token


async def run(command: str, place: Path, **options: Any) -> CommandResult:
    known = {"text": "", "timeout_seconds": 60.0, "output_characters": 1_000, **options}
    return await run_outside(command, directory=place, outputs=place / "output", **known)


async def test_it_reads_what_it_is_given_and_tells_how_it_ended(tmp_path: Path) -> None:
    result = await run("cat; pwd; exit 7", tmp_path, text="höre\n")
    assert result.output == f"höre\n{tmp_path.resolve()}\n"
    assert (result.exit_code, result.timed_out) == (7, False)
    assert result.output_path.read_text() == result.output


async def test_who_does_not_read_a_long_input_is_not_waited_for(tmp_path: Path) -> None:
    result = await run("exit 0", tmp_path, text="x" * 3_000_000)
    assert result.exit_code == 0


async def test_a_directory_that_is_gone_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such directory"):
        await run_outside(
            "true",
            directory=tmp_path / "gone",
            outputs=tmp_path,
            text="",
            timeout_seconds=60.0,
            output_characters=1_000,
        )


async def test_cut_off_it_leaves_nothing(tmp_path: Path, token: Token) -> None:
    running = asyncio.create_task(run(f"setsid sleep {token} & sleep {token}", tmp_path))
    await token.until(2)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert token.processes() == []


async def test_it_dies_with_the_process_that_runs_it(tmp_path: Path, token: Token) -> None:
    code = f"""
import asyncio, pathlib
from bullpen.sandboxes.outside import run_outside
place = pathlib.Path({str(tmp_path)!r})
asyncio.run(run_outside("setsid sleep {token} & sleep {token}", directory=place, text="", outputs=place,
                        timeout_seconds=600, output_characters=100))
"""
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    try:
        await token.until(2)
    finally:
        worker.kill()
        await worker.wait()
    await token.until(0)
