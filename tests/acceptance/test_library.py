"""The library as people who bring their own agents use it."""

from __future__ import annotations

import asyncio
import fcntl
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import bullpen
from bullpen import Evidence, Team, open_store, open_team
from bullpen.domain.member import Liveness, Member, MemberRef, MemberStatus
from bullpen.domain.request import RequestKind
from bullpen.domain.task import Task, TaskStatus
from bullpen.errors import CheckRequired, Conflict, LeaseLost, NotFound, StoreUnavailable, TeamDeleted, UsageError
from bullpen.team.session import LOOK_AGAIN_SECONDS
from tests.acceptance.command import BOUND_SECONDS


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'work.db'}"


@pytest.fixture
async def team(url: str) -> AsyncIterator[Team]:
    async with open_team("graphql", store=url) as opened:
        yield opened


async def work_until_idle(team: Team, name: str, role: str | None, done: list[tuple[str, int]]) -> None:
    async with team.join(name, role=role) as me:
        while await me.wait_for_work(timeout_seconds=0.05):
            await me.take_mail()
            task = await me.claim_next_task()
            if task is not None:
                await me.complete_task(task.id, result=f"by {name}")
                done.append((name, task.id))


def test_the_exported_names_are_these() -> None:
    assert sorted(bullpen.__all__) == [
        "BullpenError",
        "Evidence",
        "Report",
        "Session",
        "Task",
        "TaskStatus",
        "Team",
        "open_store",
        "open_team",
    ]
    for name in bullpen.__all__:
        assert getattr(bullpen, name) is not None


async def test_two_agents_drain_a_board_with_dependencies(team: Team) -> None:
    first = await team.create_task("Analyse the REST endpoints")
    await team.create_task("Design the schema", blocked_by=[first.id], role="backend")
    await team.create_task("Write the docs")
    done: list[tuple[str, int]] = []
    async with asyncio.timeout(BOUND_SECONDS):
        await asyncio.gather(
            work_until_idle(team, "ana", "analyst", done), work_until_idle(team, "ben", "Backend", done)
        )
    report = await team.wait_until_done(timeout_seconds=BOUND_SECONDS)
    assert report.succeeded
    assert sorted(number for _, number in done) == [1, 2, 3]
    assert ("ben", 2) in done


async def test_an_agent_waits_for_a_blocked_task_however_long_its_blocker_takes(team: Team) -> None:
    first = await team.create_task("first", owner="user")
    await team.create_task("second", blocked_by=[first.id])
    done: list[tuple[str, int]] = []
    async with asyncio.timeout(BOUND_SECONDS):
        working = asyncio.create_task(work_until_idle(team, "ana", None, done))
        async for event in team.follow_events():
            # Idle for longer than its timeout, and still there.
            if event.kind == "MemberStatusChanged" and event.data["status"] == "idle":
                break
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(working), 0.3)
        await team.claim_task(first.id)
        await team.complete_task(first.id, result="done")
        await working
    assert done == [("ana", 2)]


