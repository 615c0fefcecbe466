"""Whoever has something to do is woken, in whatever process it sleeps; nobody else is.

The safety net looks only once an hour here: what wakes somebody is the bell.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from bullpen.domain.event import EventKind
from bullpen.domain.member import Member, MemberRef, MemberStatus
from bullpen.domain.message import MessageType
from bullpen.domain.request import RequestKind
from bullpen.domain.task import TaskChanges
from bullpen.store import Bell, Store
from bullpen.stores.bells import DatagramDoorbell
from bullpen.stores.verbs.store import VerbStore
from tests.support.processes import BOUND_SECONDS, Child, Crew, Line, release
from tests.support.stores import all_events, bury_the_dead, create_team, join, opened, user_of

AT_ONCE = 16
"""As many as have a connection each: on a slow machine hundreds would wait for one longer than a verb may."""


# -- roles: what the other processes do ------------------------------------------------------


async def sleep_and_tell(line: Line, url: str, team_id: int, name: str) -> None:
    """Fall asleep again and again; when woken, say what for, and do it."""
    async with opened(url) as store:
        me = (await join(store, team_id, name)).ref
        async with store.listen_member(me) as bell:
            while (await line.hear())["word"] == "sleep":
                await store.set_member_status(me, MemberStatus.IDLE)
                bell.clear()
                assert await store.find_work(me) is None
                await line.say("asleep")
                assert await bell.wait(BOUND_SECONDS)
                work = await store.find_work(me)
                await line.say("woken", work=work)
                if work == "mail":
                    await store.take_mail(me)
                if work == "task":
                    task = await store.claim_next_task(me)
                    assert task is not None
                    await store.complete_task(me, task.id)


async def sleep_in_another_environment(line: Line, url: str, team_id: int, name: str, unset: str, tmpdir: str) -> None:
    os.environ.pop(unset, None)
    os.environ["TMPDIR"] = tmpdir
    # It remembers what it found before.
    tempfile.tempdir = None
    await sleep_and_tell(line, url, team_id, name)


async def wait_for_a_wanted_member(line: Line, url: str) -> None:
    async with opened(url) as store:
        worker = await store.register_worker(slots=1)
        async with store.listen_wanted() as bell:
            bell.clear()
            assert await store.host_member(worker.id) is None
            await line.say("asleep")
            assert await bell.wait(BOUND_SECONDS)
            member = await store.host_member(worker.id)
            await line.say("hosted", name=None if member is None else member.name)


async def follow(line: Line, url: str, team_id: int) -> None:
    async with opened(url) as store:
        position = await store.last_position(team_id)
        await line.say("asleep")
        async for event in store.follow_events(team_id, after=position):
            await line.say("event", kind=event.kind)


async def be_a_crowd(line: Line, url: str, team_id: int, name: str, count: int) -> None:
    """Many idle members that claim when they are woken; the sentinel only tells how often that was."""
    async with opened(url) as store:
        worker = await store.register_worker()
        names = [f"{name}-{index}" for index in range(count)]
        crowd: list[Member] = []
        for start in range(0, count, AT_ONCE):
            joining = (store.join_member(worker.id, team_id, one) for one in names[start : start + AT_ONCE])
            joined = await asyncio.gather(*joining)
            await asyncio.gather(*(store.set_member_status(member.ref, MemberStatus.IDLE) for member in joined))
            crowd += joined
        sentinel = await store.join_member(worker.id, team_id, name)
        rings: list[str] = []
        listening = asyncio.Semaphore(0)
        async with asyncio.TaskGroup() as group:
            for member in crowd:
                group.create_task(_claim_when_rung(store, member, rings, listening))
            for _ in crowd:
                await listening.acquire()
            async with store.listen_member(sentinel.ref) as bell:
                while True:
                    bell.clear()
                    await line.say("asleep")
                    # However long the other crowds take to come; who asks has a bound of its own.
                    await bell.wait()
                    if await store.take_mail(sentinel.ref) is not None:
                        await line.say("counted", rings=len(rings))


async def _claim_when_rung(store: Store, member: Member, rings: list[str], listening: asyncio.Semaphore) -> None:
    async with store.listen_member(member.ref) as bell:
        bell.clear()
        listening.release()
        while await bell.wait():
            rings.append(member.name)
            bell.clear()
            if await store.find_work(member.ref) == "task":
                await store.claim_next_task(member.ref)


async def play_ping_pong(line: Line, url: str, team_id: int, name: str, other: str, rounds: int) -> None:
    async with opened(url) as store:
        me = (await join(store, team_id, name)).ref
        async with store.listen_member(me) as bell:
            await line.meet()
            for index in range(rounds):
                if name < other:
                    await store.send(me, other, f"ping {index}")
                await _take_when_rung(store, me, bell)
                if name > other:
                    await store.send(me, other, f"pong {index}")
        await line.say("done")


async def _take_when_rung(store: Store, me: MemberRef, bell: Bell) -> None:
    while True:
        bell.clear()
        if await store.take_mail(me) is not None:
            return
        assert await bell.wait(BOUND_SECONDS), "mail is there, or will come, and nobody rang"


async def work_on_one_after_the_other(line: Line, url: str, team_id: int, name: str, rounds: int) -> None:
    async with opened(url) as store:
        me = (await join(store, team_id, name)).ref
        async with store.listen_member(me) as bell:
            await line.meet()
            for _ in range(rounds):
                await store.set_member_status(me, MemberStatus.IDLE)
                while True:
                    bell.clear()
                    if (task := await store.claim_next_task(me)) is not None:
                        break
                    assert await bell.wait(BOUND_SECONDS), "a task is claimable and nobody rang"
                await store.complete_task(me, task.id)
                await line.say("completed", task=task.id)


async def leave_again_and_again(line: Line, url: str, team_id: int, kind: str, rounds: int) -> None:
    """In each round: idle, then the last look and exit, while something arrives. What came is then taken."""
    async with opened(url) as store:
        worker = await store.register_worker(slots=1)
        me: MemberRef | None = None
        for _ in range(rounds):
            me = me or await _come_back(store, worker.id, team_id, kind)
            await store.set_member_status(me, MemberStatus.IDLE)
            await line.meet()
            found = await store.leave_if_nothing(me)
            await line.say("left", found=found)
            await line.hear("look")
            if found is None:
                me = await _come_back(store, worker.id, team_id, kind)
            taken = await store.take_mail(me)
            task = await store.claim_next_task(me)
            if task is not None:
                await store.complete_task(me, task.id)
            letters = [] if taken is None else [message.content for message in taken.messages]
            await line.say("took", letters=letters, task=None if task is None else task.id)


async def _come_back(store: Store, worker_id: int, team_id: int, kind: str) -> MemberRef:
    if kind == "external":
        return (await store.join_member(worker_id, team_id, "ana")).ref
    member = await store.host_member(worker_id, team_id=team_id)
    assert member is not None, "nobody revived it"
    return member.ref


async def give(line: Line, url: str, team_id: int, what: str, rounds: int) -> None:
    """In each round a letter to ana, or a task for anyone."""
    user = user_of(team_id)
    async with opened(url) as store:
        for index in range(rounds):
            await line.meet()
            if what == "mail":
                [receipt] = await store.send(user, "ana", f"letter {index}")
                await line.say("gave", outcome=receipt.outcome)
            else:
                task = await store.create_task(user, f"task {index}")
                await line.say("gave", task=task.id)


# -- a ring crosses processes ----------------------------------------------------------------------


async def test_a_sleeper_in_another_process_is_woken_by_whatever_concerns_it(shared_store_url: str, crew: Crew) -> None:
    async with opened(shared_store_url) as store:
        team, user = await create_team(store)
        sleeper = crew.start(sleep_and_tell, url=shared_store_url, team_id=team.id, name="ana")

        async def wakes(work: str, change: Callable[[], Awaitable[Any]]) -> None:
            await sleeper.say("sleep")
            await sleeper.hear("asleep")
            await change()
            assert (await sleeper.hear("woken"))["work"] == work

        async def prepare(**fields: Any) -> int:
            """A task that ana cannot claim, because it waits for another that only the human may do."""
            blocker = await store.create_task(user, "blocker", owner="user")
            return (await store.create_task(user, "dependent", blocked_by=[blocker.id], **fields)).id

        await wakes("mail", lambda: store.send(user, "ana", "hello"))
        await wakes("mail", lambda: store.send(user, None, "hello all", type=MessageType.BROADCAST))
        await wakes("mail", lambda: store.notify(team.id, "ana", "a notice"))
        await wakes("task", lambda: store.create_task(user, "for anyone"))
        await wakes("task", lambda: store.create_task(user, "for ana", owner="ana"))
        number = await prepare()
        await wakes("task", lambda: store.complete_task(user, number - 1))
        number = await prepare()
        await wakes("task", lambda: store.delete_task(user, number - 1))
        number = await prepare(owner="ana")
        await wakes("task", lambda: store.complete_task(user, number - 1))
        number = await prepare()
        unblock = TaskChanges(remove_blocked_by=(number - 1,))
        await wakes("task", lambda: store.update_task(user, number, unblock))
        await wakes("task", lambda: store.update_task(user, number - 1, TaskChanges(owner="ana")))
        held = await store.claim_task(user, (await store.create_task(user, "held", owner="user")).id)
        await wakes("task", lambda: store.release_task(user, held.id))
        failed = await store.create_task(user, "failed", owner="user")
        await store.fail_task(user, failed.id)
        await wakes("task", lambda: store.retry_task(user, failed.id))
        await wakes("shutdown", lambda: store.open_request(user, RequestKind.SHUTDOWN, "ana"))
        await sleeper.say("finish")
        await sleeper.join()


async def test_a_sleeper_that_was_started_in_another_environment_is_woken(shared_store_url: str, crew: Crew) -> None:
    """By cron, by sudo, in a shell with a TMPDIR of its own: the bell is the same."""
    with tempfile.TemporaryDirectory(dir="/tmp") as tmpdir:
        async with opened(shared_store_url) as store:
            team, user = await create_team(store)
            sleeper = crew.start(
                sleep_in_another_environment,
                url=shared_store_url,
                team_id=team.id,
                name="ana",
                unset="XDG_RUNTIME_DIR",
                tmpdir=tmpdir,
            )
            await sleeper.say("sleep")
            await sleeper.hear("asleep")
            await store.send(user, "ana", "hello")
            assert (await sleeper.hear("woken"))["work"] == "mail"
            await sleeper.say("finish")
            await sleeper.join()


async def test_a_worker_in_another_process_is_woken_for_a_wanted_member(shared_store_url: str, crew: Crew) -> None:
    async with opened(shared_store_url) as store:
        _, user = await create_team(store)
        host = crew.start(wait_for_a_wanted_member, url=shared_store_url)
        await host.hear("asleep")
        await store.spawn_member(user, "ana")
        assert (await host.hear("hosted"))["name"] == "ana"
        await host.join()


async def test_a_follower_in_another_process_sees_each_event(shared_store_url: str, crew: Crew) -> None:
    async with opened(shared_store_url) as store:
        team, user = await create_team(store)
        follower = crew.start(follow, url=shared_store_url, team_id=team.id)
        await follower.hear("asleep")
        for _ in range(30):
            await store.create_task(user, "seen")
            assert (await follower.hear("event"))["kind"] == EventKind.TASK_CREATED


# -- no stampede -----------------------------------------------------------------------------------


async def test_of_1000_idle_members_in_four_processes_one_task_wakes_one(shared_store_url: str, crew: Crew) -> None:
    async with opened(shared_store_url) as store:
        team, user = await create_team(store)
        crowds = {
            name: crew.start(be_a_crowd, url=shared_store_url, team_id=team.id, name=name, count=250)
            for name in ("c0", "c1", "c2", "c3")
        }
        for crowd in crowds.values():
            await crowd.hear("asleep")
        assert await _count_rings(store, user, crowds) == 0
        await store.create_task(user, "for one")
        await _until_claimed(store, team.id, 1)
        assert await _count_rings(store, user, crowds) == 1

        await asyncio.gather(*(store.create_task(user, f"task {index}") for index in range(20)))
        await _until_claimed(store, team.id, 21)
        # Each new task rings once, and each who claims may hand the baton on once.
        assert 21 <= await _count_rings(store, user, crowds) <= 1 + 2 * 20
        claimers = Counter(e.actor for e in await all_events(store, team.id) if e.kind == EventKind.TASK_CLAIMED)
        assert set(claimers.values()) == {1}
        assert len(claimers) == 21


async def _count_rings(store: Store, user: MemberRef, crowds: dict[str, Child]) -> int:
    """Rings come in order: when a letter sent now has arrived, so has every ring before it."""
    rings = 0
    for name, crowd in crowds.items():
        await store.send(user, name, "how many?")
        rings += (await crowd.hear("counted"))["rings"]
        await crowd.hear("asleep")
    return rings


async def _until_claimed(store: Store, team_id: int, count: int) -> None:
    claimed = 0
    async with asyncio.timeout(BOUND_SECONDS):
        async for event in store.follow_events(team_id):
            claimed += event.kind == EventKind.TASK_CLAIMED
            if claimed == count:
                return


# -- no ring is lost ---------------------------------------------------------------------------------


async def test_no_ring_is_lost_between_look_and_sleep(shared_store_url: str, crew: Crew) -> None:
    """Each answers the other at once, so each letter arrives while its reader looks or falls asleep."""
    async with opened(shared_store_url) as store:
        team, _ = await create_team(store)
        place = {"url": shared_store_url, "team_id": team.id, "rounds": 100}
        players = [
            crew.start(play_ping_pong, **place, name="a", other="b"),
            crew.start(play_ping_pong, **place, name="b", other="a"),
        ]
        await release(players)
        for player in players:
            await player.join()


async def test_no_task_is_missed_by_a_member_that_is_just_going_idle(shared_store_url: str, crew: Crew) -> None:
    rounds = 60
    async with opened(shared_store_url) as store:
        team, user = await create_team(store)
        worker = crew.start(
            work_on_one_after_the_other, url=shared_store_url, team_id=team.id, name="ana", rounds=rounds
        )
        await release([worker])
        for number in range(1, rounds + 1):
            await store.create_task(user, "next")
            assert (await worker.hear("completed"))["task"] == number


async def test_everyone_is_woken_when_more_rings_come_than_a_socket_holds(shared_store_url: str, crew: Crew) -> None:
    """A process that is held up for a moment: the letters to its members are more than the kernel keeps for it."""
    async with opened(shared_store_url) as store:
        team, user = await create_team(store)
        crowd = crew.start(be_a_crowd, url=shared_store_url, team_id=team.id, name="c", count=60)
        await crowd.hear("asleep")
        crowd.freeze()
        for index in range(60):
            await store.create_task(user, "for one of them", owner=f"c-{index}")
        crowd.thaw()
        await _until_claimed(store, team.id, 60)


# -- nothing is swallowed by an exit -------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["teammate", "external"])
async def test_mail_sent_while_its_reader_leaves_is_found_or_brings_it_back_or_is_kept(
    shared_store_url: str, crew: Crew, kind: str
) -> None:
    rounds = 40
    async with opened(shared_store_url) as store:
        team, user = await create_team(store)
        if kind == "teammate":
            await store.spawn_member(user, "ana")
        place = {"url": shared_store_url, "team_id": team.id, "rounds": rounds}
        leaver = crew.start(leave_again_and_again, **place, kind=kind)
        giver = crew.start(give, **place, what="mail")
        for index in range(rounds):
            await release([leaver, giver])
            found = (await leaver.hear("left"))["found"]
            outcome = (await giver.hear("gave"))["outcome"]
            if found is None:
                assert outcome == ("revives" if kind == "teammate" else "kept"), "the sender was not told"
            else:
                assert (found, outcome) == ("mail", "queued")
            await leaver.say("look")
            assert (await leaver.hear("took"))["letters"] == [f"letter {index}"]


async def test_a_task_created_while_the_last_member_leaves_is_found_or_brings_it_back(
    shared_store_url: str, crew: Crew
) -> None:
    rounds = 40
    async with opened(shared_store_url) as store:
        team, user = await create_team(store)
        await store.spawn_member(user, "ana")
        place = {"url": shared_store_url, "team_id": team.id, "rounds": rounds}
        leaver = crew.start(leave_again_and_again, **place, kind="teammate")
        giver = crew.start(give, **place, what="task")
        for _ in range(rounds):
            await release([leaver, giver])
            assert (await leaver.hear("left"))["found"] in (None, "task")
            number = (await giver.hear("gave"))["task"]
            await leaver.say("look")
            assert (await leaver.hear("took"))["task"] == number


# -- what the dead leave behind ------------------------------------------------------------------------


async def test_sockets_of_dead_processes_are_cleaned_up(shared_store_url: str, crew: Crew) -> None:
    async with opened(shared_store_url) as store:
        assert isinstance(store, VerbStore)
        if not isinstance(store._doorbell, DatagramDoorbell):
            pytest.skip("rings through the database: there are no sockets")
        directory = store._doorbell._directory
        team, user = await create_team(store)
        sleepers = [
            crew.start(sleep_and_tell, url=shared_store_url, team_id=team.id, name=f"m{index}") for index in range(3)
        ]
        followers = [crew.start(follow, url=shared_store_url, team_id=team.id) for _ in range(3)]
        for child in sleepers:
            await child.say("sleep")
        for child in (*sleepers, *followers):
            await child.hear("asleep")
        # A follower listens a moment after it has said that it is asleep: its first event shows that it does.
        await store.create_task(user, "seen", owner="user")
        for child in followers:
            await child.hear("event")
        assert len(list(directory.iterdir())) == 6
        for child in (*sleepers, *followers):
            child.kill()
        await bury_the_dead(store, [child.pid for child in sleepers])
        await store.spawn_member(user, "ana")
        # A verb is answered before its rings are sent; the next verb comes after them.
        await store.create_task(user, "later")
        assert list(directory.iterdir()) == []


async def test_whoever_comes_clears_up_after_the_killed(shared_store_url: str, crew: Crew, tmp_path: Path) -> None:
    async with opened(shared_store_url) as store:
        assert isinstance(store, VerbStore)
        if not isinstance(store._doorbell, DatagramDoorbell):
            pytest.skip("rings through the database: there are no sockets")
        directory = store._doorbell._directory
        team, _ = await create_team(store)
        children = [
            crew.start(sleep_and_tell, url=shared_store_url, team_id=team.id, name=f"m{index}") for index in range(5)
        ]
        for child in children:
            await child.say("sleep")
            await child.hear("asleep")
        killed, living = children[:4], children[4]
        for child in killed:
            child.kill()
        await bury_the_dead(store, [child.pid for child in killed])
        for mailbox in directory.iterdir():
            # One that is younger could be about to be bound.
            os.utime(mailbox, (0, 0))
        newcomer = await store.register_worker()
        workers = await store.list_workers()
        assert {worker.pid for worker in workers} == {living.pid, newcomer.pid}
        locks = {path.name for path in tmp_path.rglob("*.lock") if path.name != ".lock"}
        assert locks == {f"{worker.token}.lock" for worker in workers}
        mailboxes = {path.name.partition("-")[0] for path in directory.iterdir()}
        assert mailboxes == {f"w{worker.id}" for worker in workers}
