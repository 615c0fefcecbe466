"""Bullpen: teams of autonomous agents on a board, with mail, that lose nothing.

The names below are the public interface; they are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bullpen.domain.task import Evidence, Task, TaskStatus
    from bullpen.errors import BullpenError
    from bullpen.stores import open_store
    from bullpen.team import Report, Session, Team, open_team

__version__ = "0.1.0"

__all__ = [
    "BullpenError",
    "Evidence",
    "Report",
    "Session",
    "Task",
    "TaskStatus",
    "Team",
    "open_store",
    "open_team",
]

_HOMES = {
    "BullpenError": "bullpen.errors",
    "Evidence": "bullpen.domain.task",
    "Report": "bullpen.team",
    "Session": "bullpen.team",
    "Task": "bullpen.domain.task",
    "TaskStatus": "bullpen.domain.task",
    "Team": "bullpen.team",
    "open_store": "bullpen.stores",
    "open_team": "bullpen.team",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bullpen' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
