"""`bullpen approve` and `bullpen reject`."""

from __future__ import annotations

import re

import pytest

from bullpen.domain.member import LEAD, USER
from bullpen.domain.request import RequestKind
from bullpen.team import Team
from tests.acceptance.command import Bullpen
from tests.acceptance.test_cli_command import complete


async def ask(team: Team) -> None:
    """1: a permission, 2: a plan to the human, 3: a plan to the lead. Who asks is left without a host."""
    worker = await team.store.register_worker(slots=2)
    for name in ("cat", "dog"):
        await team.spawn(name)
    cat, dog = [await team.store.host_member(worker.id, team_id=team.id) for _ in range(2)]
    assert cat is not None
    assert dog is not None
    payload = {"pattern": "bash:git push"}
    await team.store.open_request(cat.ref, RequestKind.PERMISSION, USER, content="git push", payload=payload)
    await team.store.open_request(cat.ref, RequestKind.PLAN, USER, content="first read, then write")
    await team.store.open_request(dog.ref, RequestKind.PLAN, LEAD, content="bark")


@pytest.fixture
def asked(bullpen: Bullpen) -> Bullpen:
    bullpen.prepare(ask)
    return bullpen


def test_a_yes_is_stored_with_its_scope_and_reason_and_told_to_the_asker(asked: Bullpen) -> None:
    ran = asked("approve", "1", "--scope", "team", "--reason", "this once more")
    assert ran.lines[0] == "permission 1 of cat approved (team)"
    assert ran.lines[1].startswith("nobody hosts team default")
    assert "approved: this once more" in asked("inbox", "cat").out
    answer = asked.read("approve", "#2")
    assert (answer["kind"], answer["approved"], answer["scope"]) == ("plan", True, None)


def test_a_permission_is_given_once_unless_more_is_said(asked: Bullpen) -> None:
    assert asked("approve", "1").lines[0] == "permission 1 of cat approved (once)"


def test_a_no_says_why(asked: Bullpen) -> None:
    assert asked("reject", "2", "--reason", "test first").lines[0] == "plan 2 of cat rejected"
    assert "rejected: test first" in asked("inbox", "cat").out


def test_wrong_answers_get_one_helpful_line(asked: Bullpen) -> None:
    assert asked.refused("approve", "9") == (
        "there is no request 9 in team default; open are 1 (permission of cat), 2 (plan of cat), 3 (plan of dog)"
    )
    assert asked.refused("approve", "cat") == (
        "'cat' is not the number of a request; `bullpen team show` lists the open ones"
    )
    assert asked.refused("approve", "1", "--scope", "ever") == "--scope is one of once, team, always, not 'ever'"
    assert asked.refused("approve", "2", "--scope", "team") == (
        "--scope is for permissions, and request 2 is a plan: leave it out"
    )
    assert asked.refused("reject", "3") == "request 3 was put to lead: only they may answer it"
    assert asked.refused("approve") == "missing argument 'REQUEST_ID'; see `bullpen approve --help`"


def test_a_request_is_answered_once(asked: Bullpen) -> None:
    asked("reject", "1")
    line = re.sub(r"\d\d:\d\d:\d\d", "HH:MM:SS", asked.refused("approve", "1", code=1))
    assert line == "request 1 of cat has been rejected already by user at HH:MM:SS; nothing was changed"
    asked("team", "delete", "--yes")
    line = asked.refused("approve", "2", "--team", "default", code=1)
    assert line.startswith("request 2 of cat is no longer open: it was cancelled at ")


def test_where_nothing_is_asked_that_is_said(bullpen: Bullpen) -> None:
    bullpen("task", "add", "One")
    assert bullpen.refused("approve", "1") == "there is no request 1 in team default; none is open"


def test_the_shell_is_offered_what_waits_for_the_human(asked: Bullpen) -> None:
    assert complete(asked, "bullpen approve ") == ["1", "2"]
    assert complete(asked, "bullpen approve 1 --scope t") == ["team"]
    assert complete(asked, "bullpen interrupt d") == ["dog"]
