"""One host for each member, and no word from an incarnation that is over."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from bullpen.clock import FakeClock
from bullpen.domain.event import EventKind
from bullpen.domain.member import Liveness, MemberRef, MemberStatus, Worker
from bullpen.domain.request import RequestKind
from bullpen.domain.task import CheckRun, Evidence, TaskChanges, TaskStatus
from bullpen.domain.transcript import NewCall, TurnKind
from bullpen.errors import Conflict, LeaseLost
from bullpen.maintenance import LapseWatch, Maintenance
from bullpen.store import Store
from tests.support.processes import BOUND_SECONDS, Child, Crew, Line, Report, release
from tests.support.stores import all_events, create_team, join, opened

HOSTS = 16


# -- roles: what the other processes do ------------------------------------------------------


async def host_all(line: Line, url: str, team_id: int, slots: int) -> None:
    """Host as many as there are, four at a time, and keep them until told to finish."""
    async with opened(url) as store:
        worker = await store.register_worker(slots=slots)
        await line.meet()
        hosted: list[Any] = []
        while True:
            found = await asyncio.gather(*(store.host_member(worker.id, team_id=team_id) for _ in range(4)))
            hosted += [[member.name, member.incarnation] for member in found if member is not None]
            if None in found:
                break
        await line.say("hosted", members=hosted)
        await line.hear("finish")


async def live(line: Line, url: str, team_id: int, lease_seconds: float = 60) -> None:
    """Host one member, take a task, and then write, renew or do nothing, as told."""
    async with opened(url) as store:
        worker = await store.register_worker(slots=1, lease_seconds=lease_seconds)
        member = await store.host_member(worker.id, team_id=team_id)
        assert member is not None
        task = await store.claim_next_task(member.ref)
        await line.say("alive", worker=worker.id, member=member.name, incarnation=member.incarnation)
        while (order := await line.hear())["word"] != "finish":
            if order["word"] == "renew":
                await line.say("renewed", count=(await store.renew_worker(worker.id)).renewals)
            else:
                outcomes = await _try_everything(store, worker, member.ref, task.id if task else 1)
                await line.say("tried", outcomes=outcomes)


async def _try_everything(store: Store, worker: Worker, me: MemberRef, task_id: int) -> dict[str, str]:
    """Every way in which a member or its host writes; how each of them went."""
    evidence = Evidence(command="true", exit_code=0)
    ways: dict[str, Callable[[], Awaitable[Any]]] = {
        "renew_worker": lambda: store.renew_worker(worker.id),
        "host_member": lambda: store.host_member(worker.id),
        "join_member": lambda: store.join_member(worker.id, me.team_id, "somebody"),
        "send": lambda: store.send(me, "lead", "I am still here"),
        "send, repeated": lambda: store.send(me, "lead", "I am still here", operation_id="zombie"),
        "take_mail": lambda: store.take_mail(me),
        "acknowledge_mail": lambda: store.acknowledge_mail(me, [1]),
        "record_turn": lambda: store.record_turn(me, TurnKind.ASSISTANT, {}, calls=[NewCall(call_id="1", name="bash")]),
        "start_call": lambda: store.start_call(me, "1"),
        "finish_call": lambda: store.finish_call(me, "1", "done"),
        "interrupt_calls": lambda: store.interrupt_calls(me),
        "end_phase": lambda: store.end_phase(me, why="no_tool_use", result="done"),
        "set_member_status": lambda: store.set_member_status(me, MemberStatus.IDLE),
        "set_member_counters": lambda: store.set_member_counters(me, {"turns": 1}),
        "create_task": lambda: store.create_task(me, "more"),
        "update_task": lambda: store.update_task(me, task_id, TaskChanges(subject="mine")),
        "claim_next_task": lambda: store.claim_next_task(me),
        "claim_task": lambda: store.claim_task(me, task_id),
        "start_check": lambda: store.start_check(me, task_id),
        "finish_check": lambda: store.finish_check(me, CheckRun(task_id=task_id, attempt=1, check="true"), evidence),
        "complete_task": lambda: store.complete_task(me, task_id, result="done"),
        "fail_task": lambda: store.fail_task(me, task_id),
        "release_task": lambda: store.release_task(me, task_id),
        "delete_task": lambda: store.delete_task(me, task_id),
        "open_request": lambda: store.open_request(me, RequestKind.PERMISSION, "user", content="may I?"),
        "answer_request": lambda: store.answer_request(me, 1, approve=True),
        "cancel_request": lambda: store.cancel_request(me, 1),
        "release_member": lambda: store.release_member(me, note="crashed"),
        "rest_member": lambda: store.rest_member(me),
        "leave_if_nothing": lambda: store.leave_if_nothing(me),
        "shut_down_member": lambda: store.shut_down_member(me),
    }
    outcomes = {}
    for name, way in ways.items():
        try:
            await way()
        except Exception as error:
            outcomes[name] = type(error).__name__
        else:
            outcomes[name] = "written"
    return outcomes


async def lapse(line: Line, url: str, worker_id: int) -> None:
    async with opened(url) as store:
        await line.meet()
        members = await store.lapse_worker(worker_id, renewals_seen=None)
        await line.say("lapsed", members=[[member.name, member.incarnation] for member in members])


async def join_as(line: Line, url: str, team_id: int, names: list[str]) -> None:
    async with opened(url) as store:
        worker = await store.register_worker()
        for name in names:
            await line.meet()
            try:
                member = await store.join_member(worker.id, team_id, name)
            except Conflict:
                await line.say("conflict")
            else:
                await line.say("joined", incarnation=member.incarnation)
        await line.hear("finish")


async def write_until_over(line: Line, url: str, team_id: int, rounds: int) -> None:
    """In each round a new worker with a new incarnation, which writes until it is told that it is over."""
    async with opened(url) as store:
        for _ in range(rounds):
            worker = await store.register_worker()
            me = (await store.join_member(worker.id, team_id, "writer")).ref
            await line.say("alive", worker=worker.id)
            await line.meet()
            written = 0
            try:
                while True:
                    await store.record_turn(me, TurnKind.ASSISTANT, {"number": written})
                    written += 1
            except LeaseLost:
                await line.say("over", incarnation=me.incarnation, written=written)


async def renew_once(line: Line, url: str) -> None:
    """In each round it renews at the same moment as somebody lapses it."""
    async with opened(url) as store:
        worker = await store.register_worker()
        while (await line.hear())["word"] != "finish":
            await line.say("alive", worker=worker.id, renewals=worker.renewals)
            await line.meet()
            try:
                worker = await store.renew_worker(worker.id)
            except LeaseLost:
                await line.say("over")
                worker = await store.register_worker()
            else:
                await line.say("renewed")


async def lapse_if_unchanged(line: Line, url: str) -> None:
    async with opened(url) as store:
        while (order := await line.hear())["word"] != "finish":
            await line.meet()
            await store.lapse_worker(order["worker"], renewals_seen=order["renewals"])
            await line.say("tried")


# -- hosting ---------------------------------------------------------------------------------------


async def test_each_wanted_member_is_hosted_once_however_many_workers_try(shared_store_url: str, crew: Crew) -> None:
    async with opened(shared_store_url) as store:
        team, user = await create_team(store)
        wanted = [f"m{index}" for index in range(40)]
        for name in wanted:
            await store.spawn_member(user, name)
        hosts = await _let_them_host(crew, shared_store_url, team.id, slots=100)
        hosted = [member for report in hosts.values() for member in report["members"]]
        assert sorted(hosted) == sorted([name, 1] for name in wanted)
        await _check_hosted(store, team.id, hosts)


async def test_no_worker_hosts_more_than_it_has_slots(shared_store_url: str, crew: Crew) -> None:
    async with opened(shared_store_url) as store:
        team, user = await create_team(store)
        for index in range(40):
            await store.spawn_member(user, f"m{index}")
        hosts = await _let_them_host(crew, shared_store_url, team.id, slots=2)
        assert [len(report["members"]) for report in hosts.values()] == [2] * HOSTS
        members = await store.list_members(team.id)
        assert Counter(member.status for member in members)[MemberStatus.WANTED] == 40 - 2 * HOSTS
        await _check_hosted(store, team.id, hosts)


async def _let_them_host(crew: Crew, url: str, team_id: int, slots: int) -> dict[int, Report]:
    """What each process hosted, by its pid; they hold it until the test ends."""
    children = [crew.start(host_all, url=url, team_id=team_id, slots=slots) for _ in range(HOSTS)]
    await release(children)
    return {child.pid: await child.hear("hosted") for child in children}


async def _check_hosted(store: Store, team_id: int, hosts: dict[int, Report]) -> None:
    pids = {worker.id: worker.pid for worker in await store.list_workers()}
    said = {name: pid for pid, report in hosts.items() for name, _ in report["members"]}
    members = await store.list_members(team_id)
    stored = {member.name: pids[member.worker_id] for member in members if member.worker_id is not None}
    assert stored == said
    events = await all_events(store, team_id)
    times = Counter(event.data["member"] for event in events if event.kind == EventKind.MEMBER_HOSTED)
    assert times == dict.fromkeys(said, 1)


async def test_one_of_many_processes_joins_under_a_name(shared_store_url: str, crew: Crew) -> None:
    names = [f"x{index}" for index in range(5)]
    async with opened(shared_store_url) as store:
        team, _ = await create_team(store)
        children = [crew.start(join_as, url=shared_store_url, team_id=team.id, names=names) for _ in range(8)]
        for name in names:
            await release(children)
            words = Counter([(await child.hear())["word"] for child in children])
            assert words == {"joined": 1, "conflict": 7}
            assert (await store.get_member(team.id, name)).incarnation == 1
        for child in children:
            await child.say("finish")
            await child.join()


# -- death -------------------------------------------------------------------------------------------


@asynccontextmanager
async def _a_member_at_work(
    url: str, crew: Crew, store: Store, **how: Any
) -> AsyncIterator[tuple[Child, Worker, MemberRef]]:
    """A process that hosts `ana`, who has task #1 in progress."""
    team, user = await create_team(store)
    await store.create_task(user, "important", check="true")
    await store.spawn_member(user, "ana")
    child = crew.start(live, url=url, team_id=team.id, **how)
    alive = await child.hear("alive")
    [worker] = [worker for worker in await store.list_workers() if worker.id == alive["worker"]]
    yield child, worker, MemberRef(team.id, "ana", alive["incarnation"])


