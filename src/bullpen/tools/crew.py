"""Tools of the lead: Task (teammates and subagents), TeamCreate, TeamDelete."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from bullpen.domain.member import Member, MemberKind, MemberStatus, Team
from bullpen.errors import Conflict, ToolError
from bullpen.sandbox import OUTPUT_CHARACTERS
from bullpen.tool import Changes, Kind, Parameter, Tool, ToolContext, ToolOutput
from bullpen.tools.backgrounds import Backgrounds
from bullpen.tools.mail import check_team, shutdown_seconds

SUBAGENTS = ("explore", "code", "plan")
GRACE_SECONDS = 5.0
"""After the deadline: for those who host the last ones to notice."""

_SPAWNED = {
    "created": "joins the team and begins by itself",
    "revived": "is back, with its memory, and begins by itself",
    "delivered": "was idle and has your prompt now",
    "queued": "is at work; your prompt reaches it between two of its steps",
}
_STOPPED = {"asked": "stopped when asked", "forced": "did not stop in time and was stopped by force"}


# -- Task ------------------------------------------------------------------------------


async def _task(context: ToolContext, arguments: Mapping[str, Any]) -> str:
    await check_team(context, arguments.get("team_name"))
    if not arguments["prompt"].strip():
        raise ToolError("the prompt is empty: say what is to be done")
    if arguments.get("name"):
        return await _spawn(context, arguments)
    return await _ask_subagent(context, arguments)


async def _spawn(context: ToolContext, arguments: Mapping[str, Any]) -> str:
    spawned = await context.store.spawn_member(
        context.ref,
        arguments["name"].strip(),
        role=arguments.get("role") or None,
        prompt=arguments["prompt"],
        model=arguments.get("model") or None,
        plan_required=arguments.get("require_plan", False),
        task_id=arguments.get("task_id"),
        operation_id=context.operation_id,
    )
    role = f" ({spawned.member.role})" if spawned.member.role else ""
    return f"{spawned.member.name}{role} {_SPAWNED[spawned.outcome]}"


async def _ask_subagent(context: ToolContext, arguments: Mapping[str, Any]) -> str:
    prompt, kind = arguments["prompt"], arguments.get("agent_type", "code")
    model = arguments.get("model") or None
    if not arguments.get("run_in_background", False):
        answer = await context.run_subagent(prompt, kind=kind, model=model)
        return _cut(answer)
    title = f"{kind}: {arguments.get('description') or prompt}"
    started = await context.resource(Backgrounds).start_subagent(
        context, title, lambda: context.run_subagent(prompt, kind=kind, model=model)
    )
    return f"{started.label} works in the background. You are told when it ends, with its answer; TaskStop ends it."


def _cut(answer: str) -> str:
    if len(answer) <= OUTPUT_CHARACTERS:
        return answer
    half = OUTPUT_CHARACTERS // 2 - 100
    left_out = (
        f"[… {len(answer) - 2 * half:,} characters of its answer left out: ask for less, or have it write a file …]"
    )
    return f"{answer[:half]}\n{left_out}\n{answer[-half:]}"


# -- teams -----------------------------------------------------------------------------


async def _create_team(context: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput:
    name, goal = re.sub(r"\s+", "-", arguments["name"].strip()), arguments.get("goal") or ""
    team = await context.store.get_team(context.team.id)
    if team.deleted_at is not None:
        return await _open_next(context, name, goal)
    if name == team.name and await _has_work(context):
        raise ToolError(_refusal(team))
    try:
        changed = await context.store.change_team(
            context.ref, name=name, goal=goal or None, operation_id=context.operation_id
        )
    except Conflict as error:
        if await _has_work(context):
            raise ToolError(_refusal(team)) from error
        raise
    return ToolOutput(text=f"your team is {changed.name!r} now; create its tasks, then spawn teammates")


def _refusal(team: Team) -> str:
    return f"you lead {team.name!r}, which has work: finish it there, or TeamDelete it first, then TeamCreate the next"


async def _has_work(context: ToolContext) -> bool:
    members = await context.store.list_members(context.team.id)
    if any(_can_be_stopped(member) for member in members):
        return True
    return bool(await context.store.list_tasks(context.team.id, limit=1))


async def _open_next(context: ToolContext, name: str, goal: str) -> ToolOutput:
    text = f"team {name!r} is open and you lead it; create its tasks, then spawn teammates"
    lead = await context.store.succeed_team(
        context.ref,
        name,
        goal=goal,
        call_id=context.call_id,
        result=text,
        operation_id=context.operation_id,
    )
    return ToolOutput(text=text, moves_to=lead)


async def _delete_team(context: ToolContext, arguments: Mapping[str, Any]) -> str:
    await check_team(context, arguments.get("name"))
    deadline_seconds = shutdown_seconds(context)
    team = await context.store.delete_team(
        context.ref, deadline_seconds=deadline_seconds, operation_id=context.operation_id
    )
    members = await _until_all_rest(context, team, deadline_seconds)
    return "\n".join(
        [
            f"team {team.name!r} is deleted; its board, mail and transcripts stay readable.",
            *(_how(member, team) for member in members),
            "Say how it ended, and end your turn; or open the next team with TeamCreate.",
        ]
    )


async def _until_all_rest(context: ToolContext, team: Team, deadline_seconds: float) -> Sequence[Member]:
    """Its teammates, when all are at rest or have had their time; after the deadline they are forced."""
    assert team.deleted_at is not None
    deadline = team.deleted_at + timedelta(seconds=deadline_seconds)
    async with context.store.listen_events(team.id) as bell:
        while True:
            bell.clear()
            members = [m for m in await context.store.list_members(team.id) if _can_be_stopped(m)]
            left = (deadline - context.clock.now()).total_seconds()
            if all(member.status is MemberStatus.SHUTDOWN for member in members) or left < -GRACE_SECONDS:
                return members
            if left <= 0:
                await context.store.expire_requests()
            await bell.wait(max(0.05, left if left > 0 else GRACE_SECONDS + left))


def _can_be_stopped(member: Member) -> bool:
    return member.kind in (MemberKind.TEAMMATE, MemberKind.EXTERNAL)


def _how(member: Member, team: Team) -> str:
    if member.status is not MemberStatus.SHUTDOWN:
        return f"{member.name}: still {member.status}"
    if team.deleted_at is not None and member.status_at < team.deleted_at:
        return f"{member.name}: had shut down before ({member.status_reason})"
    return f"{member.name}: {_STOPPED.get(member.status_reason, f'stopped ({member.status_reason})')}"


# -- the tools -------------------------------------------------------------------------

TASK = Tool(
    name="Task",
    description="""Have somebody else work. With `name`: a teammate, who joins the team, takes tasks from the board \
