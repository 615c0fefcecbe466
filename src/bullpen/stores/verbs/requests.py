"""Verbs about requests: plans, shutdowns, permissions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from bullpen.domain.codec import encode
from bullpen.domain.event import EventKind
from bullpen.domain.member import MAX_SECONDS, SYSTEM, Member, MemberKind, MemberRef, MemberStatus
from bullpen.domain.message import MessageType, Origin
from bullpen.domain.record import replace
from bullpen.domain.request import (
    PermissionScope,
    Request,
    RequestKind,
    RequestStatus,
    answer,
    close,
    digest_of,
    facts_of,
)
from bullpen.domain.text import clean, name_key
from bullpen.errors import Conflict, NotAllowed, NotFound, TeamDeleted, UsageError
from bullpen.stores.transaction import Lock, Transaction
from bullpen.stores.verbs.closing import end_request
from bullpen.stores.verbs.fence import fenced
from bullpen.stores.verbs.hosting import put_to_rest
from bullpen.stores.verbs.post import notify, post, tell_lead
from bullpen.stores.verbs.verb import read, write
from bullpen.stores.verbs.wake import hand_on, wake

_ASKS_WITH = {
    RequestKind.PLAN: MessageType.PLAN_APPROVAL_REQUEST,
    RequestKind.SHUTDOWN: MessageType.SHUTDOWN_REQUEST,
    RequestKind.PERMISSION: MessageType.NOTICE,
}
_ANSWERS_WITH = {
    RequestKind.PLAN: MessageType.PLAN_APPROVAL_RESPONSE,
    RequestKind.SHUTDOWN: MessageType.SHUTDOWN_RESPONSE,
    RequestKind.PERMISSION: MessageType.NOTICE,
}


class RequestVerbs:
    @write
    async def open_request(
        tx: Transaction,
        by: MemberRef,
        kind: RequestKind,
        asked: str,
        *,
        content: str = "",
        payload: Mapping[str, Any] | None = None,
        digest: str = "",
        timeout_seconds: float | None = None,
        operation_id: str | None = None,
    ) -> Request:
        tx.foresee(lambda: tx.fence(by, Lock.SHARE))
        # The number first: it locks the team, the first in the order of locks.
        number = await tx.take_request_id(by.team_id)
        _, asker = await fenced(tx, by)
        target = await tx.find(Member, by.team_id, name_key(asked), lock=_hold_on_asked(kind))
        if target is None:
            raise NotFound(f"there is no member {asked!r} to ask")
        until = None if timeout_seconds is None else moment_in(tx, timeout_seconds)
        if kind is RequestKind.SHUTDOWN:
            if not asker.leads:
                raise NotAllowed(f"only the lead may ask {target.name} to shut down")
            if target.kind is MemberKind.USER:
                raise UsageError("the human cannot be shut down")
            return await ask_to_shut_down(tx, number, target, asker=asker, reason=content, open_until=until)
        if not target.leads:
            raise UsageError(f"a {kind} is decided by the lead or the user, not by {target.name}")
        text = clean(content, what=kind)
        digest = digest or digest_of({"content": text, "payload": encode(payload or {})})
        await _supersede(tx, asker, kind, digest)
        return await _ask(
            tx,
            Request(
                team_id=by.team_id,
                id=number,
                kind=kind,
                asker=asker.name,
                asked=target.name,
                content=text,
                digest=digest,
                payload=encode(payload or {}),
                created_at=tx.now,
                open_until=until,
            ),
            asker,
            target,
        )

    @write
    async def answer_request(
        tx: Transaction,
        by: MemberRef,
        request_id: int,
        *,
        approve: bool,
        reason: str = "",
        scope: PermissionScope | None = None,
        operation_id: str | None = None,
    ) -> Request:
        seen = await tx.find(Request, by.team_id, request_id)
        lock = Lock.SHARE if seen is None else _hold_on_asked(seen.kind)
        team, me = await fenced(tx, by, lock=lock, team_must_live=False)
        asker = None if seen is None else await _hold_asker(tx, seen)
        request = await _get(tx, by.team_id, request_id, Lock.UPDATE)
        answered = answer(request, by=me.name, approve=approve, reason=clean(reason), scope=scope, at=tx.now)
        if request.kind is RequestKind.SHUTDOWN and request.incarnation != me.incarnation:
            raise Conflict(f"request {request_id} was put to an earlier incarnation of {me.name}")
        if request.kind is RequestKind.SHUTDOWN and not approve and team.deleted_at is not None:
            raise TeamDeleted(f"team {team.name!r} has been deleted: there is nothing to stay for")
        await _apply_answer(tx, answered, me, asker)
        await end_request(tx, answered, actor=me.name)
        verdict = "approved" if approve else "rejected"
        if asker is not None:
            await post(
                tx,
                asker,
                f"{request.kind} {request.id} {verdict}" + (f": {answered.reason}" if answered.reason else ""),
                sender=me.name,
                type=_ANSWERS_WITH[request.kind],
                origin=_origin_of(me),
                request_id=request.id,
            )
        return answered

    @write
    async def cancel_request(
        tx: Transaction, by: MemberRef, request_id: int, *, operation_id: str | None = None
    ) -> Request:
        _, me = await fenced(tx, by)
        await _hold_asked(tx, await _get(tx, by.team_id, request_id, Lock.NONE))
        request = await _get(tx, by.team_id, request_id, Lock.UPDATE)
        if not me.leads and request.asker_key != me.key:
            raise NotAllowed(f"request {request_id} is {request.asker}'s: only they or the lead take it back")
        return await close_request(tx, request, RequestStatus.CANCELLED, actor=me.name)

    @write
    async def expire_requests(tx: Transaction) -> list[Request]:
        expired = []
        for due in await tx.list_requests_due(tx.now):
            asked = await _hold_asked(tx, due)
            await _hold_asker(tx, due)
            request = await tx.find(Request, due.team_id, due.id, lock=Lock.UPDATE)
            if request is not None and request.status is RequestStatus.OPEN:
                expired.append(await _expire(tx, request, asked))
            elif request is not None and asked is not None and _is_leaving(asked, request):
                await _force_shutdown(tx, asked, request)
                expired.append(request)
        return expired

    @read
    async def get_request(tx: Transaction, team_id: int, request_id: int) -> Request:
        return await _get(tx, team_id, request_id, Lock.NONE)

    @read
    async def list_requests(
        tx: Transaction, team_id: int, *, status: RequestStatus | None = None, asked: str | None = None
    ) -> list[Request]:
        return await tx.list_requests(team_id, status, None, None if asked is None else name_key(asked), None)


def moment_in(tx: Transaction, seconds: float) -> datetime:
    if not 0 <= seconds <= MAX_SECONDS:
        raise UsageError(f"{seconds:g} seconds is not a time to wait: choose 0 or more")
    return tx.now + timedelta(seconds=seconds)


async def ask_to_shut_down(
    tx: Transaction, number: int, target: Member, *, asker: Member, reason: str, open_until: datetime | None
) -> Request:
    """`target` is locked, and `number` the request's. One who is gone, or has no host, answers at once."""
    if target.shutdown_request_id is not None:
        older = await tx.find(Request, target.team_id, target.shutdown_request_id, lock=Lock.UPDATE)
        if older is not None and older.status is RequestStatus.OPEN:
            await close_request(tx, older, RequestStatus.SUPERSEDED, actor=asker.name)
    request = Request(
        team_id=target.team_id,
        id=number,
        kind=RequestKind.SHUTDOWN,
        asker=asker.name,
        asked=target.name,
        content=clean(reason),
        incarnation=target.incarnation,
        created_at=tx.now,
        open_until=open_until,
    )
    if target.worker_id is None or target.status is MemberStatus.SHUTDOWN:
        return await _answer_for_the_absent(tx, request, target)
    await tx.update(replace(target, shutdown_request_id=request.id))
    await hand_on(tx, target)
    return await _ask(tx, request, asker, target)