def _proves_death(url: str) -> bool:
    """A lock on this machine is free the moment its holder is dead; across a network, time must pass."""
    return not url.startswith("postgres")


async def test_a_killed_worker_is_proved_dead_at_once_and_its_incarnation_is_over(
    shared_store_url: str, crew: Crew
) -> None:
    async with (
        opened(shared_store_url) as store,
        _a_member_at_work(shared_store_url, crew, store) as (child, worker, ana),
    ):
        assert await store.probe_worker(worker) is Liveness.ALIVE
        child.kill()
        if _proves_death(shared_store_url):
            assert await store.probe_worker(worker) is Liveness.DEAD
        [lapsed] = await store.lapse_worker(worker.id, renewals_seen=None)
        assert (lapsed.name, lapsed.incarnation, lapsed.status) == ("ana", ana.incarnation + 1, MemberStatus.WANTED)
        task = await store.get_task(ana.team_id, 1)
        assert (task.status, task.owner) == (TaskStatus.PENDING, None), "nobody could host it: the task is free"
        outcomes = await _try_everything(store, worker, ana, 1)
        assert outcomes == dict.fromkeys(outcomes, LeaseLost.__name__)

        successor = crew.start(live, url=shared_store_url, team_id=ana.team_id)
        assert (await successor.hear("alive"))["incarnation"] == ana.incarnation + 2
        assert (await store.get_task(ana.team_id, 1)).owner == "ana"


