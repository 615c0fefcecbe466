"""A member's own status and counters, and its leave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bullpen.domain.codec import encode
from bullpen.domain.event import EventKind
from bullpen.domain.member import MEMBER_TRANSITIONS, Member, MemberKind, MemberStatus
from bullpen.domain.record import replace
from bullpen.errors import Conflict, NotAllowed, UsageError
from bullpen.stores.transaction import Transaction
from bullpen.stores.verbs.hosting import answer_shutdown, put_to_rest
from bullpen.stores.verbs.wake import hand_on, wake


async def change_status(tx: Transaction, member: Member, status: MemberStatus, *, reason: str) -> Member:
    if status in (MemberStatus.WANTED, MemberStatus.SHUTDOWN):
        raise UsageError(f"{status} is not a status that a member gives itself: shut it down, or want it")
    if status is member.status and reason == member.status_reason:
        return member
    if status not in MEMBER_TRANSITIONS[member.status]:
        raise Conflict(f"{member.name} is {member.status} and cannot become {status}")
    changed = replace(member, status=status, status_reason=reason, status_at=tx.now)
    await tx.update(changed)
    tx.record(
        member.team_id,
        EventKind.MEMBER_STATUS_CHANGED,
        member.name,
        member=member.name,
        status=status,
        old=member.status,
        reason=reason,
    )
    if status is MemberStatus.IDLE and await tx.find_in_progress(member.team_id, member.key) is not None:
        # It waits for mail, holding its task: what is claimable meanwhile must not wait for it.
        await hand_on(tx, changed)
    return changed


def merged_counters(member: Member, counters: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**member.counters, **encode(counters)}
    return {key: value for key, value in merged.items() if value is not None}


async def shut_down(tx: Transaction, member: Member, reason: str) -> Member:
    if member.kind is MemberKind.USER:
        raise NotAllowed("the human cannot be shut down")
    if member.shutdown_request_id is not None:
        await answer_shutdown(tx, member, why=reason)
        reason = "asked"
    # Another task of its process may wait for its work. A lead that goes on in its next team is rung by nobody: it
    # would be cut off in the call that takes it there.
    wake(tx, member)
    return await put_to_rest(
        tx,
        member,
        reason=reason,
        actor=member.name,
        note=f"{member.name} shut down ({reason})",
        ends_incarnation=False,
    )
