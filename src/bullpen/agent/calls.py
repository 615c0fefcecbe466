"""Running the calls of a reply: each stored before it acts and after it has, never twice.

Calls that only read run together; every other call is a barrier, in the order of the
reply; `idle` and `submit_plan` come last. The first of them are stored as started with the
reply itself, unless somebody must be asked first. After a restart:

    queued      run
    started     a call whose effect is a store verb is called again under its operation
                id, which returns the first outcome; any other comes back as interrupted
    finished    never touched again
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, TypeVar

from bullpen.agent.agent import Agent
from bullpen.agent.dispatch import CallContext, Prepared, check_rights, may_begin_unasked, prepare, run_tool, text_of
from bullpen.agent.permission import withdraw_cut_off
from bullpen.agent.subagent import run_subagent
from bullpen.agent.watching import Interrupted, watched
from bullpen.domain.prompt import CallPart
from bullpen.domain.request import digest_of
from bullpen.domain.text import MAX_KEY_LENGTH
from bullpen.domain.transcript import INTERRUPTED_TEXT, CallState, ToolCall, Turn, TurnKind
from bullpen.errors import ToolError
from bullpen.tool import ToolOutput

T = TypeVar("T")
Ready = tuple[T, Prepared | ToolError]
"""A call, and what it comes to: the tool that is to run, or why there is none."""

# Of what a store takes, some is left for what belongs to a call: a question to the human, the calls of a subagent.
LONGEST_OPERATION = 150

CUT_OFF = "interrupted by the human; what it had begun was stopped: look before you repeat"
NOT_BEGUN = "not begun: the human interrupted"


async def run_open_calls(agent: Agent) -> None:
    """Everything that is queued or has just begun here, and what an older incarnation had begun. What the loop is to do
    after it is noted in the agent and its counters."""
    calls = await agent.store.list_calls(agent.team.id, agent.member.name, open_only=True)
    if not calls:
        return
    await _settle_begun(agent, [call for call in calls if not _is_to_run(agent, call)])
    ours = sorted((call for call in calls if _is_to_run(agent, call)), key=lambda call: (call.turn_seq, call.position))
    for batch in _batches([(call, _prepared(agent, call)) for call in ours]):
        if await _run_batch(agent, batch):
            return


def _is_to_run(agent: Agent, call: ToolCall) -> bool:
    return call.state is CallState.QUEUED or call.call_id in agent.begun


def choose_first(agent: Agent, calls: Sequence[CallPart]) -> frozenset[str]:
    """Which calls of a reply begin with it: its first batch, as far as nobody has to be asked."""
    prepared = [(call, _try_to_prepare(agent, call.name, call.arguments, call.problem)) for call in calls]
    first = next(_batches(prepared), [])
    return frozenset(
        call.call_id for call, ready in first if isinstance(ready, Prepared) and may_begin_unasked(agent, ready)
    )


def has_open_calls(turns: Sequence[Turn]) -> bool:
    """Does a call of the last reply lack its result?"""
    answered: set[str] = set()
    for turn in reversed(turns):
        if turn.kind == TurnKind.TOOL_RESULT:
            answered.add(turn.content["call_id"])
        elif turn.kind == TurnKind.ASSISTANT:
            return any(part["type"] == "call" and part["call_id"] not in answered for part in turn.content["parts"])
    return False


async def _settle_begun(agent: Agent, begun: Sequence[ToolCall]) -> None:
    for call in begun:
        prepared = _prepared(agent, call)
        if isinstance(prepared, Prepared) and prepared.tool.may_repeat(prepared.arguments):
            await _finish(agent, call, await run_tool(_context(agent, call), prepared), prepared.remarks)
    if begun:
        await agent.store.interrupt_calls(agent.ref)
    for call in begun:
        # Begun in this incarnation, and lost with the store's connection: then nobody knows either.
        if call.incarnation == agent.member.incarnation:
            await agent.store.finish_call(agent.ref, call.call_id, INTERRUPTED_TEXT, is_error=True)


async def _run_batch(agent: Agent, batch: Sequence[Ready[ToolCall]]) -> bool:
    """True if somebody cut it off: then the rest of the reply is not begun."""
    try:
        await watched(agent, _run_together(agent, batch))
    except Interrupted:
        for call in await agent.store.list_calls(agent.team.id, agent.member.name, open_only=True):
            text = CUT_OFF if call.state is CallState.STARTED else NOT_BEGUN
            await agent.store.finish_call(agent.ref, call.call_id, text, is_error=True)
        await withdraw_cut_off(agent)
        return True
    # Of a subagent in the background, which a call has stopped.
    await withdraw_cut_off(agent)
    return False


async def _run_together(agent: Agent, batch: Sequence[Ready[ToolCall]]) -> None:
    if len(batch) == 1:
        await _run(agent, *batch[0])
        return
    try:
        async with asyncio.TaskGroup() as group:
            for call, prepared in batch:
                group.create_task(_run(agent, call, prepared))
    except BaseExceptionGroup as failures:
        # What is raised past a tool is never the tool's: one of them says it all (LeaseLost, StoreUnavailable, …).
        raise failures.exceptions[0] from None


async def _run(agent: Agent, call: ToolCall, prepared: Prepared | ToolError) -> None:
    context = _context(agent, call)
    try:
        if isinstance(prepared, ToolError):
            raise prepared
        if call.call_id not in agent.begun:
            await check_rights(context, prepared)
    except ToolError as error:
        await agent.store.finish_call(agent.ref, call.call_id, str(error), is_error=True)
        return
    if call.call_id not in agent.begun:
        await agent.store.start_call(agent.ref, call.call_id)
    await _finish(agent, call, await run_tool(context, prepared), prepared.remarks)


async def _finish(agent: Agent, call: ToolCall, output: ToolOutput, remarks: tuple[str, ...]) -> None:
    if output.moves_to is not None:
        # Its result was written in the transaction that made the new team.
        agent.become(output.moves_to)
        return
    if output.ends_phase is not None:
        # Before the call is finished: a kill in between finds it unfinished and notes it again.
        await agent.set_counters(ending={"why": output.ends_phase, "waits_for": output.waits_for})
    if output.compact is not None:
        agent.wants_compaction = output.compact
    await agent.store.finish_call(agent.ref, call.call_id, text_of(output, remarks), is_error=output.is_error)


def _batches(calls: Sequence[Ready[T]]) -> Iterator[list[Ready[T]]]:
    ordered = sorted(calls, key=lambda ready: isinstance(ready[1], Prepared) and ready[1].tool.runs_last)
    for reads, group in groupby(
        ordered, key=lambda ready: isinstance(ready[1], Prepared) and ready[1].tool.is_read_only
    ):
        if reads:
            yield list(group)
        else:
            yield from ([call] for call in group)


def _prepared(agent: Agent, call: ToolCall) -> Prepared | ToolError:
    return _try_to_prepare(agent, call.name, call.arguments, _problem(agent, call))


def _try_to_prepare(agent: Agent, name: str, arguments: Mapping[str, Any], problem: str | None) -> Prepared | ToolError:
    try:
        return prepare(agent.toolbox, name, arguments, problem)
    except ToolError as error:
        return error


def _problem(agent: Agent, call: ToolCall) -> str | None:
    """Why the arguments could not be read; only the reply itself knows."""
    for part in _parts_of(agent, call.turn_seq):
        if part.get("type") == "call" and part.get("call_id") == call.call_id:
            return part.get("problem")
    return None


def _parts_of(agent: Agent, seq: int) -> Iterable[dict[str, str]]:
    for turn in reversed(agent.turns):
        if turn.seq == seq and turn.kind == TurnKind.ASSISTANT:
            parts: Iterable[dict[str, str]] = turn.content["parts"]
            return parts
    return ()


def _context(agent: Agent, call: ToolCall) -> CallContext:
    turn = f"{agent.member.team_id}/{agent.member.key}/{call.turn_seq}"
    operation_id = f"{turn}/{call.call_id}"
    if len(operation_id) > LONGEST_OPERATION:
        # Some servers pack more into an id. Cut off, two of them could be one, and the second call would do nothing.
        operation_id = f"{turn}/{digest_of(call.call_id)}"
    return CallContext(agent, call.call_id, operation_id, run_subagent)


def with_fresh_ids(agent: Agent, calls: Iterable[tuple[str, int]], seq: int) -> dict[int, str]:
    """Some servers give the same ids again and again, or pack more into them; ours are unique in a transcript, and no
    longer than the store keeps them."""
    known = {
        part["call_id"]
        for turn in agent.turns
        if turn.kind == TurnKind.ASSISTANT
        for part in turn.content["parts"]
        if part["type"] == "call"
    }
    fresh: dict[int, str] = {}
    for call_id, position in calls:
        is_usable = 0 < len(call_id) <= MAX_KEY_LENGTH and call_id not in known
        wanted = call_id if is_usable else f"call_{seq}_{position}"
        known.add(wanted)
        fresh[position] = wanted
    return fresh
