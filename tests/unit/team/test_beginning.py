"""A run that is cut off as it begins: whoever goes on says its goal, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from bullpen.config import Settings
from bullpen.domain.member import LEAD
from bullpen.store import Store
from bullpen.stores import open_store
from bullpen.team.beginning import OUTSET, begin_team, wake_lead

BEGAN = {OUTSET: {"include_dirty": False}}


async def said_to_lead(store: Store, team_id: int) -> list[str]:
    return [message.content for message in await store.list_mail(team_id, LEAD)]


@pytest.mark.parametrize("said_before", [(), ("Go",), ("Go", "")])
async def test_whoever_goes_on_with_a_run_whose_lead_has_not_begun_says_its_goal_once(
    tmp_path: Path, said_before: tuple[str, ...]
) -> None:
    async with open_store(f"sqlite:///{tmp_path}/work.db") as store:
        team = await begin_team(store, "Go", Settings(), memory=BEGAN)
        for words in said_before:
            await wake_lead(store, team.id, words)
        await wake_lead(store, team.id, "")
        assert await said_to_lead(store, team.id) == ["Go"]
        await wake_lead(store, team.id, "In blue")
        assert await said_to_lead(store, team.id) == ["Go", "In blue"]


async def test_the_goal_of_a_lead_that_has_begun_is_not_said_again(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/work.db") as store:
        team = await begin_team(store, "Go", Settings(), memory=BEGAN)
        await wake_lead(store, team.id, "Go")
        worker = await store.register_worker(slots=1)
        assert await store.host_member(worker.id) is not None
        await wake_lead(store, team.id, "")
        assert await said_to_lead(store, team.id) == ["Go"]
        # Who says it once more means it.
        await wake_lead(store, team.id, "Go")
        assert await said_to_lead(store, team.id) == ["Go", "Go"]


async def test_a_team_that_a_program_began_is_told_what_the_program_says(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/work.db") as store:
        team = await store.create_team("crew", goal="Go")
        await wake_lead(store, team.id, "")
        assert await said_to_lead(store, team.id) == []
