"""Verbs about money and tokens.

Invariant: whoever reserves or settles holds the team's account until its transaction
ends. So what was spent and what is reserved never passes a limit together, and the
accounts of members need no lock beside it. Locks nothing after it: see `_tell`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from bullpen.domain.budget import (
    BUDGET_SPENT,
    TEAM_ACCOUNT,
    Account,
    Limits,
    ProviderGate,
    Refusal,
    Reservation,
    Reserved,
    Settlement,
    find_refusal,
    find_warnings,
    limits_of,
    reserved,
    settled,
)
from bullpen.domain.event import EventKind
from bullpen.domain.member import LEAD, SYSTEM, USER, Member, MemberKind, MemberRef, Team
from bullpen.domain.message import MessageType, Origin
from bullpen.domain.prompt import Usage
from bullpen.domain.record import replace
from bullpen.domain.text import check_key, clean, name_key
from bullpen.errors import NotFound, UsageError
from bullpen.stores.transaction import Lock, Transaction
from bullpen.stores.verbs.fence import fenced
from bullpen.stores.verbs.post import post
from bullpen.stores.verbs.requests import moment_in
from bullpen.stores.verbs.verb import read, write


class BudgetVerbs:
    @write
    async def reserve(
        tx: Transaction,
        by: MemberRef,
        *,
        purpose: str,
        provider_key: str,
        model: str,
        tokens: int,
        cost_usd: float,
        operation_id: str | None = None,
    ) -> Reserved:
        _check_amounts(tokens, cost_usd)
        check_key(provider_key, what="provider key")
        tx.foresee(lambda: tx.find(ProviderGate, provider_key), lambda: tx.hold_accounts(by.team_id, name_key(by.name)))
        team, me = await fenced(tx, by, team_must_live=False)
        refusal = await _find_gate(tx, team, provider_key)
        if refusal is not None:
            return Reserved(refusal=refusal)
        books = Books(tx, team, me, *await tx.hold_accounts(me.team_id, me.key))
        refusal = await books.find_room(tokens=tokens, cost_usd=float(cost_usd))
        if refusal is None:
            wanted = Reservation(
                team_id=me.team_id,
                id=books.team_account.next_reservation_id,
                member=me.name,
                incarnation=me.incarnation,
                purpose=clean(purpose, what="purpose"),
                provider_key=provider_key,
                model=model,
                tokens=tokens,
                cost_usd=float(cost_usd),
                created_at=tx.now,
            )
            return Reserved(reservation=await books.reserve(wanted))
        if refusal.is_final:
            await books.tell_of(refusal, purpose=purpose, model=model)
        return Reserved(refusal=refusal)

    @write
    async def settle(tx: Transaction, by: MemberRef, settlement: Settlement) -> Reservation:
        foresee_settlement(tx, by, settlement)
        team, me = await fenced(tx, by, team_must_live=False)
        return await settle(tx, team, me, settlement)

    @write
    async def block_provider(tx: Transaction, provider_key: str, *, seconds: float) -> ProviderGate:
        check_key(provider_key, what="provider key")
        gate = ProviderGate(provider_key=provider_key, blocked_until=moment_in(tx, seconds))
        known = await tx.find(ProviderGate, provider_key, lock=Lock.UPDATE)
        if known is None:
            return await tx.insert(gate)
        if known.blocked_until >= gate.blocked_until:
            return known
        await tx.update(gate)
        return gate

    @read
    async def list_accounts(tx: Transaction, team_id: int) -> list[Account]:
        accounts = await tx.list_accounts(team_id)
        team = next((account for account in accounts if account.member_key == TEAM_ACCOUNT), None)
        used = [account for account in accounts if account.member_key != TEAM_ACCOUNT and account.is_used]
        return [team or Account(team_id=team_id, member_key=TEAM_ACCOUNT), *used]


def foresee_settlement(tx: Transaction, by: MemberRef, settlement: Settlement) -> None:
    tx.foresee(
        lambda: tx.hold_accounts(by.team_id, name_key(by.name)),
        lambda: tx.find(Reservation, by.team_id, settlement.reservation_id),
    )


async def settle(tx: Transaction, team: Team, me: Member, settlement: Settlement) -> Reservation:
    """`me` is held. What was reserved becomes what it really was; nothing happens the second time."""
    usage = settlement.usage
    counts = (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens)
    _check_amounts(min(counts), settlement.cost_usd)
    books = Books(tx, team, me, *await tx.hold_accounts(me.team_id, me.key))
    reservation = await tx.find(Reservation, me.team_id, settlement.reservation_id)
    if reservation is None or reservation.member_key != me.key:
        raise NotFound(f"{me.name} has no reservation {settlement.reservation_id}")
    if reservation.settled_at is not None:
        return reservation
    tx.record(
        me.team_id,
        EventKind.MODEL_ANSWERED,
        me.name,
        member=me.name,
        reservation=reservation.id,
        purpose=reservation.purpose,
        model=reservation.model,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        cost_usd=float(settlement.cost_usd),
    )
    return await books.settle(reservation, usage, float(settlement.cost_usd))


class Books:
    """The accounts of a team in one transaction, the team's held."""

    def __init__(self, tx: Transaction, team: Team, me: Member, team_account: Account, own: Account) -> None:
        self._tx = tx
        self._team = team
        self._me = me
        self._accounts = {TEAM_ACCOUNT: team_account, me.key: own}

    @property
    def team_account(self) -> Account:
        return self._accounts[TEAM_ACCOUNT]

    async def find_room(self, *, tokens: int, cost_usd: float) -> Refusal | None:
        """What stands in the way and is over is written off first."""
        if self._accounts[self._me.key].open_calls:
            await self._write_off(self._me.key)
        refusal = self._find_refusal(tokens, cost_usd)
        if refusal is not None and not refusal.is_final and await self._write_off(None):
            refusal = self._find_refusal(tokens, cost_usd)
        return refusal

    def _find_refusal(self, tokens: int, cost_usd: float) -> Refusal | None:
        found = [
            refusal
            for key in self._own_keys
            if (
                refusal := find_refusal(
                    self._accounts[key], self._limits(key), tokens=tokens, cost_usd=cost_usd, whose=self._whose(key)
                )
            )
        ]
        return next((refusal for refusal in found if refusal.is_final), found[0] if found else None)

    async def reserve(self, reservation: Reservation) -> Reservation:
        for key in self._own_keys:
            await self._keep(reserved(self._accounts[key], reservation))
        return await self._tx.insert(reservation)

    async def settle(self, reservation: Reservation, usage: Usage, cost_usd: float) -> Reservation:
        over = replace(reservation, usage=usage, spent_usd=cost_usd, settled_at=self._tx.now)
        await self._tx.update(over)
        for key in (TEAM_ACCOUNT, reservation.member_key):
            before = await self._account(key)
            after = settled(before, reservation, usage, cost_usd)
            await self._keep(after)
            await self._warn(before, after)
        return over

    async def tell_of(self, refusal: Refusal, *, purpose: str, model: str) -> None:
        """An event when it begins to wait, the lead and the human once for each value of the limit."""
        me, tx = self._me, self._tx
        # Whoever waits tries again with each event: one for each try, and two who wait would wake each other for ever.
        if not me.status_reason.startswith(BUDGET_SPENT):
            tx.record(
                me.team_id,
                EventKind.BUDGET_REFUSED,
                me.name,
                member=me.name,
                why=refusal.why,
                limit=refusal.limit,
                purpose=purpose,
                model=model,
            )
        account, limit = self.team_account, str(refusal.limit)
        if limit in account.told:
            return
        await self._keep(replace(account, told=(*account.told, limit)))
        await _tell(tx, me.team_id, LEAD, f"No more calls of a model: {refusal.why}.", wakes=False)
        await _tell(tx, me.team_id, USER, f"No more calls of a model: {refusal.why}. Raise the limit to go on.")

    async def _write_off(self, key: str | None) -> bool:
        """What incarnations that are over have left open (of this member, or of all) was spent, at its most."""
        open_ones = await self._tx.list_open_reservations(self._team.id)
        dead = await self._of_the_dead([one for one in open_ones if key in (None, one.member_key)])
        for reservation in dead:
            self._tx.record(
                self._team.id,
                EventKind.BUDGET_WRITTEN_OFF,
                SYSTEM,
                member=reservation.member,
                reservation=reservation.id,
                model=reservation.model,
                tokens=reservation.tokens,
                cost_usd=reservation.cost_usd,
            )
            await self.settle(reservation, Usage(input_tokens=reservation.tokens), reservation.cost_usd)
        return bool(dead)

    async def _of_the_dead(self, reservations: Iterable[Reservation]) -> list[Reservation]:
        """Not locked: an incarnation that is over stays over."""
        members = {self._me.key: self._me}
        found = []
        for reservation in reservations:
            key = reservation.member_key
            if key not in members:
                member = await self._tx.find(Member, self._team.id, key)
                assert member is not None, key
                members[key] = member
            if _is_over(reservation, members[key]):
                found.append(reservation)
        return found

    async def _warn(self, before: Account, after: Account) -> None:
        whose = self._whose(after.member_key)
        for near in find_warnings(before, after, self._limits(after.member_key)):
            self._tx.record(
                self._team.id,
                EventKind.BUDGET_WARNED,
                SYSTEM,
                member=after.member_key or None,
                limit=near.limit,
                value=near.value,
                spent=near.spent,
            )
            used = f"{whose} has spent {near.spent:.10g} of {near.limit} = {near.value:.10g}"
            await _tell(self._tx, self._team.id, USER, f"{used} ({near.spent / near.value:.0%}).")

    async def _account(self, key: str) -> Account:
        if key not in self._accounts:
            found = await self._tx.find(Account, self._team.id, key)
            assert found is not None, key
            self._accounts[key] = found
        return self._accounts[key]

    async def _keep(self, account: Account) -> None:
        self._accounts[account.member_key] = account
        await self._tx.update(account)

    @property
    def _own_keys(self) -> tuple[str, str]:
        return TEAM_ACCOUNT, self._me.key

    def _limits(self, key: str) -> Limits:
        return limits_of(self._team.settings, of_member=key != TEAM_ACCOUNT)

    def _whose(self, key: str) -> str:
        return "the team" if key == TEAM_ACCOUNT else f"member {key}"