async def test_maintenance_lapses_a_killed_worker_without_waiting_for_its_lease(
    shared_store_url: str, crew: Crew
) -> None:
    """The lease lasts an hour, the bound of this test is shorter: only the proof can have done it."""
    async with (
        opened(shared_store_url) as store,
        _a_member_at_work(shared_store_url, crew, store, lease_seconds=3600) as (child, _, ana),
        Maintenance(store, interval_seconds=0.05),
        asyncio.timeout(BOUND_SECONDS),
    ):
        position = await store.last_position(ana.team_id)
        child.kill()
        async for event in store.follow_events(ana.team_id, after=position):
            if event.kind == EventKind.MEMBER_LAPSED:
                assert event.data["member"] == "ana"
                break


async def test_a_death_is_declared_once_however_many_observers_see_it(shared_store_url: str, crew: Crew) -> None:
    async with (
        opened(shared_store_url) as store,
        _a_member_at_work(shared_store_url, crew, store) as (child, worker, ana),
    ):
        child.kill()
        observers = [crew.start(lapse, url=shared_store_url, worker_id=worker.id) for _ in range(12)]
        await release(observers)
        answers = [(await observer.join("lapsed"))[0]["members"] for observer in observers]
        assert sorted(answers) == [[]] * 11 + [[["ana", ana.incarnation + 1]]]
        assert (await store.get_member(ana.team_id, "ana")).incarnation == ana.incarnation + 1
        events = await all_events(store, ana.team_id)
        assert Counter(event.kind for event in events)[EventKind.MEMBER_LAPSED] == 1


