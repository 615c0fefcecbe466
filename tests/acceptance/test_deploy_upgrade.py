"""A newer Bullpen on the tables of an older one that is at work. The older one is the real command; what the newer one
adds is a step in a copy of the schema."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bullpen.errors import StoreUnavailable
from bullpen.stores import migrate_store
from bullpen.stores.sql import migration
from tests.acceptance.command import Elsewhere
from tests.acceptance.plays import at_work
from tests.support.deployed import Deployed, deployed

TABLES = ("team", "worker", "member", "task", "message", "turn", "tool_call", "event")
ADDS = "".join(f"ALTER TABLE {table} ADD COLUMN later text NOT NULL DEFAULT '';\n" for table in TABLES)

Release = Callable[[str, str], None]


@pytest.fixture
def database() -> Iterator[Deployed]:
    with deployed() as made:
        yield made


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Release]:
    """Makes this process a newer Bullpen, with one more step."""
    schema = tmp_path / "schema"
    shutil.copytree(migration._SCHEMA, schema)
    monkeypatch.setattr(migration, "_SCHEMA", schema)

    def add(version: str, statements: str) -> None:
        (schema / "postgresql" / f"{version}_later.sql").write_text(statements)
        migration._files.cache_clear()

    yield add
    migration._files.cache_clear()


def test_a_step_that_adds_is_taken_beside_older_workers_and_any_other_only_after_them(
    database: Deployed, tmp_path: Path, release: Release
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    bullpen = Elsewhere(home, database.worker)
    bullpen("migrate", BULLPEN_STORE=database.owner)
    with at_work(bullpen) as older:
        release("1.99", f"{ADDS}CREATE TABLE later (id bigint);\n")
        assert asyncio.run(migrate_store(database.owner)) == (1, 99)
        release("2.0", "DROP TABLE later;\n")
        with pytest.raises(StoreUnavailable, match="still runs an older Bullpen"):
            asyncio.run(migrate_store(database.owner))
        older.say()
        code, out, err = older.end()
        assert code == 0, out + err
    assert asyncio.run(migrate_store(database.owner)) == (2, 0)
    refusal = bullpen.refused("team", "list", code=3)
    assert "this store has schema 2.0, this Bullpen understands 1.x: upgrade Bullpen" in refusal
