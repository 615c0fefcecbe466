"""A team over several machines, and what becomes of it when one of them, the network or the database fails.

After each fault the same is asked of the log and of what was left behind: every task was done once, no message lost or
delivered twice, nothing written by an incarnation that was over, and neither a model asked nor a command run for a
member but where it was hosted at that moment.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

import psycopg
import pytest

from bullpen.domain.event import EventKind
from tests.acceptance.command import BOUND_SECONDS
from tests.acceptance.troop import Troop, freeze, thaw, troop
from tests.support.cast import Play, layered
from tests.support.invariants import Past
from tests.support.machines import Hub, namespace_hub, open_hub, relay_hub, why_no_namespaces
from tests.support.sandboxes import Token, is_alive

PLAY = Play(jobs=layered(9, 3), teammates=("ana", "ben", "cy"), command_seconds=0.3, signs=True)
# Where somebody must be seen to be silent. Long enough that nobody who lives is, however busy the machine.
LEASE_SECONDS = 8
CONNECTIONS = 60


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    with open_hub(max_connections=str(CONNECTIONS)) as made:
        yield made


@pytest.fixture(params=["namespaces", "relays"])
def each_hub(request: pytest.FixtureRequest) -> Iterator[Hub]:
    if request.param == "relays":
        with relay_hub() as made:
            yield made
        return
    if (reason := why_no_namespaces()) is not None:
        pytest.skip(reason)
    with namespace_hub() as made:
        yield made


def taken_over(past: Past, worker: int) -> set[str]:
    """Who was hosted there and went on elsewhere after it was declared dead."""
    [lapse] = [event for event in past.of(EventKind.WORKER_LAPSED) if event.data["worker"] == worker]
    later = past.events[past.events.index(lapse) :]
    hosted = {event.data["member"] for event in later if event.kind == EventKind.MEMBER_HOSTED}
    return hosted & set(lapse.data["members"])


# -- a worker --------------------------------------------------------------------------------------


async def test_whom_a_killed_worker_hosted_others_go_on_with(hub: Hub, tmp_path: Path) -> None:
    async with troop(hub, "abc", PLAY, tmp_path, "--slots", "3") as crew:
        await crew.start("a", "b", "c")
        await crew.begin()
        member, place = await crew.until_at_work()
        crew.signal(place, signal.SIGKILL)
        await crew.until_over()
        past = await crew.check()
    assert member in taken_over(past, crew.workers[place].id)


async def test_a_frozen_worker_that_wakes_up_after_its_lease_does_nothing_more_for_its_members(
    hub: Hub, tmp_path: Path
) -> None:
    async with troop(hub, "ab", PLAY, tmp_path, "--slots", "3", "--lease", str(LEASE_SECONDS)) as crew:
        await crew.start("a", "b")
        await crew.begin()
        member, place = await crew.until_at_work()
        freeze(crew.workers[place])
        lapse = await crew.until(
            lambda event: event.kind == EventKind.WORKER_LAPSED and event.data["worker"] == crew.workers[place].id
        )
        await crew.until(
            lambda event: event.kind == EventKind.MEMBER_HOSTED and event.data["member"] == member, after=lapse.position
        )
        thaw(crew.workers[place])
        await crew.until_over()
        past = await crew.check()
    assert member in taken_over(past, crew.workers[place].id)


async def test_a_worker_that_is_told_to_leave_is_followed_by_the_others_without_a_death(
    hub: Hub, tmp_path: Path
) -> None:
    # A command of less than a second takes longer on a busy machine.
    patient = ("--drain", "30", "--lease", "60")
    async with troop(hub, "ab", PLAY, tmp_path, "--slots", "3", *patient) as crew:
        await crew.start("a", "b")
        await crew.begin()
        for completed in (1, 4):
            _, place = await crew.until_at_work(completed=completed)
            crew.signal(place, signal.SIGTERM)
            assert await crew.wait_for_exit(place) == 0
            await crew.start(place)
        await crew.until_over()
        past = await crew.check()
    assert not past.of(EventKind.WORKER_LAPSED)
    assert not past.interrupted, "a command may end before its worker leaves"


# -- the network -----------------------------------------------------------------------------------


async def test_a_worker_that_is_cut_off_stops_before_others_go_on_and_comes_back(each_hub: Hub, tmp_path: Path) -> None:
    async with troop(each_hub, "ab", PLAY, tmp_path, "--slots", "3", "--lease", str(LEASE_SECONDS)) as crew:
        await crew.start("a", "b")
        await crew.begin()
        member, place = await crew.until_at_work()
        cut_off = crew.workers[place].id
        crew.machines[place].cut()
        await crew.until(lambda event: event.kind == EventKind.WORKER_LAPSED and event.data["worker"] == cut_off)
        crew.machines[place].mend()
        await crew.until_over()
        await until_back(crew, place)
        past = await crew.check()
    assert member in taken_over(past, cut_off)


async def test_what_runs_for_members_of_a_cut_off_worker_is_ended_before_others_go_on(
    each_hub: Hub, tmp_path: Path, token: Token
) -> None:
    play = Play(jobs=layered(1, 1), teammates=("ana",), command_seconds=int(token.seconds), writes_mail=False)
    async with troop(each_hub, "ab", play, tmp_path, "--slots", "3", "--lease", str(LEASE_SECONDS)) as crew:
        await crew.start("a", "b")
        await crew.begin()
        [command] = await token.until(1)
        place = await crew.place_of("ana")
        cut_off = crew.workers[place].id
        crew.machines[place].cut()
        await crew.until(lambda event: event.kind == EventKind.WORKER_LAPSED and event.data["worker"] == cut_off)
        assert not is_alive(command)


async def until_back(crew: Troop, place: str) -> None:
    """As another worker than it was."""
    async with asyncio.timeout(60):
        while True:
            living = {worker.id for worker in await crew.store.list_workers()} - {crew.workers[place].id}
            if any(name == place for number, name in (await crew.places()).items() if number in living):
                return
            await asyncio.sleep(0.1)


# -- the database ----------------------------------------------------------------------------------


async def test_a_restarted_database_is_waited_for_and_nobody_is_taken_for_dead(hub: Hub, tmp_path: Path) -> None:
    # A lease that outlasts the restarts: whether somebody lives must not be judged by time here.
    async with troop(hub, "ab", PLAY, tmp_path, "--slots", "3", "--lease", "60") as crew:
        await crew.start("a", "b")
        await crew.begin()
        await crew.until_at_work()
        await asyncio.to_thread(hub.server.stop)
        await asyncio.to_thread(hub.server.start)
        await crew.until_at_work(completed=4)
        await asyncio.to_thread(hub.server.kill9)
        await asyncio.to_thread(hub.server.start)
        await crew.until_over()
        past = await crew.check()
    assert not past.of(EventKind.WORKER_LAPSED)


async def test_a_worker_that_finds_no_connection_any_more_is_replaced_and_comes_back(hub: Hub, tmp_path: Path) -> None:
    async with troop(hub, "ab", PLAY, tmp_path, "--slots", "3", "--lease", str(LEASE_SECONDS)) as crew:
        await crew.start("a", "b")
        await crew.begin()
        member, place = await crew.until_at_work()
        cut_off = crew.workers[place].id
        with Crowd(crew.store.url) as crowd:
            await asyncio.to_thread(crowd.take_the_place_of, place)
            await crew.until(lambda event: event.kind == EventKind.WORKER_LAPSED and event.data["worker"] == cut_off)
            refusal = await asyncio.to_thread(crew.commands[place].refused, "worker", "list", code=3)
            assert "too many clients" in refusal
        await crew.until_over()
        await until_back(crew, place)
        past = await crew.check()
    assert member in taken_over(past, cut_off)


class Crowd:
    """Takes every connection that a server has."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._taken = ExitStack()

    def __enter__(self) -> Self:
        self._control = self._taken.enter_context(psycopg.connect(self._url, autocommit=True))
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._taken.close()

    def take_the_place_of(self, name: str) -> None:
        """Until those of this name have none left, and get none any more."""
        theirs = "FROM pg_stat_activity WHERE application_name = %s AND backend_type = 'client backend'"
        give_up_at = time.monotonic() + BOUND_SECONDS
        while True:
            self._fill()
            [(count,)] = self._control.execute(f"SELECT count(pg_terminate_backend(pid)) {theirs}", [name])
            if not count:
                return
            assert time.monotonic() < give_up_at

    def _fill(self) -> None:
        with suppress(psycopg.OperationalError):
            while True:
                self._taken.enter_context(psycopg.connect(self._url, autocommit=True))
