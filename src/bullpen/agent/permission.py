"""Permissions at run time: the policy decides, and where it says ask, the human does.

The question is bound to the call and its arguments and survives a restart: asked again
for the same call it is the same request. Others go on meanwhile.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from bullpen.agent.agent import Agent
from bullpen.domain.member import USER, MemberStatus
from bullpen.domain.request import PermissionScope, Request, RequestKind, RequestStatus, digest_of
from bullpen.errors import Conflict, ShuttingDown, ToolError
from bullpen.permissions import Decision, Verdict, decide, grant_pattern
from bullpen.tools.patience import seen_through

LOOK_AGAIN_SECONDS = 5.0


async def obtain_permission(agent: Agent, tool: str, arguments: Mapping[str, Any], operation_id: str) -> None:
    """Returns when it may be done; ToolError says why not, and which setting would change that."""
    decision = _decide(agent, tool, arguments, ())
    if decision.verdict is Verdict.ASK:
        decision = _decide(agent, tool, arguments, await _granted(agent))
    if decision.verdict is Verdict.ALLOW:
        return
    if decision.verdict is Verdict.DENY:
        raise ToolError(f"not allowed: {decision.why} ({decision.setting})")
    if not agent.house.is_interactive:
        raise ToolError(f"not allowed: {decision.why}, and nobody is there to be asked ({decision.setting})")
    request = await _answer_of(agent, await _open(agent, tool, arguments, decision, operation_id))
    if request.status is not RequestStatus.ANSWERED:
        raise ToolError(f"not allowed: {decision.why}, and nobody answered ({decision.setting})")
    if not request.approved:
        raise ToolError(f"the human said no: {request.reason or decision.why}")
    if request.scope is PermissionScope.ALWAYS:
        remember(agent.house.state_directory, str(request.payload.get("pattern", "")))


def is_allowed_unasked(agent: Agent, tool: str, arguments: Mapping[str, Any]) -> bool:
    """Whether `obtain_permission` would return at once."""
    return _decide(agent, tool, arguments, ()).verdict is Verdict.ALLOW


def _decide(agent: Agent, tool: str, arguments: Mapping[str, Any], granted: Sequence[str]) -> Decision:
    return decide(
        tool,
        arguments,
        rules=agent.settings.permissions,
        network=agent.settings.sandbox.network,
        is_confined=agent.sandbox.guarantees.files_confined,
        granted=granted,
    )


async def _granted(agent: Agent) -> list[str]:
    """What the human has allowed for this team, or always."""
    answered = await agent.store.list_requests(agent.team.id, status=RequestStatus.ANSWERED, asked=USER)
    lasting = (PermissionScope.TEAM, PermissionScope.ALWAYS)
    of_team = [
        str(request.payload.get("pattern", ""))
        for request in answered
        if request.kind is RequestKind.PERMISSION and request.approved and request.scope in lasting
    ]
    return [*of_team, *remembered(agent.house.state_directory)]


async def _open(
    agent: Agent, tool: str, arguments: Mapping[str, Any], decision: Decision, operation_id: str
) -> Request:
    opening = agent.store.open_request(
        agent.ref,
        RequestKind.PERMISSION,
        USER,
        content=f"{agent.member.name} wants to use {tool}: {_shown(arguments)} ({decision.why})",
        payload={"tool": tool, "arguments": dict(arguments), "pattern": grant_pattern(tool, arguments)},
        digest=digest_of([tool, dict(arguments)]),
        timeout_seconds=agent.settings.permissions.timeout_seconds,
        operation_id=f"{operation_id}/permission",
    )
    return await seen_through(opening, partial(_note_cut_off, agent))


async def _note_cut_off(agent: Agent, request: Request) -> None:
    agent.cut_off_questions.add(request.id)


async def withdraw_cut_off(agent: Agent) -> None:
    """The human is not to answer what nobody waits for. Only for calls that have ended: after a restart they go on
    with the same question."""
    while agent.cut_off_questions:
        # It may have been answered just then, or expired.
        with suppress(Conflict):
            await agent.store.cancel_request(agent.ref, agent.cut_off_questions.pop())


async def _answer_of(agent: Agent, request: Request) -> Request:
    if request.status is not RequestStatus.OPEN:
        return request
    try:
        return await _wait_for_answer(agent, request)
    except asyncio.CancelledError:
        await _note_cut_off(agent, request)
        raise


async def _wait_for_answer(agent: Agent, request: Request) -> Request:
    await agent.set_status(MemberStatus.WAITING, reason=f"permission, request {request.id}")
    # A bell of its own: who watches over the call clears the member's, and the answer would not be heard.
    async with agent.store.listen_member(agent.ref) as bell:
        while True:
            bell.clear()
            await agent.refresh()
            request = await agent.store.get_request(agent.team.id, request.id)
            if agent.is_asked_to_stop:
                raise ShuttingDown
            if request.status is not RequestStatus.OPEN:
                break
            await agent.house.wait_open(bell, LOOK_AGAIN_SECONDS)
    await agent.set_status(MemberStatus.WORKING)
    return request


def _shown(arguments: Mapping[str, Any]) -> str:
    text = str(arguments["command"]) if "command" in arguments else json.dumps(dict(arguments), ensure_ascii=False)
    return text if len(text) <= 500 else f"{text[:500]} …"


# -- what is allowed always, on this machine -------------------------------------------------------


def remembered(state_directory: Path) -> list[str]:
    with suppress(OSError, ValueError):
        return [str(pattern) for pattern in json.loads((state_directory / "allowed.json").read_text("utf-8"))]
    return []


def remember(state_directory: Path, pattern: str) -> None:
    known = remembered(state_directory)
    if pattern and pattern not in known:
        state_directory.mkdir(parents=True, exist_ok=True)
        (state_directory / "allowed.json").write_text(json.dumps([*known, pattern], indent=1), "utf-8")
