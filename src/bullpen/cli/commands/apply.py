"""`bullpen apply`: what a team made, brought into the user's own files and branch; and given back."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bullpen.cli import completion
from bullpen.cli.call import Call
from bullpen.cli.commands.known import get_member
from bullpen.cli.page import Page
from bullpen.domain.task import parse_task_id
from bullpen.errors import UsageError
from bullpen.team import Team
from bullpen.team.home import find_missing, get_trunk_here
from bullpen.team.hosts import is_at_work
from bullpen.workspaces.application import Application, Mode
from bullpen.workspaces.applying import Plan, Wish, carry_out, make_plan, recover, undo
from bullpen.workspaces.beginning import described
from bullpen.workspaces.checkout import Checkout, Head
from bullpen.workspaces.made import Made, look_at_work
from bullpen.workspaces.pending import list_pending


def apply(
    ctx: typer.Context,
    team: Annotated[
        str | None,
        typer.Argument(metavar="TEAM", help="Its name; without it the only live one.", autocompletion=completion.teams),
    ] = None,
    merge: Annotated[bool, typer.Option("--merge", help="A merge commit, with each commit of the team.")] = False,
    squash: Annotated[bool, typer.Option("--squash", help="One commit of yours.")] = False,
    patch: Annotated[bool, typer.Option("--patch", help="Only your files change; nothing is committed.")] = False,
    task: Annotated[str | None, typer.Option(metavar="N", help="Only what was made for this task.")] = None,
    member: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only what this one made.", autocompletion=completion.members),
    ] = None,
    message: Annotated[str | None, typer.Option("--message", "-m", metavar="TEXT", help="Of the commit.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Only say what would happen.")] = False,
    undone: Annotated[bool, typer.Option("--undo", help="Give back what was applied last.")] = False,
) -> None:
    """Take what a team made, or give it back.

    It goes to the branch that is checked out: as a merge; as a patch if the team began with unsaved work of yours that
    is unsaved still. Other unsaved work stays as it is; where it would be overwritten, nothing is done. Hooks are not
    run.
    """
    call = Call.of(ctx)
    modes = [mode for mode, is_wanted in zip(Mode, (merge, squash, patch), strict=True) if is_wanted]
    if len(modes) > 1:
        raise UsageError("--merge, --squash or --patch: only one of them")
    if undone:
        if modes or task or member or message or dry_run:
            raise UsageError("--undo gives back what was applied last, as it was applied: without other options")
        call.run(_undo(call, team))
        return
    number = None if task is None else parse_task_id(task)
    call.run(_apply(call, team, modes[0] if modes else None, number, member, message or "", dry_run))


async def _apply(
    call: Call,
    named: str | None,
    mode: Mode | None,
    number: int | None,
    member: str | None,
    message: str,
    dry_run: bool,
) -> None:
    async with call.team(named) as team:
        made = await look_at_work(await get_trunk_here(team.store, team.record))
        commits = await _chosen(team, made, number, member)
        wish = Wish(mode=mode, commits=commits, message=message, goal=team.record.goal)
        checkout = await Checkout.open(made.trunk.repository)
        if dry_run:
            plan, applied = await make_plan(checkout, made, wish), None
        else:
            async with checkout.locked():
                for one in await recover(checkout):
                    call.note(f"an apply of {one.branch} that was cut off has been taken back first")
                plan = await make_plan(checkout, made, wish)
                applied = None if plan.is_nothing else await carry_out(checkout, plan, wish)
        await _say_what_is_missing(call, team, made)
    call.show(_document(team.name, plan, applied), lambda page: _draw(page, team.name, plan, applied, dry_run))


async def _chosen(team: Team, made: Made, number: int | None, member: str | None) -> tuple[str, ...] | None:
    if number is None and member is None:
        return None
    if number is not None:
        await team.get_task(number)
    name = None if member is None else (await get_member(team, member)).name
    of_task = made.commits if number is None else made.of_task(number)
    by_member = made.commits if name is None else made.by(name)
    chosen = tuple(commit.commit for commit in of_task if commit in by_member)
    if not chosen:
        raise UsageError(f"nothing of that is on {made.trunk.branch} yet: `bullpen diff {team.name}` shows what is")
    return chosen


async def _say_what_is_missing(call: Call, team: Team, made: Made) -> None:
    """All of this is allowed: one may take what there is."""
    if await is_at_work(team.store, team.record):
        call.note(f"team {team.name} is still at work: this is what was on {made.trunk.branch} just now")
    missing = await find_missing(team.store, team.record)
    for word, tasks in (("not finished", missing.unfinished), ("failed", missing.failed)):
        if tasks:
            call.note(f"{word}: {described(tuple(f'#{task.id} {task.subject}' for task in tasks))}")
    for pending in await list_pending(made):
        call.note(
            f"{pending.member} has work that is not on {made.trunk.branch}: "
            f"`git diff {made.trunk.branch} {pending.ref.removeprefix('refs/')}` shows it"
        )


def _document(team: str, plan: Plan, applied: Application | None) -> dict[str, Any]:
    return {
        "team": team,
        "applied": applied is not None,
        "mode": plan.mode,
        "repository": plan.made.trunk.repository,
        "branch": None if plan.head.ref == "HEAD" else plan.head.name,
        "before": plan.head.commit,
        "commit": None if applied is None else applied.commit,
        "commits": [] if plan.is_nothing else plan.commits,
        "files": plan.files,
    }


def _draw(page: Page, team: str, plan: Plan, applied: Application | None, dry_run: bool) -> None:
    trunk = plan.made.trunk
    if plan.is_nothing:
        if not plan.made.commits:
            page.line(f"nothing is integrated on {trunk.branch} yet")
            return
        when = f" since {plan.last.applied_at}" if plan.last else ""
        where = "your files have" if plan.last and plan.last.mode is Mode.PATCH else f"{plan.head.name} has"
        page.line(f"nothing to do: {where} what is on {trunk.branch}{when}")
        return
    would = "would change" if dry_run else "changed"
    if plan.files:
        page.line(f"{would} {_count(len(plan.files), 'file')} in {trunk.repository}: {described(plan.files)}")
    else:
        page.line(f"{would} no file in {trunk.repository}: they are as the team made them, or not checked out")
    for path in plan.left:
        page.line(f"left as it is, for it is a submodule: {path}")
    commits = _count(len(plan.commits), "commit")
    if plan.mode is Mode.PATCH:
        page.line(f"{commits} of {trunk.branch}, as a patch: nothing is committed or staged, `git status` shows it")
    elif dry_run:
        page.line(f"{commits} of {trunk.branch} would come to {plan.head.name} as a {plan.mode}")
    else:
        assert applied is not None
        assert applied.commit is not None
        page.line(f"{commits} of {trunk.branch} came to {plan.head.name} as a {plan.mode}: {applied.commit[:7]}")
        if plan.keeps_unsaved:
            page.line("what you had not committed in these files is still not committed")
    if not dry_run:
        page.line(f"`bullpen apply {team} --undo` gives it back")


async def _undo(call: Call, named: str | None) -> None:
    async with call.team(named) as team:
        trunk = await get_trunk_here(team.store, team.record)
    checkout = await Checkout.open(trunk.repository)
    async with checkout.locked():
        begun = await recover(checkout)
        is_back = False
        mine = [one for one in begun if (one.branch, one.base) == (trunk.branch, trunk.base)]
        if mine:
            # Killed in the middle of applying or of undoing: either way that is what is taken back.
            last = mine[-1]
        else:
            last, is_back = await undo(checkout, trunk.branch, trunk.base)
    where = Head("", last.ref).name

    def draw(page: Page) -> None:
        if last.files:
            page.line(f"gave back {_count(len(last.files), 'file')} in {trunk.repository}: {described(last.files)}")
        if last.commit is not None:
            page.line(f"{where} is at {last.head[:7]} again")
        if is_back:
            page.line(f"{trunk.branch} had been removed and is back: the work is there")

    document = {"team": team.name, "undone": last.mode, "branch": where, "head": last.head, "files": last.files}
    call.show(document, draw)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
