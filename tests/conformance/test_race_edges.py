"""The graph of blockers stays acyclic and its counters true, whatever happens at the same moment."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

from bullpen.domain.member import MemberRef
from bullpen.domain.task import RELEASES_DEPENDENTS, Task, TaskChanges, TaskStatus
from bullpen.errors import Conflict, CycleRefused, NotFound
from bullpen.store import Store
from tests.support.processes import Child, Crew, Line, Report, release
from tests.support.stores import create_team, join, opened, user_of

ROUNDS = 40


# -- roles: what the other processes do ------------------------------------------------------


async def obey(line: Line, url: str, team_id: int) -> None:
    """In each round: hear what to do, say that it is ready, do it when released, say how it went."""
    user = user_of(team_id)
    async with opened(url) as store:
        while (order := await line.hear())["word"] != "finish":
            await line.meet()
            try:
                number = await _act(store, user, order)
            except Conflict as refused:
                await line.say("refused", why=type(refused).__name__)
            except NotFound:
                await line.say("refused", why="NotFound")
            else:
                await line.say("done", task=number)


async def _act(store: Store, user: MemberRef, order: Report) -> int:
    match order["word"]:
        case "block":
            changes = TaskChanges(add_blocked_by=(order["by"],))
            return (await store.update_task(user, order["task"], changes)).id
        case "hold back":
            changes = TaskChanges(add_blocks=(order["task"],))
            return (await store.update_task(user, order["by"], changes)).id
        case "unblock":
            changes = TaskChanges(remove_blocked_by=(order["by"],))
            return (await store.update_task(user, order["task"], changes)).id
        case "create":
            return (await store.create_task(user, "waits", blocked_by=order["by"])).id
        case "complete":
            return (await store.complete_task(user, order["task"])).id
        case "delete":
            return (await store.delete_task(user, order["task"])).id
    raise AssertionError(order)


async def create_tasks(line: Line, url: str, team_id: int, count: int) -> None:
    """Some are refused, some are deleted at once: neither gives a number to two tasks."""
    user = user_of(team_id)
    async with opened(url) as store:
        await line.meet()
        created = []
        for index in range(count):
            if index % 5 == 1:
                try:
                    await store.create_task(user, "waits for nothing that exists", blocked_by=[100_000])
                except NotFound:
                    continue
            task = await store.create_task(user, f"task {index}")
            created.append(task.id)
            if index % 5 == 2:
                await store.delete_task(user, task.id)
        await line.say("created", tasks=created)


async def shuffle_edges(line: Line, url: str, team_id: int, seed: int, count: int, steps: int) -> None:
    """Random changes of a small board: most collide with somebody else's."""
    chance = random.Random(seed)
    user = user_of(team_id)
    words = ["block"] * 5 + ["hold back"] * 3 + ["unblock"] * 3 + ["create", "complete", "delete"]
    outcomes: Counter[str] = Counter()
    async with opened(url) as store:
        await line.meet()
        for _ in range(steps):
            word = chance.choice(words)
            task, by = chance.sample(range(1, count + 1), k=2)
            try:
                await _act(store, user, {"word": word, "task": task, "by": [by] if word == "create" else by})
                outcomes[word] += 1
            except (Conflict, NotFound) as refused:
                outcomes[type(refused).__name__] += 1
        await line.say("did", outcomes=outcomes)


# -- tests --------------------------------------------------------------------------------------


async def _create(store: Store, user: MemberRef, *, rounds: int, each: int) -> list[list[int]]:
    """The numbers of new tasks for so many rounds."""
    tasks = await asyncio.gather(*(store.create_task(user, "task") for _ in range(rounds * each)))
    numbers = sorted(task.id for task in tasks)
    return [numbers[start : start + each] for start in range(0, len(numbers), each)]


async def _round(actors: list[Child], orders: list[tuple[str, dict[str, Any]]]) -> list[Report]:
    """All do what they are told at the same moment."""
    for actor, (word, facts) in zip(actors, orders, strict=True):
        await actor.say(word, **facts)
    await release(actors)
    return [await actor.hear() for actor in actors]


