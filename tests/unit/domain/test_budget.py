"""The arithmetic of budgets: whatever is asked and settled in whatever order, a limit is never passed."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.domain.budget import (
    Account,
    Limits,
    Reservation,
    find_refusal,
    find_warnings,
    less_spent,
    limits_of,
    reserved,
    settled,
)
from bullpen.domain.prompt import Usage

NOW = datetime(2026, 1, 1, tzinfo=UTC)
EMPTY = Account(team_id=1, member_key="")


def reservation(number: int, tokens: int, cost_usd: float) -> Reservation:
    return Reservation(
        team_id=1,
        id=number,
        member="ana",
        incarnation=1,
        purpose="turn",
        provider_key="key",
        model="m",
        tokens=tokens,
        cost_usd=cost_usd,
        created_at=NOW,
    )


amounts = st.tuples(st.integers(0, 500), st.integers(0, 500), st.booleans())


@given(st.lists(amounts, max_size=40), st.integers(0, 2000))
def test_what_was_spent_and_what_is_reserved_never_pass_the_limit_together(
    steps: list[tuple[int, int, bool]], max_tokens: int
) -> None:
    account, limits, under_way = EMPTY, Limits(max_tokens=max_tokens), []
    for tokens, used, settles in steps:
        if find_refusal(account, limits, tokens=tokens, cost_usd=0.0, whose="the team") is None:
            one = reservation(account.next_reservation_id, tokens, 0.0)
            account = reserved(account, one)
            under_way.append((one, min(used, tokens)))
        if settles and under_way:
            over, count = under_way.pop(0)
            account = settled(account, over, Usage(input_tokens=count), 0.0)
        assert account.tokens + account.open_tokens <= max_tokens
        assert account.open_calls == len(under_way)
    for over, count in under_way:
        account = settled(account, over, Usage(input_tokens=count), 0.0)
    assert (account.open_calls, account.open_tokens) == (0, 0)


@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=60))
def test_each_limit_is_warned_of_exactly_once(costs: list[float]) -> None:
    account, limits, warned = EMPTY, Limits(max_cost_usd=10.0), 0
    for cost in costs:
        one = reservation(account.next_reservation_id, 0, cost)
        before = reserved(account, one)
        account = settled(before, one, Usage(), cost)
        warned += len(list(find_warnings(before, account, limits)))
    assert warned == (account.cost_usd >= 8.0)


@pytest.mark.parametrize(
    "settings",
    [{}, {"budget": None}, {"budget": "5"}, {"budget": {"max_cost_usd": "5"}}, {"budget": {"max_tokens": True}}],
)
def test_what_is_no_limit_limits_nothing(settings: dict[str, object]) -> None:
    assert limits_of(settings) == Limits()


def test_a_team_that_follows_has_what_is_left() -> None:
    settings = {"budget": {"max_cost_usd": 5.0, "max_calls": 2, "member": {"max_calls": 9}}, "model": "m"}
    spent = Account(team_id=1, member_key="", calls=3, cost_usd=1.5)
    assert less_spent(settings, spent) == {
        "budget": {"max_cost_usd": 3.5, "max_calls": 0, "member": {"max_calls": 9}},
        "model": "m",
    }
    assert less_spent({"model": "m"}, spent) == {"model": "m"}
