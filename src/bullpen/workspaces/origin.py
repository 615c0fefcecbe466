"""Where the trunk of a team is, and what names there are for its members' work: the contract, and the user's own
repository as the simple case. The other one is `remote`.

- Everything is decided upon a `newest`, and the trunk is advanced only from there.
- What was `share`d is found by whoever integrates, on whichever machine, and outlives the machine that made it.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from bullpen.domain.trunk import Trunk
from bullpen.workspaces.git import Git, GitFailed


@dataclass(frozen=True, slots=True)
class State:
    """What is in a worktree: the commit that it is at, and the tree of its files."""

    head: str
    tree: str


def not_here(trunk: Trunk) -> str:
    """Of who looks for the user's own repository on another machine."""
    return f"the repository {trunk.repository}, where the team works, is not on {socket.gethostname()}"


class Origin(Protocol):
    git: Git
    """The repository with all that is at hand here."""

    async def newest(self, *, everything: bool = False) -> str:
        """Where the trunk is now, at hand. `everything`: what members keep, too. GitFailed if there is no trunk."""
        ...

    async def advance(self, tip: str, commit: str) -> bool:
        """The trunk goes from `tip` to `commit`; False, and nothing has happened, if it is not there any more."""
        ...

    async def name(self, commit: str, ref: str) -> None:
        """From here on it cannot be lost on this machine."""
        ...

    async def share(self, commit: str, *refs: str) -> None:
        """It is known under these names everywhere. A member's own ref stands first, and alone may have moved."""
        ...

    async def save(self, member: str, look: Callable[[], Awaitable[State]]) -> bool:
        """What is unfinished, as it is looked at, is found wherever this member goes on. False if it could not be."""
        ...

    async def is_gathered(self, member: str, commit: str) -> bool:
        """Was it gathered and shared before?"""
        ...

    async def obtain(self, member: str, commit: str) -> bool:
        """What a member handed in is at hand; False if it is nowhere."""
        ...

    async def drop(self, member: str, commit: str) -> None:
        """What was handed in needs its name no longer."""
        ...

    async def tidy(self, member: str, queued: frozenset[str]) -> None:
        """The same for all that it gathered but these. Only its member may say so: it knows what it is to hand in."""
        ...


class LocalOrigin:
    """A repository of this machine: what is named in it is known to everyone at once."""

    def __init__(self, trunk: Trunk) -> None:
        self._trunk = trunk
        self.git = Git(trunk.repository)

    async def newest(self, *, everything: bool = False) -> str:
        tip = await self.git.find(self._trunk.ref)
        if tip is None:
            if not await self.git.is_there():
                raise GitFailed(not_here(self._trunk))
            raise GitFailed(
                f"the branch {self._trunk.branch} is gone from {self._trunk.repository}: "
                f"`git branch {self._trunk.branch} COMMIT` brings it back"
            )
        return tip

    async def advance(self, tip: str, commit: str) -> bool:
        answer = await self.git.ask("update-ref", "-m", "bullpen: integrated", self._trunk.ref, commit, tip)
        if answer.exit_code == 0:
            return True
        if await self.git.find(self._trunk.ref) == tip:
            # Not another's doing: a full disk, a lock that somebody left.
            raise GitFailed(f"the branch {self._trunk.branch} cannot be advanced: {answer.complaint}")
        return False

    async def name(self, commit: str, ref: str) -> None:
        await self.git.run("update-ref", ref, commit)

    async def share(self, commit: str, *refs: str) -> None:
        """It has its names."""

    async def save(self, member: str, look: Callable[[], Awaitable[State]]) -> bool:
        """The files stay where they are, and their member goes on there."""
        return True

    async def is_gathered(self, member: str, commit: str) -> bool:
        return await self.git.find(self._trunk.member_ref(member)) == commit

    async def obtain(self, member: str, commit: str) -> bool:
        return True

    async def drop(self, member: str, commit: str) -> None:
        """It has none of its own."""

    async def tidy(self, member: str, queued: frozenset[str]) -> None:
        """Nor have these."""
