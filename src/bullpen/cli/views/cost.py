"""What was spent, by whom, and how far the budgets reach."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bullpen.cli.page import Column, Page, Painted, Part
from bullpen.cli.views.moment import duration
from bullpen.domain.budget import Account, Limits
from bullpen.domain.codec import encode
from bullpen.team.spending import Spending

COLUMNS = (
    Column("MEMBER"),
    Column("ROLE"),
    Column("CALLS"),
    Column("INPUT"),
    Column("CACHED"),
    Column("OUTPUT"),
    Column("COST"),
    Column("BUSY"),
    Column("OF ITS BUDGET"),
)
WARNS_AT = 0.8


def draw_cost(page: Page, spending: Spending) -> None:
    if not spending.whole.is_used:
        page.line(f"team {spending.team} has asked no model yet")
    else:
        page.table(COLUMNS, [_row(spending, account) for account in spending.accounts])
        page.gap()
    _draw_whole(page, spending)


def _row(spending: Spending, account: Account) -> list[Part]:
    member = spending.progress.members.get(account.member_key)
    return [
        Painted(account.member_key if member is None else member.name, "bold"),
        "" if member is None else member.role or "",
        f"{account.calls:,}",
        f"{account.input_tokens:,}",
        f"{account.cache_read_tokens:,}" if account.cache_read_tokens else "",
        f"{account.output_tokens:,}",
        money(account.cost_usd),
        "" if member is None else duration(member.busy_until(spending.at)),
        _nearest(account, spending.member_limits),
    ]


def _draw_whole(page: Page, spending: Spending) -> None:
    whole, limits = spending.whole, spending.limits
    page.field("cost", money(whole.cost_usd), *_of(whole.cost_usd, limits.max_cost_usd, money))
    page.field(
        "tokens",
        f"{whole.tokens:,}",
        *_of(whole.tokens, limits.max_tokens, _count),
        Painted(f"  {whole.cache_read_tokens:,} of the input from the cache" * bool(whole.cache_read_tokens), "dim"),
    )
    page.field("calls", f"{whole.calls:,}", *_of(whole.calls, limits.max_calls, _count))
    if whole.open_calls:
        calls = "1 call" if whole.open_calls == 1 else f"{whole.open_calls} calls"
        page.field("under way", f"{calls}, {money(whole.open_cost_usd)} set aside")
    draw_time(page, spending.wall_seconds, spending.busy_seconds)
    if whole.is_used:
        page.field("by the lead", f"{spending.coordination_share:.0%} of the tokens", Painted("  coordination", "dim"))


def draw_time(page: Page, wall_seconds: float, busy_seconds: float) -> None:
    at_a_time = f" = {busy_seconds / wall_seconds:.1f} members at a time" if wall_seconds >= 0.1 else ""
    page.field("time", duration(wall_seconds), Painted(f"  busy {duration(busy_seconds)}{at_a_time}", "dim"))


def money(amount: float) -> str:
    """Cents count as long as there are few dollars."""
    return f"${amount:,.2f}" if amount >= 10 or amount == round(amount, 2) else f"${amount:.4f}"


def _count(number: float) -> str:
    return f"{number:,.0f}"


def _of(spent: float, limit: float | None, say: Any) -> list[Part]:
    if limit is None:
        return []
    share = spent / limit if limit else 1.0
    return [f" of {say(limit)} ", Painted(f"({share:.0%})", "yellow" if share >= WARNS_AT else "dim")]


def _nearest(account: Account, limits: Limits) -> Part:
    """How much of the limit that it has come closest to."""
    known = (
        (account.cost_usd, limits.max_cost_usd, money),
        (account.tokens, limits.max_tokens, lambda number: f"{number:,.0f} tokens"),
        (account.calls, limits.max_calls, lambda number: f"{number:,.0f} calls"),
    )
    shares = [(spent / limit if limit else 1.0, say(limit)) for spent, limit, say in known if limit is not None]
    if not shares:
        return ""
    share, words = max(shares)
    return Painted(f"{share:.0%} of {words}", "yellow" if share >= WARNS_AT else "")


def cost_document(spending: Spending) -> Mapping[str, Any]:
    """The same for programs."""
    return {
        "team": spending.team,
        "total": encode(spending.whole),
        "members": [_member_document(spending, account) for account in spending.accounts],
        "limits": encode(spending.limits),
        "member_limits": encode(spending.member_limits),
        "wall_seconds": spending.wall_seconds,
        "busy_seconds": spending.busy_seconds,
        "coordination_share": spending.coordination_share,
    }


def _member_document(spending: Spending, account: Account) -> dict[str, Any]:
    member = spending.progress.members.get(account.member_key)
    return {
        **encode(account),
        "member": account.member_key if member is None else member.name,
        "role": None if member is None else member.role,
        "busy_seconds": 0.0 if member is None else member.busy_until(spending.at),
    }
