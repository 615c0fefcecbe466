"""Cleaning up after a team: its worktrees on this machine, its branch and its members' refs.

Invariant: what is nowhere else stays, under its name, unless it was said that it may go. What is unfinished in a
worktree gets a name before the worktree goes.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from bullpen.domain.member import Team
from bullpen.domain.task import FINISHED
from bullpen.domain.trunk import Trunk
from bullpen.errors import Conflict, UsageError
from bullpen.store import Store
from bullpen.stores.place import place_of
from bullpen.team.beginning import CLEANED
from bullpen.team.home import find_heir
from bullpen.team.hosts import check_at_rest, find_hosts
from bullpen.team.team import Team as Facade
from bullpen.team.unfinished import open_at_rest
from bullpen.workspaces.git import GitFailed
from bullpen.workspaces.leftover import Leftovers, is_there
from bullpen.workspaces.locating import locate
from bullpen.workspaces.made import Made
from bullpen.workspaces.worktrees import Made as MadeWorktree
from bullpen.workspaces.worktrees import Worktrees

# Who idles leaves at once; a worker that hangs is not waited for any longer.
LEAVING_SECONDS = 30.0


@dataclass(kw_only=True)
class Cleaned:
    """Of one team: what was removed, what of it is lost, and what was kept, each with why."""

    team: str
    team_id: int
    trunk: str = ""
    worktrees: list[str] = field(default_factory=list)
    refs: list[str] = field(default_factory=list)
    lost: dict[str, str] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)

    @property
    def is_nothing(self) -> bool:
        return not (self.worktrees or self.refs or self.kept)


async def check_finished(store: Store, team: Team, *, is_forced: bool) -> None:
    """Conflict as long as somebody works on it, or wants to go on."""
    await check_at_rest(store, team)
    unfinished = [task for task in await store.list_tasks(team.id) if task.status not in FINISHED]
    if unfinished and team.deleted_at is None and not is_forced:
        count = f"{len(unfinished)} unfinished task{'' if len(unfinished) == 1 else 's'}"
        raise Conflict(
            f"team {team.name} has {count}: `bullpen resume {team.name}` goes on, "
            f"`bullpen team delete {team.name}` ends it"
        )


async def clean(store: Store, team: Team, *, is_forced: bool = False, is_tried: bool = False) -> Cleaned:
    """`is_forced`: also what is nowhere else. `is_tried`: only say what would be done. The team is finished."""
    cleaned = Cleaned(team=team.name, team_id=team.id)
    trunk = Trunk.of(team.settings)
    if trunk is None or await find_heir(store, team, trunk) is not None:
        return cleaned
    if trunk.is_remote:
        refs = f"{trunk.ref} refs/{trunk.branch}/*"
        raise UsageError(f"team {team.name} worked in {trunk.repository}: remove {refs} there when you have its work")
    trunk = await locate(trunk, Path.cwd())
    cleaned.trunk = trunk.branch
    if not is_there(trunk):
        raise UsageError(f"the repository {trunk.repository} is not on this machine: clean up where the team worked")
    if not is_tried:
        await _see_off(store, team)
    return await _Cleaning(store, team, trunk, cleaned, is_forced=is_forced, is_tried=is_tried).clean()


async def _see_off(store: Store, team: Team) -> None:
    """Who idles on a worker has its worktree open there, and mail would wake it in one that is gone: it leaves first,
    and comes back with the next run."""
    if not (await find_hosts(store, team)).hosting:
        return
    await Facade(store, team).stop(timeout_seconds=LEAVING_SECONDS)
    try:
        async with asyncio.timeout(LEAVING_SECONDS), store.listen_events(team.id) as bell:
            while (await find_hosts(store, team)).hosting:
                await bell.wait()
                bell.clear()
    except TimeoutError:
        raise Conflict(f"team {team.name} does not leave its worker: `bullpen worker list` shows which") from None


class _Cleaning:
    def __init__(
        self, store: Store, team: Team, trunk: Trunk, cleaned: Cleaned, *, is_forced: bool, is_tried: bool
    ) -> None:
        self._store = store
        self._team = team
        self._trunk = trunk
        self._cleaned = cleaned
        self._is_forced = is_forced
        self._is_tried = is_tried
        self._worktrees = Worktrees(trunk, place_of(store.url).state_directory)
        self._leftovers = Leftovers(trunk)

    async def clean(self) -> Cleaned:
        made = await self._leftovers.find_made()
        for worktree in await self._worktrees.list_made():
            await self._clean_worktree(worktree, made)
        if not self._is_tried:
            await self._worktrees.forget_missing()
        await self._clean_refs()
        return self._cleaned

    # -- worktrees -----------------------------------------------------------------------------------------------

    async def _clean_worktree(self, worktree: MadeWorktree | Path, made: Made | None) -> None:
        root = worktree if isinstance(worktree, Path) else worktree.root
        why = await self._why_not(root, worktree, made)
        if why and not self._is_forced:
            self._cleaned.kept[str(root)] = why
            return
        if why:
            self._cleaned.lost[str(root)] = why
        self._cleaned.worktrees.append(str(root))
        if not self._is_tried:
            await self._worktrees.remove(root.name)

    async def _why_not(self, root: Path, worktree: MadeWorktree | Path, made: Made | None) -> str:
        """Why it cannot go; what is unfinished in it is named first, so that it can."""
        if root.name.startswith(".") or (isinstance(worktree, Path) and not self._worktrees.is_ready(root.name)):
            # No member's, or never whole.
            return ""
        if isinstance(worktree, Path) or made is None:
            return "what is in it cannot be judged: git does not know it any more, or the branch is gone"
        try:
            await self._keep_unfinished(worktree, made)
        except GitFailed as error:
            return str(error)
        return ""

    async def _keep_unfinished(self, worktree: MadeWorktree, made: Made) -> None:
        name = worktree.root.name
        async with open_at_rest(self._store, self._team, self._trunk, worktree) as own:
            unfinished = await own.find_unfinished()
            ref = self._trunk.member_ref(name)
            if unfinished is None or await self._leftovers.is_elsewhere(made, ref, unfinished):
                return
            if self._is_tried or self._is_forced:
                where = self._cleaned.lost if self._is_forced else self._cleaned.kept
                where[f"{ref.removeprefix('refs/')} ({unfinished[:10]})"] = "what was left unfinished"
            else:
                await own.keep()

    # -- refs ----------------------------------------------------------------------------------------------------

    async def _clean_refs(self) -> None:
        found = await self._leftovers.list_refs()
        for leftover in found:
            if leftover.lost and not self._is_forced:
                self._cleaned.kept[leftover.name] = leftover.lost
                continue
            if leftover.lost:
                self._cleaned.lost[f"{leftover.name} ({leftover.commit[:10]})"] = leftover.lost
            self._cleaned.refs.append(leftover.name)
            if not self._is_tried:
                await self._leftovers.remove(leftover)
        is_whole = self._trunk.branch in self._cleaned.refs and not self._is_tried
        if is_whole:
            await self._leftovers.forget_applications()
            if self._team.deleted_at is None:
                await Facade(self._store, self._team).remember(**{CLEANED: True})
