"""How a request ends, in one place for every way to end it: it is in the log, and nobody reads what it asked."""

from __future__ import annotations

from bullpen.domain.event import EventKind
from bullpen.domain.member import Member
from bullpen.domain.request import Request, RequestKind, facts_of
from bullpen.stores.transaction import Transaction
from bullpen.stores.verbs.post import MAX_WAITING, mark_delivered


async def end_request(tx: Transaction, request: Request, *, actor: str) -> None:
    """`request` as it is from now on: answered, expired, superseded or cancelled."""
    await tx.update(request)
    tx.record(request.team_id, EventKind.REQUEST_CLOSED, actor, **facts_of(request))
    if request.kind is RequestKind.SHUTDOWN:
        await _withdraw_mail_of(tx, request)


async def _withdraw_mail_of(tx: Transaction, request: Request) -> None:
    """A shutdown is put to one incarnation: once it is closed, who comes back under that name must not read it."""
    asked = await tx.find(Member, request.team_id, request.asked_key)
    if asked is None:
        return
    waiting = await tx.list_undelivered(asked.team_id, asked.key, MAX_WAITING)
    ids = [message.id for message in waiting if message.request_id == request.id]
    if ids:
        await mark_delivered(tx, asked, ids, None)
