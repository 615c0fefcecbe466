"""What of a store lies on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from bullpen.stores import open_store
from bullpen.stores.place import place_of
from tests.support.stores import create_team, join


@pytest.mark.parametrize("scheme", ["sqlite:///{}/work.db", "files:{}"])
async def test_whatever_a_store_lays_into_a_workspace_no_command_there_sees(tmp_path: Path, scheme: str) -> None:
    url = scheme.format(tmp_path)
    async with open_store(url) as store:
        team, user = await create_team(store)
        await join(store, team.id, "ana")
        await store.create_task(user, "a task")
        laid = set(tmp_path.iterdir())
    assert laid
    assert laid <= set(place_of(url).hidden)


@pytest.mark.parametrize("name", ["linked.db", ".bullpen/bullpen.db"])
async def test_what_lies_beside_a_database_that_is_linked_to_is_hidden_too(tmp_path: Path, name: str) -> None:
    link = tmp_path / name
    link.parent.mkdir(exist_ok=True)
    real = tmp_path / "elsewhere/work.db"
    real.parent.mkdir()
    link.symlink_to(real)
    async with open_store(f"sqlite:///{link}") as store:
        team, _ = await create_team(store)
        await join(store, team.id, "ana")
        laid = set(real.parent.iterdir())
        assert {path.name for path in laid} >= {"work.db", "work.db-wal", "work.db.gate", "work.db.workers"}
        assert laid <= set(place_of(f"sqlite:///{link}").hidden)
