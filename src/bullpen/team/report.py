"""What became of a team's work, and who is in it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from bullpen.domain.budget import Account
from bullpen.domain.member import Liveness, Member, Worker
from bullpen.domain.task import Evidence, Task, TaskStatus
from bullpen.domain.trunk import taking


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A member, and whether what hosts it lives."""

    member: Member
    worker: Worker | None
    liveness: Liveness | None

    @property
    def is_dead(self) -> bool:
        return self.liveness is Liveness.DEAD


class Outcome(StrEnum):
    """How a run ended."""

    DONE = "done"
    STALLED = "stalled"
    ASKS = "asks"
    BUDGET = "budget"
    TIME = "time"
    STOPPED = "stopped"
    ERROR = "error"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What became of the board. `text` is the lead's last word, `lines` say what a run that did not end well waits
    for, `accounts` what was spent (the team's first), `files` what has changed, `check` how the check of the
    whole ended. `branch` holds the work of a team that worked apart, in so many `commits`; `remote` is where it is, if
    that is elsewhere; `workspace` the directory in which all worked, if they did not work apart."""

    team: str
    tasks: tuple[Task, ...]
    outcome: Outcome = Outcome.DONE
    text: str = ""
    lines: tuple[str, ...] = ()
    accounts: tuple[Account, ...] = ()
    seconds: float = 0.0
    files: tuple[str, ...] = ()
    check: Evidence | None = None
    branch: str = ""
    remote: str = ""
    commits: int = 0
    workspace: str = ""

    @property
    def taking(self) -> str | None:
        """The command that takes what was made; None if nothing was."""
        return taking(self.team, self.branch, self.remote) if self.commits else None

    @property
    def succeeded(self) -> bool:
        """Is the goal reached? The check of the whole decides, and without one the board."""
        if self.outcome is not Outcome.DONE:
            return False
        return self.check is not None or all(task.status is TaskStatus.COMPLETED for task in self.tasks)
