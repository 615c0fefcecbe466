"""What a team has left in a repository: its branch and the refs of its members; and which of them hold work that is
nowhere else.

Somewhere else is a branch, a tag or a remote of the user's. Files that are not committed are not: they are lost with
the next `git checkout`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bullpen.domain.trunk import KEPT, PREFIX, Trunk
from bullpen.errors import NotFound
from bullpen.workspaces.application import Applications
from bullpen.workspaces.checkout import BRANCHES, Checkout
from bullpen.workspaces.git import Git
from bullpen.workspaces.made import Made, look_at_work
from bullpen.workspaces.pending import is_on_trunk
from bullpen.workspaces.trees import merge_trees

_USERS = ("refs/heads/", "refs/tags/", "refs/remotes/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """A ref of a team. `lost` says what is nowhere else; empty if nothing is."""

    ref: str
    commit: str
    lost: str = ""

    @property
    def name(self) -> str:
        return self.ref.removeprefix(BRANCHES).removeprefix("refs/")


class Leftovers:
    """Of one team, as they are now."""

    def __init__(self, trunk: Trunk) -> None:
        self._trunk = trunk
        self._git = Git(trunk.repository)

    async def find_made(self) -> Made | None:
        """None if the trunk is gone."""
        try:
            return await look_at_work(self._trunk)
        except NotFound:
            return None

    async def list_refs(self) -> list[Leftover]:
        """The trunk last: as long as it is there, what is on it is safe."""
        made = await self.find_made()
        refs = await self._git.run("for-each-ref", "--format=%(objectname) %(refname)", f"refs/{self._trunk.branch}/")
        listed = [(ref, commit) for commit, ref in (line.split(" ", 1) for line in refs.splitlines())]
        kept = {commit for ref, commit in listed if KEPT in ref}
        found = []
        for ref, commit in listed:
            is_kept = KEPT not in ref and commit in kept
            lost = "" if is_kept or await self.is_elsewhere(made, ref, commit) else "what was left unfinished"
            found.append(Leftover(ref=ref, commit=commit, lost=lost))
        if made is not None:
            count = len(made.commits)
            commits = "" if await self._is_taken(made) else f"{count} commit{'' if count == 1 else 's'}"
            found.append(Leftover(ref=self._trunk.ref, commit=made.tip, lost=commits))
        return found

    async def is_elsewhere(self, made: Made | None, ref: str, commit: str) -> bool:
        """Of what a member made: on the trunk, or on something of the user's."""
        member = ref.rpartition("/")[2].partition(KEPT)[0]
        if made is not None and await is_on_trunk(made, member, commit):
            return True
        return await self._is_reachable(commit)

    async def remove(self, leftover: Leftover) -> None:
        """Only as it was looked at."""
        await self._git.run("update-ref", "-d", leftover.ref, leftover.commit)

    async def forget_applications(self) -> None:
        checkout = await Checkout.open(self._trunk.repository)
        applications = Applications(checkout)
        for one in applications.of(self._trunk.branch, self._trunk.base):
            applications.forget(one)

    # -- the trunk -------------------------------------------------------------------------------------------------

    async def _is_taken(self, made: Made) -> bool:
        if not made.commits or await self._is_reachable(made.tip):
            return True
        applied: set[str] = set()
        for one in Applications(await Checkout.open(made.trunk.repository)).of(made.trunk.branch, made.trunk.base):
            if one.commit is not None and await self._is_reachable(one.commit):
                listed = await self._git.run("rev-list", f"{made.trunk.base}..{one.tip}")
                applied |= set(listed.split() if one.commits is None else one.commits)
        return applied.issuperset(commit.commit for commit in made.commits) or await self._is_held(made)

    async def _is_held(self, made: Made) -> bool:
        """By the user's branch, however it came there: applying it would change nothing."""
        head = (await self._git.ask("symbolic-ref", "--quiet", "HEAD")).text.strip()
        for branch in {head, f"{BRANCHES}{made.trunk.started_on}"} - {"", BRANCHES, made.trunk.ref}:
            if await self._git.find(branch) is not None:
                merged = await merge_trees(self._git, made.trunk.base, branch, made.tip)
                if not merged.conflicts and merged.tree == await self._git.run("rev-parse", f"{branch}^{{tree}}"):
                    return True
        return False

    async def _is_reachable(self, commit: str) -> bool:
        refs = await self._git.run("for-each-ref", "--format=%(refname)", "--contains", commit, *_USERS)
        return any(not ref.startswith(f"{BRANCHES}{PREFIX}") for ref in refs.splitlines())


def is_there(trunk: Trunk) -> bool:
    return Path(trunk.repository).is_dir()
