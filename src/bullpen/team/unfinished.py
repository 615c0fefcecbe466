"""What members of a team that rests left unfinished in their worktrees on this machine.

Invariant: a worktree is looked at in its member's sandbox only. Whatever lies in it, no program of it runs outside.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bullpen.config import Settings
from bullpen.domain.member import Team
from bullpen.domain.text import name_key
from bullpen.domain.trunk import Trunk
from bullpen.sandbox import SandboxSpec
from bullpen.sandboxes import open_sandbox
from bullpen.store import Store
from bullpen.stores.place import place_of
from bullpen.workspaces.git import Git
from bullpen.workspaces.made import Made, list_commits
from bullpen.workspaces.pending import Pending, is_on_trunk
from bullpen.workspaces.worktree import OwnWorktree
from bullpen.workspaces.worktrees import Made as MadeWorktree
from bullpen.workspaces.worktrees import Worktrees


async def find_worktree(store: Store, trunk: Trunk, member: str) -> MadeWorktree | None:
    """Where this member works on this machine."""
    for worktree in await Worktrees(trunk, place_of(store.url).state_directory).list_made():
        if isinstance(worktree, MadeWorktree) and name_key(worktree.root.name) == name_key(member):
            return worktree
    return None


@asynccontextmanager
async def open_at_rest(store: Store, team: Team, trunk: Trunk, worktree: MadeWorktree) -> AsyncIterator[OwnWorktree]:
    """Nobody hosts its member meanwhile."""
    place, name = place_of(store.url), worktree.root.name
    private = place.state_directory / "members" / str(team.id) / name_key(name)
    private.mkdir(parents=True, exist_ok=True, mode=0o700)
    spec = SandboxSpec(
        member=name,
        workspace=worktree.root,
        worktree=worktree.root,
        private_directory=private,
        hidden=place.hidden,
    )
    kind = Settings.from_mapping(team.settings).sandbox.kind
    async with open_sandbox(spec, kind=kind) as sandbox:
        yield OwnWorktree(trunk, name, worktree.root, worktree.own, sandbox)


async def look_at_unfinished(
    store: Store, team: Team, made: Made, worktree: MadeWorktree, known: list[Pending]
) -> Pending | None:
    """What is in the worktree and neither on the trunk nor `known`. GitFailed or SandboxUnavailable if it cannot be
    looked at."""
    async with open_at_rest(store, team, made.trunk, worktree) as own:
        commit = await own.find_unfinished()
    name = worktree.root.name
    if commit is None or await is_on_trunk(made, name, commit):
        return None
    git = Git(made.trunk.repository)
    tree = await git.run("rev-parse", f"{commit}^{{tree}}")
    for entry in known:
        if tree == await git.run("rev-parse", f"{entry.ref}^{{tree}}"):
            return None
    commits = await list_commits(git, commit, f"^{made.tip}")
    return Pending(ref=commit, member=name, commits=commits, worktree=str(worktree.root))
