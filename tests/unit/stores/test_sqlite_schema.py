"""A SQLite store of an older Bullpen: what is in it stays, and the older one goes on working beside a newer."""

from __future__ import annotations

import fcntl
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import apsw
import pytest

from bullpen.domain.member import USER, MemberRef
from bullpen.errors import StoreUnavailable
from bullpen.stores import open_store
from bullpen.stores.sql.migration import Version, known_versions, statements_of
from bullpen.stores.sqlite.connection import connect

AT = "2026-01-01T00:00:00.000000+00:00"
# As a Bullpen of that schema writes them.
_INSERT_EVENT = {
    (1, 4): "INSERT INTO event (team_id, kind, at, actor, data) VALUES (?, ?, ?, ?, ?)",
    (1, 7): """
        INSERT INTO event_log (team_id, position, kind, at, actor, data)
        VALUES (?1, (SELECT coalesce(max(position), 0) + 1 FROM event_log WHERE team_id = ?1), ?2, ?3, ?4, ?5)
    """,
}
_LOG = {(1, 4): "event", (1, 7): "event_log"}
_INSERT_TURN = """
    INSERT INTO turn (team_id, member_key, seq, member, kind, content, incarnation, created_at)
    VALUES (?, 'ana', ?, 'ana', 'mail', ?, 1, ?)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bullpen.db"


def make_older_store(path: Path, version: Version) -> apsw.Connection:
    """Two teams whose events came by turns, so that their positions are not one after the other."""
    connection = connect(path)
    connection.execute("CREATE TABLE schema_version (major INTEGER NOT NULL, minor INTEGER NOT NULL) STRICT")
    connection.execute("INSERT INTO schema_version VALUES (?, ?)", version)
    for each in known_versions("sqlite"):
        if each <= version:
            connection.execute(statements_of("sqlite", each))
    for name in ("red", "blue"):
        connection.execute(
            "INSERT INTO team (name, name_key, generation, goal, next_task_id, next_request_id, settings, created_at)"
            " VALUES (?, ?, 1, '', 1, 1, '{}', ?)",
            (name, name, AT),
        )
    for number in range(6):
        connection.execute(_INSERT_EVENT[version], (1 + number % 2, "TaskChanged", AT, "ana", f'{{"task":{number}}}'))
    for seq in (1, 2, 3):
        connection.execute(_INSERT_TURN, (1, seq, f'"turn {seq}"', AT))
    return connection


def version_of(connection: apsw.Connection) -> Any:
    return connection.execute("SELECT major, minor FROM schema_version").fetchall()[0]


@pytest.mark.parametrize("version", [(1, 4), (1, 7)])
async def test_events_and_turns_of_an_older_store_are_where_they_were(path: Path, version: Version) -> None:
    older = make_older_store(path, version)
    async with open_store(f"sqlite:///{path}") as store:
        assert version_of(older) == known_versions("sqlite")[-1]
        for team_id, tasks in ((1, [0, 2, 4]), (2, [1, 3, 5])):
            events = await store.list_events(team_id)
            assert [event.data["task"] for event in events] == tasks
            assert await store.list_events(team_id, after=events[1].position) == events[2:]
            assert await store.last_position(team_id) == events[-1].position
        assert [turn.content for turn in await store.list_turns(1, "ana")] == ["turn 1", "turn 2", "turn 3"]
    older.close()


@pytest.mark.parametrize("version", [(1, 4), (1, 7)])
async def test_an_older_bullpen_goes_on_writing_and_reading_beside_a_newer(path: Path, version: Version) -> None:
    older = make_older_store(path, version)
    async with open_store(f"sqlite:///{path}") as store:
        team = await store.create_team("green")
        position = await store.last_position(team.id)
        older.execute(_INSERT_EVENT[version], (team.id, "TaskChanged", AT, "ana", '{"task":7}'))
        await store.create_task(MemberRef(team.id, USER, 0), "Newer")
        older.execute(_INSERT_EVENT[version], (team.id, "TaskChanged", AT, "ana", '{"task":8}'))
        older.execute(_INSERT_TURN, (1, 4, '"turn 4"', AT))
        events = await store.list_events(team.id, after=position)
        assert [(event.kind, event.data["task"]) for event in events] == [
            ("TaskChanged", 7),
            ("TaskCreated", 1),
            ("TaskChanged", 8),
        ]
        seen = older.execute(
            f"SELECT position, kind FROM {_LOG[version]} WHERE team_id = ? AND position > ? ORDER BY position LIMIT 10",
            (team.id, int(position)),
        ).fetchall()
        assert [(str(number), kind) for number, kind in seen] == [(event.position, event.kind) for event in events]
        assert [turn.seq for turn in await store.list_turns(1, "ana")] == [1, 2, 3, 4]
    older.close()


async def test_an_older_store_that_could_not_be_brought_up_to_date_is_when_it_can_be(path: Path) -> None:
    older = make_older_store(path, (1, 7))
    async with AsyncExitStack() as stack:
        with path.with_name("bullpen.db.gate").open("w") as gate:
            fcntl.flock(gate, fcntl.LOCK_EX)
            store = await stack.enter_async_context(open_store(f"sqlite:///{path}", patience_seconds=0.1))
            assert [team.name for team in await store.list_teams()] == ["red", "blue"], "who only looks goes on"
            with pytest.raises(StoreUnavailable, match="holds the store"):
                await store.list_events(1)
        assert [event.data["task"] for event in await store.list_events(1)] == [0, 2, 4]
    older.close()


async def test_an_event_and_a_turn_touch_one_page_each(path: Path) -> None:
    """Every page that a verb touches is flushed with it, and most verbs write an event."""
    async with open_store(f"sqlite:///{path}") as store:
        await store.create_team("green")
    connection = connect(path)
    trees = connection.execute(
        "SELECT tbl_name, count(*) FROM sqlite_schema WHERE rootpage > 0 AND tbl_name IN ('event_line', 'turn')"
        " GROUP BY tbl_name"
    ).fetchall()
    assert trees == [("event_line", 1), ("turn", 1)]
    connection.close()
