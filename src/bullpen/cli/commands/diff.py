"""`bullpen diff`: what a team made."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from bullpen.cli import completion
from bullpen.cli.call import Call
from bullpen.cli.commands.known import get_member
from bullpen.cli.terminal import terminal_of
from bullpen.domain.codec import encode
from bullpen.domain.task import parse_task_id
from bullpen.errors import SandboxUnavailable
from bullpen.stores.place import place_of
from bullpen.team import Team
from bullpen.team.home import get_trunk
from bullpen.team.hosts import find_hosts
from bullpen.team.unfinished import find_worktree, look_at_unfinished
from bullpen.workspaces.elsewhere import bring_here
from bullpen.workspaces.git import GitFailed
from bullpen.workspaces.made import Made, TeamCommit, look_at_work
from bullpen.workspaces.pending import Pending, list_pending
from bullpen.workspaces.showing import show


def diff(
    ctx: typer.Context,
    team: Annotated[
        str | None,
        typer.Argument(metavar="TEAM", help="Its name; without it the only live one.", autocompletion=completion.teams),
    ] = None,
    task: Annotated[str | None, typer.Option(metavar="N", help="Only what was made for this task.")] = None,
    member: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Only what this one made, with what is not integrated yet.",
            autocompletion=completion.members,
        ),
    ] = None,
    stat: Annotated[bool, typer.Option("--stat", help="Only which files, and how many lines.")] = False,
) -> None:
    """What a team made.

    Everything that is integrated, as git shows it.
    """
    call = Call.of(ctx)
    number = None if task is None else parse_task_id(task)
    made, chosen, pending = call.run(_look(call, team, number, member))
    if call.is_json:
        call.show(_documents(chosen, pending), lambda _: None)
        return
    raise typer.Exit(_show(call, made, chosen, pending, stat, is_whole=number is None and member is None))


async def _look(
    call: Call, named: str | None, number: int | None, member: str | None
) -> tuple[Made, tuple[TeamCommit, ...], list[Pending]]:
    async with call.team(named) as team:
        if number is not None:
            await team.get_task(number)
        name = None if member is None else (await get_member(team, member)).name
        trunk = await get_trunk(team.store, team.record)
        made = await look_at_work(await bring_here(trunk, place_of(call.place.url).state_directory))
        chosen = made.commits if number is None else made.of_task(number)
        if name is None:
            return made, chosen, []
        mine = made.by(name)
        pending = await list_pending(made, name) if number is None else []
        if number is None and not trunk.is_remote:
            pending += await _unfinished(call, team, made, name, pending)
        return made, tuple(commit for commit in chosen if commit in mine), pending


async def _unfinished(call: Call, team: Team, made: Made, name: str, known: list[Pending]) -> list[Pending]:
    """What lies in its worktree besides, if that is on this machine and nobody is at work there."""
    worktree = await find_worktree(team.store, made.trunk, name)
    if worktree is None:
        return []
    if (await find_hosts(team.store, team.record)).hosting:
        call.note(f"team {team.name} is at work: what {name} has not handed in yet lies in {worktree.root}")
        return []
    try:
        unfinished = await look_at_unfinished(team.store, team.record, made, worktree, known)
    except (GitFailed, SandboxUnavailable) as error:
        call.note(f"what {name} has not handed in lies in {worktree.root}, and cannot be shown: {error}")
        return []
    return [unfinished] if unfinished else []


def _documents(chosen: Sequence[TeamCommit], pending: Sequence[Pending]) -> list[dict[str, Any]]:
    waiting = [(entry, commit) for entry in pending for commit in entry.commits]
    return [
        *({**encode(commit), "integrated": True, "ref": None, "worktree": None} for commit in chosen),
        *(
            {**encode(commit), "integrated": False, "ref": entry.ref, "worktree": entry.worktree or None}
            for entry, commit in waiting
        ),
    ]


def _show(
    call: Call, made: Made, chosen: Sequence[TeamCommit], pending: Sequence[Pending], stat: bool, *, is_whole: bool
) -> int:
    shown = [commit.commit for commit in [*chosen, *(commit for entry in pending for commit in entry.commits)]]
    for entry in pending:
        call.note(
            f"{entry.member} has work that is not on {made.trunk.branch} yet, shown last: "
            f"{entry.place}, {'unfinished' if entry.worktree else _count(len(entry.commits))}"
        )
    if not shown:
        what = "nothing" if is_whole else "nothing of that"
        call.note(f"{what} is integrated on {made.trunk.branch} yet")
        return 0
    terminal = terminal_of()
    sys.stdout.flush()
    return show(
        made.trunk.repository,
        "diff" if is_whole else "show",
        [*(["--stat"] if stat else []), *([made.trunk.base, made.tip] if is_whole else shown), "--"],
        is_terminal=terminal.width is not None,
        has_colours=terminal.has_colours,
    )


def _count(commits: int) -> str:
    return "1 commit" if commits == 1 else f"{commits} commits"
