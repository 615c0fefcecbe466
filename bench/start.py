"""Start-up of the command, against an interpreter that does nothing."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

from bench.figures import Section, median, milliseconds, percentile, times
from bench.ground import Ground, create_tasks
from bench.options import Options
from bullpen.team import open_team

NOTHING = "python -c pass"


def measure(ground: Ground, options: Options, stores: list[str]) -> Section:
    section = Section("Start-up")
    folder = ground.new_folder()
    asyncio.run(_make_team(folder))
    bullpen = [sys.executable, "-m", "bullpen"]
    commands = {
        NOTHING: [sys.executable, "-c", "pass"],
        "bullpen --help": [*bullpen, "--help"],
        "bullpen task list": [*bullpen, "task", "list"],
        **{f"import for {provider}:": _importing(provider) for provider in ("anthropic", "openai")},
    }
    section.say(
        """Wall time of the whole process, in turns. `task list` reads ten tasks from SQLite. What a model of a provider
        needs is imported when it is called for the first time."""
    )
    for name in list(commands):
        if _run(commands[name], folder) is None:
            section.say(f"`{name}` does not run yet and is left out.")
            del commands[name]
    samples: dict[str, list[float]] = {name: [] for name in commands}
    print("start", flush=True)
    for _ in range(3 if options.quick else 15):
        for name, command in commands.items():
            took = _run(command, folder)
            assert took is not None, f"{name} failed"
            samples[name].append(took)
    rows = []
    for name, took_all in samples.items():
        p50, p99 = median(took_all), percentile(took_all, 0.99)
        rows.append([f"`{name}`", milliseconds(p50), milliseconds(p99), times(p50 / median(samples[NOTHING]))])
    section.table(["", "p50", "p99", f"of `{NOTHING}`"], rows)
    return section


def _importing(provider: str) -> list[str]:
    modules = ("line", "price", f"{provider}_client")
    return [sys.executable, "-c", f"import {', '.join(f'bullpen.providers.wire.{name}' for name in modules)}"]


async def _make_team(folder: Path) -> None:
    async with open_team(store=f"sqlite:///{folder}/.bullpen/bullpen.db") as team:
        await create_tasks(team.store, team.id, 10)


def _run(command: list[str], folder: Path) -> float | None:
    """Nanoseconds, or None if it failed."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BULLPEN_")}
    began = time.monotonic_ns()
    done = subprocess.run(command, cwd=folder, env=clean, capture_output=True, check=False)
    return None if done.returncode else float(time.monotonic_ns() - began)
