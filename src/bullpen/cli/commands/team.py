"""`bullpen team`: which teams there are, how one is, and its end."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from bullpen.cli import completion
from bullpen.cli.call import Call
from bullpen.cli.page import Page
from bullpen.cli.parser import Branch
from bullpen.cli.question import Unanswered, ask
from bullpen.cli.views.team import MAIL_COUNTED, TeamLine, TeamPicture, count_states, draw_team, draw_teams
from bullpen.domain.codec import encode
from bullpen.domain.member import MemberKind, MemberStatus
from bullpen.domain.task import FINISHED, Task
from bullpen.errors import Conflict, UsageError
from bullpen.team import Seat, Team

branch = Branch("Teams: list, show, delete.")

Which = Annotated[
    str | None,
    typer.Argument(metavar="TEAM", help="Its name; without it the only live one.", autocompletion=completion.teams),
]


@branch.command("list")
def list_(ctx: typer.Context, every: Annotated[bool, typer.Option("--all", help="Deleted ones too.")] = False) -> None:
    """Show which teams there are."""
    call = Call.of(ctx)
    call.run(_list(call, every))


async def _list(call: Call, every: bool) -> None:
    entries = []
    async with call.store() as store:
        for team in await store.list_teams(include_deleted=every):
            members = [member for member in await store.list_members(team.id) if member.kind is not MemberKind.USER]
            entries.append(TeamLine(team, await store.list_tasks(team.id), len(members)))
    document = [{**encode(entry.team), "tasks": _counts(entry.tasks), "members": entry.members} for entry in entries]
    call.show(document, lambda page: draw_teams(page, entries))


@branch.command("show")
def show(ctx: typer.Context, team: Which = None) -> None:
    """Show a team: its goal, who is in it and alive, the state of board, mail and requests."""
    call = Call.of(ctx)
    call.run(_show(call, team))


async def _show(call: Call, named: str | None) -> None:
    async with call.team(named) as team:
        picture = await look_at_team(team)
    call.show(_document(picture), lambda page: draw_team(page, picture))


async def look_at_team(team: Team) -> TeamPicture:
    seats = await team.list_seats()
    undelivered = {}
    for seat in seats:
        waiting = await team.list_mail(seat.member.name, undelivered_only=True, limit=MAIL_COUNTED)
        if waiting:
            undelivered[seat.member.name] = len(waiting)
    return TeamPicture(
        team=team.record,
        seats=seats,
        tasks=await team.list_tasks(),
        undelivered=undelivered,
        requests=await team.list_requests(),
    )


def _document(picture: TeamPicture) -> dict[str, Any]:
    return {
        **encode(picture.team),
        "tasks": _counts(picture.tasks),
        "members": [_member(picture, seat) for seat in picture.seats],
        "undelivered": dict(picture.undelivered),
        "requests": encode(picture.requests),
    }


def _counts(tasks: Sequence[Task]) -> dict[str, int]:
    return {state.replace(" ", "_"): number for state, number in count_states(tasks).items()}


def _member(picture: TeamPicture, seat: Seat) -> dict[str, Any]:
    task = picture.task_of(seat.member.name)
    return {
        **encode(seat.member),
        "worker": encode(seat.worker),
        "liveness": encode(seat.liveness),
        "current_task": None if task is None else task.id,
    }


@branch.command("delete")
def delete(
    ctx: typer.Context,
    team: Which = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """End a team: its members are asked to stop; its board, mail and transcripts stay readable."""
    call = Call.of(ctx)
    if not yes:
        # Outside the event loop: inside it, Ctrl-C would wait for the answer.
        _confirm(*call.run(_count_unfinished(call, team)))
    call.run(_delete(call, team))


async def _count_unfinished(call: Call, named: str | None) -> tuple[str, int]:
    async with call.team(named) as team:
        return team.name, sum(task.status not in FINISHED for task in await team.list_tasks())


async def _delete(call: Call, named: str | None) -> None:
    async with call.team(named) as team:
        deleted = await team.delete()
        still_up = [
            member.name
            for member in await team.list_members()
            if member.kind in (MemberKind.TEAMMATE, MemberKind.EXTERNAL) and member.status is not MemberStatus.SHUTDOWN
        ]

    def draw(page: Page) -> None:
        page.line(f"deleted {deleted.name}")
        if still_up:
            page.line(f"asked to stop within 30 s: {', '.join(still_up)}")

    call.show({**encode(deleted), "asked_to_stop": still_up}, draw)


def _confirm(name: str, unfinished: int) -> None:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"deleting {name!r} wants to be confirmed: add --yes")
    tasks = "1 unfinished task" if unfinished == 1 else f"{unfinished} unfinished tasks"
    try:
        is_wanted = ask(f"Delete team {name} with {tasks}?")
    except Unanswered:
        raise Unanswered("left without an answer: nothing was deleted") from None
    if not is_wanted:
        raise Conflict("nothing was deleted")