async def close_request(tx: Transaction, request: Request, status: RequestStatus, *, actor: str) -> Request:
    """Out of `open` without an answer; a shutdown that is taken back lets its member claim again."""
    closed = close(request, status, at=tx.now)
    await end_request(tx, closed, actor=actor)
    if closed.kind is RequestKind.SHUTDOWN:
        asked = await tx.find(Member, closed.team_id, closed.asked_key, lock=Lock.UPDATE)
        if asked is not None and asked.shutdown_request_id == closed.id:
            await tx.update(replace(asked, shutdown_request_id=None))
            # What it might have claimed meanwhile was not offered to it.
            wake(tx, asked)
    asker = await tx.find(Member, closed.team_id, closed.asker_key)
    if asker is not None:
        wake(tx, asker)
    return closed


async def _answer_for_the_absent(tx: Transaction, request: Request, target: Member) -> Request:
    note = (
        f"{target.name} has shut down already"
        if target.status is MemberStatus.SHUTDOWN
        else f"{target.name} had no host"
    )
    closed = answer(request, by=target.name, approve=True, reason=note, at=tx.now)
    await tx.insert(closed)
    tx.record(request.team_id, EventKind.REQUEST_OPENED, request.asker, **facts_of(request))
    tx.record(request.team_id, EventKind.REQUEST_CLOSED, target.name, **facts_of(closed))
    if target.status is not MemberStatus.SHUTDOWN:
        note = "it was shut down while it had no host"
        await put_to_rest(tx, target, reason="asked", actor=target.name, note=note, ends_incarnation=True)
    return closed


