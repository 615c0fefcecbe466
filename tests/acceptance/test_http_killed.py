"""A run over HTTP is killed with `kill -9` in the middle, again and again, and each time `bullpen resume` goes on."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
from typing import Any

import pytest

from bullpen.stores import open_store
from tests.acceptance.command import BOUND_SECONDS, Bullpen
from tests.support.cast import Play, layered
from tests.support.company import Wire, playing
from tests.support.invariants import check_invariants
from tests.support.protocol_server import Heard, ProtocolServer
from tests.support.protocol_server.fault import Fault, Plan

PLAY = Play(jobs=layered(9, 3), teammates=("ana", "ben", "cy"))
KILLS = 6
# What a killed call may have cost counts as spent.
SETTINGS = """
[sandbox]
kind = "local"
[permissions]
allow = ["*"]
[budget]
max_cost_usd = 1_000
"""


@pytest.fixture(params=["anthropic", "openai"])
def whole(request: pytest.FixtureRequest) -> Wire:
    return Wire(request.param, False)


@pytest.fixture
def project(bullpen: Bullpen) -> Bullpen:
    (bullpen.directory / "bullpen.toml").write_text(SETTINGS)
    return bullpen


class Countdown(Plan):
    """`over` is set after so many more requests."""

    def __init__(self) -> None:
        super().__init__()
        self.over = asyncio.Event()
        self._left = 0

    def begin(self, requests: int) -> None:
        self._left = requests
        self.over.clear()

    def take(self, heard: Heard) -> Fault | None:
        self._left -= 1
        if self._left == 0:
            self.over.set()
        return None


async def test_killed_in_the_middle_again_and_again_it_resumes_and_every_request_is_legal(
    whole: Wire, project: Bullpen, chance: random.Random
) -> None:
    countdown = Countdown()
    async with ProtocolServer(playing(PLAY)) as server:
        server.follow(countdown)
        environment: dict[str, Any] = dict(server.environ)
        words = ["run", "Migrate it", "--model", whole.model, "--json"]
        for _ in range(KILLS):
            countdown.begin(chance.randint(1, 4))
            await _kill_after(countdown, project.start(*words, **environment))
            words = ["resume", "--json"]
        ran = await asyncio.to_thread(project, "resume", "--json", code=0, **environment)
    assert server.ledger.refusals == []
    assert json.loads(ran.lines[-1])["report"]["succeeded"]
    async with open_store(project.store) as store:
        [team] = await store.list_teams()
        await check_invariants(store, team.id, project.directory)


async def _kill_after(countdown: Countdown, process: subprocess.Popen[bytes]) -> None:
    # What it prints is read all the while: who writes into a full pipe waits.
    ending = asyncio.create_task(asyncio.to_thread(process.communicate))
    waiting = asyncio.create_task(countdown.over.wait())
    try:
        await asyncio.wait({ending, waiting}, timeout=BOUND_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    finally:
        process.kill()
        waiting.cancel()
    out, errors = await ending
    assert countdown.over.is_set(), f"it ended by itself, or asked no more: {out[-6000:].decode()}{errors.decode()}"
