"""What a worker says: why members leave it, that the store is away, and that it is back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bullpen.clock import SystemClock
from bullpen.domain.member import USER, MemberRef
from bullpen.domain.member import Worker as WorkerRecord
from bullpen.errors import StoreUnavailable
from bullpen.providers.scripted import ScriptedProvider
from bullpen.stores.sqlite import SqliteStore
from bullpen.team.service import make_house
from bullpen.worker.worker import Change, Worker

BOUND_SECONDS = 30.0


class Shaky(SqliteStore):
    """A store that nobody can reach for a while."""

    is_away = False

    async def register_worker(self, **how: Any) -> WorkerRecord:
        self._check()
        return await super().register_worker(**how)

    async def renew_worker(self, worker_id: int) -> WorkerRecord:
        self._check()
        return await super().renew_worker(worker_id)

    def _check(self) -> None:
        if self.is_away:
            raise StoreUnavailable("the network is down.")


class Heard:
    """A worker of one team with one member, and what it says."""

    def __init__(self, store: Shaky, workspace: Path, lease_seconds: float) -> None:
        script = ScriptedProvider({"*": lambda request: "I am here."})
        house = make_house(store, model="scripted:test", workspace=workspace, open_model=lambda model, **wishes: script)
        self._changes: asyncio.Queue[Change] = asyncio.Queue()
        self._remarks: asyncio.Queue[str] = asyncio.Queue()
        self.worker = Worker(
            house,
            lease_seconds=lease_seconds,
            on_change=self._changes.put_nowait,
            on_remark=self._remarks.put_nowait,
        )

    async def change(self) -> tuple[str, str, str]:
        async with asyncio.timeout(BOUND_SECONDS):
            change = await self._changes.get()
        return change.what, change.team, change.why

    async def remark(self) -> str:
        async with asyncio.timeout(BOUND_SECONDS):
            return await self._remarks.get()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Shaky]:
    async with Shaky(f"sqlite:///{tmp_path}/test.db", tmp_path / "test.db", SystemClock()) as opened:
        team = await opened.create_team("crew", settings={"sandbox": {"kind": "local"}})
        await opened.spawn_member(MemberRef(team.id, USER, 0), "ana", prompt="Be there.")
        yield opened


async def test_an_outage_that_costs_the_lease_is_said_once_and_so_is_the_return(store: Shaky, tmp_path: Path) -> None:
    heard = Heard(store, tmp_path, lease_seconds=6.0)
    async with heard.worker:
        assert await heard.change() == ("taken", "crew", "")
        before = heard.worker.id
        store.is_away = True
        assert await heard.remark() == "the store cannot be reached: the network is down; members pause"
        assert await heard.remark() == f"worker {before} has lost its lease: its members stop here"
        assert await heard.change() == ("left", "crew", "the lease of this worker is lost")
        store.is_away = False
        assert await heard.remark() == f"back as worker {before + 1}"
        assert await heard.change() == ("taken", "crew", "")
    assert await heard.change() == ("left", "crew", "this worker leaves")


async def test_an_outage_that_is_over_in_time_changes_nothing(store: Shaky, tmp_path: Path) -> None:
    heard = Heard(store, tmp_path, lease_seconds=9.0)
    async with heard.worker:
        assert await heard.change() == ("taken", "crew", "")
        store.is_away = True
        assert await heard.remark() == "the store cannot be reached: the network is down; members pause"
        store.is_away = False
        assert await heard.remark() == "the store is back: members go on"
    assert await heard.change() == ("left", "crew", "this worker leaves")
