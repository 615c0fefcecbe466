"""`run --detach`: only rows are written where a worker is there that takes the team, or where the store is a server, to
which workers come from anywhere; else a process of its own runs it.

A check or a limit of time is seen to by whoever runs the team, not by a worker: with one, it is a process of its own;
so is what looks after the workers of a runner.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from bullpen.cli.call import Call
from bullpen.cli.commands.hosted import show_hosted
from bullpen.cli.live.hosting import Job
from bullpen.domain.trunk import Trunk
from bullpen.errors import BullpenError
from bullpen.stores import is_shared
from bullpen.stores.place import place_of
from bullpen.team.beginning import wake_lead
from bullpen.team.hosts import find_hosts

LOOK_AGAIN_SECONDS = 0.2
BOUND_SECONDS = 30.0
TAKEN_SECONDS = 2.0


async def start_detached(call: Call, job: Job) -> int:
    team = job.team
    await wake_lead(team.store, team.id, job.goal)
    lines = [f"`bullpen watch {team.name}` looks on, `bullpen stop --team {team.name}` ends it"]
    if (trunk := Trunk.of(team.record.settings)) is not None:
        lines.append(f"what it makes comes to {trunk.branch}: `{trunk.taking(team.name)}` takes it")
    document: dict[str, str | None] = {"log": None}
    has_workers = is_shared(team.store.url) or (await find_hosts(team.store, team.record)).willing
    if has_workers and not job.needs_judge and job.runner is None:
        await _until_taken(job)
    else:
        log = place_of(team.store.url).state_directory / "runs" / f"{team.id}.log"
        log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        process = _start(call, job, log)
        await _until_hosted(job, process, log)
        lines.append(f"what it prints is in {log}")
        document = {"log": str(log)}
    await show_hosted(call, team, document, lines)
    return 0


def _start(call: Call, job: Job, log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "bullpen", "resume", job.team.name, *job.runner_words],
            cwd=job.workspace,
            # Not as an argument: others can read those, and there may be a password in it.
            env={**os.environ, "BULLPEN_STORE": absolute(call.place.url), "BULLPEN_TEAM": job.team.name},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def absolute(url: str) -> str:
    """The same store, named from another directory."""
    for start in ("sqlite:///", "files:"):
        path = url.removeprefix(start)
        if path != url and not path.startswith("~"):
            return start + os.path.abspath(path)
    return url


async def _until_taken(job: Job) -> None:
    """For a moment, if there is somebody to take it: so that who hosts it can be told."""
    if not (await find_hosts(job.team.store, job.team.record)).willing:
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(TAKEN_SECONDS), job.team.store.listen_events(job.team.id) as bell:
            while not (await find_hosts(job.team.store, job.team.record)).hosting:
                await bell.wait(LOOK_AGAIN_SECONDS)
                bell.clear()


async def _until_hosted(job: Job, process: subprocess.Popen[bytes], log: Path) -> None:
    try:
        async with asyncio.timeout(BOUND_SECONDS), job.team.store.listen_events(job.team.id) as bell:
            while True:
                bell.clear()
                if (await find_hosts(job.team.store, job.team.record)).hosting:
                    return
                if process.poll() is not None:
                    break
                await bell.wait(LOOK_AGAIN_SECONDS)
    except TimeoutError:
        raise BullpenError(
            f"process {process.pid} has not begun after {BOUND_SECONDS:g} s and is left to it: "
            f"what it prints is in {log}"
        ) from None
    # It may also have been quick.
    if process.returncode != 0:
        raise BullpenError(f"it ended with {process.returncode}: {_last_line(log)}")


def _last_line(log: Path) -> str:
    lines = log.read_text("utf-8", "replace").strip().splitlines()
    return lines[-1].removeprefix("bullpen: ") if lines else "it said nothing"
