"""How a team stands, in a few lines of any width."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.cli.live.picture import SHOWN_MEMBERS, draw_picture
from bullpen.cli.live.question import answers_to, draw_question, find_question
from bullpen.cli.page import Page
from bullpen.cli.terminal import Terminal
from bullpen.cli.text import width_of, wrapped
from bullpen.domain.member import MemberStatus
from bullpen.domain.task import TaskStatus
from bullpen.team.progress import Progress, RequestProgress, TaskProgress

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
STATUSES = (MemberStatus.WORKING, MemberStatus.IDLE, MemberStatus.WAITING, MemberStatus.SHUTDOWN, MemberStatus.WANTED)


def page(width: int) -> Page:
    return Page(Terminal(width, has_colours=False, has_symbols=True, now=NOW))


def crowd(size: int) -> Progress:
    progress = Progress()
    progress.team = "rest-to-graphql"
    progress.began_at = NOW - timedelta(minutes=3)
    for number in range(1, size + 1):
        status = (TaskStatus.COMPLETED, TaskStatus.IN_PROGRESS, TaskStatus.FAILED)[number % 3]
        progress.tasks[number] = TaskProgress(number, f"A task with the number {number}", status=status)
        member = progress.member("lead" if number == 1 else f"member{number}")
        member.status, member.role = STATUSES[number % len(STATUSES)], "analyst"
        member.tool, member.task = "bash pytest -q tests/unit --maxfail=3", number
        member.tokens, member.cost_usd = 12_345 * number, 0.1 * number
    return progress


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("size", [1, 5, 21])
def test_every_line_fits_and_twenty_teammates_take_no_more_than_ten_lines(width: int, size: int) -> None:
    drawn = page(width)
    draw_picture(drawn, crowd(size), now=NOW, budget_usd=5)
    assert max(map(width_of, drawn.lines)) <= width
    assert len(drawn.lines) <= SHOWN_MEMBERS + 2
    assert "$" in drawn.lines[0]
    assert "lead" in drawn.lines[1]


def test_whoever_rests_is_only_named_and_whoever_acts_has_a_line() -> None:
    drawn = page(100)
    draw_picture(drawn, crowd(6), now=NOW)
    assert [line.split()[1] for line in drawn.lines[1:-1]] == ["lead", "member2", "member4", "member5"]
    assert drawn.lines[-1] == "○ 1 idle: member6   · 1 shut down: member3"


def test_a_question_shows_its_keys_only_when_they_count() -> None:
    progress = Progress()
    progress.requests[3] = RequestProgress(3, "permission", "ana", "user", "ana wants to use bash: git push")
    progress.requests[4] = RequestProgress(4, "plan", "ben", "lead", "not for the human")
    question = find_question(progress)
    assert question is not None
    assert question.id == 3
    assert list(answers_to(question)) == ["y", "t", "a", "n"]
    armed, unarmed = page(80), page(80)
    draw_question(armed, question, waiting=1, is_armed=True)
    draw_question(unarmed, question, waiting=2, is_armed=False)
    assert armed.lines == [
        "? ana asks you (permission, request 3)",
        "  ana wants to use bash: git push",
        "  [y] yes, once   [t] for this team   [a] always   [n] no",
    ]
    assert unarmed.lines[0] == "? ana asks you (permission, request 3, 1 more after it)"
    assert "[y]" not in unarmed.lines[-1]


@given(st.text(alphabet=st.characters(exclude_categories=["C", "Z", "M"], include_characters=" "), max_size=200))
def test_wrapped_text_fits_and_loses_nothing_but_blanks(line: str) -> None:
    pieces = wrapped(line, 12)
    assert all(width_of(piece) <= 12 for piece in pieces)
    assert "".join(pieces).replace(" ", "") == line.replace(" ", "")


def test_text_is_broken_between_words_and_keeps_its_indentation() -> None:
    assert wrapped("  a word and another", 10) == ["  a word", "and", "another"]
    assert wrapped("", 10) == [""]
