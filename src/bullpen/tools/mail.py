"""Tools of mail: SendMessage with its older names, list_teammates, read_inbox, idle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bullpen.domain.member import LEAD
from bullpen.domain.message import MessageType, frame, parse_message_type
from bullpen.domain.request import RequestKind
from bullpen.domain.task import TaskStatus
from bullpen.errors import ToolError
from bullpen.tool import Changes, Kind, Parameter, Tool, ToolContext, ToolOutput
from bullpen.tools.render import member_line

RECENT_MAIL = 20
SHUTDOWN_SECONDS = 30.0

_OUTCOMES = {
    "queued": "delivered between two of their steps",
    "revives": "they had timed out and are brought back for it",
    "kept": "they have shut down; it is kept until they come back",
}


async def _send(context: ToolContext, arguments: Mapping[str, Any]) -> str:
    await check_team(context, arguments.get("team_name"))
    kind = parse_message_type(arguments.get("type") or MessageType.MESSAGE)
    match kind:
        case MessageType.SHUTDOWN_REQUEST:
            return await _ask_to_shut_down(context, arguments)
        case MessageType.SHUTDOWN_RESPONSE | MessageType.PLAN_APPROVAL_RESPONSE:
            return await _answer(context, arguments)
        case MessageType.PLAN_APPROVAL_REQUEST:
            raise ToolError("hand in a plan with submit_plan")
    receipts = await context.store.send(
        context.ref,
        arguments.get("recipient"),
        arguments.get("content") or "",
        type=kind,
        reply_to=arguments.get("reply_to"),
        operation_id=context.operation_id,
    )
    if kind is MessageType.BROADCAST:
        return f"sent to {len(receipts)} members: {', '.join(receipt.message.recipient for receipt in receipts)}"
    receipt = receipts[0]
    return f"message {receipt.message.id} to {receipt.message.recipient}: {_OUTCOMES[receipt.outcome]}"


async def check_team(context: ToolContext, name: str | None) -> None:
    """Asked of the store: an earlier call of the same reply may have named the team."""
    if not name:
        return
    team = await context.store.get_team(context.team.id)
    if name.casefold() != team.name.casefold():
        raise ToolError(f"your team is {team.name!r}, not {name!r}: leave team_name out")


def shutdown_seconds(context: ToolContext) -> float:
    """How long one who is asked to stop may take before it is forced."""
    return float(context.settings.get("shutdown_deadline_seconds", SHUTDOWN_SECONDS))


async def _ask_to_shut_down(context: ToolContext, arguments: Mapping[str, Any]) -> str:
    seconds = shutdown_seconds(context)
    request = await context.store.open_request(
        context.ref,
        RequestKind.SHUTDOWN,
        _required(arguments, "recipient"),
        content=arguments.get("content") or "",
        timeout_seconds=seconds,
        operation_id=context.operation_id,
    )
    if request.approved:
        return f"request {request.id}: {request.reason}"
    return f"request {request.id}: asked; the answer comes as mail, after {seconds:g} s it is forced"


async def _answer(context: ToolContext, arguments: Mapping[str, Any]) -> str:
    if "approve" not in arguments:
        raise ToolError("an answer needs approve: true or false")
    request = await context.store.answer_request(
        context.ref,
        _required(arguments, "request_id"),
        approve=arguments["approve"],
        reason=arguments.get("content") or "",
        operation_id=context.operation_id,
    )
    return f"request {request.id} {'approved' if request.approved else 'rejected'}; {request.asker} is told"


def _required(arguments: Mapping[str, Any], name: str) -> Any:
    if not arguments.get(name):
        raise ToolError(f"this type of message needs {name}")
    return arguments[name]


async def _list_teammates(context: ToolContext, arguments: Mapping[str, Any]) -> str:
    tasks = await context.store.list_tasks(context.team.id, status=TaskStatus.IN_PROGRESS)
    by_owner = {task.owner_key: task for task in tasks}
    members = await context.store.list_members(context.team.id)
    return "\n".join(member_line(member, by_owner.get(member.key)) for member in members)


async def _read_inbox(context: ToolContext, arguments: Mapping[str, Any]) -> str:
    """Looking never drains: what is undelivered arrives by itself before the next step."""
    mail = await context.store.list_mail(context.team.id, context.member.name, limit=RECENT_MAIL)
    lines = [f"{'delivered' if message.delivered_at else 'waiting'} {frame(message)}" for message in mail]
    return "\n".join(lines) or "your inbox is empty"


async def _idle(context: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput:
    reason = arguments.get("reason") or "idle_tool"
    return ToolOutput(text="you rest now and are woken by mail or a task", ends_phase=str(reason))


async def _submit_plan(context: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput:
    request = await context.store.open_request(
        context.ref, RequestKind.PLAN, LEAD, content=arguments["plan"], operation_id=context.operation_id
    )
    return ToolOutput(
        text=f"plan {request.id} is with {request.asked}; you are woken by the answer",
        ends_phase="awaiting_messages",
        waits_for=request.id,
    )


SEND_MESSAGE = Tool(
    name="SendMessage",
    description="""Write to one member (`recipient`), to `lead`, to the human (`user`), or to all (type "broadcast").

