"""Where a team is measured: the model server as a process, and what the process that hosts the team needs to know."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.agents.meter import MeteredProvider, MeteredStore
from bench.agents.model import FILES
from bench.agents.schedule import Job
from bench.ground import Ground
from bullpen.config import Settings
from bullpen.domain.task import Task
from bullpen.providers import open_provider
from bullpen.stores import open_store
from bullpen.team import Team, open_team
from tests.support.protocol_server.server import KEY

MODELS = {"anthropic": "anthropic:claude-sonnet-5", "openai": "openai:gpt-5"}
_LINE = "What stands here is of no importance, but it has a length.\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Handed to the process that hosts: it has nothing else."""

    url: str
    workspace: Path
    port: int
    format: str = "anthropic"

    @property
    def environ(self) -> dict[str, str]:
        address = f"http://127.0.0.1:{self.port}"
        return {
            "ANTHROPIC_BASE_URL": address,
            "ANTHROPIC_API_KEY": KEY,
            "OPENAI_BASE_URL": f"{address}/v1",
            "OPENAI_API_KEY": KEY,
        }

    def facts(self) -> dict[str, Any]:
        """What the server has counted."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/ledger") as answer:
            facts: dict[str, Any] = json.load(answer)
        return facts


@contextmanager
def stage(
    ground: Ground, *, store: str = "sqlite", format: str = "anthropic", latency_seconds: float, file_characters: int
) -> Iterator[Stage]:
    """A server of its own, an empty store, and a workspace with files to read."""
    workspace = ground.new_folder()
    for number in range(FILES):
        text = f"File {number}.\n" + _LINE * (file_characters // len(_LINE) + 1)
        (workspace / f"{number}.txt").write_text(text[:file_characters], encoding="utf-8")
    options = ["--model", "bench.agents.model:act", "--latency", str(latency_seconds)]
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.support.protocol_server", *options], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        port = int(json.loads(server.stdout.readline())["port"])
        yield Stage(url=ground.new_url(store), workspace=workspace, port=port, format=format)
    finally:
        server.kill()
        server.wait()
        if server.stdout is not None:
            server.stdout.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Troupe:
    """A team that is about to be hosted in this process, with meters between it and the model and the store."""

    team: Team
    provider: MeteredProvider
    store: MeteredStore


@asynccontextmanager
async def troupe(stage: Stage, jobs: list[Job], teammates: int, *, with_verbs: bool = False) -> AsyncIterator[Troupe]:
    settings = Settings.from_mapping(
        {
            "sandbox": {"kind": "local"},
            "permissions": {"allow": ["*"]},
            "budget": {"max_cost_usd": None},
            "max_teammates": teammates,
            "idle": {"on_timeout": "stay"},
        }
    )
    name = MODELS[stage.format]
    async with open_store(stage.url) as store:
        metered = MeteredStore(store)
        provider = MeteredProvider(open_provider(name, environ=stage.environ), metered if with_verbs else None)
        async with open_team(
            "bench",
            store=metered.as_store(),
            model=name,
            settings=settings,
            workspace=stage.workspace,
            open_model=lambda model, **wishes: provider,
        ) as team:
            for job in jobs:
                await add_task(team, job)
            yield Troupe(team=team, provider=provider, store=metered)


async def add_task(team: Team, job: Job) -> Task:
    return await team.create_task("Read", description=f"turns={job.turns}", blocked_by=job.blocked_by)