async def _finish(actors: list[Child]) -> None:
    for actor in actors:
        await actor.say("finish")
        await actor.join()


async def test_of_two_halves_of_a_cycle_added_at_the_same_moment_one_is_refused(
    shared_store_url: str, crew: Crew
) -> None:
    async with opened(shared_store_url) as store:
        team, user = await create_team(store)
        actors = [crew.start(obey, url=shared_store_url, team_id=team.id) for _ in range(2)]
        for index, (a, b) in enumerate(await _create(store, user, rounds=ROUNDS, each=2)):
            other_way = "hold back" if index % 2 else "block"
            await _check_one_half_is_refused(actors, ("block", {"task": a, "by": b}), (other_way, {"task": b, "by": a}))
            tasks = [await store.get_task(team.id, number) for number in (a, b)]
            assert sorted(task.open_blockers for task in tasks) == [0, 1]
        await _finish(actors)
        await _check_board(store, team.id)


async def test_of_two_halves_of_a_cycle_that_have_no_task_in_common_one_is_refused(
    shared_store_url: str, crew: Crew
) -> None:
    """Neither meets the other at a task: only who looks at the whole graph, alone, can see the cycle."""
    async with opened(shared_store_url) as store:
        team, user = await create_team(store)
        actors = [crew.start(obey, url=shared_store_url, team_id=team.id) for _ in range(2)]
        for a, b in await _create(store, user, rounds=ROUNDS, each=2):
            after_b = (await store.create_task(user, "waits for b", blocked_by=[b])).id
            after_a = (await store.create_task(user, "waits for a", blocked_by=[a])).id
            await _check_one_half_is_refused(
                actors, ("block", {"task": a, "by": after_b}), ("block", {"task": b, "by": after_a})
            )
        await _finish(actors)
        await _check_board(store, team.id)


async def _check_one_half_is_refused(actors: list[Child], *halves: tuple[str, dict[str, Any]]) -> None:
    answers = await _round(actors, list(halves))
    assert sorted(answer["word"] for answer in answers) == ["done", "refused"]
    assert [answer["why"] for answer in answers if "why" in answer] == [CycleRefused.__name__]


