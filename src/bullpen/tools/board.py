"""Tools of the board: TaskCreate, TaskGet, TaskUpdate, TaskList, claim_task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bullpen.domain.files import parse_files
from bullpen.domain.hook import Hook
from bullpen.domain.task import Task, TaskChanges, TaskStatus, check_transition, parse_task_status
from bullpen.errors import CheckRequired, Conflict, NotAllowed, ToolError
from bullpen.tool import Changes, Kind, Parameter, Tool, ToolContext, ToolOutput
from bullpen.tools.check import run_check
from bullpen.tools.handing_in import FOR_TASK, await_verdict, find_handed_in, gather_work, keep_unfinished, start_anew
from bullpen.tools.handover import hand_over, list_overlaps
from bullpen.tools.outside import show_handed_in
from bullpen.tools.render import task_details, task_line

_STATUSES = tuple(str(status) for status in TaskStatus)
_TASK_ID = Parameter(
    name="taskId", kind=Kind.TASK_ID, description="The task's number.", is_required=True, aliases=("task_id", "id")
)

_FILES = (
    "Globs of the files that it will change, relative to the workspace: src/api/**, docs/*.md. Tasks whose files "
    "overlap are not worked on at the same time if there is anything else to do."
)


async def _create(context: ToolContext, arguments: Mapping[str, Any]) -> str:
    await context.pass_hooks(Hook.TASK_CREATED, _draft(context, arguments))
    task = await context.store.create_task(
        context.ref,
        arguments["subject"],
        description=arguments.get("description", ""),
        active_form=arguments.get("activeForm", ""),
        blocked_by=arguments.get("blockedBy", ()),
        role=arguments.get("role"),
        check=arguments.get("check"),
        files=_files(arguments),
        operation_id=context.operation_id,
    )
    return f"created {task_line(task)}"


def _files(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Together again: a text with commas was taken for a list, and in `src/{a,b}` there is one."""
    return parse_files(",".join(arguments.get("files", ())))


def _draft(context: ToolContext, arguments: Mapping[str, Any]) -> Task:
    """The task as it would be, for hooks: it has no number yet."""
    now = context.clock.now()
    return Task(
        team_id=context.team.id,
        id=0,
        subject=arguments["subject"],
        description=arguments.get("description", ""),
        active_form=arguments.get("activeForm", ""),
        blocked_by=tuple(arguments.get("blockedBy", ())),
        role=arguments.get("role"),
        check=arguments.get("check"),
        files=_files(arguments),
        created_by=context.member.name,
        created_at=now,
        updated_at=now,
    )


async def _get(context: ToolContext, arguments: Mapping[str, Any]) -> str:
    task = await context.store.get_task(context.team.id, arguments["taskId"])
    overlaps = await list_overlaps(context.store, [task])
    return task_details(task, overlap=overlaps.get(task.id, ""))


async def _list(context: ToolContext, arguments: Mapping[str, Any]) -> str:
    status = arguments.get("status")
    tasks = await context.store.list_tasks(
        context.team.id,
        status=None if status is None else parse_task_status(status),
        owner=arguments.get("owner") or None,
    )
    overlaps = await list_overlaps(context.store, tasks)
    return "\n".join(task_line(task, overlap=overlaps.get(task.id, "")) for task in tasks) or "no tasks"