async def test_a_frozen_worker_lapses_by_unchanged_renewals_alone_and_writes_nothing_when_thawed(
    shared_store_url: str, crew: Crew
) -> None:
    clock = FakeClock()
    async with (
        opened(shared_store_url, clock=clock) as store,
        _a_member_at_work(shared_store_url, crew, store) as (child, worker, ana),
    ):
        watch = LapseWatch(store)
        child.freeze()
        assert await store.probe_worker(worker) is not Liveness.DEAD
        assert await _watch(watch, clock, worker.lease_seconds - 5) == []
        child.thaw()
        await child.say("renew")
        assert (await child.hear("renewed"))["count"] == 1
        child.freeze()
        assert await store.lapse_worker(worker.id, renewals_seen=0) == [], "it has renewed since it was looked at"
        assert await _watch(watch, clock, worker.lease_seconds - 5) == [], "the renewal gave it another lease"
        assert await _watch(watch, clock, 15) == ["ana"]

        position = await store.last_position(ana.team_id)
        child.thaw()
        await child.say("write")
        outcomes = (await child.hear("tried"))["outcomes"]
        assert outcomes == dict.fromkeys(outcomes, LeaseLost.__name__)
        assert await store.last_position(ana.team_id) == position, "a zombie left traces"


async def _watch(watch: LapseWatch, clock: FakeClock, seconds: float) -> list[str]:
    """Look every few seconds of the fake clock; who lost its host by it."""
    lapsed = [member.name for member in await watch.look()]
    for _ in range(int(seconds // 4)):
        clock.advance(4)
        lapsed += [member.name for member in await watch.look()]
    return lapsed


async def test_nothing_of_an_incarnation_is_written_after_it_was_declared_over(
    shared_store_url: str, crew: Crew
) -> None:
    rounds = 15
    async with opened(shared_store_url) as store:
        team, _ = await create_team(store)
        writer = crew.start(write_until_over, url=shared_store_url, team_id=team.id, rounds=rounds)
        acknowledged: dict[int, int] = {}
        position = await store.last_position(team.id)
        for _ in range(rounds):
            worker_id = (await writer.hear("alive"))["worker"]
            await release([writer])
            # Not before it is in full swing: then the lapse comes between two writes, or into one.
            async with asyncio.timeout(BOUND_SECONDS):
                async for event in store.follow_events(team.id, after=position):
                    if event.kind == EventKind.TURN_RECORDED:
                        break
            [lapsed] = await store.lapse_worker(worker_id, renewals_seen=None)
            position = await store.last_position(team.id)
            over = await writer.hear("over")
            assert lapsed.incarnation == over["incarnation"] + 1
            acknowledged[over["incarnation"]] = over["written"]
        await writer.join()
        turns = await store.list_turns(team.id, "writer")
        assert Counter(turn.incarnation for turn in turns) == acknowledged
        _check_order(await all_events(store, team.id))


def _check_order(events: list[Any]) -> None:
    is_over = True
    for event in events:
        if event.kind == EventKind.MEMBER_JOINED:
            is_over = False
        if event.kind == EventKind.MEMBER_LAPSED:
            is_over = True
        assert event.kind != EventKind.TURN_RECORDED or not is_over, "a turn was recorded after the lapse"


async def test_a_renewal_and_a_lapse_at_the_same_moment_cannot_both_happen(shared_store_url: str, crew: Crew) -> None:
    async with opened(shared_store_url) as store:
        renewer = crew.start(renew_once, url=shared_store_url)
        lapser = crew.start(lapse_if_unchanged, url=shared_store_url)
        for _ in range(40):
            await renewer.say("next")
            alive = await renewer.hear("alive")
            await lapser.say("next", worker=alive["worker"], renewals=alive["renewals"])
            await release([renewer, lapser])
            word = (await renewer.hear())["word"]
            await lapser.hear("tried")
            [worker] = [
                worker for worker in await store.list_workers(include_stopped=True) if worker.id == alive["worker"]
            ]
            assert (worker.stopped_at is None) == (word == "renewed")
        for child in (renewer, lapser):
            await child.say("finish")
            await child.join()


async def test_a_worker_that_leaves_in_good_order_is_not_lapsed(shared_store_url: str, crew: Crew) -> None:
    async with (
        opened(shared_store_url) as store,
        _a_member_at_work(shared_store_url, crew, store) as (child, worker, ana),
    ):
        await child.say("finish")
        await child.join()
        assert await store.lapse_worker(worker.id, renewals_seen=None) == []
        ana_now = await store.get_member(ana.team_id, "ana")
        assert (ana_now.status, ana_now.incarnation) == (MemberStatus.WANTED, ana.incarnation + 1)
        # The name is free for whoever comes next, here in the same process as the observer.
        cat = await join(store, ana.team_id, "cat")
        assert cat.incarnation == 1
