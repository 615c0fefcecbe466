"""Eight processes claim at once: while a group of files is free, nobody is handed a task of a busy one."""

from __future__ import annotations

from collections.abc import Sequence

from bullpen.domain.event import Event, EventKind
from tests.support.processes import Crew, Line, release
from tests.support.stores import all_events, create_team, join, opened

CLAIMERS = 8
GROUPS = 4
TASKS = 16


async def claim_until_nothing_is_left(line: Line, url: str, team_id: int, name: str) -> None:
    async with opened(url) as store:
        me = (await join(store, team_id, name)).ref
        await line.meet()
        while (task := await store.claim_next_task(me)) is not None:
            await store.complete_task(me, task.id)
        await line.say("through")


async def test_while_others_are_there_never_two_tasks_of_one_group_are_handed_out(
    shared_store_url: str, crew: Crew
) -> None:
    async with opened(shared_store_url) as store:
        team, user = await create_team(store)
        # By threes, so that the next by number is mostly one that overlaps.
        groups = [number // 3 % GROUPS for number in range(TASKS)]
        for group in groups:
            await store.create_task(user, f"group {group}", files=[f"src/{group}/**"])
        claimers = [
            crew.start(claim_until_nothing_is_left, url=shared_store_url, team_id=team.id, name=f"m{index}")
            for index in range(CLAIMERS)
        ]
        await release(claimers)
        for child in claimers:
            await child.join("through")
        _check(await all_events(store, team.id), groups)


def _check(events: Sequence[Event], groups: Sequence[int]) -> None:
    """A claim reads after the one before it was made: what was free then, it has seen."""
    pending = set(range(1, TASKS + 1))
    busy: dict[int, int] = {}
    known_free: set[int] = set()
    for event in events:
        if event.kind == EventKind.TASK_COMPLETED:
            del busy[event.data["task"]]
        elif event.kind == EventKind.TASK_CLAIMED:
            number = event.data["task"]
            group = groups[number - 1]
            assert not (group in busy.values() and known_free), f"#{number} overlaps while {known_free} was free"
            pending.remove(number)
            busy[number] = group
            known_free = {groups[other - 1] for other in pending} - set(busy.values())
    assert not pending