async def _claim(context: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput | str:
    task_id = arguments.get("taskId")
    if task_id is None:
        task = await context.store.claim_next_task(context.ref, operation_id=context.operation_id)
        if task is None:
            return "nothing can be claimed by you now: end your turn, you are woken when there is something"
        remarks = await start_anew(context, task)
    else:
        task, remarks = await _claim_this(context, task_id)
    return ToolOutput(text=f"claimed\n{await hand_over(context.store, task)}", remarks=remarks)


async def _claim_this(context: ToolContext, task_id: int) -> tuple[Task, tuple[str, ...]]:
    before = await context.store.get_task(context.team.id, task_id)
    task = await context.store.claim_task(context.ref, task_id, operation_id=context.operation_id)
    is_held = before.status is TaskStatus.IN_PROGRESS and before.is_owned_by(context.member.name)
    # Who claims what it holds goes on with it.
    return task, () if is_held else await start_anew(context, task)


async def _update(context: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput:
    """Fields first, status last: `TaskUpdate(result=…, status=completed)` is one thought."""
    task_id = arguments["taskId"]
    changes = _changes(arguments)
    status = None if "status" not in arguments else parse_task_status(arguments["status"])
    if changes is None and status is None:
        raise ToolError("TaskUpdate without a change: give a status or a field")
    remarks: list[str] = []
    task: Task | None = None
    if changes is not None and not _is_own_claim(context, arguments, status):
        task = await context.store.update_task(
            context.ref, task_id, changes, operation_id=f"{context.operation_id}:fields"
        )
    if status is not None:
        task = await _set_status(context, task_id, status, arguments.get("result", ""))
    assert task is not None
    if status is TaskStatus.COMPLETED and not task.result:
        remarks.append("no result was given: say what changed, where, and how it was verified, next time")
    return ToolOutput(text=task_line(task), remarks=tuple(remarks))


def _is_own_claim(context: ToolContext, arguments: Mapping[str, Any], status: TaskStatus | None) -> bool:
    """`TaskUpdate(owner=me, status=in_progress)` is how some write a claim."""
    owner = str(arguments.get("owner", ""))
    others = {"subject", "description", "activeForm", "role", "check", "files"}
    others |= {"addBlockedBy", "addBlocks", "removeBlockedBy"}
    is_mine = owner.casefold() in ("", context.member.name.casefold())
    return status is TaskStatus.IN_PROGRESS and is_mine and not others & arguments.keys()


def _changes(arguments: Mapping[str, Any]) -> TaskChanges | None:
    names = {
        "subject": "subject",
        "description": "description",
        "activeForm": "active_form",
        "role": "role",
        "check": "check",
        "addBlockedBy": "add_blocked_by",
        "removeBlockedBy": "remove_blocked_by",
        "addBlocks": "add_blocks",
    }
    given: dict[str, Any] = {field: arguments[name] for name, field in names.items() if name in arguments}
    for field in ("add_blocked_by", "remove_blocked_by", "add_blocks"):
        if field in given:
            given[field] = tuple(given[field])
    if "files" in arguments:
        given["files"] = _files(arguments)
    if "owner" in arguments:
        given["owner"] = arguments["owner"] or None
    return TaskChanges(**given) if given else None


async def _set_status(context: ToolContext, task_id: int, status: TaskStatus, result: str) -> Task:
    store, ref, operation_id = context.store, context.ref, context.operation_id
    match status:
        case TaskStatus.IN_PROGRESS:
            return (await _claim_this(context, task_id))[0]
        case TaskStatus.COMPLETED:
            return await _complete(context, task_id, result)
        case TaskStatus.FAILED:
            reason = await keep_unfinished(context, task_id, result)
            failed = await store.fail_task(ref, task_id, reason=reason, operation_id=operation_id)
            return await _let_go(context, failed)
        case TaskStatus.DELETED:
            return await store.delete_task(ref, task_id, operation_id=operation_id)
        case TaskStatus.PENDING:
            task = await store.get_task(context.team.id, task_id)
            if task.status is TaskStatus.FAILED:
                return await store.retry_task(ref, task_id, note=result, operation_id=operation_id)
            note = await keep_unfinished(context, task_id, result)
            released = await store.release_task(ref, task_id, note=note, operation_id=operation_id)
            return await _let_go(context, released)


async def _let_go(context: ToolContext, task: Task) -> Task:
    """Half-done files of a task that is not its member's any more are not handed in with the next thing."""
    if context.member.counters.get(FOR_TASK) == task.id:
        await start_anew(context, None)
    return task


async def _complete(context: ToolContext, task_id: int, result: str) -> Task:
    if (handed_in := await find_handed_in(context, task_id)) is not None:
        # Asked again after a kill. Only its verdict counts: to complete it without work would be right in the moment in
        # which it is refused.
        return await await_verdict(context, handed_in)
    await _pass_hooks(context, task_id, result)
    work = await gather_work(context, task_id, result)
    if work is not None:
        await show_handed_in(context, task_id, work)
    try:
        task = await context.store.complete_task(
            context.ref, task_id, result=result, work=work, operation_id=context.operation_id
        )
    except CheckRequired:
        task = await run_check(context, task_id, result, work)
    return await await_verdict(context, task)


async def _pass_hooks(context: ToolContext, task_id: int, result: str) -> None:
    task = await context.store.get_task(context.team.id, task_id)
    try:
        check_transition(task, TaskStatus.COMPLETED, name=context.member.name, leads=context.member.leads)
    except (Conflict, NotAllowed):
        # No step that a hook could refuse: the store says why.
        return
    await context.pass_hooks(Hook.TASK_COMPLETED, replace(task, result=result or task.result))


TASK_CREATE = Tool(
    name="TaskCreate",
    description="""Put a task on the shared board. Whoever claims it sees only what you write here.

Good: subject "Add GET /users/{id} to api/users.py", description with the files, the interface (path, parameters, \
JSON shape) and the done criterion, check "pytest tests/test_users.py -q", role "backend".
Bad: subject "Work on the backend" with no description: nobody knows what is meant or when it is done.

blockedBy only for tasks whose result is really needed first.""",
    parameters=(
        Parameter(name="subject", kind=Kind.TEXT, description="What is to be done, in one line.", is_required=True),
        Parameter(name="description", kind=Kind.TEXT, description="Files, interface, done criterion."),
        Parameter(
            name="activeForm",
            kind=Kind.TEXT,
            description="The subject while it is being done: 'Adding GET /users'.",
            aliases=("active_form",),
        ),
        Parameter(
            name="blockedBy",
            kind=Kind.TASK_IDS,
            description="Tasks that must be completed first.",
            aliases=("blocked_by", "dependsOn"),
        ),
        Parameter(name="role", kind=Kind.TEXT, description="Only members of this role may take it."),
        Parameter(name="check", kind=Kind.TEXT, description="A shell command that must exit 0 before it is completed."),
        Parameter(name="files", kind=Kind.TEXTS, description=_FILES, aliases=("paths", "globs")),
    ),
    run=_create,
    changes=Changes.TEAM,
    is_repeatable=True,
    aliases={"task_create": {}},
)

TASK_GET = Tool(
    name="TaskGet",
    description="Show one task in full: description, blockers, check, evidence, result, hand-over notes.",
    parameters=(_TASK_ID,),
    run=_get,
    is_read_only=True,
    is_repeatable=True,
    aliases={"task_get": {}},
)

TASK_UPDATE = Tool(
    name="TaskUpdate",
    description="""Change a task. Set status to completed (with result: what changed, where, how it was verified), \
failed (with result: what you tried), or pending (to give it back). A task with a check is completed only when the \
check passes; you get its output otherwise. Only the lead changes role, check, owner and other members' tasks.""",
    parameters=(
        _TASK_ID,
        Parameter(name="status", kind=Kind.TEXT, choices=_STATUSES, description="The new status."),
        Parameter(name="result", kind=Kind.TEXT, description="What changed, where, and how it was verified."),
        Parameter(name="subject", kind=Kind.TEXT),
        Parameter(name="description", kind=Kind.TEXT),
        Parameter(name="activeForm", kind=Kind.TEXT, aliases=("active_form",)),
        Parameter(name="owner", kind=Kind.TEXT, description="Assign it to this member; empty: to nobody."),
        Parameter(name="addBlockedBy", kind=Kind.TASK_IDS, aliases=("add_blocked_by", "blockedBy", "blocked_by")),
        Parameter(name="removeBlockedBy", kind=Kind.TASK_IDS, aliases=("remove_blocked_by",)),
        Parameter(name="addBlocks", kind=Kind.TASK_IDS, aliases=("add_blocks", "blocks")),
        Parameter(name="role", kind=Kind.TEXT),
        Parameter(name="check", kind=Kind.TEXT),
        Parameter(name="files", kind=Kind.TEXTS, aliases=("paths", "globs")),
    ),
    run=_update,
    changes=Changes.TEAM,
    is_repeatable=True,
    aliases={"task_update": {}},
)

TASK_LIST = Tool(
    name="TaskList",
    description="List the tasks of the board, one line each.",
    parameters=(
        Parameter(name="status", kind=Kind.TEXT, choices=_STATUSES),
        Parameter(name="owner", kind=Kind.TEXT),
    ),
    run=_list,
    is_read_only=True,
    is_repeatable=True,
    aliases={"task_list": {}},
)

CLAIM_TASK = Tool(
    name="claim_task",
    description="Take a task: this one, or without a number the next that you may take. You hold one at a time.",
    parameters=(Parameter(name="taskId", kind=Kind.TASK_ID, aliases=("task_id", "id")),),
    run=_claim,
    changes=Changes.TEAM,
    is_repeatable=True,
)

TOOLS = (TASK_CREATE, TASK_GET, TASK_UPDATE, TASK_LIST, CLAIM_TASK)
