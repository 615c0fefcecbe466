"""The log: a fact for each change, in the transaction that made it true, followed without gaps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any, cast

import pytest

from bullpen.domain.event import Event, EventKind
from bullpen.domain.member import MemberStatus
from bullpen.domain.request import RequestKind
from bullpen.domain.task import TaskChanges
from bullpen.errors import LeaseLost, UsageError
from bullpen.store import BEGINNING, Store
from tests.conformance.board import BOUND_SECONDS, Board, first_event, wait_for_event
from tests.conformance.conftest import OpenAnother

CHANGES: dict[EventKind, Callable[[Board], Awaitable[Any]]] = {
    EventKind.TEAM_RENAMED: lambda b: b.store.change_team(b.lead, name="other"),
    EventKind.TEAM_CHANGED: lambda b: b.store.change_team(b.lead, goal="better"),
    EventKind.TEAM_DELETED: lambda b: b.store.delete_team(b.lead),
    EventKind.MEMBER_SPAWNED: lambda b: b.store.spawn_member(b.lead, "ana"),
    EventKind.MEMBER_JOINED: lambda b: b.external("cat"),
    EventKind.MEMBER_WANTED: lambda b: b.store.want_member(b.user, "lead"),
    EventKind.MEMBER_HOSTED: lambda b: b.teammate("ana"),
    EventKind.MEMBER_STATUS_CHANGED: lambda b: b.idle_teammate("ana"),
    EventKind.MEMBER_SHUT_DOWN: lambda b: b.timed_out_teammate("ana"),
    EventKind.MESSAGE_SENT: lambda b: b.store.send(b.user, "lead", "hi"),
    EventKind.REQUEST_OPENED: lambda b: b.store.open_request(b.user, RequestKind.SHUTDOWN, "lead"),
    EventKind.TASK_CREATED: lambda b: b.task(),
}


@pytest.mark.parametrize("kind", CHANGES)
async def test_a_change_writes_its_event(board: Board, kind: EventKind) -> None:
    async with board.recording() as seen:
        await CHANGES[kind](board)
    assert kind in [event.kind for event in seen]
    for event in seen:
        assert (event.team_id, event.at.utcoffset() is not None) == (board.id, True)
        assert event.actor


async def test_what_a_runtime_sees_is_recorded_once_under_its_operation_and_fenced(board: Board) -> None:
    ana = await board.teammate("ana")
    facts = {"hook": "task_created", "task": 3, "text": "no"}
    for _ in range(2):
        await board.store.record_event(ana, EventKind.HOOK_REFUSED, facts, operation_id="once")
    events = [event for event in await board.store.list_events(board.id) if event.kind == EventKind.HOOK_REFUSED]
    assert [(event.actor, event.data) for event in events] == [("ana", facts)]
    with pytest.raises(LeaseLost):
        await board.store.record_event(replace(ana, incarnation=ana.incarnation - 1), EventKind.HOOK_REFUSED, {})


async def test_no_runtime_records_what_a_verb_makes_true(board: Board) -> None:
    with pytest.raises(UsageError, match="TaskCompleted"):
        await board.store.record_event(board.lead, EventKind.TASK_COMPLETED, {"task": 1})


async def test_a_team_begins_with_its_creation(store: Store) -> None:
    team = await store.create_team("crew", goal="ship it")
    [event] = await store.list_events(team.id)
    assert (event.kind, event.data["name"], event.data["goal"]) == (EventKind.TEAM_CREATED, "crew", "ship it")


async def test_a_verb_that_fails_leaves_no_event(board: Board) -> None:
    async with board.recording() as seen:
        with pytest.raises(UsageError):
            await board.task(" ")
    assert seen == []


async def test_reads_write_no_events(board: Board) -> None:
    await board.task()
    async with board.recording() as seen:
        await board.get(1)
        await board.inbox("lead")
        await board.store.list_members(board.id)
        await board.store.find_team("crew")
    assert seen == []


async def test_the_log_is_read_page_by_page_without_gaps(board: Board) -> None:
    await board.tasks(10)
    whole = await board.store.list_events(board.id)
    paged: list[Event] = []
    while page := await board.store.list_events(board.id, after=paged[-1].position if paged else BEGINNING, limit=3):
        assert len(page) <= 3
        paged += page
    assert paged == whole
    assert len({event.position for event in whole}) == len(whole)
    assert await board.store.list_events(board.id, limit=0) == []


async def test_from_the_last_position_only_what_is_new_is_seen(board: Board) -> None:
    await board.tasks(2)
    position = await board.store.last_position(board.id)
    assert await board.store.list_events(board.id, after=position) == []
    await board.task("new")
    assert [event.data["subject"] for event in await board.store.list_events(board.id, after=position)] == ["new"]


async def test_each_team_has_its_own_log(board: Board) -> None:
    other = await board.store.create_team("other")
    position = await board.store.last_position(other.id)
    await board.tasks(3)
    assert await board.store.list_events(other.id, after=position) == []
    assert await board.store.last_position(other.id) == position


@pytest.mark.parametrize("position", ["x", "-1", "1.5", "99999999", "9" * 40, " ", "\u0661", "\x00", "../1", "0x10"])
async def test_a_position_that_was_never_given_out_is_refused(board: Board, position: str) -> None:
    with pytest.raises(UsageError):
        await board.store.list_events(board.id, after=position)


async def test_a_position_holds_in_every_store_object(board: Board, open_another: OpenAnother) -> None:
    await board.tasks(2)
    position = await board.store.last_position(board.id)
    other = await open_another()
    await other.create_task(board.user, "theirs")
    [event] = await other.list_events(board.id, after=position)
    assert [event] == await board.store.list_events(board.id, after=position)


async def test_following_yields_the_past_and_then_each_new_fact(board: Board) -> None:
    await board.task("past")
    seen: list[str] = []
    arrived = asyncio.Event()

    async def follow() -> None:
        async with aclosing(cast(Any, board.store.follow_events(board.id))) as log:
            async for event in log:
                if event.kind == EventKind.TASK_CREATED:
                    seen.append(event.data["subject"])
                    arrived.set()
                    if len(seen) == 3:
                        return

    following = asyncio.create_task(follow())
    async with asyncio.timeout(BOUND_SECONDS):
        await arrived.wait()
        await board.task("now")
        await board.task("later")
        await following
    assert seen == ["past", "now", "later"]


async def test_following_wakes_for_what_another_process_wrote(board: Board, open_another: OpenAnother) -> None:
    other = await open_another()
    position = await board.store.last_position(board.id)
    waiting = asyncio.create_task(
        wait_for_event(board.store, board.id, EventKind.TASK_CREATED, after=position, subject="from there")
    )
    # It listens once it has seen a fact of its own.
    await wait_for_event(board.store, board.id, EventKind.TEAM_CREATED)
    await other.create_task(board.user, "from there")
    assert (await waiting).actor == "user"


async def test_followers_see_every_event_in_the_same_order(board: Board, open_another: OpenAnother) -> None:
    """Many writers in two stores: nobody skips one that was committed late."""
    other = await open_another()
    start = await board.store.last_position(board.id)
    count = 40

    async def follow(store: Store) -> list[Event]:
        seen: list[Event] = []
        async with aclosing(cast(Any, store.follow_events(board.id, after=start))) as log:
            async for event in log:
                if event.kind == EventKind.TASK_CREATED:
                    seen.append(event)
                if len(seen) == count:
                    return seen
        raise AssertionError

    async def write(store: Store) -> None:
        for _ in range(5):
            await store.create_task(board.user, "x")

    async with asyncio.timeout(4 * BOUND_SECONDS):
        followers = [asyncio.create_task(follow(store)) for store in (board.store, other, board.store)]
        await asyncio.gather(*(write((board.store, other)[number % 2]) for number in range(8)))
        one, two, three = [await follower for follower in followers]
    assert one == two == three
    assert sorted(event.data["task"] for event in one) == list(range(1, count + 1))
    assert [event for event in await board.events(after=start) if event.kind == EventKind.TASK_CREATED] == one


async def test_a_bell_rings_when_the_log_grows(board: Board) -> None:
    """Each time; that of another team does not. One that rings for nothing (a store may, where transactions of
    others were open when its listener came) does so for once, not with every change."""
    other = await board.store.create_team("other")
    async with board.store.listen_events(board.id) as mine, board.store.listen_events(other.id) as theirs:
        for _ in range(50):
            theirs.clear()
            # Rings travel in order: with the second, whatever the first one rang has arrived too.
            for _ in range(2):
                mine.clear()
                await board.task()
                assert await mine.wait(BOUND_SECONDS)
            if not await theirs.wait(0):
                return
    pytest.fail("the other team's bell rings whenever this team's log grows")


async def test_who_stops_following_leaves_nothing_behind(board: Board) -> None:
    for _ in range(20):
        event = await first_event(board.store, board.id, lambda event: True)
        assert event.kind == EventKind.TEAM_CREATED
    await board.task()
    await board.wait_for(EventKind.TASK_CREATED)


async def test_a_log_read_in_the_middle_of_many_writes_is_complete_up_to_its_end(
    board: Board, open_another: OpenAnother
) -> None:
    other = await open_another()

    async def write(store: Store, number: int) -> None:
        for _ in range(6):
            await store.create_task(board.user, f"{number}")

    writing = asyncio.gather(*(write((board.store, other)[number % 2], number) for number in range(6)))
    snapshots: list[list[Event]] = []
    while not writing.done():
        snapshots.append(await other.list_events(board.id, limit=10_000))
    await writing
    whole = await board.store.list_events(board.id, limit=10_000)
    for snapshot in snapshots:
        assert snapshot == whole[: len(snapshot)]


async def test_an_event_carries_who_did_it(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.claimed(ana)
    await board.store.update_task(board.lead, 1, TaskChanges(subject="x"))
    await board.store.set_member_status(ana, MemberStatus.IDLE)
    actors = {event.kind: event.actor for event in await board.events()}
    assert actors[EventKind.TASK_CREATED] == "user"
    assert actors[EventKind.TASK_CLAIMED] == "ana"
    assert actors[EventKind.TASK_CHANGED] == "lead"
    assert actors[EventKind.MEMBER_STATUS_CHANGED] == "ana"
