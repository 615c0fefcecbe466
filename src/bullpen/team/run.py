"""Running a team in this process: hosting its members, and knowing when it is over."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from bullpen.agent.house import House, Listener, OpenModel
from bullpen.agent.room import open_room, origin_of
from bullpen.config import Settings
from bullpen.domain.member import LEAD, RUN_LABEL
from bullpen.domain.member import Team as TeamRecord
from bullpen.domain.standing import Verdict
from bullpen.domain.task import Evidence
from bullpen.domain.trunk import Trunk
from bullpen.maintenance.standing import SETTLING_SECONDS, StandingWatch
from bullpen.providers import open_provider
from bullpen.team.changes import changed_files, made_on, take_stock
from bullpen.team.ending import Over, find_outcome, make_report
from bullpen.team.hosts import find_successor
from bullpen.team.report import Outcome, Report
from bullpen.team.service import make_house
from bullpen.worker.host import LEASE_SECONDS
from bullpen.worker.worker import Worker
from bullpen.workspaces.git import GitFailed

if TYPE_CHECKING:
    from bullpen.team.team import Team

CHECK_ATTEMPTS = 3
# Where the check of the whole is run; no member has this name.
CHECK_ROOM = ".check"
CHECK_SECONDS = 600.0
TAIL_CHARACTERS = 4_000
LOOK_AGAIN_SECONDS = 5.0
SLOTS = 1_000


class Crew(Protocol):
    """Whoever hosts a team while it is run: a worker in this process, or workers elsewhere. `house` is where a check of
    the whole is run."""

    house: House

    @property
    def team_id(self) -> int | None:
        """The team, or that in which its lead has gone on."""

    @property
    def is_busy(self) -> bool:
        """Is it known without a look into the store that somebody is in the middle of something?"""


class Runner(Protocol):
    """Where the workers of a team come from, if they are not to be in this process; see `bullpen.runners`."""

    def host(self, team: TeamRecord, house: House, *, lease_seconds: float) -> AbstractAsyncContextManager[Crew]:
        """While entered, wanted members of the team are hosted with what the house says; leaving lets them rest."""


@dataclass(kw_only=True)
class Hosting:
    """How this process hosts a team, or has it hosted by a `runner`."""

    model: str | None = None
    open_model: OpenModel | None = None
    workspace: Path = field(default_factory=Path.cwd)
    lease_seconds: float = LEASE_SECONDS
    slots: int = SLOTS
    on_text: Listener | None = None
    is_interactive: bool = False
    runner: Runner | None = None

    def worker(self, team: Team) -> Worker:
        return Worker(
            self._house(team),
            slots=self.slots,
            labels=(RUN_LABEL,),
            team_id=team.id,
            lease_seconds=self.lease_seconds,
        )

    def _crew(self, team: Team) -> AbstractAsyncContextManager[Crew]:
        if self.runner is None:
            return self.worker(team)
        return self.runner.host(team.record, self._house(team), lease_seconds=self.lease_seconds)

    def _house(self, team: Team) -> House:
        trunk = Trunk.of(team.record.settings)
        return make_house(
            team.store,
            model=self.model,
            # Of a repository elsewhere each machine makes its own copy.
            workspace=None if trunk is not None and trunk.is_remote else self.workspace,
            open_model=self.open_model or open_provider,
            is_interactive=self.is_interactive,
            on_text=self.on_text,
        )

    async def run(self, team: Team, *, max_minutes: float | None = None, check: str | None = None) -> Report:
        """Host it until it is over. `check` decides whether its goal is reached: while it fails the lead is told."""
        max_minutes = max_minutes or Settings.from_mapping(team.record.settings).budget.max_minutes
        began = team.store.clock.monotonic()
        stock = await take_stock(self.workspace)
        evidence: Evidence | None = None
        async with self._crew(team) as crew:
            try:
                async with asyncio.timeout(None if max_minutes is None else max_minutes * 60):
                    outcome, lines = await self._until_over(team, crew, is_checked=check is not None)
                    for attempt in range(1, CHECK_ATTEMPTS + 1):
                        if outcome is not Outcome.DONE or check is None:
                            break
                        evidence = await self._run_check(team, crew, check)
                        if evidence.exit_code == 0:
                            break
                        if attempt == CHECK_ATTEMPTS:
                            outcome, lines = Outcome.FAILED, (f"`{check}` exits {evidence.exit_code}", evidence.tail)
                            break
                        await _tell_of_check(await _current(team, crew), evidence)
                        outcome, lines = await self._until_over(team, crew, is_checked=check is not None)
            except TimeoutError:
                outcome, lines = Outcome.TIME, (f"{max_minutes:g} minutes are over",)
        team = await _current(team, crew)
        report = await make_report(team, outcome, lines, team.store.clock.monotonic() - began)
        report = replace(report, check=evidence)
        trunk = Trunk.of(team.record.settings)
        if trunk is None:
            files = await changed_files(self.workspace, stock)
            return replace(report, files=files, workspace=str(self.workspace))
        made = await made_on(await _here(trunk, crew.house))
        remote = trunk.repository if trunk.is_remote else ""
        return replace(report, files=made.files, branch=trunk.branch, remote=remote, commits=made.commits)

    async def _until_over(self, team: Team, crew: Crew, *, is_checked: bool) -> Over:
        team = await _current(team, crew)
        watch = StandingWatch(team.store, team.id)
        async with team.store.listen_events(team.id) as bell:
            while True:
                bell.clear()
                if crew.team_id != team.id:
                    break
                over = None if crew.is_busy else await _over(team, watch, is_checked=is_checked)
                # Somebody is there to be asked: the answer is waited for. And workers elsewhere say only through the
                # store that the lead has gone on in another team.
                is_asked = self.is_interactive and over is not None and over[0] is Outcome.ASKS
                if over is not None and not is_asked and await find_successor(team.store, team.id) is None:
                    return over
                await bell.wait(LOOK_AGAIN_SECONDS)
                await asyncio.sleep(SETTLING_SECONDS)
        return await self._until_over(team, crew, is_checked=is_checked)

    async def _run_check(self, team: Team, crew: Crew, check: str) -> Evidence:
        """In a sandbox like a member's, which sees the workspace as it is, or all that was integrated."""
        settings = Settings.from_mapping(team.record.settings)
        async with open_room(
            crew.house, team.record, settings, CHECK_ROOM, incarnation=team.id, workspace=self.workspace
        ) as room:
            if room.worktree is not None:
                await room.worktree.show_newest()
            result = await room.sandbox.run(check, timeout_seconds=CHECK_SECONDS)
        return Evidence(
            command=check,
            exit_code=result.exit_code,
            tail=result.output[-TAIL_CHARACTERS:],
            seconds=result.seconds,
            checked_at=team.store.clock.now(),
        )


async def _here(trunk: Trunk, house: House) -> Trunk:
    """As far as this machine knows it: what is elsewhere may be away just now."""
    if not trunk.is_remote:
        return trunk
    with suppress(GitFailed):
        await origin_of(house, trunk).newest()
    return replace(trunk, repository=str(house.mirror_of(trunk.repository).git.directory))


async def _current(team: Team, crew: Crew) -> Team:
    """This one, or that in which its lead has gone on."""
    if crew.team_id is None or crew.team_id == team.id:
        return team
    return type(team)(team.store, await team.store.get_team(crew.team_id))


async def _tell_of_check(team: Team, evidence: Evidence) -> None:
    text = f"The goal is not reached: its check `{evidence.command}` exits {evidence.exit_code}.\n{evidence.tail}"
    await team.store.notify(team.id, LEAD, text)


async def _over(team: Team, watch: StandingWatch, *, is_checked: bool) -> Over | None:
    standing = await watch.look()
    return None if standing.verdict is Verdict.MOVES else await find_outcome(team, standing, is_checked=is_checked)


__all__ = ["Hosting", "Listener", "OpenModel"]
