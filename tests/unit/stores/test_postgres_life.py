"""Whether a worker lives: a lock that is free is a suspicion, and becomes a proof only by what was seen before."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from bullpen.clock import FakeClock
from bullpen.domain.member import Liveness, Worker
from bullpen.store import Store
from bullpen.stores import open_store
from bullpen.stores.postgresql.switchboard import PROOF_SECONDS
from tests.support.postgres import PrivateServer
from tests.support.processes import Crew, Line
from tests.support.stores import opened
from tests.unit.stores.postgres_server import BOUND_SECONDS, ask

# Of this database alone: tests that run beside this one hold theirs on the same server.
LIVES = """
    FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


async def be_a_worker(line: Line, url: str, elsewhere: str | None = None) -> None:
    """`elsewhere`: a directory of its own, as on another machine: its lock file is out of sight."""
    if elsewhere is not None:
        os.environ["XDG_RUNTIME_DIR"] = elsewhere
    async with opened(url) as store:
        worker = await store.register_worker()
        await line.say("registered", id=worker.id)
        await line.hear("leave")


async def test_a_worker_of_ones_own_lives(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        assert await store.probe_worker(await store.register_worker()) is Liveness.ALIVE


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """Short, or it would not be taken: below it there are sockets."""
    with TemporaryDirectory() as directory:
        yield directory


async def test_a_killed_worker_of_this_machine_is_dead_at_once_even_for_who_never_saw_it(
    postgres_url: str, crew: Crew
) -> None:
    child = crew.start(be_a_worker, url=postgres_url)
    number = (await child.hear("registered"))["id"]
    async with open_store(postgres_url) as store:
        assert await store.probe_worker(await _worker(store, number)) is Liveness.ALIVE
    child.kill()
    async with open_store(postgres_url) as store:
        assert await store.probe_worker(await _worker(store, number)) is Liveness.DEAD


async def test_a_frozen_worker_of_this_machine_is_not_dead(postgres_url: str, crew: Crew) -> None:
    child = crew.start(be_a_worker, url=postgres_url)
    number = (await child.hear("registered"))["id"]
    child.freeze()
    async with open_store(postgres_url) as store:
        assert await store.probe_worker(await _worker(store, number)) is Liveness.ALIVE


async def test_the_locks_of_another_boot_prove_nothing(postgres_url: str, crew: Crew) -> None:
    child = crew.start(be_a_worker, url=postgres_url)
    number = (await child.hear("registered"))["id"]
    child.kill()
    await _until_unlocked(postgres_url)
    async with open_store(postgres_url) as store:
        worker = replace(await _worker(store, number), boot_id="another")
        assert await store.probe_worker(worker) is Liveness.UNKNOWN


async def test_where_no_lock_file_can_be_written_a_worker_goes_without_that_proof(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, elsewhere: str
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", elsewhere)
    (Path(elsewhere) / "bullpen").write_text("in the way")
    async with opened(postgres_url) as store:
        assert await store.probe_worker(await store.register_worker()) is Liveness.ALIVE


async def test_a_killed_worker_is_dead_once_its_lock_was_seen_held_and_was_free_for_long_enough(
    postgres_url: str, crew: Crew, elsewhere: str
) -> None:
    clock = FakeClock()
    async with open_store(postgres_url, clock=clock) as store:
        child = crew.start(be_a_worker, url=postgres_url, elsewhere=elsewhere)
        worker = await _worker(store, (await child.hear("registered"))["id"])
        assert await store.probe_worker(worker) is Liveness.ALIVE
        child.kill()
        await _until_free(store, worker)
        clock.advance(PROOF_SECONDS - 0.1)
        assert await store.probe_worker(worker) is Liveness.UNKNOWN
        clock.advance(0.2)
        assert await store.probe_worker(worker) is Liveness.DEAD


async def test_who_never_saw_it_alive_cannot_say_that_it_is_dead(postgres_url: str, crew: Crew, elsewhere: str) -> None:
    clock = FakeClock()
    child = crew.start(be_a_worker, url=postgres_url, elsewhere=elsewhere)
    number = (await child.hear("registered"))["id"]
    child.kill()
    await _until_unlocked(postgres_url)
    async with open_store(postgres_url, clock=clock) as store:
        worker = await _worker(store, number)
        assert await store.probe_worker(worker) is Liveness.UNKNOWN
        clock.advance(60)
        assert await store.probe_worker(worker) is Liveness.UNKNOWN


async def test_a_lock_that_is_held_again_is_no_longer_suspicious(postgres_url: str) -> None:
    clock = FakeClock()
    async with open_store(postgres_url, clock=clock) as store, opened(postgres_url) as other:
        worker = await other.register_worker()
        assert await store.probe_worker(worker) is Liveness.ALIVE
        for _ in range(3):
            clock.advance(60)
            await _cut_all_but_ours(postgres_url, worker)
            await _until(store, worker, Liveness.ALIVE)


async def test_after_a_restart_of_the_server_nobody_is_declared_dead(private_postgres: PrivateServer) -> None:
    clock = FakeClock()
    async with open_store(private_postgres.url, clock=clock) as store, opened(private_postgres.url) as other:
        worker = await other.register_worker()
        assert await store.probe_worker(worker) is Liveness.ALIVE
        await asyncio.to_thread(private_postgres.kill9)
        clock.advance(60)
        assert await store.probe_worker(worker) is Liveness.UNKNOWN
        await asyncio.to_thread(private_postgres.start)
        await _until(store, worker, Liveness.ALIVE)


async def test_a_worker_that_stops_lets_go_of_its_lock(postgres_url: str) -> None:
    async with opened(postgres_url) as store, opened(postgres_url) as other:
        worker = await other.register_worker()
        assert await store.probe_worker(worker) is Liveness.ALIVE
        await other.stop_worker(worker.id)
        assert await store.probe_worker(worker) is Liveness.UNKNOWN
        assert await ask(postgres_url, f"SELECT pid {LIVES}") == []


async def _worker(store: Store, number: int) -> Worker:
    [worker] = [worker for worker in await store.list_workers() if worker.id == number]
    return worker


async def _until_free(store: Store, worker: Worker) -> None:
    """The server notices the death of a client when it next reads from it."""
    await _until(store, worker, Liveness.UNKNOWN)


async def _until_unlocked(url: str) -> None:
    """Seen by a session of its own, so that the store under test has seen nothing."""
    async with asyncio.timeout(BOUND_SECONDS):
        while await ask(url, f"SELECT pid {LIVES}"):
            continue


async def _until(store: Store, worker: Worker, liveness: Liveness) -> None:
    async with asyncio.timeout(BOUND_SECONDS):
        while (seen := await store.probe_worker(worker)) is not liveness:
            if seen is Liveness.DEAD:
                pytest.fail("it was declared dead")
            await asyncio.sleep(0.01)


async def _cut_all_but_ours(url: str, worker: Worker) -> None:
    """End the session that holds the worker's lock."""
    await ask(
        url,
        f"SELECT pg_terminate_backend(pid) {LIVES}",
    )
