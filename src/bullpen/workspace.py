"""The contract of a member's own worktree: work apart from the others, brought together on the team's trunk.

A team that shares one directory has none of this: everywhere `Worktree | None`, None is the shared directory.

- A worktree begins at the newest trunk. What its member changes in it is nobody else's affair until it is gathered:
  one commit upon the newest trunk, whatever the member committed itself meanwhile.
- Where the trunk has moved on, it is merged into the worktree when work is gathered. What does not merge is there as
  conflict markers, and `Conflicting` says in which files; resolved, it is gathered again.
- Nothing that a member made is lost: what is not on the trunk has a ref of its own before anything takes its place.
- The user's tree, index, stash and branches are never touched.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from bullpen.domain.submission import Work
from bullpen.errors import ToolError


class Conflicting(ToolError):
    """Somebody else changed the same lines."""


class Worktree(Protocol):
    @property
    def root(self) -> Path:
        """The top of it."""
        ...

    @property
    def directory(self) -> Path:
        """Where its member works: the top, or the directory in it in which the team was begun."""
        ...

    async def gather(self, message: str, *, integrated: frozenset[str] = frozenset()) -> Work | None:
        """What was made upon the newest trunk, as one commit; None if nothing is different from it. Conflicting if it
        cannot be: then the conflicts are in the files. `integrated` as of `begin_anew`."""
        ...

    async def begin_anew(self, *, integrated: frozenset[str], queued: frozenset[str] | None = None) -> str | None:
        """The newest trunk, for something new. What was unfinished is kept: under which name is returned.
        `integrated`: commits that were gathered here before and are on the trunk by now. `queued`: those that still
        wait; what else was gathered, by somebody who was killed before it handed that in, is forgotten."""
        ...

    async def catch_up(self, *, integrated: frozenset[str]) -> None:
        """The newest trunk, with what is unfinished upon it; Conflicting if that does not merge."""
        ...

    async def keep(self) -> str | None:
        """The name under which what is unfinished is kept; None if nothing is."""
        ...

    async def save(self) -> bool:
        """What is unfinished is found wherever its member goes on, on another machine too. False if it could not be:
        it is still in the files."""
        ...

    async def list_changed(self, work: Work) -> frozenset[str]:
        """The paths at which gathered work differs from what it was made upon."""
        ...
