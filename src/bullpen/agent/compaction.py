"""Compressing a conversation: the model summarises, the store says what is open, the plan decides what is kept.

If the summary cannot be had, the mechanical one takes its place: a compaction never fails.
"""

from __future__ import annotations

import logging

from bullpen.agent.agent import Agent
from bullpen.agent.asking import ask
from bullpen.agent.context import build_context
from bullpen.agent.identity import prompt_text
from bullpen.agent.memory import (
    choose_pruning,
    compaction_limit,
    context_tokens,
    mechanical_summary,
    plan_compaction,
)
from bullpen.domain.message import escape
from bullpen.domain.prompt import ChatMessage, TextPart, UserMessage
from bullpen.domain.request import RequestStatus
from bullpen.domain.transcript import TurnKind
from bullpen.errors import ProviderError
from bullpen.tools.handover import hand_over
from bullpen.tools.seen import FilesSeen

RECENT_FILES = 10

logger = logging.getLogger(__name__)


async def keep_within_limits(agent: Agent) -> None:
    """Before each request: prune what is old, compact what is too long or was asked to be."""
    calls = choose_pruning(agent.turns, agent.provider.limits)
    if calls:
        await agent.record(TurnKind.PRUNING, {"calls": list(calls)})
    focus, agent.wants_compaction = agent.wants_compaction, None
    # Its own wish, or somebody else's, which stands in its row.
    focus = agent.counters.get("compact") if focus is None else focus
    if focus is not None or context_tokens(agent.turns) > compaction_limit(agent.limits):
        await compact(agent, focus=focus or "")


async def compact(agent: Agent, *, focus: str = "") -> None:
    summary = await _summary(agent, focus)
    plan = plan_compaction(
        agent.turns, agent.limits, identity=await agent.identity(), summary=summary, state=await _state(agent)
    )
    await agent.record(
        TurnKind.COMPACTION, {"text": plan.text, "keep_from": plan.keep_from}, counters={"compact": None}
    )
    agent.must_reintroduce = False


async def _summary(agent: Agent, focus: str) -> str:
    wish = prompt_text("summary") + (f"\n\nAbove all, keep what concerns: {focus}" if focus else "")
    try:
        reply, settlement = await ask(agent, _with_text(build_context(agent.turns), wish), purpose="compaction")
    except ProviderError as error:
        logger.warning("%s: no summary could be had (%s); what happened is listed instead", agent.member.name, error)
        return mechanical_summary(agent.turns)
    await agent.store.settle(agent.ref, settlement)
    return reply.text.strip() or mechanical_summary(agent.turns)


def _with_text(messages: tuple[ChatMessage, ...], text: str) -> tuple[ChatMessage, ...]:
    """The wish stands at the end of the last user message, or is one, so that roles alternate."""
    part = TextPart(text)
    if messages and isinstance(messages[-1], UserMessage):
        return (*messages[:-1], UserMessage((*messages[-1].parts, part)))
    return (*messages, UserMessage((part,)))


async def _state(agent: Agent) -> str:
    """What the store knows and the summary may have missed."""
    store, team_id = agent.store, agent.team.id
    parts = [f"<roster>{await agent.roster()}</roster>"]
    task = await agent.find_task()
    if task is not None:
        parts.append(await hand_over(store, task))
    parts += [
        f'<request id="{request.id}" kind="{request.kind}" from="{escape(request.asker)}" '
        f'to="{escape(request.asked)}">{escape(request.content)}</request>'
        for request in await store.list_requests(team_id, status=RequestStatus.OPEN)
        if agent.member.key in (request.asker_key, request.asked_key)
    ]
    files = agent.known(FilesSeen)
    if files is not None and files.paths:
        parts.append(f"<files_read>{escape(', '.join(files.paths[-RECENT_FILES:]))}</files_read>")
    return "\n\n".join(parts)
