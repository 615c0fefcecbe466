"""The trunk: the branch on which a team's work comes together, and where the work of each member is named.

`bullpen/TEAM` is a branch like any other. Git cannot hold a branch `bullpen/TEAM/MEMBER` beside it (one is a file, the
other a directory of the same name), so the work of a member is the ref `refs/bullpen/TEAM/MEMBER`, which every git
command understands as `bullpen/TEAM/MEMBER`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

TRUNK = "trunk"
"""Under which a team remembers it, beside its settings."""
PREFIX = "bullpen/"
KEPT = ".kept-"
"""`refs/bullpen/TEAM/ana.kept-12ab…` is something that ana left unfinished."""
TASK_TRAILER = "Bullpen-Task"
"""`Bullpen-Task: 3/1`: the first attempt at task 3."""
WORK_TRAILER = "Bullpen-Work"
"""`Bullpen-Work: lead/7`: what a member made outside of any task, by its number in the queue."""
UNFINISHED_TRAILER = "Bullpen-Unfinished"
"""`Bullpen-Unfinished: ana/3`: what the third incarnation of ana had in its files, upon the commit that it was at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trunk:
    """`repository` is a directory, or the URL of one that no machine has for itself (`is_remote`); there is never a
    password in it. `base` is the commit that the team began from: the user's HEAD, or, if `is_snapshot`, a commit upon
    it that holds what was unsaved in the user's tree. `started_on` is the user's branch then, empty if there was none;
    `prefix` where in the repository the team was begun, empty for its top."""

    repository: str
    branch: str
    base: str
    is_snapshot: bool = False
    started_on: str = ""
    prefix: str = ""

    @property
    def ref(self) -> str:
        return f"refs/heads/{self.branch}"

    @property
    def is_remote(self) -> bool:
        """Each machine has a copy of it, and what is made is pushed."""
        return "://" in self.repository

    def member_ref(self, name: str) -> str:
        """What a member made last."""
        return f"refs/{self.branch}/{name}"

    def kept_ref(self, name: str, commit: str) -> str:
        """What a member left unfinished when it went on with something else."""
        return f"{self.member_ref(name)}{KEPT}{commit[:10]}"

    def work_ref(self, name: str, commit: str) -> str:
        """What a member handed in, until it is integrated; only where the repository is remote."""
        return f"{self.member_ref(name)}.work-{commit[:10]}"

    def taking(self, team: str) -> str:
        """The command that takes what this team made."""
        return taking(team, self.branch, self.repository if self.is_remote else "")

    def to_mapping(self) -> dict[str, Any]:
        return {
            "repository": self.repository,
            "branch": self.branch,
            "base": self.base,
            "is_snapshot": self.is_snapshot,
            "started_on": self.started_on,
            "prefix": self.prefix,
        }

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self | None:
        """The trunk that a team with these settings has; None if all of it works in one directory."""
        kept = settings.get(TRUNK)
        return cls(**kept) if isinstance(kept, Mapping) else None


def taking(team: str, branch: str, remote: str) -> str:
    """The command that takes what a team made; typed in a clone of the user's, if its branch is `remote`."""
    if not remote:
        return f"bullpen apply {team}"
    return f"git fetch {shlex.quote(remote)} {branch} && git merge FETCH_HEAD"
