"""`bullpen approve` and `bullpen reject`: the human's answer to a plan or a permission."""

from __future__ import annotations

from typing import Annotated

import typer

from bullpen.cli import completion
from bullpen.cli.call import Call
from bullpen.cli.commands.hosted import show_hosted
from bullpen.cli.commands.number import parse_request_id
from bullpen.cli.views.moment import clock
from bullpen.domain.codec import encode
from bullpen.domain.request import PermissionScope, Request, RequestKind, RequestStatus
from bullpen.errors import Conflict, NotFound, UsageError
from bullpen.team import Team

Number = Annotated[
    str,
    typer.Argument(
        metavar="REQUEST_ID", help="`bullpen team show` lists the open ones.", autocompletion=completion.requests
    ),
]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="What the asker is told with it.")]


def approve(
    ctx: typer.Context,
    number: Number,
    scope: Annotated[
        str | None,
        typer.Option(
            metavar="SCOPE",
            help="How far a permission reaches: once (without it), team, or always on this machine.",
            autocompletion=completion.scopes,
        ),
    ] = None,
    reason: Reason = "",
) -> None:
    """Say yes to a request."""
    call = Call.of(ctx)
    call.run(_answer(call, parse_request_id(number), True, reason, _parse_scope(scope)))


def reject(ctx: typer.Context, number: Number, reason: Reason = "") -> None:
    """Say no to a request."""
    call = Call.of(ctx)
    call.run(_answer(call, parse_request_id(number), False, reason, None))


def _parse_scope(text: str | None) -> PermissionScope | None:
    if text is None:
        return None
    try:
        return PermissionScope(text.strip().casefold())
    except ValueError:
        raise UsageError(f"--scope is one of {', '.join(PermissionScope)}, not {text[:40]!r}") from None


async def _answer(call: Call, number: int, approves: bool, reason: str, scope: PermissionScope | None) -> None:
    async with call.team() as team:
        request = await _get_open(team, number)
        if scope is not None and request.kind is not RequestKind.PERMISSION:
            raise UsageError(f"--scope is for permissions, and request {number} is a {request.kind}: leave it out")
        if approves:
            is_permission = request.kind is RequestKind.PERMISSION
            answered = await team.approve(
                number, reason=reason, scope=scope or (PermissionScope.ONCE if is_permission else None)
            )
        else:
            answered = await team.reject(number, reason=reason)
        await show_hosted(call, team, encode(answered), [_line(answered)])


async def _get_open(team: Team, number: int) -> Request:
    """NotFound and Conflict say what there is instead."""
    every = await team.list_requests(status=None)
    request = next((one for one in every if one.id == number), None)
    if request is None:
        open_ones = [f"{one.id} ({one.kind} of {one.asker})" for one in every if one.status is RequestStatus.OPEN]
        there = f"open are {', '.join(open_ones)}" if open_ones else "none is open"
        raise NotFound(f"there is no request {number} in team {team.name}; {there}")
    if request.status is not RequestStatus.OPEN:
        raise Conflict(f"request {number} of {request.asker} {_closed(request, team)}; nothing was changed")
    return request


def _closed(request: Request, team: Team) -> str:
    at = "" if request.closed_at is None else f" at {clock(request.closed_at, team.store.clock.now())}"
    if request.status is not RequestStatus.ANSWERED:
        return f"is no longer open: it was {request.status}{at}"
    verdict = "approved" if request.approved else "rejected"
    return f"has been {verdict} already by {request.asked}{at}"


def _line(request: Request) -> str:
    verdict = "approved" if request.approved else "rejected"
    scope = f" ({request.scope})" if request.scope is not None else ""
    return f"{request.kind} {request.id} of {request.asker} {verdict}{scope}"
