"""Something that a member started and that goes on beside it: a command or a subagent.

    running ──> finished (by itself) | stopped (by its member) | lost (its host died)

It belongs to the incarnation that started it and dies with its worker. Its member is
told once how it ended, unless it stopped it itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from bullpen.domain.text import name_key
from bullpen.errors import UsageError


class BackgroundKind(StrEnum):
    COMMAND = "command"
    SUBAGENT = "subagent"


class BackgroundState(StrEnum):
    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Background:
    """`id` is shown as `bg-3`. Host, boot id, pid and start tell its process from any other."""

    team_id: int
    id: int
    member: str
    incarnation: int
    kind: BackgroundKind
    title: str
    host: str = ""
    boot_id: str = ""
    pid: int | None = None
    start_ticks: int | None = None
    output_path: str | None = None
    state: BackgroundState = BackgroundState.RUNNING
    exit_code: int | None = None
    output: str = ""
    started_at: datetime
    ended_at: datetime | None = None

    @property
    def member_key(self) -> str:
        return name_key(self.member)

    @property
    def label(self) -> str:
        return f"bg-{self.id}"


def parse_background_id(text: str | int) -> int:
    """`bg-3`, `3`, `"#3"`."""
    digits = str(text).strip().casefold().removeprefix("bg-").removeprefix("#")
    if not digits.isdecimal():
        raise UsageError(f"{str(text)[:40]!r} names no background command: write it as bg-3")
    return int(digits)