Good: to backend, "users.id is now a string (UUID) in schema.graphql; resolvers must not parse it."
Bad: "Thanks, great work! I am starting now." Nobody needs it and everybody pays for reading it.

type shutdown_request asks a teammate to stop (lead only). shutdown_response and plan_approval_response answer a \
request: give request_id, approve and, in content, why.""",
    parameters=(
        Parameter(
            name="content",
            kind=Kind.TEXT,
            description="The message.",
            aliases=("message", "text", "reason", "feedback"),
        ),
        Parameter(name="recipient", kind=Kind.TEXT, description="A member's name.", aliases=("to", "teammate", "name")),
        Parameter(
            name="type",
            kind=Kind.TEXT,
            choices=(
                MessageType.MESSAGE,
                MessageType.BROADCAST,
                MessageType.SHUTDOWN_REQUEST,
                MessageType.SHUTDOWN_RESPONSE,
                MessageType.PLAN_APPROVAL_RESPONSE,
            ),
            aliases=("msg_type",),
        ),
        Parameter(name="request_id", kind=Kind.INTEGER, description="Which request is answered."),
        Parameter(name="approve", kind=Kind.BOOLEAN, description="The answer to it.", aliases=("approved",)),
        Parameter(name="reply_to", kind=Kind.INTEGER, description="The id of the message that this answers."),
        Parameter(name="team_name", kind=Kind.TEXT),
    ),
    run=_send,
    changes=Changes.TEAM,
    is_repeatable=True,
    aliases={
        "send_message": {},
        "broadcast": {"type": MessageType.BROADCAST.value},
        "shutdown_request": {"type": MessageType.SHUTDOWN_REQUEST.value},
        "shutdown_response": {"type": MessageType.SHUTDOWN_RESPONSE.value},
    },
)

LEAD_SEND_MESSAGE = replace(
    SEND_MESSAGE,
    aliases={**SEND_MESSAGE.aliases, "plan_approval": {"type": MessageType.PLAN_APPROVAL_RESPONSE.value}},
)
"""For a teammate `plan_approval` hands in a plan; for the lead it decides on one."""

LIST_TEAMMATES = Tool(
    name="list_teammates",
    description="Who is in the team, what each does and whether it is up.",
    parameters=(),
    run=_list_teammates,
    is_read_only=True,
    is_repeatable=True,
)

READ_INBOX = Tool(
    name="read_inbox",
    description="Look at your recent mail again. New mail comes to you by itself; this takes nothing away.",
    parameters=(),
    run=_read_inbox,
    is_read_only=True,
    is_repeatable=True,
)

IDLE = Tool(
    name="idle",
    description="""Rest until mail or a task wakes you. It costs nothing.

Good: idle(reason="waiting for backend's answer about users.id"), or when nothing is left for you.
Bad: calling a tool again and again to see whether something has changed.""",
    parameters=(Parameter(name="reason", kind=Kind.TEXT, description="For whom or what you wait, and why."),),
    run=_idle,
    is_repeatable=True,
    for_lead=False,
    runs_last=True,
)

SUBMIT_PLAN = Tool(
    name="submit_plan",
    description="Hand in your plan for approval. Until it is approved you can only look; the answer wakes you.",
    parameters=(
        Parameter(name="plan", kind=Kind.TEXT, description="What you will change, where, and how.", is_required=True),
    ),
    run=_submit_plan,
    is_repeatable=True,
    for_lead=False,
    runs_last=True,
    aliases={"plan_approval": {}},
)

TOOLS = (SEND_MESSAGE, LIST_TEAMMATES, READ_INBOX, IDLE, SUBMIT_PLAN)
