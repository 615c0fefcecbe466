"""One winner for each task, however many processes claim at the same moment."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress

from bullpen.domain.event import Event, EventKind
from bullpen.domain.member import MemberRef, MemberStatus
from bullpen.domain.task import TaskStatus
from bullpen.errors import AlreadyClaimed, Conflict
from bullpen.store import Store
from tests.support.processes import BOUND_SECONDS, Crew, Line, release
from tests.support.stores import all_events, create_team, join, opened, user_of

CLAIMERS = 32


# -- roles: what the other processes do ------------------------------------------------------


async def claim_until_nothing_is_left(line: Line, url: str, team_id: int, name: str, role: str | None) -> None:
    async with opened(url) as store:
        me = (await join(store, team_id, name, role=role)).ref
        await line.meet()
        claimed = []
        while (task := await store.claim_next_task(me)) is not None:
            claimed.append(task.id)
            await store.complete_task(me, task.id, result=f"done by {name}")
        await line.say("claimed", tasks=claimed)


async def claim_what_all_claim(line: Line, url: str, team_id: int, name: str, tasks: list[int]) -> None:
    async with opened(url) as store:
        me = (await join(store, team_id, name)).ref
        for number in tasks:
            await line.meet()
            try:
                await store.claim_task(me, number)
            except AlreadyClaimed as refused:
                await line.say("refused", why=str(refused))
            else:
                await line.say("won")
        await line.hear("finish")


async def claim_and_work(line: Line, url: str, team_id: int, name: str, seed: int, children: int) -> None:
    """Claim; then complete, give back, or first add a task that waits for this one. Sleep on the bell alone."""
    chance = random.Random(seed)
    async with opened(url) as store:
        me = (await join(store, team_id, name)).ref
        await line.meet()
        finish = asyncio.create_task(line.hear("finish"))
        async with store.listen_member(me) as bell:
            while not finish.done():
                bell.clear()
                task = await store.claim_next_task(me)
                if task is None:
                    ring = asyncio.create_task(bell.wait())
                    await asyncio.wait((ring, finish), return_when=asyncio.FIRST_COMPLETED)
                    ring.cancel()
                    continue
                if chance.random() < 0.2:
                    await store.release_task(me, task.id, note="somebody else's turn")
                else:
                    if children and chance.random() < 0.5:
                        children -= 1
                        blockers = {task.id, chance.randint(1, task.id)}
                        await store.create_task(me, "a task found on the way", blocked_by=sorted(blockers))
                    await store.complete_task(me, task.id)
                await store.set_member_status(me, MemberStatus.IDLE)


async def create_the_same_team(line: Line, url: str) -> None:
    await line.meet()
    async with opened(url) as store:
        assert await store.find_team("nobody") is None
        try:
            await store.create_team("crew")
        except Conflict:
            await line.say("conflict")
        else:
            await line.say("created")
        team = await store.find_team("crew")
        assert team is not None
        await store.create_task(user_of(team.id), "mine")


# -- tests --------------------------------------------------------------------------------------


async def test_each_claimable_task_is_claimed_once_by_32_processes(shared_store_url: str, crew: Crew) -> None:
    async with opened(shared_store_url) as store:
        team, user = await create_team(store)
        numbers = await _fill_board(store, user)
        claimers = [
            crew.start(
                claim_until_nothing_is_left,
                url=shared_store_url,
                team_id=team.id,
                name=f"m{index}",
                role="painter" if index % 2 else None,
            )
            for index in range(CLAIMERS)
        ]
        await release(claimers)
        claims = [(await child.join("claimed"))[0]["tasks"] for child in claimers]

        assert Counter(number for own in claims for number in own) == Counter(numbers["free"] + numbers["painter"])
        for index, own in enumerate(claims):
            assert index % 2 or not set(own) & set(numbers["painter"]), "a foreign role's task was claimed"
        events = await all_events(store, team.id)
        in_order = [event.data["task"] for event in events if event.kind == EventKind.TASK_CLAIMED]
        assert Counter(in_order) == Counter(numbers["free"] + numbers["painter"])
        for kind in ("free", "painter"):
            order = [number for number in in_order if number in set(numbers[kind])]
            # Where claims overlap, one passes over what others are just looking at: the order is that of the numbers,
            # give or take. Elsewhere it is exact.
            shifts = [abs(order.index(number) - place) for place, number in enumerate(numbers[kind])]
            assert sum(shifts) <= (CLAIMERS / 2 * len(shifts) if shared_store_url.startswith("postgres") else 0)
        for number in numbers["blocked"] + numbers["foreign"]:
            task = await store.get_task(team.id, number)
            assert (task.status, task.owner) == (TaskStatus.PENDING, None)


async def _fill_board(store: Store, user: MemberRef) -> dict[str, list[int]]:
    """Every kind of task, mixed, so that what may not be claimed always lies between what may."""
    blocker = await store.create_task(user, "never done", owner="user")
    kinds = ("free", "painter", "free", "blocked", "foreign", "completed", "deleted")
    tasks = await asyncio.gather(
        *(
            store.create_task(
                user,
                kind,
                blocked_by=[blocker.id] if kind == "blocked" else [],
                role={"painter": "Painter", "foreign": "plumber"}.get(kind),
            )
            for kind in kinds * 40
        )
    )
    numbers = {kind: sorted(task.id for task in tasks if task.subject == kind) for kind in kinds}
    await asyncio.gather(*(store.complete_task(user, number) for number in numbers["completed"]))
    await asyncio.gather(*(store.delete_task(user, number) for number in numbers["deleted"]))
    return numbers


async def test_one_of_32_processes_wins_the_task_that_all_claim(shared_store_url: str, crew: Crew) -> None:
    async with opened(shared_store_url) as store:
        team, user = await create_team(store)
        tasks = [(await store.create_task(user, f"wanted by all {index}")).id for index in range(6)]
        claimers = [
            crew.start(claim_what_all_claim, url=shared_store_url, team_id=team.id, name=f"m{index}", tasks=tasks)
            for index in range(CLAIMERS)
        ]
        for number in tasks:
            await release(claimers)
            outcomes = [(await child.hear())["word"] for child in claimers]
            assert Counter(outcomes) == {"won": 1, "refused": CLAIMERS - 1}
            task = await store.get_task(team.id, number)
            assert (task.status, task.owner) == (TaskStatus.IN_PROGRESS, f"m{outcomes.index('won')}")
            await store.complete_task(user, number)
        for child in claimers:
            await child.say("finish")
            await child.join()
        events = await all_events(store, team.id)
        assert [event.data["task"] for event in events if event.kind == EventKind.TASK_CLAIMED] == tasks


async def test_a_board_that_grows_and_is_given_back_is_completed_task_by_task_once(
    shared_store_url: str, crew: Crew, chance: random.Random
) -> None:
    """No safety net: every claim after the first is woken by a ring."""
    async with opened(shared_store_url) as store:
        team, user = await create_team(store)
        for index in range(30):
            blockers = chance.sample(range(1, index + 1), k=min(index, chance.randint(0, 3)))
            await store.create_task(user, f"task {index}", blocked_by=blockers)
        workers = [
            crew.start(
                claim_and_work,
                url=shared_store_url,
                team_id=team.id,
                name=f"m{index}",
                seed=chance.randrange(10**9),
                children=6,
            )
            for index in range(12)
        ]
        await release(workers)
        await _until_all_are_completed(store, team.id)
        for child in workers:
            await child.say("finish")
            await child.join()
        _check_history(await all_events(store, team.id))


async def _until_all_are_completed(store: Store, team_id: int) -> None:
    open_tasks: set[int] = set()
    async with asyncio.timeout(BOUND_SECONDS):
        async for event in store.follow_events(team_id):
            if event.kind == EventKind.TASK_CREATED:
                open_tasks.add(event.data["task"])
            if event.kind == EventKind.TASK_COMPLETED:
                open_tasks.discard(event.data["task"])
                if not open_tasks:
                    return


def _check_history(events: list[Event]) -> None:
    """The log, replayed: nobody claimed what was held, finished or blocked, nor a second task."""
    blockers: dict[int, list[int]] = {}
    held_by: dict[int, str] = {}
    completed: set[int] = set()
    for event in events:
        number = event.data.get("task", 0)
        match event.kind:
            case EventKind.TASK_CREATED:
                assert number not in blockers, f"#{number} was created twice"
                blockers[number] = event.data["blocked_by"]
            case EventKind.TASK_CLAIMED:
                assert number not in held_by, f"#{number} was claimed while {held_by.get(number)} had it"
                assert number not in completed, f"#{number} was claimed after its completion"
                assert event.actor not in held_by.values(), f"{event.actor} had another task"
                assert set(blockers[number]) <= completed, f"#{number} was claimed while blocked"
                held_by[number] = event.actor
            case EventKind.TASK_RELEASED:
                assert held_by.pop(number) == event.data["owner"]
            case EventKind.TASK_COMPLETED:
                assert held_by.pop(number) == event.actor
                completed.add(number)
    assert completed == blockers.keys()
    assert not held_by


async def test_many_processes_create_the_store_at_the_same_moment(shared_store_url: str, crew: Crew) -> None:
    creators = [crew.start(create_the_same_team, url=shared_store_url) for _ in range(16)]
    await release(creators)
    words = [(await child.join())[0]["word"] for child in creators]
    assert Counter(words) == {"created": 1, "conflict": 15}
    async with opened(shared_store_url) as store:
        [team] = await store.list_teams()
        assert [task.id for task in await store.list_tasks(team.id)] == list(range(1, 17))


async def test_a_claimer_killed_at_any_moment_leaves_each_task_with_one_owner_or_none(
    shared_store_url: str, crew: Crew, chance: random.Random
) -> None:
    async with opened(shared_store_url) as store:
        team, user = await create_team(store)
        await asyncio.gather(*(store.create_task(user, f"task {index}") for index in range(120)))
        for round_number in range(7):
            claimers = [
                crew.start(
                    claim_until_nothing_is_left,
                    url=shared_store_url,
                    team_id=team.id,
                    name=f"r{round_number}m{n}",
                    role=None,
                )
                for n in range(3)
            ]
            await release(claimers)
            # Killed when the log has grown by a few events: in the middle of whatever the others then do.
            await _until_the_log_grows(store, team.id, chance.randint(1, 12))
            for child in claimers:
                child.kill()
            await _lapse_all(store)
        in_progress = await store.list_tasks(team.id, status=TaskStatus.IN_PROGRESS)
        assert in_progress == []
        last = crew.start(claim_until_nothing_is_left, url=shared_store_url, team_id=team.id, name="last", role=None)
        await release([last])
        await last.join()
        _check_history(await all_events(store, team.id))


async def _until_the_log_grows(store: Store, team_id: int, by: int) -> None:
    seen = 0
    async with asyncio.timeout(BOUND_SECONDS):
        async for _ in store.follow_events(team_id, after=await store.last_position(team_id)):
            seen += 1
            if seen >= by:
                return


async def _lapse_all(store: Store) -> None:
    for worker in await store.list_workers():
        with suppress(Conflict):
            await store.lapse_worker(worker.id, renewals_seen=worker.renewals)
