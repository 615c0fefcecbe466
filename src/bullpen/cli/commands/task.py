"""`bullpen task`: the board, for the human."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from bullpen.cli import completion
from bullpen.cli.call import Call
from bullpen.cli.parser import Branch
from bullpen.cli.views.task import draw_board, draw_line, draw_task
from bullpen.domain.codec import encode
from bullpen.domain.files import parse_files
from bullpen.domain.task import UNSET, Task, TaskStatus, parse_task_id, parse_task_status
from bullpen.domain.text import clean
from bullpen.errors import BullpenError, CheckRequired, Conflict, UsageError
from bullpen.team import Team

branch = Branch("The board: add, list, show, update, claim, done.")

NUMBER_HELP = "The task's number: 3 or #3."
Number = Annotated[str, typer.Argument(metavar="ID", help=NUMBER_HELP, autocompletion=completion.tasks)]
Numbers = list[str] | None
Globs = list[str] | None

TOLD = (TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.PENDING)
"""What a task becomes with a word about it. Of the others nothing is kept."""


@branch.command("add")
def add(
    ctx: typer.Context,
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="What is to be done, in one line.")],
    description: Annotated[
        str, typer.Option("--description", "-d", metavar="TEXT", help="All that one must know.")
    ] = "",
    active_form: Annotated[str, typer.Option(metavar="TEXT", help='While it runs: "Writing the docs".')] = "",
    blocked_by: Annotated[
        Numbers,
        typer.Option(
            "--blocked-by",
            metavar="ID",
            help="Wait for this task; several: 1,2 or repeated.",
            autocompletion=completion.unfinished_tasks,
        ),
    ] = None,
    role: Annotated[str | None, typer.Option(metavar="ROLE", help="Only for members with this role.")] = None,
    check: Annotated[
        str | None, typer.Option(metavar="COMMAND", help="Must exit 0 before the task counts as completed.")
    ] = None,
    owner: Annotated[
        str | None, typer.Option(metavar="NAME", help="Whose it is.", autocompletion=completion.members)
    ] = None,
    files: Annotated[
        Globs, typer.Option("--files", metavar="GLOB", help="What it will change; several: a,b or repeated.")
    ] = None,
) -> None:
    """Put a task on the board; the first one begins a team."""
    if not subject.strip():
        raise UsageError("a task needs a subject: say in one line what is to be done")
    call = Call.of(ctx)
    details = {
        "description": description,
        "active_form": active_form,
        "blocked_by": _ids(blocked_by),
        "role": role,
        "check": check,
        "owner": owner or None,
        "files": parse_files(files or ()),
    }
    call.run(_add(call, subject, details))


async def _add(call: Call, subject: str, details: dict[str, Any]) -> None:
    async with call.team_to_begin() as team:
        task = await team.create_task(subject, **details)
    call.show(task, lambda page: page.line(f"#{task.id} ", task.subject))


@branch.command("list")
def list_(
    ctx: typer.Context,
    status: Annotated[
        str | None, typer.Option(metavar="STATUS", help="Only these.", autocompletion=completion.statuses)
    ] = None,
    owner: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this member's.", autocompletion=completion.members)
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Deleted ones too.")] = False,
) -> None:
    """Show the board."""
    call = Call.of(ctx)
    call.run(_list(call, None if status is None else parse_task_status(status), owner, every))


async def _list(call: Call, status: TaskStatus | None, owner: str | None, every: bool) -> None:
    async with call.team() as team:
        if owner is not None:
            await team.store.get_member(team.id, owner)
        tasks = await team.list_tasks(status=status, owner=owner)
        if every and status is None:
            deleted = await team.list_tasks(status=TaskStatus.DELETED, owner=owner)
            tasks = sorted([*tasks, *deleted], key=lambda task: task.id)
        is_filtered = status is not None or owner is not None
        others = tasks
        if is_filtered and not call.is_json and any(task.open_blockers or task.files for task in tasks):
            others = await team.list_tasks()
    call.show(tasks, lambda page: draw_board(page, tasks, {task.id: task for task in others}))


@branch.command("show")
def show(ctx: typer.Context, number: Number) -> None:
    """Show everything about a task, and what its blockers hand over."""
    call = Call.of(ctx)
    call.run(_show(call, parse_task_id(number)))


async def _show(call: Call, number: int) -> None:
    async with call.team() as team:
        await _present(call, team, await team.get_task(number))


async def _present(call: Call, team: Team, task: Task) -> None:
    blockers = await team.list_blockers(task)
    busy = await team.list_tasks(status=TaskStatus.IN_PROGRESS) if task.files else []
    document = {**encode(task), "blockers": blockers}
    call.show(document, lambda page: draw_task(page, task, blockers, busy))


@branch.command("update")
def update(
    ctx: typer.Context,
    number: Number,
    subject: Annotated[str | None, typer.Option(metavar="TEXT")] = None,
    description: Annotated[str | None, typer.Option("--description", "-d", metavar="TEXT")] = None,
    active_form: Annotated[str | None, typer.Option(metavar="TEXT")] = None,
    status: Annotated[
        str | None,
        typer.Option(
            metavar="STATUS",
            help="pending (released, or tried again), in_progress (claimed for you), completed, failed, deleted.",
            autocompletion=completion.statuses,
        ),
    ] = None,
    owner: Annotated[
        str | None, typer.Option(metavar="NAME", help='Whose it is; "": nobody\'s.', autocompletion=completion.members)
    ] = None,
    role: Annotated[str | None, typer.Option(metavar="ROLE", help='"": for everyone.')] = None,
    check: Annotated[str | None, typer.Option(metavar="COMMAND", help='"": none.')] = None,
    files: Annotated[
        Globs, typer.Option("--files", metavar="GLOB", help='What it will change, instead of what it said; "": none.')
    ] = None,
    blocked_by: Annotated[
        Numbers,
        typer.Option(
            "--blocked-by", metavar="ID", help="Wait for this one too.", autocompletion=completion.unfinished_tasks
        ),
    ] = None,
    unblock: Annotated[
        Numbers,
        typer.Option("--unblock", metavar="ID", help="Wait for this one no more.", autocompletion=completion.tasks),
    ] = None,
    blocks: Annotated[
        Numbers,
        typer.Option("--blocks", metavar="ID", help="Hold that one back.", autocompletion=completion.unfinished_tasks),
    ] = None,
    result: Annotated[
        str | None, typer.Option("--result", "--note", metavar="TEXT", help="With --status: what came of it, or why.")
    ] = None,
) -> None:
    """Change a task."""
    changes = {
        "subject": UNSET if subject is None else subject,
        "description": UNSET if description is None else description,
        "active_form": UNSET if active_form is None else active_form,
        "owner": UNSET if owner is None else owner or None,
        "role": UNSET if role is None else role or None,
        "check": UNSET if check is None else check or None,
        "files": UNSET if files is None else parse_files(files),
        "add_blocked_by": _ids(blocked_by),
        "remove_blocked_by": _ids(unblock),
        "add_blocks": _ids(blocks),
    }
    edges = ("add_blocked_by", "remove_blocked_by", "add_blocks")
    changes = {name: value for name, value in changes.items() if value is not UNSET and (value or name not in edges)}
    to = None if status is None else parse_task_status(status)
    if result is not None and to not in TOLD:
        raise UsageError("--result goes with --status completed or failed, --note with --status pending")
    if not changes and to is None:
        raise UsageError("nothing to change: say what, for example --status failed; see `bullpen task update --help`")
    call = Call.of(ctx)
    call.run(_update(call, parse_task_id(number), changes, to, result or ""))


async def _update(call: Call, number: int, changes: dict[str, Any], status: TaskStatus | None, note: str) -> None:
    async with call.team() as team:
        task = await _change(team, number, changes, status, note)
    if status is TaskStatus.COMPLETED:
        _check_result(task, note)
    call.show(task, lambda page: draw_line(page, task))


async def _change(team: Team, number: int, changes: dict[str, Any], status: TaskStatus | None, note: str) -> Task:
    """Two verbs at most: back to the board comes before other changes (so it can be given away), the rest after."""
    if status is None:
        return await team.update_task(number, **changes)
    if not changes:
        return await team.set_task_status(number, status, note=note)
    is_return = status is TaskStatus.PENDING
    if is_return:
        await team.set_task_status(number, status, note=note)
    else:
        await team.update_task(number, **changes)
    try:
        if is_return:
            return await team.update_task(number, **changes)
        return await team.set_task_status(number, status, note=note)
    except BullpenError as error:
        raise type(error)(f"{error} (the other change was made)") from error


@branch.command("claim")
def claim(
    ctx: typer.Context,
    number: Annotated[
        str | None,
        typer.Argument(
            metavar="ID",
            help="Which one; without it the next claimable one.",
            autocompletion=completion.unfinished_tasks,
        ),
    ] = None,
) -> None:
    """Take a task yourself: you (`user`) become its owner."""
    call = Call.of(ctx)
    call.run(_claim(call, None if number is None else parse_task_id(number)))


async def _claim(call: Call, number: int | None) -> None:
    async with call.team() as team:
        task = await team.claim_task(number)
        if task is None:
            raise Conflict("there is nothing to claim: every task is finished, taken, blocked or for another role")
        await _present(call, team, task)


@branch.command("done")
def done(
    ctx: typer.Context,
    number: Annotated[str, typer.Argument(metavar="ID", help=NUMBER_HELP, autocompletion=completion.unfinished_tasks)],
    result: Annotated[str, typer.Option(metavar="TEXT", help="What changed, where, how it was verified.")] = "",
    unverified: Annotated[bool, typer.Option("--unverified", help="Pass over its check; that is recorded.")] = False,
) -> None:
    """Complete a task; who waited for it may begin."""
    call = Call.of(ctx)
    call.run(_done(call, parse_task_id(number), result, unverified))


async def _done(call: Call, number: int, result: str, unverified: bool) -> None:
    async with call.team() as team:
        try:
            task = await team.complete_task(number, result=result, unverified=unverified)
        except CheckRequired as error:
            raise CheckRequired(f"{error}; --unverified completes it without") from error
    _check_result(task, result)
    call.show(task, lambda page: draw_line(page, task))


def _check_result(task: Task, said: str) -> None:
    """To complete what is completed changes nothing: whoever says something else of it now has to be told."""
    if task.status is TaskStatus.COMPLETED and said and task.result != clean(said):
        kept = "has its result" if task.result else "has no result"
        raise Conflict(f"#{task.id} was completed before and {kept}, this one is not kept: a new task can tell it")


def _ids(texts: Numbers) -> tuple[int, ...]:
    """`1`, `#1`, `1,2` and `1 2`, as often as one likes."""
    return tuple(parse_task_id(word) for text in texts or () for word in re.split(r"[,\s]+", text.strip()))
