"""A subagent: a conversation of its own inside one tool call; what it says last is the result of the call.

It lives in memory only: after a kill its call comes back as interrupted, like any
other. What it spends is reserved and settled like every request of its member.
"""

from __future__ import annotations

from typing import Any

from bullpen.agent.asking import ask
from bullpen.agent.dispatch import CallContext, check_rights, prepare, run_tool, text_of
from bullpen.agent.identity import prompt_text
from bullpen.domain.prompt import CallPart, ChatMessage, ResultPart, StopReason, TextPart, UserMessage
from bullpen.errors import ToolError
from bullpen.tools import toolbox_for
from bullpen.tools.registry import Toolbox

MAX_TURNS = 50


async def run_subagent(context: CallContext, prompt: str, kind: str, model: str | None) -> str:
    agent = context.agent
    provider = agent.provider if model is None else agent.house.models.get(model, agent.settings)
    toolbox = toolbox_for(kind)
    system = f"{prompt_text('subagent')}\n\nKind: {kind}. Working directory: {agent.workspace}"
    messages: list[ChatMessage] = [UserMessage((TextPart(prompt),))]
    memo: dict[Any, Any] = {}
    for turn in range(MAX_TURNS):
        reply, settlement = await ask(
            agent, messages, purpose="subagent", system=system, tools=toolbox.specs(), provider=provider, memo=memo
        )
        await agent.store.settle(agent.ref, settlement)
        messages.append(reply.message)
        if reply.calls:
            results = [await _run(context, toolbox, call, f"{turn}.{n}") for n, call in enumerate(reply.calls)]
            messages.append(UserMessage(tuple(results)))
        elif reply.stop_reason is StopReason.MAX_OUTPUT and reply.message.parts:
            messages.append(UserMessage((TextPart("Your reply was cut off by its limit: go on where it stopped."),)))
        else:
            return reply.text.strip() or "(the subagent ended without a word)"
    raise ToolError(f"the subagent did not come to an end in {MAX_TURNS} turns")


async def _run(context: CallContext, toolbox: Toolbox, call: CallPart, number: str) -> ResultPart:
    inner = CallContext(context.agent, call.call_id, f"{context.operation_id}/{number}", context.run_kind)
    try:
        prepared = prepare(toolbox, call.name, call.arguments, call.problem)
        await check_rights(inner, prepared)
    except ToolError as error:
        return ResultPart(call_id=call.call_id, name=call.name, text=str(error), is_error=True)
    output = await run_tool(inner, prepared)
    text = text_of(output, prepared.remarks)
    return ResultPart(call_id=call.call_id, name=call.name, text=text or "(no output)", is_error=output.is_error)