async def _expire(tx: Transaction, request: Request, asked: Member | None) -> Request:
    """Nobody has answered in time. All three are locked."""
    closed = close(request, RequestStatus.EXPIRED, at=tx.now)
    await end_request(tx, closed, actor=SYSTEM)
    if closed.kind is RequestKind.SHUTDOWN and asked is not None:
        await _force_shutdown(tx, asked, closed)
    else:
        why = f"{closed.kind} {closed.id} expired without an answer"
        await notify(tx, closed.team_id, closed.asker, why, request_id=closed.id)
    return closed


def _is_leaving(member: Member, request: Request) -> bool:
    """It has said yes to this one, and is still there: until it has left, the deadline counts."""
    return member.status is MemberStatus.STOPPING and member.shutdown_request_id == request.id


async def _force_shutdown(tx: Transaction, member: Member, request: Request) -> None:
    """The deadline has passed. An incarnation that is over has nothing left to be forced."""
    if member.incarnation != request.incarnation or member.status is MemberStatus.SHUTDOWN:
        return
    wake(tx, member)
    await put_to_rest(
        tx, member, reason="forced", actor=SYSTEM, note="it was forced to shut down", ends_incarnation=True
    )
    why = "did not answer in time" if request.approved is None else "said yes, did not leave in time"
    await tell_lead(tx, member.team_id, f"{member.name} {why} and was shut down by force")


async def _supersede(tx: Transaction, asker: Member, kind: RequestKind, digest: str) -> None:
    """A new plan replaces the old one; the same permission is not asked for twice."""
    for older in await tx.list_requests(asker.team_id, RequestStatus.OPEN, kind, None, asker.key, Lock.UPDATE):
        if kind is RequestKind.PLAN or older.digest == digest:
            await close_request(tx, older, RequestStatus.SUPERSEDED, actor=asker.name)


async def _ask(tx: Transaction, request: Request, asker: Member, target: Member) -> Request:
    await tx.insert(request)
    tx.record(request.team_id, EventKind.REQUEST_OPENED, asker.name, **facts_of(request))
    await post(
        tx,
        target,
        request.content,
        sender=asker.name,
        type=_ASKS_WITH[request.kind],
        origin=_origin_of(asker),
        request_id=request.id,
    )
    return request


async def _apply_answer(tx: Transaction, request: Request, asked: Member, asker: Member | None) -> None:
    """Both are locked as their kind of request wants it."""
    if request.kind is RequestKind.SHUTDOWN:
        if request.approved:
            changed = replace(asked, status=MemberStatus.STOPPING, status_reason="asked", status_at=tx.now)
        else:
            changed = replace(asked, shutdown_request_id=None)
        await tx.update(changed)
        if request.approved:
            tx.record(
                asked.team_id,
                EventKind.MEMBER_STATUS_CHANGED,
                asked.name,
                member=asked.name,
                status=MemberStatus.STOPPING,
            )
    elif request.kind is RequestKind.PLAN and request.approved and asker is not None:
        await tx.update(replace(asker, plan_digest=request.digest))


async def _get(tx: Transaction, team_id: int, request_id: int, lock: Lock) -> Request:
    request = await tx.find(Request, team_id, request_id, lock=lock)
    if request is None:
        raise NotFound(f"there is no request {request_id} in this team")
    return request


def _hold_on_asked(kind: RequestKind) -> Lock:
    """A shutdown changes who is asked for it."""
    return Lock.UPDATE if kind is RequestKind.SHUTDOWN else Lock.SHARE


async def _hold_asked(tx: Transaction, request: Request) -> Member | None:
    """Like the asker before the request itself, in the order of locks: that one is looked at again then."""
    return await tx.find(Member, request.team_id, request.asked_key, lock=_hold_on_asked(request.kind))


async def _hold_asker(tx: Transaction, request: Request) -> Member | None:
    """An answer to a plan changes who made it, any answer is sent to who asked."""
    lock = Lock.UPDATE if request.kind is RequestKind.PLAN else Lock.SHARE
    return await tx.find(Member, request.team_id, request.asker_key, lock=lock)


def _origin_of(member: Member) -> Origin:
    return Origin.HUMAN if member.kind is MemberKind.USER else Origin.AGENT
