"""Handing in: a member's work goes from its own worktree into the queue of its team, and comes back if it must.

Where all share one directory there is nothing to hand in: everything here does nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from bullpen.domain.member import Member, MemberKind
from bullpen.domain.submission import Submission, SubmissionState, Work
from bullpen.domain.task import FINISHED, Task, TaskStatus
from bullpen.errors import ToolError
from bullpen.store import Store
from bullpen.tool import ToolContext
from bullpen.workspace import Conflicting, Worktree
from bullpen.workspaces.merging import message_of

FOR_TASK = "apart"
"""The counter of a member that says for which task the files of its worktree are."""
# As long as a check may take, and the one before it in the queue. Then its member is told by a message.
PATIENCE_SECONDS = 900.0


async def find_handed_in(context: ToolContext, task_id: int) -> Task | None:
    """The task, if its work waits to be integrated."""
    if context.worktree is None:
        return None
    task = await context.store.get_task(context.team.id, task_id)
    return None if task.submission is None else task


async def gather_work(context: ToolContext, task_id: int, result: str) -> Work | None:
    """What was made for this task, as a commit upon the newest trunk. Conflicting if it cannot be."""
    if context.worktree is None:
        return None
    task = await context.store.get_task(context.team.id, task_id)
    if task.status in FINISHED:
        # Asked again after a kill: it was handed in then.
        return None
    if task.status is TaskStatus.IN_PROGRESS and task.owner and not task.is_owned_by(context.member.name):
        owner = await context.store.get_member(context.team.id, task.owner)
        if owner.kind is MemberKind.TEAMMATE:
            raise ToolError(
                f"#{task.id} is {task.owner}'s, whose work is in a worktree of its own: only {task.owner} completes "
                f"it. Write to {task.owner}, or take the task away (status pending)"
            )
    return await context.worktree.gather(message_of(result, otherwise=task.subject))


async def await_verdict(context: ToolContext, task: Task) -> Task:
    """The task as it is after integration. ToolError if it was refused: its owner goes on with it."""
    if context.worktree is None:
        return task
    if task.submission is not None:
        submission = await _ended(context, task.submission)
        if submission is None:
            return task
        if submission.state is SubmissionState.REFUSED:
            # What the newest trunk conflicts with is shown at once, where it can be resolved.
            handed_in = await list_handed_in(context.store, context.member)
            await context.worktree.catch_up(integrated=handed_in.integrated)
            raise ToolError(f"#{task.id} was not integrated and is still yours: the message from system says why")
        task = await context.store.get_task(context.team.id, task.id)
    if task.status is TaskStatus.COMPLETED and task.is_owned_by(context.member.name):
        # What its check left behind is nobody's work: it must not be handed in as such when the phase ends.
        await start_anew(context, None)
    return task


async def _ended(context: ToolContext, number: int) -> Submission | None:
    """None if that takes too long."""
    deadline = context.clock.monotonic() + PATIENCE_SECONDS
    async with context.store.listen_member(context.ref) as bell:
        while True:
            bell.clear()
            submission = await context.store.get_submission(context.team.id, number)
            if not submission.is_open:
                return submission
            if not await bell.wait(deadline - context.clock.monotonic()):
                return None


async def start_anew(context: ToolContext, task: Task | None) -> tuple[str, ...]:
    """A task was claimed, or (None) let go: what comes now begins at the newest trunk. What the member had left
    unfinished is kept, and it is said where."""
    if context.worktree is None:
        return ()
    if task is not None and context.member.counters.get(FOR_TASK) == task.id:
        return (await go_on_with(context.worktree, context.store, context.member),)
    handed_in = await list_handed_in(context.store, context.member)
    kept = await context.worktree.begin_anew(integrated=handed_in.integrated, queued=handed_in.queued)
    await context.store.set_member_counters(context.ref, {FOR_TASK: None if task is None else task.id})
    if kept is None:
        return ()
    return (f"what you had not handed in is kept as {kept}: `git diff HEAD {kept}` shows it",)


async def go_on_with(worktree: Worktree, store: Store, member: Member) -> str:
    """It lost a task, while nobody hosted it for example, and claimed it again before anything else began: its files
    are for that task still. What it must know of them."""
    handed_in = await list_handed_in(store, member)
    try:
        await worktree.catch_up(integrated=handed_in.integrated)
    except Conflicting as conflict:
        return f"what you made for this task before is in your files still, but {conflict}"
    return "what you made for this task before, if anything, is in your files still"


async def keep_unfinished(context: ToolContext, task_id: int, note: str) -> str:
    """The note of who gives a task back or fails it, with where its half-done work is."""
    if context.worktree is None:
        return note
    task = await context.store.get_task(context.team.id, task_id)
    if task.status is not TaskStatus.IN_PROGRESS or not task.is_owned_by(context.member.name):
        return note
    kept = await context.worktree.keep()
    return note if kept is None else f"{note}\n(what was done so far is kept: `git diff {kept}^ {kept}`)".strip()


@dataclass(frozen=True, slots=True)
class HandedIn:
    """Commits of one member: those that are on the trunk, and those that wait for it."""

    integrated: frozenset[str]
    queued: frozenset[str]


async def list_handed_in(store: Store, member: Member) -> HandedIn:
    mine = await store.list_submissions(member.team_id, member=member.name)
    return HandedIn(
        integrated=frozenset(one.commit for one in mine if one.state is SubmissionState.INTEGRATED),
        queued=frozenset(one.commit for one in mine if one.is_open),
    )
