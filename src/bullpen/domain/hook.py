"""Gates: the steps of a member at which the human's own commands are asked, and may refuse them."""

from __future__ import annotations

from enum import StrEnum


class Hook(StrEnum):
    """Named as in the settings: `hooks.task_created`."""

    TASK_CREATED = "task_created"
    TASK_COMPLETED = "task_completed"
    TEAMMATE_IDLE = "teammate_idle"