def _is_over(reservation: Reservation, member: Member) -> bool:
    """Nobody can settle it any more: the fence would refuse."""
    is_unhosted = member.worker_id is None and member.kind in (MemberKind.TEAMMATE, MemberKind.EXTERNAL)
    return reservation.incarnation != member.incarnation or is_unhosted


async def _find_gate(tx: Transaction, team: Team, provider_key: str) -> Refusal | None:
    if team.settings.get("paused"):
        return Refusal(why="the team is paused", is_final=False)
    gate = await tx.find(ProviderGate, provider_key)
    if gate is None or gate.blocked_until <= tx.now:
        return None
    why = f"the provider asked to be left alone until {gate.blocked_until.isoformat(timespec='seconds')}"
    return Refusal(why=why, is_final=False, until=gate.blocked_until)


async def _tell(tx: Transaction, team_id: int, to: str, content: str, *, wakes: bool = True) -> None:
    """Lead and human are never revived by mail, so they need not be held: who holds the team's account must not
    wait for a member, who may wait for that account."""
    member = await tx.find(Member, team_id, to)
    assert member is not None, to
    await post(tx, member, content, sender=SYSTEM, type=MessageType.NOTICE, origin=Origin.SYSTEM, wakes=wakes)


def _check_amounts(tokens: int, cost_usd: float) -> None:
    if tokens < 0 or not 0 <= cost_usd < math.inf:
        raise UsageError(f"{tokens} tokens for {cost_usd} USD cannot be spent: give numbers of 0 or more")
