"""`bullpen spawn`, `bullpen interrupt` and `bullpen stop`: members come, are cut off, and go."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bullpen.cli import completion
from bullpen.cli.call import Call
from bullpen.cli.commands.hosted import show_hosted
from bullpen.cli.commands.known import get_member
from bullpen.cli.commands.number import parse_amount
from bullpen.domain.codec import encode
from bullpen.domain.member import USER, Member, Spawned, check_labels
from bullpen.domain.request import Request, RequestStatus
from bullpen.domain.task import parse_task_id
from bullpen.domain.text import name_key
from bullpen.errors import TeamDeleted, UsageError
from bullpen.team import Team
from bullpen.team.hosts import find_hosts

Name = Annotated[str, typer.Argument(metavar="NAME", help="The member's name.", autocompletion=completion.members)]

_SPAWNED = {
    "created": "joins the team",
    "revived": "comes back, with its memory",
    "delivered": "was idle: it has the prompt now",
    "queued": "is at work: the prompt waits for it as mail",
}


# -- spawn -------------------------------------------------------------------------------------


def spawn(
    ctx: typer.Context,
    name: Name,
    role: Annotated[
        str | None, typer.Option(metavar="ROLE", help="What it is; it takes tasks of this role and those of none.")
    ] = None,
    prompt: Annotated[str, typer.Option(metavar="TEXT", help="Its standing instruction.")] = "",
    model: Annotated[str | None, typer.Option(metavar="MODEL", help="PROVIDER:NAME, instead of the team's.")] = None,
    require_plan: Annotated[
        bool, typer.Option("--require-plan", help="Until its plan is approved it may change nothing.")
    ] = False,
    task: Annotated[str | None, typer.Option(metavar="ID", help="The task that it begins with.")] = None,
    label: Annotated[
        list[str] | None, typer.Option(metavar="LABEL", help="Only a worker that has it hosts it; may be repeated.")
    ] = None,
) -> None:
    """Add a teammate, or bring one back."""
    wishes = {
        "role": role or None,
        "prompt": prompt,
        "model": _checked_model(model),
        "require_plan": require_plan,
        "task_id": None if task is None else parse_task_id(task),
        "labels": check_labels(label or ()),
    }
    call = Call.of(ctx)
    call.run(_spawn(call, name, wishes))


def _checked_model(model: str | None) -> str | None:
    if not model:
        return None
    from bullpen.providers import check_model

    check_model(model)
    return model


async def _spawn(call: Call, name: str, wishes: dict[str, Any]) -> None:
    async with call.team() as team:
        spawned = await team.spawn(name, **wishes)
        lines = [_spawned_line(spawned), *await _unhostable_lines(team, spawned.member)]
        await show_hosted(call, team, encode(spawned), lines)


def _spawned_line(spawned: Spawned) -> str:
    member = spawned.member
    role = f" as {member.role}" if member.role and spawned.outcome == "created" else ""
    return f"{member.name} {_SPAWNED.get(spawned.outcome, spawned.outcome)}{role}"


async def _unhostable_lines(team: Team, member: Member) -> list[str]:
    hosts = await find_hosts(team.store, team.record)
    if not member.labels or any(one.may_host(team.id, member.labels) for one in (*hosts.hosting, *hosts.willing)):
        return []
    labels = ",".join(member.labels)
    return [f"no worker has what it asks for ({labels}): `bullpen worker --labels {labels}` does"]


# -- interrupt -----------------------------------------------------------------------------------


def interrupt(
    ctx: typer.Context,
    name: Name,
    text: Annotated[
        list[str] | None, typer.Argument(metavar="[TEXT]", help="What it reads at once; -- before words with -.")
    ] = None,
) -> None:
    """Cut off what a member does just now.

    The running call ends, and the member goes on with its mail: a text reaches it at once.
    """
    call = Call.of(ctx)
    call.run(_interrupt(call, name, " ".join(text or ())))


async def _interrupt(call: Call, name: str, text: str) -> None:
    async with call.team() as team:
        if name_key(name) == USER:
            raise UsageError("that is you: name the lead or a teammate")
        await get_member(team, name)
        member = await team.interrupt(name, text)
        told = ", and reads your words" if text else ""
        line = f"{member.name} is interrupted{told}"
        if not member.is_up:
            line = f"{member.name} does nothing just now (it is {member.status})" + (
                "; your words wait for it" if text else ""
            )
        await show_hosted(call, team, encode(member), [line])


# -- stop ----------------------------------------------------------------------------------------


def stop(
    ctx: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Who; without it all.", autocompletion=completion.members)
    ] = None,
    deadline: Annotated[
        str | None, typer.Option(metavar="SECONDS", help="Who has not ended by then is ended; 30 by default.")
    ] = None,
) -> None:
    """Ask a member, or everyone, to shut down.

    They finish their step and give their task back. Nothing is lost: `bullpen resume` goes on with all of them.
    """
    call = Call.of(ctx)
    call.run(_stop(call, name, None if deadline is None else parse_amount(deadline, "--deadline", minimum=0)))


async def _stop(call: Call, name: str | None, deadline: float | None) -> None:
    async with call.team() as team:
        if team.record.deleted_at is not None:
            raise TeamDeleted(f"team {team.name!r} has been deleted; its board and mail can still be read")
        requests = await _ask_to_stop(team, name, _deadline_of(team) if deadline is None else deadline)
        lines = [_asked_line(request) for request in requests] or ["nobody is up: there is nothing to stop"]
        await show_hosted(call, team, {"requests": encode(requests)}, lines)


async def _ask_to_stop(team: Team, name: str | None, deadline: float) -> list[Request]:
    if name is None:
        return await team.stop(timeout_seconds=deadline)
    await get_member(team, name)
    return [await team.shut_down(name, reason="the human asks for it", timeout_seconds=deadline)]


def _deadline_of(team: Team) -> float:
    from bullpen.config import Settings

    return Settings.from_mapping(team.record.settings).shutdown.deadline_seconds


def _asked_line(request: Request) -> str:
    if request.status is not RequestStatus.OPEN:
        return f"{request.asked} is shut down: {request.reason}"
    assert request.open_until is not None
    left = (request.open_until - request.created_at).total_seconds()
    return f"{request.asked} is asked to shut down within {left:g} s (request {request.id})"
