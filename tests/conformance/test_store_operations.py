"""Operation ids: a verb that is repeated after a crash returns its first outcome and does nothing twice."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from bullpen.domain.background import BackgroundKind
from bullpen.domain.event import EventKind
from bullpen.domain.member import MemberRef
from bullpen.domain.message import MessageType
from bullpen.domain.request import RequestKind
from bullpen.domain.submission import Work
from bullpen.domain.task import CheckRun, Evidence, TaskChanges
from bullpen.domain.transcript import NewCall
from bullpen.errors import BullpenError, Conflict, NotFound, UsageError
from bullpen.store import Store
from tests.conformance.board import Board
from tests.conformance.conftest import OpenAnother

WORK = Work(base="0" * 40, commit="a" * 40)


@dataclass(frozen=True, slots=True)
class Scene:
    """A board on which every verb can succeed: ana holds #1 with a check being run, #3 has failed, a plan is open, and
    work of the lead is being integrated."""

    board: Board
    ana: MemberRef
    run: CheckRun

    @property
    def store(self) -> Store:
        return self.board.store

    @property
    def lead(self) -> MemberRef:
        return self.board.lead


@pytest.fixture
async def scene(board: Board) -> Scene:
    store = board.store
    ana = await board.teammate("ana")
    ben = await board.teammate("ben")
    await store.shut_down_member(ben)
    await board.claimed(ana, check="true")
    await board.task("free")
    await board.task("failed")
    await store.fail_task(board.lead, 3)
    await board.task("waits", blocked_by=[1])
    await store.open_request(ana, RequestKind.PLAN, "lead", content="a plan")
    await store.open_request(ana, RequestKind.PERMISSION, "user", content="may I?")
    await store.submit_work(board.lead, WORK)
    assert await store.take_submission(board.worker.id) is not None
    run = await store.start_check(ana, 1)
    assert run is not None
    return Scene(board, ana, run)


Verb = Callable[[Scene, str], Awaitable[Any]]


async def _succeed(scene: Scene, operation_id: str) -> Any:
    await scene.store.delete_team(scene.lead, operation_id=f"{operation_id}/delete")
    return await scene.store.succeed_team(scene.lead, "next", operation_id=operation_id)


VERBS: dict[str, Verb] = {
    "create_team": lambda s, op: s.store.create_team("other", goal="x", settings={"a": [1]}, operation_id=op),
    "change_team": lambda s, op: s.store.change_team(s.lead, goal="y", settings={"b": None}, operation_id=op),
    "delete_team": lambda s, op: s.store.delete_team(s.lead, operation_id=op),
    "spawn_member": lambda s, op: s.store.spawn_member(s.lead, "new", role="r", task_id=2, operation_id=op),
    "join_member": lambda s, op: s.store.join_member(s.board.worker.id, s.board.id, "cat", operation_id=op),
    "want_member": lambda s, op: s.store.want_member(s.lead, "ben", operation_id=op),
    "create_task": lambda s, op: s.store.create_task(s.ana, "new", blocked_by=[1], role="x", operation_id=op),
    "update_task": lambda s, op: s.store.update_task(
        s.lead, 2, TaskChanges(subject="s", owner="ana", add_blocked_by=(3,)), operation_id=op
    ),
    "claim_next_task": lambda s, op: s.store.claim_next_task(s.lead, operation_id=op),
    "claim_task": lambda s, op: s.store.claim_task(s.lead, 2, operation_id=op),
    "start_check": lambda s, op: s.store.start_check(s.ana, 1, operation_id=op),
    "finish_check": lambda s, op: s.store.finish_check(
        s.ana, s.run, Evidence(command="true", exit_code=0, seconds=0.5), result="ok", operation_id=op
    ),
    "complete_checked_task": lambda s, op: s.store.complete_checked_task(
        s.ana, 1, Evidence(command="true", exit_code=0, seconds=0.5), result="ok", operation_id=op
    ),
    "complete_task": lambda s, op: s.store.complete_task(s.lead, 2, result="done", operation_id=op),
    "fail_task": lambda s, op: s.store.fail_task(s.ana, 1, reason="no", operation_id=op),
    "release_task": lambda s, op: s.store.release_task(s.ana, 1, note="later", operation_id=op),
    "retry_task": lambda s, op: s.store.retry_task(s.lead, 3, operation_id=op),
    "delete_task": lambda s, op: s.store.delete_task(s.lead, 1, operation_id=op),
    "submit_work": lambda s, op: s.store.submit_work(s.lead, WORK, result="by hand", operation_id=op),
    "accept_submission": lambda s, op: s.store.accept_submission(
        s.board.worker.id, s.board.id, 1, "b" * 40, operation_id=op
    ),
    "refuse_submission": lambda s, op: s.store.refuse_submission(
        s.board.worker.id, s.board.id, 1, "a conflict", operation_id=op
    ),
    "send": lambda s, op: s.store.send(s.ana, None, "hello", type=MessageType.BROADCAST, operation_id=op),
    "notify": lambda s, op: s.store.notify(s.board.id, "ana", "look", operation_id=op),
    "open_request": lambda s, op: s.store.open_request(s.lead, RequestKind.SHUTDOWN, "ana", operation_id=op),
    "answer_request": lambda s, op: s.store.answer_request(s.lead, 1, approve=True, operation_id=op),
    "cancel_request": lambda s, op: s.store.cancel_request(s.ana, 2, operation_id=op),
    "record_turn": lambda s, op: s.store.record_turn(
        s.ana, "assistant", {"x": [1, {"y": None}]}, calls=[NewCall(call_id="c", name="bash")], operation_id=op
    ),
    "end_phase": lambda s, op: s.store.end_phase(s.ana, why="done", result="r", counters={"n": 1}, operation_id=op),
    "start_background": lambda s, op: s.store.start_background(
        s.ana, BackgroundKind.COMMAND, "make serve", pid=7, operation_id=op
    ),
    "reserve": lambda s, op: s.store.reserve(
        s.ana, purpose="turn", provider_key="k", model="m", tokens=10, cost_usd=0.5, operation_id=op
    ),
    "interrupt_member": lambda s, op: s.store.interrupt_member(s.lead, "ana", "look here", operation_id=op),
    "want_compaction": lambda s, op: s.store.want_compaction(s.lead, "ana", "the schema", operation_id=op),
    "succeed_team": _succeed,
    "record_event": lambda s, op: s.store.record_event(
        s.ana, EventKind.FILE_WRITTEN_OUTSIDE, {"path": "b.py"}, operation_id=op
    ),
}


def test_every_verb_that_takes_an_operation_id_is_repeated_here() -> None:
    verbs = {
        name
        for name, verb in inspect.getmembers(Store, inspect.iscoroutinefunction)
        if "operation_id" in inspect.signature(verb).parameters
    }
    assert verbs == set(VERBS), "a new verb needs a line in VERBS"


async def everything(scene: Scene) -> Any:
    store, team_id = scene.store, scene.board.id
    members = await store.list_members(team_id)
    return (
        await store.list_teams(include_deleted=True),
        members,
        await store.list_tasks(team_id),
        [await store.list_mail(team_id, member.name) for member in members],
        await store.list_requests(team_id),
        [await store.list_turns(team_id, member.name) for member in members],
        [await store.list_calls(team_id, member.name) for member in members],
        await store.list_backgrounds(team_id),
        await store.list_submissions(team_id),
        await store.list_accounts(team_id),
        await scene.board.events(),
    )


@pytest.mark.parametrize("verb", VERBS)
async def test_a_repeated_operation_returns_its_first_outcome_and_does_nothing(scene: Scene, verb: str) -> None:
    operation = VERBS[verb]
    before = await scene.board.events()
    first = await operation(scene, "op-1")
    after = await everything(scene)
    if verb not in ("create_team", "reserve"):
        assert after[-1] != before, "the verb did something"
    scene.board.clock.advance(100)
    assert await operation(scene, "op-1") == first
    assert await everything(scene) == after


async def test_another_operation_is_another_deed(scene: Scene) -> None:
    first = await scene.store.create_task(scene.ana, "same", operation_id="a")
    second = await scene.store.create_task(scene.ana, "same", operation_id="b")
    third = await scene.store.create_task(scene.ana, "same")
    assert len({first.id, second.id, third.id}) == 3


async def test_an_operation_that_was_refused_tries_again(board: Board) -> None:
    ana = await board.teammate("ana")
    with pytest.raises(NotFound):
        await board.store.claim_task(ana, 1, operation_id="op")
    await board.task()
    assert (await board.store.claim_task(ana, 1, operation_id="op")).owner == "ana"


async def test_an_operation_that_found_nothing_finds_nothing_again(board: Board) -> None:
    ana = await board.teammate("ana")
    assert await board.store.claim_next_task(ana, operation_id="op") is None
    await board.task()
    assert await board.store.claim_next_task(ana, operation_id="op") is None
    assert await board.store.claim_next_task(ana, operation_id="op-2") is not None


async def test_an_operation_id_belongs_to_one_verb(board: Board) -> None:
    await board.store.create_task(board.user, "x", operation_id="op")
    with pytest.raises(UsageError):
        await board.store.send(board.user, "lead", "x", operation_id="op")


@pytest.mark.parametrize("operation_id", ["", "x" * 201])
async def test_an_operation_id_that_makes_no_sense_is_refused(board: Board, operation_id: str) -> None:
    with pytest.raises(UsageError):
        await board.store.create_task(board.user, "x", operation_id=operation_id)
    assert await board.store.list_tasks(board.id) == []


async def test_an_operation_repeated_by_a_successor_is_not_done_twice(board: Board) -> None:
    """Killed after the commit and before the tool's result: the next incarnation repeats the call."""
    doomed = await board.store.register_worker(slots=1)
    ana = await board.teammate("ana", worker=doomed)
    first = await board.store.send(ana, "lead", "done", operation_id="ana:call-7")
    await board.store.lapse_worker(doomed.id, renewals_seen=None)
    again = await board.host("ana")
    assert await board.store.send(again, "lead", "done", operation_id="ana:call-7") == first
    assert len([m for m in await board.inbox("lead") if m.sender == "ana"]) == 1


