"""Putting a message into an inbox: what every verb that sends something calls."""

from __future__ import annotations

from bullpen.domain.event import EventKind
from bullpen.domain.member import LEAD, SYSTEM, Member, MemberKind, MemberStatus
from bullpen.domain.message import Message, MessageType, Origin, Receipt
from bullpen.domain.text import name_key
from bullpen.stores.transaction import Lock, Transaction
from bullpen.stores.verbs.wake import revive, wake

PREVIEW_LENGTH = 200
MAX_WAITING = 10_000


async def post(
    tx: Transaction,
    to: Member,
    content: str,
    *,
    sender: str,
    type: MessageType,
    origin: Origin,
    request_id: int | None = None,
    reply_to: int | None = None,
    wakes: bool = True,
) -> Receipt:
    """Store one message and wake its recipient, or bring it back if it timed out.

    How long a text may be is checked where it comes in: the runtime's words around it must not make it too long.
    """
    message = await tx.insert(
        Message(
            team_id=to.team_id,
            id=0,
            type=type,
            sender=sender,
            recipient=to.name,
            content=content,
            origin=origin,
            request_id=request_id,
            reply_to=reply_to,
            wakes=wakes,
            sent_at=tx.now,
        )
    )
    outcome = "queued"
    if wakes and to.can_be_revived and await revive(tx, to, reason=f"mail from {sender}"):
        outcome = "revives"
    elif to.status is MemberStatus.SHUTDOWN and to.kind not in (MemberKind.LEAD, MemberKind.USER):
        outcome = "kept"
    elif wakes:
        wake(tx, to)
    tx.record(
        to.team_id,
        EventKind.MESSAGE_SENT,
        sender,
        message=message.id,
        to=to.name,
        type=type,
        origin=origin,
        outcome=outcome,
        request=request_id,
        reply_to=reply_to,
        text=message.content[:PREVIEW_LENGTH],
    )
    return Receipt(message=message, outcome=outcome)


async def notify(
    tx: Transaction,
    team_id: int,
    to: str,
    content: str,
    *,
    type: MessageType = MessageType.NOTICE,
    request_id: int | None = None,
    wakes: bool = True,
) -> Receipt | None:
    """The runtime's own word; None if there is nobody of that name (any more)."""
    member = await tx.find(Member, team_id, name_key(to), lock=Lock.SHARE)
    if member is None:
        return None
    return await post(
        tx, member, content, sender=SYSTEM, type=type, origin=Origin.SYSTEM, request_id=request_id, wakes=wakes
    )


async def tell_lead(tx: Transaction, team_id: int, content: str, *, wakes: bool = True) -> None:
    await notify(tx, team_id, LEAD, content, wakes=wakes)


async def mark_delivered(tx: Transaction, me: Member, ids: list[int], turn_seq: int | None) -> None:
    await tx.mark_delivered(me.team_id, me.key, ids, turn_seq)
    for number in ids:
        tx.record(me.team_id, EventKind.MESSAGE_DELIVERED, me.name, message=number, to=me.name, turn=turn_seq)
