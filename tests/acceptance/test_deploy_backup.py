"""A dump of a team at work, restored elsewhere: it goes on from there, and nobody of before takes part."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg import errors

from bullpen.domain.event import EventKind
from bullpen.domain.task import TaskStatus
from bullpen.team import Team
from tests.acceptance.command import Elsewhere
from tests.acceptance.plays import TEAM, ask_team, at_work
from tests.support.deployed import DATABASE, ROLES, Deployed, deployed
from tests.support.invariants import check_incarnations, check_mail, past_of

RESTORED = "restored"


@pytest.fixture(scope="module")
def database() -> Iterator[Deployed]:
    with deployed() as made:
        yield made


def dump_and_restore(database: Deployed) -> None:
    server, dump = database.server, str(database.server.directory / "bullpen.dump")
    at = ("--host", str(server.directory), "--username", "postgres")
    server.run("pg_dump", *at, "--format", "custom", "--file", dump, DATABASE)
    server.run("createdb", *at, RESTORED)
    database.ask(ROLES.read_text(), database=RESTORED)
    server.run("pg_restore", *at, "--clean", "--if-exists", "--dbname", RESTORED, dump)
    # As if the machine were another one: nothing here proves whether the workers of before live.
    database.ask("UPDATE bullpen.worker SET boot_id = 'another', lease_seconds = 1", database=RESTORED)


def test_a_dump_of_a_team_at_work_is_restored_and_resume_goes_on(database: Deployed, tmp_path: Path) -> None:
    bullpen = Elsewhere(tmp_path, database.worker)
    bullpen("migrate", BULLPEN_STORE=database.owner)
    with at_work(bullpen):
        dump_and_restore(database)
    # The word is there now: the restored team finds it as a file.
    (tmp_path / "word").unlink()
    (tmp_path / "word").write_text("the word")
    bullpen.environment["BULLPEN_STORE"] = database.url("bullpen_worker", RESTORED)
    ran = bullpen("resume", TEAM)
    assert "is silent: its lease of 1 seconds is waited for" in ran.err
    ask_team(bullpen, check)
    with pytest.raises(errors.InsufficientPrivilege):
        database.ask("DROP TABLE task", "bullpen_worker", RESTORED)


async def check(team: Team) -> None:
    [task] = await team.list_tasks()
    assert task.status is TaskStatus.COMPLETED
    past = await past_of(team.store, team.id)
    assert len(past.of(EventKind.WORKER_LAPSED)) == 1
    check_mail(past)
    check_incarnations(past)
