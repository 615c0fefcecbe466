"""A task as its new owner reads it, with what the board knows of it now."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from bullpen.domain.files import find_overlaps, overlap_text
from bullpen.domain.task import FINISHED, Task, TaskStatus
from bullpen.errors import NotFound
from bullpen.store import Store
from bullpen.tools.render import task_frame


async def hand_over(store: Store, task: Task) -> str:
    """With what its blockers left behind, and whose files it touches."""
    blockers = await list_blockers(store, task)
    overlaps = await list_overlaps(store, [task])
    return task_frame(task, blockers, overlap=overlaps.get(task.id, ""))


async def list_blockers(store: Store, task: Task) -> list[Task]:
    """Those that there are: another program may have removed the file of one, or written it half."""
    found = []
    for number in task.blocked_by:
        with suppress(NotFound):
            found.append(await store.get_task(task.team_id, number))
    return found


async def list_overlaps(store: Store, tasks: Sequence[Task]) -> dict[int, str]:
    """`files overlap with #3 of ana`, for those of which that is true while #3 is in progress."""
    concerned = [task for task in tasks if task.files and task.status not in FINISHED]
    if not concerned:
        return {}
    busy = await store.list_tasks(concerned[0].team_id, status=TaskStatus.IN_PROGRESS)
    texts = {task.id: overlap_text(find_overlaps(task, busy)) for task in concerned}
    return {number: text for number, text in texts.items() if text}
