"""The log as news: one line for what a person wants to hear of."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from bullpen.cli.live.news import draw_news
from bullpen.cli.page import Page
from bullpen.cli.terminal import Terminal
from bullpen.domain.event import Event, EventKind
from bullpen.team.progress import Progress

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def news_of(kind: EventKind, actor: str, **data: Any) -> list[str]:
    page = Page(Terminal(100, has_colours=False, has_symbols=True, now=NOW))
    draw_news(page, Event(team_id=1, position="1", kind=kind, at=NOW, actor=actor, data=data), Progress())
    return page.lines


@pytest.mark.parametrize(
    ("outcome", "told"), [("created", "joins the team as tester"), ("revived", "is back as tester")]
)
def test_who_comes_is_news(outcome: str, told: str) -> None:
    [line] = news_of(EventKind.MEMBER_SPAWNED, "lead", member="ana", role="tester", outcome=outcome)
    assert line.endswith(f"ana       {told}")


@pytest.mark.parametrize("outcome", ["delivered", "queued"])
def test_who_was_there_all_the_time_is_not_back(outcome: str) -> None:
    assert news_of(EventKind.MEMBER_SPAWNED, "lead", member="ana", role="tester", outcome=outcome) == []