async def test_the_same_operation_many_times_at_once_is_done_once(board: Board, open_another: OpenAnother) -> None:
    other = await open_another()
    for number in range(5):
        verbs = [
            store.create_task(board.user, "once", operation_id=f"op-{number}")
            for _ in range(4)
            for store in (board.store, other)
        ]
        tasks = await asyncio.gather(*verbs)
        assert len({task.id for task in tasks}) == 1
    assert len(await board.store.list_tasks(board.id)) == 5


async def test_an_outcome_is_remembered_by_every_store_object(board: Board, open_another: OpenAnother) -> None:
    first = await board.store.create_task(board.user, "once", description="ä\n", operation_id="op")
    other = await open_another()
    assert await other.create_task(board.user, "once", description="ä\n", operation_id="op") == first


async def test_a_refusal_stores_nothing(scene: Scene) -> None:
    before = await everything(scene)
    refused: list[Awaitable[Any]] = [
        scene.store.claim_next_task(scene.ana, operation_id="r1"),
        scene.store.claim_task(scene.ana, 4, operation_id="r2"),
        scene.store.complete_task(scene.ana, 1, operation_id="r3"),
        scene.store.retry_task(scene.ana, 3, operation_id="r4"),
        scene.store.update_task(scene.lead, 4, TaskChanges(subject="x", add_blocks=(1,)), operation_id="r5"),
        scene.store.send(scene.ana, "nobody", "x", operation_id="r6"),
        scene.store.answer_request(scene.ana, 1, approve=True, operation_id="r7"),
        scene.store.spawn_member(scene.lead, "x", task_id=1, operation_id="r8"),
        scene.store.create_team("CREW", operation_id="r9"),
    ]
    for verb in refused:
        with pytest.raises(BullpenError) as raised:
            await verb
        assert isinstance(raised.value, Conflict | NotFound | UsageError)
    assert await everything(scene) == before
