"""What members have that is not on the trunk: work in progress, waiting for integration, refused or left behind."""

from __future__ import annotations

from dataclasses import dataclass

from bullpen.domain.text import name_key
from bullpen.workspaces.git import Git
from bullpen.workspaces.made import Made, TeamCommit, list_commits
from bullpen.workspaces.trees import merge_trees


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A ref of a member whose newest commit the trunk does not hold; or a commit without a name, which holds what lies
    unfinished in `worktree`."""

    ref: str
    member: str
    commits: tuple[TeamCommit, ...]
    worktree: str = ""

    @property
    def place(self) -> str:
        return self.worktree or self.ref.removeprefix("refs/")


async def list_pending(made: Made, member: str | None = None) -> list[Pending]:
    git = Git(made.trunk.repository)
    refs = await git.run("for-each-ref", "--format=%(objectname) %(refname)", f"refs/{made.trunk.branch}/")
    found = []
    for line in refs.splitlines():
        commit, ref = line.split(" ", 1)
        # `ana`, `ana.kept-12ab…`, `ana.work-12ab…`.
        owner = ref.rpartition("/")[2].partition(".")[0]
        if (member is None or name_key(owner) == name_key(member)) and not await is_on_trunk(made, owner, commit):
            commits = await list_commits(git, commit, f"^{made.tip}")
            found.append(Pending(ref=ref, member=owner, commits=commits))
    return found


async def is_on_trunk(made: Made, member: str, commit: str) -> bool:
    """On the trunk stands a copy of what a member hands in, rebased. So: would it change the trunk as it was when one
    of the member's commits had just come there?"""
    git = Git(made.trunk.repository)
    if await git.contains(made.tip, commit):
        return True
    base = (await git.ask("merge-base", made.tip, commit)).text.strip()
    if not base:
        return False
    for mine in reversed(made.by(member)):
        if await git.contains(mine.commit, base):
            merged = await merge_trees(git, base, mine.commit, commit)
            if not merged.conflicts and merged.tree == await git.run("rev-parse", f"{mine.commit}^{{tree}}"):
                return True
    return False