and keeps its memory; it works beside you, so end your turn and you are woken. Without `name`: a subagent, which does \
one thing, knows only your prompt, and whose last words are the result of this call.

Good: Task(name="backend", role="backend", prompt="You own api/. Take tasks of your role; the interface is in \
docs/api.md."), after its tasks are on the board.
Good: Task(agent_type="explore", prompt="Which functions in src/ write to the table users? Answer with file:line.")
Bad: Task(prompt="Fix the bug we talked about"): it has not heard you talk.
Bad: a teammate for a single small step: do it yourself, or ask a subagent.

explore and plan only read; code also writes.""",
    parameters=(
        Parameter(
            name="prompt",
            kind=Kind.TEXT,
            description="Everything it must know. For a teammate: its standing instruction.",
            is_required=True,
        ),
        Parameter(name="description", kind=Kind.TEXT, description="In three to five words, for lists."),
        Parameter(
            name="agent_type",
            kind=Kind.TEXT,
            choices=SUBAGENTS,
            description="What kind of subagent; code if you say nothing.",
            aliases=("subagent_type", "kind"),
        ),
        Parameter(name="name", kind=Kind.TEXT, description="The teammate's name; the same name is the same teammate."),
        Parameter(name="role", kind=Kind.TEXT, description="Which tasks the teammate may take."),
        Parameter(name="model", kind=Kind.TEXT, description="Another model than usual."),
        Parameter(name="task_id", kind=Kind.TASK_ID, description="The task that the teammate begins with."),
        Parameter(name="run_in_background", kind=Kind.BOOLEAN, description="Do not wait for the subagent's answer."),
        Parameter(
            name="require_plan",
            kind=Kind.BOOLEAN,
            description="The teammate changes nothing until you have approved its plan.",
            aliases=("plan_mode_required", "plan_required"),
        ),
        Parameter(name="team_name", kind=Kind.TEXT),
    ),
    run=_task,
    changes=Changes.TEAM,
    repeatable_with="name",
    for_teammate=False,
    aliases={"spawn_teammate": {}},
)

TEAM_CREATE = Tool(
    name="TeamCreate",
    description="Name your team before it has tasks or teammates. After TeamDelete: open the next one and lead it.",
    parameters=(
        Parameter(
            name="name",
            kind=Kind.TEXT,
            description="Letters, digits, - and _: rest-to-graphql.",
            is_required=True,
            aliases=("team_name", "team"),
        ),
        Parameter(name="goal", kind=Kind.TEXT, description="What it is for.", aliases=("description",)),
    ),
    run=_create_team,
    changes=Changes.TEAM,
    is_repeatable=True,
    for_teammate=False,
)

TEAM_DELETE = Tool(
    name="TeamDelete",
    description="""End the team: every teammate is asked to stop, who does not is stopped. What it did stays readable.

Good: at the very end, when the goal is reached and checked. Bad: because one teammate is stuck: stop that one with \
SendMessage(type="shutdown_request").""",
    parameters=(Parameter(name="name", kind=Kind.TEXT, description="Your team's.", aliases=("team_name", "team")),),
    run=_delete_team,
    changes=Changes.TEAM,
    is_repeatable=True,
    for_teammate=False,
)

TOOLS = (TASK, TEAM_CREATE, TEAM_DELETE)
