"""One turn of a member: what is open is finished, what has come is taken, the model is asked, its calls run.

Each step is stored before the next begins, so a turn can be cut anywhere and `take_turn`
called again, in this process or another, goes on where it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from bullpen.agent.agent import Agent
from bullpen.agent.asking import ask
from bullpen.agent.calls import choose_first, has_open_calls, run_open_calls, with_fresh_ids
from bullpen.agent.compaction import compact, keep_within_limits
from bullpen.agent.context import decode_reply, encode_reply
from bullpen.agent.guards import STOPPED_AFTER, TOLD_AFTER, find_repetition, last_exchange
from bullpen.agent.memory import context_tokens, learned_limits
from bullpen.agent.watching import Interrupted, watched
from bullpen.domain.budget import Settlement
from bullpen.domain.codec import encode
from bullpen.domain.member import LEAD, USER
from bullpen.domain.message import Message, MessageType, Origin
from bullpen.domain.prompt import AssistantMessage, CallPart, Reply, StopReason, TextPart
from bullpen.domain.transcript import NewCall, Turn, TurnKind
from bullpen.errors import ContextOverflow, ProviderError, ShuttingDown, ToolError
from bullpen.tool import Changes

CUT_REPLY = "Your reply was cut off by its length limit. Go on exactly where it stopped."
CUTS_IN_VAIN = 3
CUT_BY_HUMAN = "(The human interrupted your reply.)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """A work phase is over: why, and with which words. `leaves`: the member shuts down for this reason.
    `unanswered`: why its model could not be asked."""

    why: str
    text: str = ""
    leaves: str | None = None
    waits_for: int | None = None
    unanswered: str | None = None

    @property
    def may_be_reminded(self) -> bool:
        """Of a task that is still open: only one that just stopped."""
        return self.why == "no_tool_use"

    @property
    def may_be_refused(self) -> bool:
        """By a hook: only of one that would idle because it wants to."""
        is_own_wish = self.why in ("no_tool_use", "idle_tool", "awaiting_messages", "awaiting_tasks")
        return is_own_wish and self.leaves is None and self.waits_for is None


async def take_turn(agent: Agent) -> Ending | None:
    """None: it goes on."""
    if ending := await _finish_calls(agent):
        return ending
    if agent.has_moved:
        return None
    await agent.refresh()
    if agent.is_asked_to_stop:
        return Ending(why="idle_tool", leaves="asked")
    if ending := _noted_ending(agent):
        return ending
    if ending := await _take_mail(agent):
        return ending
    if ending := await _finished(agent):
        return ending
    if ending := await _look_for_circles(agent):
        return ending
    try:
        await keep_within_limits(agent)
        reply, settlement = await _ask(agent)
    except ShuttingDown:
        return Ending(why="idle_tool", leaves="asked")
    except Interrupted:
        await agent.tell(CUT_BY_HUMAN)
        return None
    except ProviderError as error:
        return await _give_up(agent, error)
    await _record(agent, reply, settlement)
    # What is stored as begun runs now, whatever the loop would look at first.
    return await _finish_calls(agent) if agent.begun else None


async def _finish_calls(agent: Agent) -> Ending | None:
    """Those of the last reply that have no result yet."""
    try:
        if has_open_calls(agent.turns):
            await run_open_calls(agent)
            await agent.load()
    except ShuttingDown:
        return Ending(why="idle_tool", leaves="asked")
    return None


# -- before the model ---------------------------------------------------------------------------------


def _noted_ending(agent: Agent) -> Ending | None:
    """`idle` or `submit_plan` was called: the text of that reply is its report."""
    noted = agent.counters.get("ending")
    if noted is None:
        return None
    return Ending(why=_known_why(noted["why"]), text=_last_text(agent.turns), waits_for=noted.get("waits_for"))


def _known_why(why: str) -> str:
    return why if why in ("awaiting_messages", "awaiting_tasks") else "idle_tool"


async def _take_mail(agent: Agent) -> Ending | None:
    taken = await agent.store.take_mail(agent.ref) if agent.has_mail else None
    if taken is None:
        return None
    await agent.load()
    for message in taken.messages:
        if message.origin is Origin.AGENT and await _is_ping_pong(agent, message):
            await agent.store.notify(
                agent.team.id,
                LEAD,
                f"{agent.member.name} and {message.sender} have exchanged ten messages while nothing changed on the "
                "board or in files; both pause. Tell them how to go on.",
                operation_id=f"ping-pong/{agent.team.id}/{message.id}",
            )
            text = f"paused: ten messages with {message.sender} without a change"
            return Ending(why="awaiting_messages", text=text)
    return None


async def _is_ping_pong(agent: Agent, message: Message) -> bool:
    store, team_id, me = agent.store, agent.team.id, agent.member.name
    if message.sender.casefold() in (LEAD, me.casefold()) or agent.is_lead:
        return False
    mine, theirs = (
        await store.list_mail(team_id, me, limit=30),
        await store.list_mail(team_id, message.sender, limit=30),
    )
    since = last_exchange(mine, theirs, me, message.sender)
    if since is None:
        return False
    if any(task.updated_at >= since for task in await store.list_tasks(team_id)):
        return False
    for name in (me, message.sender):
        for call in await store.list_calls(team_id, name):
            if call.finished_at is not None and call.finished_at >= since and _changes_files(agent, call.name):
                return False
    return True


def _changes_files(agent: Agent, name: str) -> bool:
    try:
        return agent.toolbox.resolve(name).tool.changes is Changes.WORKSPACE
    except ToolError:
        return False


async def _finished(agent: Agent) -> Ending | None:
    """Nothing new has come since its last reply, and that called nothing."""
    shown = (turn for turn in reversed(agent.turns) if turn.kind not in (TurnKind.COMPACTION, TurnKind.PRUNING))
    newest = next(shown, None)
    if newest is None or newest.kind != TurnKind.ASSISTANT:
        return None
    text = _text_of(newest)
    match newest.content.get("stop_reason"):
        case StopReason.REFUSAL:
            return Ending(why="error", text=f"the model refused to answer: {text or '(no words)'}")
        case StopReason.MAX_OUTPUT if not _is_cut_in_vain(agent.turns):
            await agent.tell(CUT_REPLY)
            return None
        case StopReason.MAX_OUTPUT:
            return Ending(why="error", text=f"the model used up its output limit {CUTS_IN_VAIN} times without a word")
        case _:
            return Ending(why="no_tool_use", text=text or "(the model replied with nothing)")


def _is_cut_in_vain(turns: Sequence[Turn]) -> bool:
    """A model that only thinks until its limit is asked to go on, but not for ever."""
    replies = [turn for turn in reversed(turns) if turn.kind == TurnKind.ASSISTANT][:CUTS_IN_VAIN]
    cut = [turn for turn in replies if turn.content.get("stop_reason") == StopReason.MAX_OUTPUT and not _text_of(turn)]
    return len(cut) == CUTS_IN_VAIN


async def _look_for_circles(agent: Agent) -> Ending | None:
    """Limits of a phase: turns, and the same call again and again."""
    counters, work = agent.counters, agent.settings.work
    turns = int(counters.get("turns", 0))
    if turns >= work.max_turns:
        return Ending(why="max_turns", text=f"stopped after {turns} turns; {_last_text(agent.turns)}")
    if turns and turns % work.checkpoint_turns == 0 and counters.get("checkpoint") != turns:
        await agent.tell(
            f"{turns} turns of this phase are behind you. Say in a line how far your task is, then go on.",
            checkpoint=turns,
        )
    seen = find_repetition(agent.turns, since_seq=int(counters.get("phase_seq", 0)))
    if seen.count >= STOPPED_AFTER:
        return Ending(why="error", text=f"stopped: {seen.name} was called {seen.count} times with the same result")
    if seen.count >= TOLD_AFTER and counters.get("repeated") != seen.count:
        await agent.tell(
            f"You have called {seen.name} {seen.count} times in a row with the same arguments and the same result. "
            "It will not change: do something else, or say what you wait for.",
            repeated=seen.count,
        )
    return None


# -- the model ------------------------------------------------------------------------------------------


async def _ask(agent: Agent) -> tuple[Reply, Settlement]:
    agent.asked_at = agent.clock.now()
    is_known = False
    while True:
        try:
            return await watched(agent, _ask_once(agent))
        except ContextOverflow:
            learned = learned_limits(agent.limits, context_tokens(agent.turns))
            if is_known and learned == agent.limits:
                # To say less did not help.
                raise
            is_known, agent.limits = True, learned
            await compact(agent)


async def _ask_once(agent: Agent) -> tuple[Reply, Settlement]:
    listener = agent.house.on_text
    on_text = None if listener is None else lambda text: listener(agent.ref, text)
    return await ask(
        agent, agent.context.build(agent.turns), input_tokens=_input_tokens(agent), on_text=on_text, memo=agent.memo
    )


def _input_tokens(agent: Agent) -> int | None:
    """None before the first reply: then everything is estimated, the system prompt and the tools too."""
    has_count = any(turn.kind == TurnKind.ASSISTANT for turn in agent.turns)
    return context_tokens(agent.turns) if has_count else None


async def _record(agent: Agent, reply: Reply, settlement: Settlement) -> None:
    """The reply with its calls, what it cost, and how far the phase is: one step."""
    message = _with_unique_calls(agent, reply.message, agent.last_seq + 1)
    calls = [part for part in message.parts if isinstance(part, CallPart)]
    # A worker that leaves begins nothing: whoever comes next finds the calls queued, and runs them.
    agent.begun = frozenset() if agent.house.closing.is_set() else choose_first(agent, calls)
    content = {
        "parts": encode_reply(message),
        "stop_reason": reply.stop_reason,
        "usage": encode(reply.usage),
        "model": reply.model,
    }
    await agent.record(
        TurnKind.ASSISTANT,
        content,
        calls=[
            NewCall(
                call_id=call.call_id,
                name=call.name,
                arguments=call.arguments,
                is_started=call.call_id in agent.begun,
            )
            for call in calls
        ],
        counters={"turns": int(agent.counters.get("turns", 0)) + 1, "seen_at": agent.asked_at},
        settlement=settlement,
    )


def _with_unique_calls(agent: Agent, message: AssistantMessage, seq: int) -> AssistantMessage:
    ids = with_fresh_ids(
        agent,
        [(part.call_id, n) for n, part in enumerate(message.parts) if isinstance(part, CallPart)],
        seq,
    )
    parts: list[Any] = [
        replace(part, call_id=ids[n]) if isinstance(part, CallPart) else part for n, part in enumerate(message.parts)
    ]
    return AssistantMessage(tuple(parts))


async def _give_up(agent: Agent, error: ProviderError) -> Ending:
    """The lead and the human are told, once for each kind of failure while this lead is hosted; a teammate gives its
    task back and ends. What it was asked stays unanswered: when it is hosted again, it goes on with it."""
    text = f"{agent.member.name} cannot ask its model: {error}"
    lead = agent.member if agent.is_lead else await agent.store.get_member(agent.team.id, LEAD)
    known = f"{agent.team.id}/{lead.incarnation}/{type(error).__name__}/{agent.provider.model}"
    for to in (USER, LEAD):
        if to != agent.member.key:
            await agent.store.notify(
                agent.team.id, to, text, type=MessageType.ERROR, operation_id=f"provider-error/{to}/{known}"[:200]
            )
    return Ending(why="error", leaves=None if agent.is_lead else "error", unanswered=text)


def _text_of(turn: Turn) -> str:
    return "".join(part.text for part in decode_reply(turn.content["parts"]) if isinstance(part, TextPart)).strip()


def _last_text(turns: Sequence[Turn]) -> str:
    latest = next((turn for turn in reversed(turns) if turn.kind == TurnKind.ASSISTANT), None)
    return "" if latest is None else _text_of(latest)