async def test_an_agent_that_hardly_waits_does_not_spin_while_a_task_could_become_its(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await team.create_task("first", owner="user")
    await team.create_task("second", blocked_by=[first.id])
    looked_at: asyncio.Queue[float] = asyncio.Queue()
    look = team.store.leave_if_nothing

    async def watched(by: MemberRef) -> str | None:
        looked_at.put_nowait(time.monotonic())
        return await look(by)

    monkeypatch.setattr(team.store, "leave_if_nothing", watched)
    async with asyncio.timeout(BOUND_SECONDS), team.join("ana") as me:
        waiting = asyncio.create_task(me.wait_for_work(timeout_seconds=0))
        earlier, later = await looked_at.get(), await looked_at.get()
        assert later - earlier > LOOK_AGAIN_SECONDS / 2
        await team.complete_task(first.id)
        assert await waiting is True, "it is woken all the same"


async def until_idle(team: Team, name: str) -> None:
    async for event in team.follow_events():
        if event.kind == "MemberStatusChanged" and (event.actor, event.data["status"]) == (name, "idle"):
            return


async def test_an_agent_that_waits_no_more_keeps_no_task_from_one_that_does(team: Team) -> None:
    """It waited for something else, too, and is busy with that: the task must wake the other, who came later."""

    async with asyncio.timeout(BOUND_SECONDS), team.join("cat") as cat, team.join("dog") as dog:
        waiting = asyncio.create_task(cat.wait_for_work(timeout_seconds=None))
        await until_idle(team, "cat")
        waiting.cancel()
        await asyncio.wait({waiting})
        waiting = asyncio.create_task(dog.wait_for_work(timeout_seconds=None))
        await until_idle(team, "dog")
        await team.create_task("for whoever waits")
        assert await waiting is True


async def test_an_agent_that_waits_is_told_when_another_task_of_its_leaves(team: Team) -> None:
    async with asyncio.timeout(BOUND_SECONDS), team.join("cat") as cat:
        waiting = asyncio.create_task(cat.wait_for_work(timeout_seconds=None))
        await until_idle(team, "cat")
        await cat.leave()
        assert await waiting is False


async def test_who_is_cancelled_as_it_claims_holds_nothing_that_it_does_not_know_of(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, claimed, is_told = team.store.claim_next_task, asyncio.Event(), asyncio.Event()

    async def claim_slowly(by: MemberRef, *, operation_id: str | None) -> Task | None:
        task = await claim(by, operation_id=operation_id)
        claimed.set()
        await is_told.wait()
        return task

    await team.create_task("one")
    async with asyncio.timeout(BOUND_SECONDS), team.join("cat") as cat:
        monkeypatch.setattr(team.store, "claim_next_task", claim_slowly)
        claiming = asyncio.create_task(cat.claim_next_task())
        await claimed.wait()
        claiming.cancel()
        is_told.set()
        with pytest.raises(asyncio.CancelledError):
            await claiming
        assert await cat.wait_for_work(timeout_seconds=None)
        assert await cat.claim_next_task() is not None


async def test_who_waits_for_a_team_that_is_deleted_is_told(team: Team, url: str) -> None:
    await team.create_task("never done")
    async with asyncio.timeout(BOUND_SECONDS), open_team("graphql", store=url) as again:
        waiting = asyncio.create_task(again.wait_until_done())
        await team.delete()
        with pytest.raises(TeamDeleted):
            await waiting


async def test_a_task_added_while_an_agent_is_idle_is_picked_up(team: Team) -> None:
    done: list[tuple[str, int]] = []

    async def idle_agent() -> None:
        async with team.join("alice") as me:
            assert await me.wait_for_work(timeout_seconds=BOUND_SECONDS)
            task = await me.claim_next_task()
            assert task is not None
            done.append(("alice", task.id))

    async with asyncio.timeout(BOUND_SECONDS):
        agent = asyncio.create_task(idle_agent())
        async for event in team.follow_events():
            if event.kind == "MemberStatusChanged" and event.data["status"] == "idle":
                break
        await team.create_task("one more")
        await agent
    assert done == [("alice", 1)]


async def test_an_agent_with_nothing_to_do_leaves_after_its_timeout(team: Team) -> None:
    async with team.join("alice") as me:
        assert await me.wait_for_work(timeout_seconds=0.05) is False
    member = await team.store.get_member(team.id, "alice")
    assert (member.status, member.status_reason) == (MemberStatus.SHUTDOWN, "timeout")


async def test_who_waits_for_no_time_is_told_whether_the_board_is_done(team: Team) -> None:
    task = await team.create_task("Analyse")
    with pytest.raises(TimeoutError):
        await team.wait_until_done(timeout_seconds=0)
    await team.claim_task(task.id)
    await team.fail_task(task.id)
    report = await team.wait_until_done(timeout_seconds=0)
    assert [task.status for task in report.tasks] == [TaskStatus.FAILED]
    assert not report.succeeded


async def test_mail_is_offered_again_until_the_next_verb_acknowledges_it(team: Team) -> None:
    async def crash_before_the_next_verb() -> None:
        async with team.join("cat") as me:
            await team.send("cat", "are you there?")
            assert [message.content for message in await me.take_mail()] == ["are you there?"]
            raise RuntimeError("crash")

    with pytest.raises(RuntimeError, match="crash"):
        await crash_before_the_next_verb()
    async with team.join("cat") as me:
        again = await me.take_mail()
        assert [message.content for message in again] == ["are you there?"]
        await me.send("user", "yes", reply_to=again[0].id)
        assert await me.take_mail() == []
    original = (await team.list_mail("cat"))[0]
    assert original.delivered_at is not None
    assert original.answered_at is not None


async def test_mail_whose_answer_was_refused_is_offered_again(team: Team) -> None:
    async def answer_whom_there_is_not() -> None:
        async with team.join("cat") as me:
            await team.send("cat", "are you there?")
            await me.take_mail()
            await me.send("nobody", "yes")

    with pytest.raises(NotFound, match="nobody"):
        await answer_whom_there_is_not()
    async with team.join("cat") as me:
        [again] = await me.take_mail()
        await me.send("user", "yes", reply_to=again.id)
        # In one life it is offered once, whatever the verb after it says.
        with pytest.raises(NotFound, match="nobody"):
            await me.send("nobody", "hello")
        assert await me.take_mail() == []
    [original] = await team.list_mail("cat")
    assert original.delivered_at is not None
    assert original.answered_at is not None


async def test_mail_that_a_failed_verb_could_not_acknowledge_is_acknowledged_by_the_next(
    team: Team, tmp_path: Path
) -> None:
    async with team.join("cat") as me:
        await team.send("cat", "are you there?")
        [message] = await me.take_mail()
        with (tmp_path / "work.db.gate").open() as gate:
            fcntl.flock(gate, fcntl.LOCK_EX)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await me.send("lead", "yes", reply_to=message.id)
        await me.send("lead", "yes", reply_to=message.id)
        assert await me.take_mail() == [], "it has been dealt with"


async def test_mail_comes_in_the_order_in_which_it_was_sent_however_much_has_gathered(team: Team) -> None:
    async with team.join("cat") as me:
        for number in range(101):
            await team.send("cat", f"{number}")
        read: list[str] = []
        while messages := await me.take_mail():
            read += [message.content for message in messages]
    assert read == [f"{number}" for number in range(101)]


async def test_who_is_cancelled_while_it_joins_leaves_its_name_free(team: Team) -> None:
    async def enter() -> None:
        async with team.join("cat"):
            await asyncio.Event().wait()

    async with team.join("dan"):
        pass
    for steps in range(40):
        entering = asyncio.create_task(enter())
        for _ in range(steps):
            await asyncio.sleep(0)
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
    async with team.join("cat") as me:
        assert me.ref.incarnation > 1


async def test_who_is_cancelled_while_it_joins_does_not_wait_for_what_comes_before(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a store that somebody else holds, that is several verbs, of which each has the patience of one."""
    waits, is_back = asyncio.Event(), asyncio.Event()

    async def wait_for_the_store() -> list[Task]:
        waits.set()
        await is_back.wait()
        return []

    async def enter() -> None:
        async with team.join("cat"):
            pass

    monkeypatch.setattr(team.store, "hand_back_tasks", wait_for_the_store)
    entering = asyncio.create_task(enter())
    await waits.wait()
    entering.cancel()
    await asyncio.wait({entering}, timeout=BOUND_SECONDS)
    assert entering.done()
    is_back.set()
    async with team.join("cat") as me:
        assert me.ref.incarnation == 1


async def test_who_is_cancelled_while_it_leaves_has_left_all_the_same(team: Team, tmp_path: Path) -> None:
    async def claim_and_leave(gate: int) -> None:
        async with team.join("cat") as me:
            await me.claim_task(1)
            fcntl.flock(gate, fcntl.LOCK_EX)

    await team.create_task("held by nobody who has left")
    with (tmp_path / "work.db.gate").open() as gate:
        leaving = asyncio.create_task(claim_and_leave(gate.fileno()))
        async for event in team.follow_events():
            if event.kind == "TaskClaimed":
                break
        for _ in range(2):
            # Twice, as by two time limits, one around the other.
            leaving.cancel()
            await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(leaving, BOUND_SECONDS)
    assert (await team.get_task(1)).status is TaskStatus.PENDING
    assert (await team.store.get_member(team.id, "cat")).status is MemberStatus.SHUTDOWN


async def test_who_is_cancelled_again_as_it_ends_leaves_no_worker_behind(url: str) -> None:
    """Twice, as by two time limits, one around the other. The store is the caller's, and stays open."""

    async def play(joined: asyncio.Event) -> None:
        async with open_team("graphql", store=store) as team, team.join("cat"):
            joined.set()
            await asyncio.Event().wait()

    async with open_store(url) as store:
        for steps in range(20):
            playing = asyncio.create_task(play(joined := asyncio.Event()))
            await joined.wait()
            playing.cancel()
            for _ in range(steps):
                await asyncio.sleep(0)
            playing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await playing
            # What it could not say any more is seen at once.
            lives = await store.probe_workers(await store.list_workers())
            assert set(lives) <= {Liveness.DEAD}, steps


@contextmanager
def held(team: Team, gate: Path) -> Iterator[Callable[[], None]]:
    """Another program holds the store from the call on; only so long is this one impatient."""
    patience = vars(team.store)["_patience_seconds"]
    with gate.open() as file:

        def hold() -> None:
            fcntl.flock(file, fcntl.LOCK_EX)
            vars(team.store)["_patience_seconds"] = 0.05

        try:
            yield hold
        finally:
            vars(team.store)["_patience_seconds"] = patience


async def claim_and_leave_while_it_is_held(team: Team, gate: Path) -> None:
    with held(team, gate) as hold:
        async with team.join("cat") as me:
            await me.claim_next_task()
            hold()


async def test_who_cannot_leave_while_the_store_is_away_leaves_when_it_is_back(team: Team, tmp_path: Path) -> None:
    await team.create_task("held by nobody who has left")
    with pytest.raises(StoreUnavailable):
        await claim_and_leave_while_it_is_held(team, tmp_path / "work.db.gate")
    async with team.join("dan") as dan, asyncio.timeout(BOUND_SECONDS):
        assert await dan.wait_for_work(timeout_seconds=None)
        assert await dan.claim_next_task() is not None


async def test_who_is_cancelled_while_it_cannot_leave_leaves_when_the_store_is_back(
    team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await team.create_task("held by nobody who has left")
    leave = team.store.shut_down_member

    async def cut_off(by: MemberRef, *, reason: str) -> Member:
        leaving.cancel()
        return await leave(by, reason=reason)

    monkeypatch.setattr(team.store, "shut_down_member", cut_off)
    leaving = asyncio.create_task(claim_and_leave_while_it_is_held(team, tmp_path / "work.db.gate"))
    with pytest.raises(asyncio.CancelledError):
        await leaving
    async with asyncio.timeout(BOUND_SECONDS), team.join("dan") as dan:
        assert await dan.wait_for_work(timeout_seconds=None)
        assert await dan.claim_next_task() is not None


async def test_the_name_of_who_could_not_leave_is_free_for_its_next_life(team: Team, tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable):
        await claim_and_leave_while_it_is_held(team, tmp_path / "work.db.gate")
    async with team.join("cat") as me:
        assert me.ref.incarnation == 2


async def test_who_is_cancelled_as_it_finds_work_is_not_idle(
    team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look, say = team.store.find_work, team.store.set_member_status
    said: list[MemberStatus] = []

    async def find_and_be_cancelled(by: MemberRef) -> str | None:
        if found := await look(by):
            fcntl.flock(gate, fcntl.LOCK_EX)
            waiting.cancel()
        return found

    async def say_in_the_end(by: MemberRef, status: MemberStatus) -> Member:
        said.append(status)
        if said.count(MemberStatus.WORKING) == 2:
            fcntl.flock(gate, fcntl.LOCK_UN)
        return await say(by, status)

    async with asyncio.timeout(BOUND_SECONDS), team.join("cat") as cat:
        monkeypatch.setattr(team.store, "find_work", find_and_be_cancelled)
        monkeypatch.setattr(team.store, "set_member_status", say_in_the_end)
        with (tmp_path / "work.db.gate").open() as gate:
            waiting = asyncio.create_task(cat.wait_for_work(timeout_seconds=None))
            await until_idle(team, "cat")
            await team.send("cat", "hello")
            with pytest.raises(asyncio.CancelledError):
                await waiting
        assert (await team.store.get_member(team.id, "cat")).status is MemberStatus.WORKING


async def test_who_finds_work_while_the_store_is_away_is_not_idle_when_it_has_come_back(
    team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = team.store.find_work

    async def find_and_hold(by: MemberRef) -> str | None:
        if found := await look(by):
            hold()
        return found

    async with asyncio.timeout(BOUND_SECONDS), team.join("cat") as cat:
        with held(team, tmp_path / "work.db.gate") as hold:
            monkeypatch.setattr(team.store, "find_work", find_and_hold)
            waiting = asyncio.create_task(cat.wait_for_work(timeout_seconds=None))
            await until_idle(team, "cat")
            await team.send("cat", "hello")
            with pytest.raises(StoreUnavailable):
                await waiting
        monkeypatch.setattr(team.store, "find_work", look)
        assert await cat.wait_for_work()
        assert (await team.store.get_member(team.id, "cat")).status is MemberStatus.WORKING


async def test_who_leaves_with_an_error_of_its_own_is_told_that_one(team: Team, tmp_path: Path) -> None:
    async def fail_while_it_is_held() -> None:
        with held(team, tmp_path / "work.db.gate") as hold:
            async with team.join("cat"):
                hold()
                raise RuntimeError("of its own")

    with pytest.raises(RuntimeError, match="of its own"):
        await fail_while_it_is_held()


async def test_a_shutdown_request_ends_the_wait_and_is_answered_by_leaving(team: Team) -> None:
    async with asyncio.timeout(BOUND_SECONDS):
        async with team.join("cat") as me:
            waiting = asyncio.create_task(me.wait_for_work(timeout_seconds=None))
            request = await team.shut_down("cat")
            assert await waiting is False
            assert await me.claim_next_task() is None
        answered = await team.store.get_request(team.id, request.id)
    assert answered.approved is True


async def test_who_waits_for_ever_and_is_declared_dead_meanwhile_hears_of_it(url: str) -> None:
    async with open_team("graphql", store=url, lease_seconds=0.5) as frozen, frozen.join("cat") as me:
        waiting = asyncio.create_task(me.wait_for_work(timeout_seconds=None))
        async with open_team("graphql", store=url) as other:
            async for event in other.follow_events():
                if event.kind == "MemberStatusChanged" and event.data["status"] == "idle":
                    break
            [worker] = await other.store.list_workers()
            await other.store.lapse_worker(worker.id, renewals_seen=None)
        with pytest.raises(LeaseLost):
            await asyncio.wait_for(waiting, BOUND_SECONDS)


async def test_a_name_that_is_in_use_cannot_be_joined_twice(team: Team, url: str) -> None:
    async with team.join("cat"), open_team("graphql", store=url) as again:
        with pytest.raises(Conflict, match="in the team already"):
            async with again.join("CAT"):
                pass


@pytest.mark.parametrize("name", ["../../etc", "lead", "User", "", "a" * 65, "a b", "ä"])
async def test_a_name_that_tries_to_escape_or_pose_is_refused(team: Team, name: str) -> None:
    with pytest.raises(UsageError):
        async with team.join(name):
            pass


async def test_a_task_with_a_check_is_completed_with_its_evidence(team: Team) -> None:
    await team.create_task("prove it", check="make test")
    async with team.join("cat") as me:
        task = await me.claim_next_task()
        assert task is not None
        with pytest.raises(CheckRequired):
            await me.complete_task(task.id, result="done")
        failed = await me.complete_task(task.id, evidence=Evidence(command="make test", exit_code=2, tail="boom"))
        assert failed.status is TaskStatus.IN_PROGRESS
        proof = Evidence(command="make test", exit_code=0)
        passed = await me.complete_task(task.id, result="ok", evidence=proof, operation_id="done")
        assert await me.complete_task(task.id, result="ok", evidence=proof, operation_id="done") == passed
    assert passed.status is TaskStatus.COMPLETED


async def test_every_verb_of_a_member_and_of_the_team_that_writes_can_be_repeated(team: Team) -> None:
    for subject in ("first", "second", "third", "fourth"):
        await team.create_task(subject)
    async with team.join("cat") as me:
        await me.claim_task(1)
        asked = await team.store.open_request(me.ref, RequestKind.PERMISSION, "user", payload={"call": "1"}, digest="1")
        goodbye = await team.shut_down("cat")
        verbs: dict[str, Callable[[], Awaitable[object]]] = {
            "answer": lambda: me.answer_request(goodbye.id, approve=False, reason="not yet", operation_id="answer"),
            "change": lambda: me.update_task(1, active_form="Doing it", operation_id="change"),
            "plan": lambda: me.submit_plan("look, then leap", operation_id="plan"),
            "say": lambda: team.send("cat", "hello", operation_id="say"),
            "say to all": lambda: team.broadcast("hello", operation_id="say to all"),
            "rename": lambda: team.update_task(2, subject="2nd", operation_id="rename"),
            "claim": lambda: team.claim_task(2, operation_id="claim"),
            "release": lambda: team.release_task(2, note="not now", operation_id="release"),
            "claim any": lambda: team.claim_task(operation_id="claim any"),
            "fail": lambda: team.fail_task(1, reason="no", operation_id="fail"),
            "retry": lambda: team.retry_task(1, operation_id="retry"),
            "complete": lambda: team.complete_task(3, operation_id="complete"),
            "drop": lambda: team.delete_task(4, operation_id="drop"),
            "approve": lambda: team.approve(asked.id, operation_id="approve"),
            "spawn": lambda: team.spawn("ana", operation_id="spawn"),
            "interrupt": lambda: team.interrupt("ana", "stop it", operation_id="interrupt"),
            "compact": lambda: team.compact("ana", operation_id="compact"),
            "shut down": lambda: team.shut_down("ana", operation_id="shut down"),
        }
        for name, verb in verbs.items():
            first = await verb()
            position = await team.store.last_position(team.id)
            assert await verb() == first, name
            assert await team.store.last_position(team.id) == position, f"{name} was done twice"


async def test_an_operation_id_names_a_deed_of_one_team(team: Team, url: str) -> None:
    async def do_all(of: Team) -> list[object]:
        made = await of.create_task("make it", operation_id="make")
        async with of.join("cat") as me:
            await me.claim_task(made.id, operation_id="claim")
            done = await me.complete_task(made.id, result=f"by cat of {of.id}", operation_id="done")
            again = await me.create_task("make it again", operation_id="again")
            sent = await me.send("user", "done", operation_id="say")
        return [made.team_id, done.result, again.team_id, sent.message.team_id]

    assert await do_all(team) == [team.id, f"by cat of {team.id}", team.id, team.id]
    async with open_team("other", store=url) as other:
        assert await do_all(other) == [other.id, f"by cat of {other.id}", other.id, other.id]
    await team.delete()
    async with open_team("graphql", store=url) as anew:
        assert await do_all(anew) == [anew.id, f"by cat of {anew.id}", anew.id, anew.id]
        for operation_id in ("", "x" * 201):
            with pytest.raises(UsageError, match="operation id"):
                await anew.create_task("never", operation_id=operation_id)


async def test_operation_ids_that_are_counted_from_0_name_deeds_of_one_team_too(team: Team, url: str) -> None:
    ids: list[Any] = [0, 1, 0]
    async with open_team("other", store=url) as other:
        for of in (team, other):
            made = [await of.create_task(f"{number}", operation_id=number) for number in ids]
            assert [(task.team_id, task.id) for task in made] == [(of.id, 1), (of.id, 2), (of.id, 1)]


async def test_a_status_may_be_written_as_a_word(team: Team) -> None:
    first, second = await team.create_task("first"), await team.create_task("second")
    assert (await team.set_task_status(first.id, "in progress")).status is TaskStatus.IN_PROGRESS
    async with team.join("cat") as cat:
        assert [task.id for task in await team.list_tasks(status="In_Progress")] == [first.id]
        assert [task.id for task in await cat.list_tasks(status="pending")] == [second.id]
        for asking in (team.list_tasks(status="bogus"), team.set_task_status(second.id, "bogus")):
            with pytest.raises(UsageError, match="not a task status"):
                await asking


async def test_leaving_with_a_task_in_hand_gives_it_back(team: Team) -> None:
    await team.create_task("half done")
    async with team.join("cat") as me:
        await me.claim_next_task()
    task = await team.get_task(1)
    assert (task.status, task.owner) == (TaskStatus.PENDING, None)
    assert [note.by for note in task.handovers] == ["cat"]


async def test_a_missing_team_is_an_error_when_it_may_not_be_created(url: str) -> None:
    with pytest.raises(NotFound, match="bullpen team list"):
        async with open_team("nobody", store=url, create=False):
            pass


async def test_a_session_whose_lease_was_lost_may_not_write(team: Team) -> None:
    async with team.join("cat") as me:
        await team.store.lapse_worker(1, renewals_seen=None)
        with pytest.raises(LeaseLost):
            await me.create_task("too late")
    # The same process goes on under a new incarnation.
    async with team.join("cat") as me:
        await me.create_task("in time")


def test_an_agent_killed_with_its_task_gives_it_to_the_next_at_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'work.db'}"
    victim = subprocess.Popen(
        [
            sys.executable,
            "-c",
            textwrap.dedent("""
                import asyncio, sys
                from bullpen import open_team

                async def main():
                    # Longer than this test may take: only the proof of its death can give the task away.
                    async with open_team("graphql", store=sys.argv[1], lease_seconds=600) as team:
                        await team.create_task("big one")
                        async with team.join("cat") as me:
                            await me.claim_next_task()
                            print("claimed", flush=True)
                            await asyncio.Event().wait()

                asyncio.run(main())
            """),
            url,
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert victim.stdout is not None
    with victim:
        assert victim.stdout.readline() == "claimed\n"
        victim.kill()

    async def successor() -> None:
        async with asyncio.timeout(BOUND_SECONDS), open_team("graphql", store=url) as team, team.join("cat") as me:
            task = await me.claim_next_task()
            assert task is not None
            assert task.handovers[0].note == "its worker died"

    asyncio.run(successor())
