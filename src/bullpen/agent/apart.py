"""Working apart: what a phase does with its member's own worktree at its beginning and at its end.

Where all share one directory, nothing.
"""

from __future__ import annotations

from bullpen.agent.agent import Agent
from bullpen.domain.task import Task, TaskStatus
from bullpen.tools.handing_in import FOR_TASK, go_on_with, list_handed_in
from bullpen.workspace import Conflicting
from bullpen.workspaces.merging import message_of

# So often a member is asked in one phase to resolve what does not merge; then its work waits for the next one.
MAX_CONFLICTS = 3
SAVE_EVERY_SECONDS = 60.0


async def begin_apart(agent: Agent, claimed: Task | None = None) -> list[str]:
    """The newest trunk for what begins now, and what its member must know of that. Who goes on with a task goes on
    with its files as they are; so does who lost it and has claimed it again."""
    if agent.worktree is None:
        return []
    if claimed is not None and claimed.id == agent.counters.get(FOR_TASK):
        return [f"({await go_on_with(agent.worktree, agent.store, agent.member)})"]
    if claimed is not None:
        return await _begin_anew(agent)
    if await _is_for_lost_task(agent):
        return await _let_go(agent)
    handed_in = await list_handed_in(agent.store, agent.member)
    try:
        await agent.worktree.catch_up(integrated=handed_in.integrated)
    except Conflicting as conflict:
        return [f"What you made before is not handed in yet: {conflict}"]
    return []


async def _begin_anew(agent: Agent) -> list[str]:
    assert agent.worktree is not None
    handed_in = await list_handed_in(agent.store, agent.member)
    kept = await agent.worktree.begin_anew(integrated=handed_in.integrated, queued=handed_in.queued)
    said = "What you had not handed in of something else is kept"
    return [] if kept is None else [f"({said} as {kept}: `git diff HEAD {kept}` shows it.)"]


async def _let_go(agent: Agent) -> list[str]:
    said = await _begin_anew(agent)
    await agent.set_counters(**{FOR_TASK: None})
    return said


async def _is_for_lost_task(agent: Agent) -> bool:
    """Its files are half-done work for a task that failed, was given back, or is somebody else's by now. That is no
    work of its own: whoever takes the task makes it."""
    task = await _find_made_for(agent)
    is_mine = task is not None and task.is_owned_by(agent.member.name)
    return task is not None and not (is_mine and task.status in (TaskStatus.IN_PROGRESS, TaskStatus.COMPLETED))


async def _find_made_for(agent: Agent) -> Task | None:
    number = agent.counters.get(FOR_TASK)
    return None if number is None else await agent.store.get_task(agent.team.id, int(number))


async def hand_in(agent: Agent, task: Task | None, text: str) -> bool:
    """What was made without a task goes into the queue when a phase ends. False if it does not merge: then the member
    has been told, and the phase goes on."""
    if agent.worktree is None or task is not None:
        return True
    await agent.refresh()
    if await _is_for_lost_task(agent):
        # From here on it has a name. It leaves the files when something else begins, and its member is told then.
        await agent.worktree.keep()
        return True
    held = await _find_made_for(agent)
    if held is not None and held.status is TaskStatus.IN_PROGRESS:
        # A lead's, which goes on with it another time.
        return True
    conflicts = int(agent.counters.get("conflicts") or 0)
    try:
        message = message_of(text, otherwise=f"work of {agent.member.name}")
        handed_in = await list_handed_in(agent.store, agent.member)
        work = await agent.worktree.gather(message, integrated=handed_in.integrated)
    except Conflicting as conflict:
        if conflicts >= MAX_CONFLICTS:
            return True
        await agent.tell(f"Before your turn ends: {conflict}", conflicts=conflicts + 1)
        return False
    if work is not None:
        await agent.store.submit_work(agent.ref, work, result=text, operation_id=f"work/{agent.team.id}/{work.commit}")
    return True


async def save_apart(agent: Agent, *, at_once: bool = False) -> None:
    """What is unfinished is where any machine finds it, now and then: a machine that dies takes little with it."""
    if agent.worktree is None:
        return
    now = agent.clock.monotonic()
    if at_once or now >= agent.saved_at + SAVE_EVERY_SECONDS:
        agent.saved_at = now
        await agent.worktree.save()
