"""Stores that several processes can share, and the few steps with which most tests on them begin."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bullpen.domain.event import Event
from bullpen.domain.member import USER, Liveness, Member, MemberRef, Team
from bullpen.store import BEGINNING, Store
from bullpen.stores import open_store

# A new store is entered here, in the lists where it belongs, and in `url_in`.
STORES = ("sqlite-memory", "sqlite-file", "files", "postgresql")
ALONE = ("sqlite-memory",)
"""These belong to the object that opened them: nobody else can."""
ON_DISK = ("sqlite-file", "files")
"""These keep everything in one directory, and write by the thread of a `Writer`."""
SHARED_STORES = tuple(name for name in STORES if name not in ALONE)

NEVER_SECONDS = 3600.0
"""The interval of the safety net where a test wants to see the bell itself, not the net under it."""


def url_in(directory: Path, store: str) -> str:
    """Of a store of this kind that has the directory, if it needs one, for itself."""
    match store:
        case "sqlite-memory":
            return "sqlite:///:memory:"
        case "sqlite-file":
            return f"sqlite:///{directory}/bullpen.db"
        case "files":
            return f"files:{directory}"
    raise ValueError(f"no store of kind {store!r} lies in a directory")


def empty_store_url(request: pytest.FixtureRequest, directory: Path) -> str:
    """Of the kind that the fixture was given as its parameter."""
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    return url_in(directory / "store", request.param)


@pytest.fixture(params=SHARED_STORES)
def shared_store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store that other processes can open too."""
    return empty_store_url(request, tmp_path)


@asynccontextmanager
async def opened(url: str, **settings: Any) -> AsyncIterator[Store]:
    """The store with its safety net out of the way."""
    async with open_store(url, **{"poll_interval_seconds": NEVER_SECONDS, **settings}) as store:
        yield store


async def create_team(store: Store, name: str = "crew", **settings: Any) -> tuple[Team, MemberRef]:
    """A team, and the human in it, who may do everything."""
    team = await store.create_team(name, settings={"max_teammates": 1000, **settings})
    return team, user_of(team.id)


def user_of(team_id: int) -> MemberRef:
    return MemberRef(team_id, USER, 0)


async def join(store: Store, team_id: int, name: str, *, role: str | None = None) -> Member:
    """An external member, on a worker of its own."""
    worker = await store.register_worker()
    return await store.join_member(worker.id, team_id, name, role=role)


async def bury_the_dead(store: Store, pids: list[int]) -> list[Member]:
    """Lapse the workers of these processes, which the test has killed; who else does so at the same time is welcome.

    Where a death cannot be proved at once it is lapsed by its unchanged renewals. One that lives has the number of a
    dead process by chance: a busy machine uses them again within minutes.
    """
    lapsed: list[Member] = []
    for worker in await store.list_workers():
        liveness = await store.probe_worker(worker) if worker.pid in pids else Liveness.ALIVE
        if liveness is not Liveness.ALIVE:
            seen = None if liveness is Liveness.DEAD else worker.renewals
            lapsed += await store.lapse_worker(worker.id, renewals_seen=seen)
    return lapsed


async def all_events(store: Store, team_id: int) -> list[Event]:
    events: list[Event] = []
    while page := await store.list_events(team_id, after=events[-1].position if events else BEGINNING):
        events += page
    return events
