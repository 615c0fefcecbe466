"""`bullpen cost`."""

from __future__ import annotations

import re

import pytest
from inline_snapshot import snapshot

from bullpen.team import Team
from tests.acceptance.command import Bullpen
from tests.acceptance.plays import FINISHES, TEAM, play


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Bullpen:
    bullpen = Bullpen(tmp_path_factory.mktemp("finished"))
    (bullpen.directory / "bullpen.toml").write_text("[budget]\nmax_tokens = 1_000_000\nmember.max_calls = 8\n")
    play(bullpen, FINISHES)
    return bullpen


def without_times(text: str) -> str:
    """Times and the columns that their widths move."""
    text = re.sub(r"busy \d+(\.\d)? s = [\d.]+ members", "busy N s = N members", text)
    return re.sub(r" {2,}", "  ", re.sub(r"\b\d+(\.\d)? s\b", "N s", text))


def test_who_spent_what_against_the_budgets(finished: Bullpen) -> None:
    assert without_times(finished("cost").out) == snapshot("""\
MEMBER  ROLE  CALLS  INPUT  CACHED  OUTPUT  COST  BUSY  OF ITS BUDGET
lead  3  3,000  1,800  300  $0.0135  N s  38% of 8 calls
ana  analyst  7  7,000  4,200  700  $0.0315  N s  88% of 8 calls

cost  $0.0450 of $5.00 (1%)
tokens  11,000 of 1,000,000 (1%)  6,000 of the input from the cache
calls  10
time  N s  busy N s = N members at a time
by the lead 30% of the tokens  coordination
""")


def test_the_same_for_programs(finished: Bullpen) -> None:
    spent = finished.read("cost", TEAM)
    calls = spent["total"]["calls"]
    assert spent["total"]["input_tokens"] == 1000 * calls
    assert spent["total"]["cache_read_tokens"] == 600 * calls
    assert spent["total"]["cost_usd"] == pytest.approx(0.0045 * calls)
    assert [member["member"] for member in spent["members"]] == ["lead", "ana"]
    assert sum(member["calls"] for member in spent["members"]) == calls
    assert spent["limits"] == {"max_cost_usd": 5, "max_tokens": 1000000, "max_calls": None}
    assert spent["member_limits"]["max_calls"] == 8
    assert spent["busy_seconds"] > 0
    assert spent["wall_seconds"] > 0
    lead = spent["members"][0]
    assert spent["coordination_share"] == pytest.approx(lead["calls"] / calls)


def test_a_team_that_has_asked_nobody_says_so(bullpen: Bullpen) -> None:
    async def one_task(team: Team) -> None:
        await team.create_task("One")

    bullpen.prepare(one_task)
    assert bullpen("cost").lines[0] == "team default has asked no model yet"
    assert bullpen.read("cost")["members"] == []
