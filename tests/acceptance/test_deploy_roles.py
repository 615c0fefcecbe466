"""`deploy/postgresql/roles.sql`: whoever works with the store may change its rows, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import errors

from tests.acceptance.command import Bullpen
from tests.acceptance.plays import FINISHES
from tests.acceptance.scripts import scripted
from tests.support.deployed import Deployed, deployed

FORBIDDEN = (
    "DROP TABLE task",
    "TRUNCATE event",
    "ALTER TABLE task ADD COLUMN mine text",
    "CREATE TABLE mine (id int)",
    "CREATE TABLE public.mine (id int)",
    "CREATE SCHEMA mine",
    "CREATE TEMPORARY TABLE mine (id int)",
    "CREATE ROLE mine",
    "SET ROLE bullpen_owner",
)


@pytest.fixture(scope="module")
def database() -> Iterator[Deployed]:
    with deployed() as made:
        yield made


def test_a_role_with_least_rights_runs_a_whole_team_once_the_owner_has_made_the_tables(
    database: Deployed, bullpen: Bullpen
) -> None:
    scripted(bullpen, FINISHES)
    refusal = bullpen.refused("task", "add", "early", code=3, BULLPEN_STORE=database.worker)
    assert "run `bullpen migrate` as their owner" in refusal
    assert bullpen("migrate", BULLPEN_STORE=database.owner).out.startswith("the tables are those of schema 1.")
    bullpen("run", "Count them", "--team", "crew", BULLPEN_STORE=database.worker)
    assert "2 completed" in bullpen("team", "show", "crew", BULLPEN_STORE=database.reader).out
    assert "does not allow that" in bullpen.refused("task", "add", "mine", code=3, BULLPEN_STORE=database.reader)
    for role in ("bullpen_worker", "bullpen_reader"):
        check_forbidden(database, role)


def check_forbidden(database: Deployed, role: str) -> None:
    for statement in FORBIDDEN:
        with pytest.raises(errors.InsufficientPrivilege):
            database.ask(statement, role)


def test_other_roles_of_the_server_do_not_get_in(database: Deployed) -> None:
    database.ask("CREATE ROLE stranger LOGIN")
    with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
        database.ask("SELECT 1", "stranger")
