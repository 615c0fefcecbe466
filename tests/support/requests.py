"""Requests to a model, as tests make them."""

from __future__ import annotations

from collections.abc import Callable

from bullpen.domain.prompt import ChatMessage, Reply, ResultPart, TextPart, ToolSpec, UserMessage
from bullpen.provider import ModelRequest

BASH = ToolSpec(
    name="bash",
    description="Run a command.",
    parameters={"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
)
IDLE = ToolSpec(name="idle", description="Wait.", parameters={"type": "object", "properties": {}})


def ask(*messages: ChatMessage | str, member: str = "ana", purpose: str = "turn", **changes: object) -> ModelRequest:
    """A request of one member; a text stands for a user message with it."""
    fields: dict[str, object] = {
        "system": f"You are '{member}', role: tester, team: crew.",
        "tools": (BASH, IDLE),
        "messages": tuple(user(item) if isinstance(item, str) else item for item in messages),
        "max_output_tokens": 8_000,
        "member": member,
        "purpose": purpose,
        **changes,
    }
    return ModelRequest(**fields)  # type: ignore[arg-type]


def user(*texts: str) -> UserMessage:
    return UserMessage(tuple(TextPart(text) for text in texts))


def answered(
    request: ModelRequest,
    reply: Reply,
    *texts: str,
    result: Callable[[str], str] = lambda name: f"{name} ran",
    **changes: object,
) -> ModelRequest:
    """The request that follows: the reply, a result for each of its calls, and then the texts."""
    results = tuple(ResultPart(call_id=call.call_id, name=call.name, text=result(call.name)) for call in reply.calls)
    message = UserMessage((*results, *(TextPart(text) for text in texts)))
    return ask(
        *request.messages,
        reply.message,
        message,
        member=request.member,
        purpose=request.purpose,
        system=request.system,
        tools=request.tools,
        max_output_tokens=request.max_output_tokens,
        **changes,
    )
