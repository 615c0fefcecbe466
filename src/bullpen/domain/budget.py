"""Money and tokens: reserved before a model is asked, settled after it has answered.

    reserve (input + maximal output) ──> open ──> settled (what it really was)

An open reservation counts as spent, so the limit is never passed, however many
calls are under way and whoever dies in the middle of one. When there is no room but
calls are under way, waiting helps: they settle for less than they reserved.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from bullpen.domain.prompt import Usage
from bullpen.domain.text import name_key

TEAM_ACCOUNT = ""
"""The account of the whole team; every other one is a member's."""
BUDGET_SPENT = "budget spent"
"""How the reason of a member's status begins that waits for a larger budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    team_id: int
    id: int
    member: str
    incarnation: int
    purpose: str
    provider_key: str
    model: str
    tokens: int
    cost_usd: float
    usage: Usage | None = None
    spent_usd: float | None = None
    created_at: datetime
    settled_at: datetime | None = None

    @property
    def member_key(self) -> str:
        return name_key(self.member)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What a call really was, written together with its reply."""

    reservation_id: int
    usage: Usage
    cost_usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What a member, or the team, has spent and reserved so far.

    Each reservation counts once, as open or as settled: so the two together number the reservations of a team.
    """

    team_id: int
    member_key: str
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd: float = 0.0
    open_calls: int = 0
    open_tokens: int = 0
    open_cost_usd: float = 0.0
    told: tuple[str, ...] = ()
    """In the team's: limits whose end was announced, each with its value; it is said again only for another one."""

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    @property
    def is_used(self) -> bool:
        return self.calls + self.open_calls > 0

    @property
    def next_reservation_id(self) -> int:
        return self.calls + self.open_calls + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """None: no limit."""

    max_cost_usd: float | None = None
    max_tokens: int | None = None
    max_calls: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why there is no room. `is_final`: nothing that is under way can make room. `limit`: the one in the way."""

    why: str
    is_final: bool
    until: datetime | None = None
    limit: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """One of the two."""

    reservation: Reservation | None = None
    refusal: Refusal | None = None


def limits_of(settings: Mapping[str, Any], *, of_member: bool = False) -> Limits:
    """Whatever somebody wrote there: what is no number that can be a limit is none."""
    budget = settings.get("budget")
    if of_member and isinstance(budget, Mapping):
        budget = budget.get("member")
    if not isinstance(budget, Mapping):
        return Limits()
    cost, tokens, calls = (_limit(budget.get(name)) for name in ("max_cost_usd", "max_tokens", "max_calls"))
    return Limits(
        max_cost_usd=cost,
        max_tokens=None if tokens is None else int(tokens),
        max_calls=None if calls is None else int(calls),
    )


def less_spent(settings: Mapping[str, Any], account: Account) -> dict[str, Any]:
    """The settings of the team that follows this one: it has what is left, a new name is no new budget."""
    limits = limits_of(settings)
    left = {
        "max_cost_usd": None if limits.max_cost_usd is None else limits.max_cost_usd - account.cost_usd,
        "max_tokens": None if limits.max_tokens is None else limits.max_tokens - account.tokens,
        "max_calls": None if limits.max_calls is None else limits.max_calls - account.calls,
    }
    given = {name: max(amount, 0) for name, amount in left.items() if amount is not None}
    return {**settings, "budget": {**settings["budget"], **given}} if given else dict(settings)


def _limit(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and 0 <= value < math.inf else None


def find_refusal(account: Account, limits: Limits, *, tokens: int, cost_usd: float, whose: str) -> Refusal | None:
    """Would this call, at its most expensive, pass a limit?"""
    wanted = (
        ("max_cost_usd", limits.max_cost_usd, account.cost_usd, account.open_cost_usd, cost_usd),
        ("max_tokens", limits.max_tokens, account.tokens, account.open_tokens, tokens),
        ("max_calls", limits.max_calls, account.calls, account.open_calls, 1),
    )
    for name, limit, spent, reserved, more in wanted:
        if limit is not None and spent + reserved + more > limit:
            why = f"{whose} has spent {spent:.10g} of {name} = {limit:.10g} and the next call may need {more:.10g}"
            return Refusal(
                why=why, is_final=spent + more > limit or not reserved, limit=f"{name} = {limit:.10g} of {whose}"
            )
    return None


def reserved(account: Account, reservation: Reservation) -> Account:
    return replace(
        account,
        open_calls=account.open_calls + 1,
        open_tokens=account.open_tokens + reservation.tokens,
        open_cost_usd=account.open_cost_usd + reservation.cost_usd,
    )


def settled(account: Account, reservation: Reservation, usage: Usage, cost_usd: float) -> Account:
    return replace(
        account,
        calls=account.calls + 1,
        input_tokens=account.input_tokens + usage.input_tokens,
        output_tokens=account.output_tokens + usage.output_tokens,
        cache_read_tokens=account.cache_read_tokens + usage.cache_read_tokens,
        cache_write_tokens=account.cache_write_tokens + usage.cache_write_tokens,
        cost_usd=account.cost_usd + cost_usd,
        open_calls=account.open_calls - 1,
        open_tokens=account.open_tokens - reservation.tokens,
        # Never a trace of rounding below zero once nothing is open.
        open_cost_usd=max(account.open_cost_usd - reservation.cost_usd, 0.0) if account.open_calls > 1 else 0.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NearLimit:
    """A limit that is nearly used up."""

    limit: str
    value: float
    spent: float


WARNS_AT = 0.8


def find_warnings(before: Account, after: Account, limits: Limits) -> Iterator[NearLimit]:
    """Limits whose 80 % lie between the two: each is crossed once, since what is spent only grows."""
    spent = (
        ("max_cost_usd", limits.max_cost_usd, before.cost_usd, after.cost_usd),
        ("max_tokens", limits.max_tokens, before.tokens, after.tokens),
        ("max_calls", limits.max_calls, before.calls, after.calls),
    )
    for name, limit, old, new in spent:
        if limit is not None and old < WARNS_AT * limit <= new:
            yield NearLimit(limit=name, value=limit, spent=new)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderGate:
    """Nobody asks this provider before `blocked_until`: one answer 429 holds the whole team back."""

    provider_key: str
    blocked_until: datetime
