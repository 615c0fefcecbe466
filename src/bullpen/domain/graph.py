"""The dependency graph of a board, as pure functions over "is blocked by" edges."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

Edges = Mapping[int, Sequence[int]]


def find_path(blocked_by: Edges, start: int, goal: int) -> list[int] | None:
    """The shortest way from `start` to `goal` along "is blocked by", both ends included; None if there is none."""
    came_from: dict[int, int | None] = {start: None}
    queue = deque([start])
    while queue:
        task = queue.popleft()
        if task == goal:
            return _walk_back(came_from, task)
        for blocker in blocked_by.get(task, ()):
            if blocker not in came_from:
                came_from[blocker] = task
                queue.append(blocker)
    return None


def _walk_back(came_from: Mapping[int, int | None], task: int) -> list[int]:
    path = [task]
    step = came_from[task]
    while step is not None:
        path.append(step)
        step = came_from[step]
    return path[::-1]


def has_cycle(blocked_by: Edges) -> bool:
    """Does any task wait for itself, directly or through others?"""
    return any(
        find_path(blocked_by, blocker, task) is not None
        for task, blockers in blocked_by.items()
        for blocker in blockers
    )
