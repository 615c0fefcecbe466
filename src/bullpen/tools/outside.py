"""What is written outside of the files that a task names: allowed, and shown, once for each path."""

from __future__ import annotations

import posixpath
from collections.abc import Collection
from contextlib import suppress

from bullpen.domain.event import EventKind
from bullpen.domain.files import HAS_FILES, covers
from bullpen.domain.member import MemberKind
from bullpen.domain.request import digest_of
from bullpen.domain.submission import Work
from bullpen.domain.task import Task, TaskStatus
from bullpen.domain.trunk import Trunk
from bullpen.tool import ToolContext
from bullpen.workspaces.git import GitFailed

MAX_SHOWN = 20
"""Paths of one step: a task that moved a whole directory says it with these."""


class ShownOutside:
    """Which paths of which task its member has been told of."""

    def __init__(self, context: ToolContext) -> None:
        self._shown: set[tuple[int, str]] = set()

    def take_new(self, task: Task, paths: Collection[str]) -> list[str]:
        new = [path for path in sorted(paths) if (task.id, path) not in self._shown][:MAX_SHOWN]
        self._shown.update((task.id, path) for path in new)
        return new


async def show_written(context: ToolContext, *paths: str) -> tuple[str, ...]:
    """Remarks on those of these paths, relative to the workspace, that the member's task does not name."""
    if HAS_FILES not in context.team.settings or context.member.kind is not MemberKind.TEAMMATE:
        return ()
    held = await context.store.list_tasks(context.team.id, status=TaskStatus.IN_PROGRESS, owner=context.member.name)
    return await show_outside(context, held[0], paths) if held else ()


async def show_handed_in(context: ToolContext, task_id: int, work: Work) -> None:
    """The same for all that a task has changed, whoever wrote it, when it is handed in."""
    trunk = Trunk.of(context.team.settings)
    if trunk is None or context.worktree is None or HAS_FILES not in context.team.settings:
        return
    task = await context.store.get_task(context.team.id, task_id)
    # Only shown: where git does not answer, nothing is.
    with suppress(GitFailed):
        paths = await context.worktree.list_changed(work)
        await show_outside(context, task, [posixpath.relpath(path, trunk.prefix or ".") for path in paths])


async def show_outside(context: ToolContext, task: Task, paths: Collection[str]) -> tuple[str, ...]:
    if not task.files:
        return ()
    outside = [path for path in paths if not covers(task.files, path)]
    new = context.resource(ShownOutside).take_new(task, outside)
    for path in new:
        facts = {"task": task.id, "path": path, "member": context.member.name}
        known = f"outside/{task.team_id}/{task.id}/{context.member.key}/{digest_of(path)[:32]}"
        await context.store.record_event(context.ref, EventKind.FILE_WRITTEN_OUTSIDE, facts, operation_id=known)
    if not new:
        return ()
    return (
        f"{', '.join(new)}: not among the files of #{task.id} ({', '.join(task.files)}). It is written, and the team "
        "sees it; if somebody else may be changing it, tell them",
    )
