"""`bullpen clean`: worktrees, branches and refs of finished teams go; never what is nowhere else."""

from __future__ import annotations

from typing import Annotated

import typer

from bullpen.cli import completion
from bullpen.cli.call import Call
from bullpen.cli.page import Page, Painted
from bullpen.domain.codec import encode
from bullpen.domain.trunk import PREFIX, Trunk
from bullpen.errors import Conflict, UsageError
from bullpen.team.cleaning import Cleaned, check_finished
from bullpen.team.cleaning import clean as clean_up
from bullpen.workspaces.git import GitFailed


def clean(
    ctx: typer.Context,
    team: Annotated[
        str | None,
        typer.Argument(
            metavar="TEAM", help="Its name, or #ID; without it all that are finished.", autocompletion=completion.teams
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Of the team that is named also what is nowhere else; says what is lost.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Only say what would happen.")] = False,
) -> None:
    """Remove what finished teams left in git.

    Their worktrees, branches and refs. What is on no branch, tag or remote of yours stays, and is said: apply it first.
    What was applied and cleaned up can no longer be undone by `apply --undo`.
    """
    call = Call.of(ctx)
    cleaned = [one for one in call.run(_clean(call, team, force, dry_run)) if not one.is_nothing]
    call.show([encode(one) for one in cleaned], lambda page: _draw(page, cleaned, dry_run))


async def _clean(call: Call, named: str | None, force: bool, dry_run: bool) -> list[Cleaned]:
    if named or call.new_name:
        async with call.team(named) as team:
            await check_finished(team.store, team.record, is_forced=force)
            return [await clean_up(team.store, team.record, is_forced=force, is_tried=dry_run)]
    if force:
        raise UsageError("--force is for one team: bullpen clean TEAM --force")
    cleaned = []
    async with call.store() as store:
        for record in await store.list_teams(include_deleted=True):
            if Trunk.of(record.settings) is None:
                continue
            try:
                await check_finished(store, record, is_forced=False)
                cleaned.append(await clean_up(store, record, is_tried=dry_run))
            except (Conflict, UsageError, GitFailed) as refused:
                # One that cannot be cleaned up is no reason to leave the others.
                call.note(f"left alone: {refused}")
    return cleaned


def _draw(page: Page, cleaned: list[Cleaned], dry_run: bool) -> None:
    for one in cleaned:
        _draw_one(page, one, "would remove" if dry_run else "removed")
    if not page.lines:
        page.line("nothing to clean up")


def _draw_one(page: Page, one: Cleaned, removed: str) -> None:
    named = Painted(one.team, "bold")
    gone = [*([_count(len(one.worktrees), "worktree")] if one.worktrees else []), *one.refs]
    if gone:
        page.line(named, f": {removed} {', '.join(gone)}")
    for name, what in one.lost.items():
        page.line(named, ": ", Painted(f"lost with it, {name}: {what}", "red"))
    for name, what in one.kept.items():
        page.line(named, ": ", Painted(f"kept {name}", "yellow"), f": {what}, and that is nowhere else")
    if one.kept:
        refs = [name for name in one.kept if name.startswith(PREFIX)]
        look = f"`git log -p {refs[0]}` shows it, " if refs else ""
        take = f"`bullpen apply {one.team}` takes what is integrated, " if one.trunk in one.kept else look
        page.line(named, f": {take}`bullpen clean {one.team} --force` lets all go")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
