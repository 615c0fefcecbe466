"""Verbs about mail."""

from __future__ import annotations

from collections.abc import Sequence

from bullpen.domain.member import Member, MemberKind, MemberRef
from bullpen.domain.message import CONTROL_TYPES, RUNTIME_TYPES, Message, MessageType, Origin, Receipt, frame
from bullpen.domain.record import replace
from bullpen.domain.text import clean, name_key
from bullpen.domain.transcript import TakenMail, TurnKind
from bullpen.errors import NotAllowed, NotFound, ToolCallsOpen, UsageError
from bullpen.stores.transaction import Lock, Transaction
from bullpen.stores.verbs.fence import fenced, get_live_team
from bullpen.stores.verbs.post import MAX_WAITING, mark_delivered, notify, post
from bullpen.stores.verbs.transcript import append_turn
from bullpen.stores.verbs.verb import read, write


class MailVerbs:
    @write
    async def send(
        tx: Transaction,
        by: MemberRef,
        to: str | None,
        content: str,
        *,
        type: MessageType = MessageType.MESSAGE,
        reply_to: int | None = None,
        operation_id: str | None = None,
    ) -> list[Receipt]:
        if type in CONTROL_TYPES or type in RUNTIME_TYPES:
            raise UsageError(f"mail of type {type} is made by the runtime: open or answer a request instead")
        if not content.strip():
            raise UsageError("an empty message says nothing: give it a text")
        text = clean(content, what="message")
        if to:
            tx.foresee(lambda: tx.find_members(by.team_id, [name_key(to)], Lock.SHARE))
        _, sender = await fenced(tx, by)
        recipients = await _recipients(tx, sender, to, type)
        if reply_to is not None:
            await _mark_answered(tx, sender, reply_to)
        origin = Origin.HUMAN if sender.kind is MemberKind.USER else Origin.AGENT
        return [
            await post(tx, member, text, sender=sender.name, type=type, origin=origin, reply_to=reply_to)
            for member in recipients
        ]

    @write
    async def notify(
        tx: Transaction,
        team_id: int,
        to: str,
        content: str,
        *,
        type: MessageType = MessageType.NOTICE,
        wakes: bool = True,
        operation_id: str | None = None,
    ) -> Message:
        if type not in RUNTIME_TYPES:
            raise UsageError(f"the runtime sends result, notice and error, not {type}")
        await get_live_team(tx, team_id)
        receipt = await notify(tx, team_id, to, clean(content, what="message"), type=type, wakes=wakes)
        if receipt is None:
            raise NotFound(f"there is no member {to!r} in this team")
        return receipt.message

    @read
    async def list_mail(
        tx: Transaction, team_id: int, name: str, *, undelivered_only: bool = False, limit: int = 100
    ) -> list[Message]:
        member = await tx.find(Member, team_id, name_key(name))
        if member is None:
            raise NotFound(f"there is no member {name!r} in this team")
        return await tx.list_mail(team_id, member.key, undelivered_only, limit)

    @read
    async def get_message(tx: Transaction, team_id: int, message_id: int) -> Message:
        message = await tx.find(Message, team_id, message_id)
        if message is None:
            raise NotFound(f"there is no message {message_id} in this team")
        return message

    @write
    async def take_mail(tx: Transaction, by: MemberRef, *, limit: int = 100) -> TakenMail | None:
        key = name_key(by.name)
        tx.foresee(
            lambda: tx.find_end(by.team_id, key),
            lambda: tx.list_undelivered(by.team_id, key, limit),
        )
        _, me = await fenced(tx, by, lock=Lock.UPDATE, team_must_live=False)
        end = await tx.find_end(me.team_id, me.key)
        if end.has_open_calls:
            raise ToolCallsOpen(f"{me.name} has open tool calls: mail would stand between a call and its result")
        messages = await tx.list_undelivered(me.team_id, me.key, limit)
        if not messages:
            return None
        content = [{"message": message.id, "text": frame(message)} for message in messages]
        turn = await append_turn(tx, me, end, TurnKind.MAIL, content)
        await mark_delivered(tx, me, [message.id for message in messages], turn.seq)
        taken = tuple(replace(message, delivered_at=tx.now, delivered_turn=turn.seq) for message in messages)
        return TakenMail(turn=turn, messages=taken)

    @read
    async def list_offered_mail(tx: Transaction, by: MemberRef, *, limit: int = 100) -> list[Message]:
        _, me = await fenced(tx, by, lock=Lock.NONE, team_must_live=False)
        return await tx.list_offered(me.team_id, me.key, limit)

    @write
    async def acknowledge_mail(tx: Transaction, by: MemberRef, message_ids: Sequence[int]) -> None:
        _, me = await fenced(tx, by, team_must_live=False)
        if me.kind not in (MemberKind.EXTERNAL, MemberKind.USER):
            raise NotAllowed(f"{me.name} is a {me.kind}: its mail is taken into its transcript")
        waiting = {message.id for message in await tx.list_undelivered(me.team_id, me.key, MAX_WAITING)}
        ids = sorted(waiting.intersection(message_ids))
        if ids:
            await mark_delivered(tx, me, ids, None)


async def _recipients(tx: Transaction, sender: Member, to: str | None, type: MessageType) -> list[Member]:
    """Held shared, in order: a recipient who is just leaving is waited for, and then revived or told of."""
    if type is MessageType.BROADCAST:
        members = await tx.list_members(sender.team_id, Lock.SHARE)
        return [member for member in members if member.key != sender.key]
    if not to:
        raise UsageError("a message needs a recipient: name one, or send a broadcast")
    found = await tx.find_members(sender.team_id, [name_key(to)], Lock.SHARE)
    if not found:
        names = ", ".join(member.name for member in await tx.list_members(sender.team_id) if member.key != sender.key)
        raise NotFound(f"there is no member {to[:80]!r} in this team, nothing was sent; there are {names}")
    return found


async def _mark_answered(tx: Transaction, sender: Member, reply_to: int) -> None:
    original = await tx.find(Message, sender.team_id, reply_to, lock=Lock.UPDATE)
    if original is None or original.recipient_key != sender.key:
        raise NotFound(f"there is no message {reply_to} in the inbox of {sender.name} to reply to")
    if original.answered_at is None:
        await tx.update(replace(original, answered_at=tx.now))
