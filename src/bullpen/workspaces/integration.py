"""Bringing one submission onto the trunk: rebased, and the branch advanced only from where it was looked at.

Invariant: a submission is on the trunk once, whatever dies when. Its commit carries a trailer that nobody else's can
carry; who takes the submission up again looks for that first.
"""

from __future__ import annotations

from dataclasses import dataclass

from bullpen.domain.submission import Submission
from bullpen.domain.trunk import TASK_TRAILER, WORK_TRAILER, Trunk
from bullpen.workspaces.merging import make_commit, merge, message_of, tree_of
from bullpen.workspaces.origin import LocalOrigin, Origin


@dataclass(frozen=True, slots=True)
class Rebased:
    """What the trunk would hold: `tree` upon `tip`. `is_new`: not the tree that the member had before it."""

    tip: str
    tree: str
    is_new: bool
    conflicts: tuple[str, ...] = ()


class Integration:
    """Of one team's submissions; without an `origin` in the user's own repository."""

    def __init__(self, trunk: Trunk, origin: Origin | None = None) -> None:
        self._trunk = trunk
        self._origin: Origin = LocalOrigin(trunk) if origin is None else origin
        self._git = self._origin.git

    async def newest(self) -> str:
        """What the trunk is now. Everything about a submission is decided upon one such commit: else two integrators
        could both bring it in."""
        return await self._origin.newest()

    async def obtain(self, submission: Submission) -> bool:
        """What was handed in is at hand; False if it is nowhere any more."""
        return await self._origin.obtain(submission.member, submission.commit)

    async def find(self, submission: Submission, tip: str) -> str | None:
        """Its commit on the trunk, if it is there already."""
        trailer = f"^{trailer_of(submission)}$"
        # After what it was made upon: before that may lie a task of the same number, of a team that went before.
        found = await self._git.run("log", "-1", "--format=%H", f"--grep={trailer}", f"{submission.base}..{tip}")
        return found or None

    async def rebase(self, submission: Submission, tip: str) -> Rebased:
        tree = await tree_of(self._git, submission.commit)
        if tip == submission.base:
            return Rebased(tip, tree, is_new=False)
        merged = await merge(self._git, tip, submission.commit)
        return Rebased(tip, merged.tree, is_new=merged.tree != tree, conflicts=merged.conflicts)

    async def commit(self, submission: Submission, rebased: Rebased) -> str:
        message = message_of(
            submission.result,
            otherwise=f"#{submission.task_id}" if submission.task_id else f"work of {submission.member}",
            trailer=trailer_of(submission),
        )
        return await make_commit(self._git, rebased.tree, rebased.tip, message, author=submission.member)

    async def advance(self, rebased: Rebased, commit: str) -> bool:
        """False if the trunk has moved meanwhile: rebase again."""
        return await self._origin.advance(rebased.tip, commit)

    async def settle(self, submission: Submission, commit: str) -> None:
        """What the member made is on the trunk: its ref says so, unless it has made something else meanwhile."""
        await self._git.ask("update-ref", self._trunk.member_ref(submission.member), commit, submission.commit)
        await self.drop(submission)

    async def drop(self, submission: Submission) -> None:
        """It is integrated, or back with its member: the name under which it waited goes."""
        await self._origin.drop(submission.member, submission.commit)


def trailer_of(submission: Submission) -> str:
    if submission.task_id is not None:
        return f"{TASK_TRAILER}: {submission.task_id}/{submission.attempt}"
    return f"{WORK_TRAILER}: {submission.member}/{submission.id}"
