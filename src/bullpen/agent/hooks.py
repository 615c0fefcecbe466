"""Gates: the human's own commands (`hooks` in the settings) look at a step of a member before it is made.

Invariants: a step that a hook refused has not been made; a step that was made is not refused afterwards, also if its
process died in between (`counters["passed"]` is the last one that was let through). A hook can neither hang the team
(it is bounded, and ended with all that it started) nor keep a teammate up for ever: see `MAX_REFUSALS`.

The commands come from the human's settings, which the team was started with. So they run outside the sandbox, where
the human started the team, with the human's environment except for the keys of providers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from bullpen.agent.agent import Agent
from bullpen.agent.watching import Interrupted, watched
from bullpen.domain.codec import encode
from bullpen.domain.event import EventKind
from bullpen.domain.hook import Hook
from bullpen.domain.member import LEAD, USER
from bullpen.domain.message import MessageType, escape
from bullpen.domain.request import digest_of
from bullpen.domain.task import Task
from bullpen.errors import SandboxUnavailable, ToolError, UsageError
from bullpen.sandboxes.outside import run_outside
from bullpen.tools.handover import list_blockers

MAX_REFUSALS = 3
"""So often in one work phase a teammate is kept from going idle; a new phase begins only with something new."""

OUTPUT_CHARACTERS = 4_000
PREVIEW_CHARACTERS = 500
# What a shell says of a command that it cannot run, or not find.
_NOT_RUN = frozenset({126, 127})


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """`is_broken`: the command has judged nothing, it timed out or could not be run."""

    command: str
    text: str
    is_broken: bool = False


async def pass_hooks(agent: Agent, hook: Hook, task: Task, operation_id: str) -> None:
    """ToolError, with what the hook said, if it refuses this step of a tool."""
    if not _commands(agent, hook) or agent.counters.get("passed") == operation_id:
        return
    refusal = await _find_refusal(agent, hook, task)
    if refusal is not None:
        await _record(agent, hook, task, refusal)
        raise ToolError(f"{_NOT_DONE[hook]}: {refusal.text}")
    await agent.set_counters(passed=operation_id)


_NOT_DONE = {
    Hook.TASK_CREATED: "no task was created",
    Hook.TASK_COMPLETED: "the task is not completed",
}


async def is_kept_up(agent: Agent, why: str, task: Task | None) -> bool:
    """Whether a hook keeps this teammate from going idle; then it has been told to go on."""
    if not _commands(agent, Hook.TEAMMATE_IDLE):
        return False
    try:
        refusal = await watched(agent, _find_refusal(agent, Hook.TEAMMATE_IDLE, task, why=why))
    except Interrupted:
        # Somebody wants something else of it: it looks at that first, and the hook is asked again after it.
        await agent.set_counters(ending=None)
        return True
    if refusal is None or refusal.is_broken:
        return False
    refusals = int(agent.counters.get("kept_up") or 0) + 1
    if refusals > MAX_REFUSALS:
        await _tell_of_vain(agent, refusal)
        return False
    await _record(agent, Hook.TEAMMATE_IDLE, task, refusal)
    frame = f'<hook name="{Hook.TEAMMATE_IDLE}">{escape(refusal.text)}</hook>'
    await agent.tell(f"You are not to go idle yet: see to this first.\n{frame}", kept_up=refusals, ending=None)
    return True


async def _tell_of_vain(agent: Agent, refusal: Refusal) -> None:
    await agent.store.notify(
        agent.team.id,
        LEAD,
        f"{agent.member.name} goes idle although it was kept from that {MAX_REFUSALS} times: {refusal.text}",
        operation_id=f"kept-up/{agent.team.id}/{agent.member.key}/{agent.counters.get('phase', 0)}",
    )


async def _record(agent: Agent, hook: Hook, task: Task | None, refusal: Refusal) -> None:
    facts = {
        "hook": hook,
        "member": agent.member.name,
        "task": None if task is None else task.id or None,
        "command": refusal.command,
        "text": refusal.text[:PREVIEW_CHARACTERS],
    }
    await agent.store.record_event(agent.ref, EventKind.HOOK_REFUSED, facts)


# -- asking -----------------------------------------------------------------------------------------------------


def _commands(agent: Agent, hook: Hook) -> tuple[str, ...]:
    commands: tuple[str, ...] = getattr(agent.settings.hooks, hook)
    return commands


async def _find_refusal(agent: Agent, hook: Hook, task: Task | None, **facts: Any) -> Refusal | None:
    """The first of its commands that refuses; those after it are not asked."""
    event = json.dumps({**await _describe(agent, hook, task), **facts}, ensure_ascii=False)
    for command in _commands(agent, hook):
        refusal = await _ask(agent, hook, command, event)
        if refusal is not None:
            return refusal
    return None


async def _describe(agent: Agent, hook: Hook, task: Task | None) -> dict[str, Any]:
    """What stands on a hook's standard input (docs/how-to.md)."""
    return {
        "hook": hook.value,
        "team": agent.team.name,
        "member": agent.member.name,
        "task": None if task is None else await _describe_task(agent, task),
        "workspace": str(agent.workspace),
        "at": agent.clock.now().isoformat(),
    }


async def _describe_task(agent: Agent, task: Task) -> dict[str, Any]:
    """As `bullpen task show --json` has it."""
    blockers = await list_blockers(agent.store, task)
    return {**encode(task), "id": task.id or None, "blockers": encode(blockers)}


async def _ask(agent: Agent, hook: Hook, command: str, event: str) -> Refusal | None:
    timeout_seconds = agent.settings.hooks.timeout_seconds
    try:
        outcome = await run_outside(
            command,
            directory=agent.house.workspace_of(agent.team),
            text=f"{event}\n",
            outputs=agent.private_directory / "output",
            timeout_seconds=timeout_seconds,
            output_characters=OUTPUT_CHARACTERS,
        )
    except (SandboxUnavailable, UsageError) as error:
        return await _broken(agent, hook, command, f"could not be run: {error}")
    printed = f"It printed\n{text}" if (text := outcome.output.strip()) else "It printed nothing."
    if outcome.timed_out:
        return await _broken(agent, hook, command, f"was ended after {timeout_seconds:g} s. {printed}")
    if outcome.exit_code in _NOT_RUN:
        return await _broken(agent, hook, command, f"could not be run (exit code {outcome.exit_code}). {printed}")
    if outcome.exit_code == 0:
        return None
    return Refusal(command=command, text=f"the hook `{command}` refused (exit code {outcome.exit_code}). {printed}")


async def _broken(agent: Agent, hook: Hook, command: str, what: str) -> Refusal:
    """The human and the lead are told, once for each command and team: the one concerned cannot repair it."""
    text = f"the hook `{command}` for {hook} {what}"
    known = f"{agent.team.id}/{hook}/{digest_of(command)[:16]}"
    for to in (USER, LEAD):
        if to != agent.member.key:
            await agent.store.notify(
                agent.team.id, to, text, type=MessageType.ERROR, operation_id=f"hook-broken/{to}/{known}"
            )
    return Refusal(command=command, text=f"{text}\n(only the human can repair the hook)", is_broken=True)
