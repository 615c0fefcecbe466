"""What a team has spent, by whom, against its budgets, and what its members' time went into."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from bullpen.domain.budget import TEAM_ACCOUNT, Account, Limits, limits_of
from bullpen.domain.member import LEAD
from bullpen.team.hosts import find_hosts
from bullpen.team.progress import Progress
from bullpen.team.team import Team


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """`whole` is the team's account, `accounts` are the members', the lead's first. `at` is the moment until which
    time is counted."""

    team: str
    whole: Account
    accounts: tuple[Account, ...]
    limits: Limits
    member_limits: Limits
    progress: Progress
    at: datetime

    @property
    def busy_seconds(self) -> float:
        return self.progress.busy_until(self.at)

    @property
    def wall_seconds(self) -> float:
        return self.progress.hosted_until(self.at)

    @property
    def coordination_share(self) -> float:
        return coordination_share(self.accounts)


async def look_at_spending(team: Team) -> Spending:
    accounts = await team.list_accounts()
    progress = await team.get_progress()
    settings = team.record.settings
    # Nobody is busy where nobody hosts: whoever looks as if it were has died, and is not declared dead yet.
    is_hosted = bool((await find_hosts(team.store, team.record)).hosting)
    now = team.store.clock.now()
    return Spending(
        team=team.name,
        whole=whole_of(accounts, team.id),
        accounts=members_of(accounts),
        limits=limits_of(settings),
        member_limits=limits_of(settings, of_member=True),
        progress=progress,
        at=now if is_hosted else progress.last_at or now,
    )


def whole_of(accounts: Sequence[Account], team_id: int) -> Account:
    empty = Account(team_id=team_id, member_key=TEAM_ACCOUNT)
    return next((account for account in accounts if account.member_key == TEAM_ACCOUNT), empty)


def members_of(accounts: Sequence[Account]) -> tuple[Account, ...]:
    own = [account for account in accounts if account.member_key != TEAM_ACCOUNT]
    return tuple(sorted(own, key=lambda account: (account.member_key != LEAD, account.member_key)))


def coordination_share(accounts: Sequence[Account]) -> float:
    """The lead's part of all tokens: what it costs to have a team at all."""
    own = members_of(accounts)
    total = sum(account.tokens for account in own)
    return sum(account.tokens for account in own if account.member_key == LEAD) / total if total else 0.0