async def test_of_three_thirds_of_a_cycle_added_at_the_same_moment_one_is_refused(
    shared_store_url: str, crew: Crew
) -> None:
    async with opened(shared_store_url) as store:
        team, user = await create_team(store)
        actors = [crew.start(obey, url=shared_store_url, team_id=team.id) for _ in range(3)]
        for a, b, c in await _create(store, user, rounds=ROUNDS // 2, each=3):
            answers = await _round(
                actors,
                [
                    ("block", {"task": a, "by": b}),
                    ("block", {"task": b, "by": c}),
                    ("block", {"task": c, "by": a}),
                ],
            )
            assert sorted(answer["word"] for answer in answers) == ["done", "done", "refused"]
        await _finish(actors)
        await _check_board(store, team.id)


async def test_a_dependent_added_while_its_blocker_finishes_is_never_blocked_for_ever(
    shared_store_url: str, crew: Crew
) -> None:
    async with opened(shared_store_url) as store:
        team, user = await create_team(store)
        actors = [crew.start(obey, url=shared_store_url, team_id=team.id) for _ in range(3)]
        dependents = []
        for index, (blocker, older) in enumerate(await _create(store, user, rounds=ROUNDS, each=2)):
            end = "delete" if index % 5 == 4 else "complete"
            answers = await _round(
                actors,
                [
                    (end, {"task": blocker}),
                    ("create", {"by": [blocker]}),
                    ("block", {"task": older, "by": blocker}),
                ],
            )
            assert answers[0]["word"] == "done"
            # Only a deleted blocker can be too late to be waited for.
            assert end == "delete" or [answer["word"] for answer in answers] == ["done"] * 3
            dependents += [answers[1]["task"]] if answers[1]["word"] == "done" else []
            dependents.append(older)
        await _finish(actors)
        await _check_board(store, team.id)
        me = (await join(store, team.id, "worker")).ref
        for number in sorted(dependents):
            task = await store.claim_next_task(me)
            assert task is not None
            assert task.id == number, "a dependent of a finished task cannot be claimed"
            await store.complete_task(me, number)


async def test_an_edge_removed_while_its_blocker_finishes_is_counted_once(shared_store_url: str, crew: Crew) -> None:
    async with opened(shared_store_url) as store:
        team, user = await create_team(store)
        actors = [crew.start(obey, url=shared_store_url, team_id=team.id) for _ in range(2)]
        for blocker, other in await _create(store, user, rounds=ROUNDS, each=2):
            waits = (await store.create_task(user, "waits", blocked_by=[blocker, other])).id
            answers = await _round(
                actors, [("complete", {"task": blocker}), ("unblock", {"task": waits, "by": blocker})]
            )
            assert [answer["word"] for answer in answers] == ["done", "done"]
            assert (await store.get_task(team.id, waits)).open_blockers == 1
        await _finish(actors)
        await _check_board(store, team.id)


async def test_two_blockers_that_finish_at_the_same_moment_free_their_dependent_once(
    shared_store_url: str, crew: Crew
) -> None:
    async with opened(shared_store_url) as store:
        team, user = await create_team(store)
        actors = [crew.start(obey, url=shared_store_url, team_id=team.id) for _ in range(2)]
        for a, b in await _create(store, user, rounds=ROUNDS, each=2):
            waits = (await store.create_task(user, "waits", blocked_by=[a, b])).id
            await _round(actors, [("complete", {"task": a}), ("complete", {"task": b})])
            assert (await store.get_task(team.id, waits)).open_blockers == 0
        await _finish(actors)
        events = await store.list_events(team.id, limit=100_000)
        freed = Counter(event.data["task"] for event in events if event.kind == "TaskUnblocked")
        assert len(freed) == ROUNDS
        assert set(freed.values()) == {1}


async def test_random_changes_by_six_processes_leave_a_board_without_cycles_whose_counters_are_true(
    shared_store_url: str, crew: Crew, chance: random.Random
) -> None:
    async with opened(shared_store_url) as store:
        team, user = await create_team(store)
        await _create(store, user, rounds=16, each=1)
        actors = [
            crew.start(
                shuffle_edges,
                url=shared_store_url,
                team_id=team.id,
                seed=chance.randrange(10**9),
                count=16,
                steps=40,
            )
            for _ in range(6)
        ]
        await release(actors)
        for actor in actors:
            await actor.join()
        await _check_board(store, team.id)


async def test_concurrent_creators_never_get_the_same_number(shared_store_url: str, crew: Crew) -> None:
    async with opened(shared_store_url) as store:
        team, _ = await create_team(store)
        creators = [crew.start(create_tasks, url=shared_store_url, team_id=team.id, count=20) for _ in range(8)]
        await release(creators)
        numbers = [number for child in creators for number in (await child.join("created"))[0]["tasks"]]
        assert len(numbers) == len(set(numbers)) == 8 * 16
        assert await _numbers(store, team.id) == sorted(numbers)


async def _numbers(store: Store, team_id: int) -> list[int]:
    return sorted(task.id for task in await _all_tasks(store, team_id))


async def _all_tasks(store: Store, team_id: int) -> list[Task]:
    return await store.list_tasks(team_id) + await store.list_tasks(team_id, status=TaskStatus.DELETED)


async def _check_board(store: Store, team_id: int) -> None:
    """Counters as the edges say, edges seen alike from both ends, no cycle."""
    tasks = {task.id: task for task in await _all_tasks(store, team_id)}
    for task in tasks.values():
        holding = [number for number in task.blocked_by if tasks[number].status not in RELEASES_DEPENDENTS]
        assert task.open_blockers == len(holding), f"#{task.id} counts {task.open_blockers}, but {holding} hold it"
        assert all(task.id in tasks[number].blocks for number in task.blocked_by)
        assert all(task.id in tasks[number].blocked_by for number in task.blocks)
    left = set(tasks)
    while free := {number for number in left if not left.intersection(tasks[number].blocked_by)}:
        left -= free
    assert not left, f"these wait for each other: {sorted(left)}"
