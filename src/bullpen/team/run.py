"""Running a team in this process: hosting its members, and knowing when it is over."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bullpen.agent.context import decode_reply
from bullpen.agent.house import House, Listener, Models, OpenModel
from bullpen.config import Settings
from bullpen.domain.budget import BUDGET_SPENT
from bullpen.domain.member import LEAD, MemberKind, MemberStatus
from bullpen.domain.prompt import TextPart
from bullpen.domain.standing import Snapshot, Standing, Verdict
from bullpen.domain.task import Evidence
from bullpen.domain.transcript import TurnKind
from bullpen.maintenance.standing import SETTLING_SECONDS, StandingWatch
from bullpen.providers import open_provider
from bullpen.sandbox import SandboxSpec
from bullpen.sandboxes import open_sandbox
from bullpen.stores.place import place_of
from bullpen.team.changes import changed_files, take_stock
from bullpen.team.report import Outcome, Report
from bullpen.worker.host import LEASE_SECONDS
from bullpen.worker.worker import Worker

if TYPE_CHECKING:
    from bullpen.team.team import Team

CHECK_ATTEMPTS = 3
CHECK_SECONDS = 600.0
TAIL_CHARACTERS = 4_000
LOOK_AGAIN_SECONDS = 5.0
SLOTS = 1_000


@dataclass(kw_only=True)
class Hosting:
    """How this process hosts a team."""

    model: str | None = None
    open_model: OpenModel | None = None
    workspace: Path = field(default_factory=Path.cwd)
    lease_seconds: float = LEASE_SECONDS
    slots: int = SLOTS
    on_text: Listener | None = None
    is_interactive: bool = False

    def worker(self, team: Team) -> Worker:
        place = place_of(team.store.url)
        house = House(
            store=team.store,
            models=Models(self.open_model or open_provider),
            workspace=self.workspace,
            state_directory=place.state_directory,
            model=self.model,
            hidden=place.hidden,
            is_interactive=self.is_interactive,
            on_text=self.on_text,
        )
        return Worker(house, slots=self.slots, team_id=team.id, lease_seconds=self.lease_seconds)

    async def run(self, team: Team, *, max_minutes: float | None = None, check: str | None = None) -> Report:
        """Host it until it is over. `check` decides whether its goal is reached: while it fails the lead is told."""
        max_minutes = max_minutes or Settings.from_mapping(team.record.settings).budget.max_minutes
        began = team.store.clock.monotonic()
        stock = await take_stock(self.workspace)
        evidence: Evidence | None = None
        async with self.worker(team) as worker:
            try:
                async with asyncio.timeout(None if max_minutes is None else max_minutes * 60):
                    outcome, lines = await self._until_over(team, worker, is_checked=check is not None)
                    for attempt in range(1, CHECK_ATTEMPTS + 1):
                        if outcome is not Outcome.DONE or check is None:
                            break
                        evidence = await self._run_check(team, worker, check)
                        if evidence.exit_code == 0:
                            break
                        if attempt == CHECK_ATTEMPTS:
                            outcome, lines = Outcome.FAILED, (f"`{check}` exits {evidence.exit_code}", evidence.tail)
                            break
                        await _tell_of_check(await _current(team, worker), evidence)
                        outcome, lines = await self._until_over(team, worker, is_checked=check is not None)
            except TimeoutError:
                outcome, lines = Outcome.TIME, (f"{max_minutes:g} minutes are over",)
        team = await _current(team, worker)
        report = await make_report(team, outcome, lines, team.store.clock.monotonic() - began)
        return replace(report, files=await changed_files(self.workspace, stock), check=evidence)

    async def _until_over(self, team: Team, worker: Worker, *, is_checked: bool) -> tuple[Outcome, tuple[str, ...]]:
        team = await _current(team, worker)
        watch = StandingWatch(team.store, team.id)
        async with team.store.listen_events(team.id) as bell:
            while True:
                bell.clear()
                if worker.team_id != team.id:
                    break
                over = None if worker.is_busy else await _over(team, watch, is_checked=is_checked)
                # Somebody is there to be asked: the answer is waited for.
                if over is not None and not (self.is_interactive and over[0] is Outcome.ASKS):
                    return over
                await bell.wait(LOOK_AGAIN_SECONDS)
                await asyncio.sleep(SETTLING_SECONDS)
        return await self._until_over(team, worker, is_checked=is_checked)

    async def _run_check(self, team: Team, worker: Worker, check: str) -> Evidence:
        """In a sandbox like a member's, which sees the workspace as it is."""
        settings = Settings.from_mapping(team.record.settings)
        private = worker.house.state_directory / "members" / str(team.id) / "check"
        private.mkdir(parents=True, exist_ok=True, mode=0o700)
        spec = SandboxSpec(
            member="check", workspace=self.workspace, private_directory=private, hidden=worker.house.hidden
        )
        async with open_sandbox(spec, kind=settings.sandbox.kind) as sandbox:
            result = await sandbox.run(check, timeout_seconds=CHECK_SECONDS)
        return Evidence(
            command=check,
            exit_code=result.exit_code,
            tail=result.output[-TAIL_CHARACTERS:],
            seconds=result.seconds,
            checked_at=team.store.clock.now(),
        )


async def _current(team: Team, worker: Worker) -> Team:
    """This one, or that in which its lead has gone on."""
    if worker.team_id is None or worker.team_id == team.id:
        return team
    return type(team)(team.store, await team.store.get_team(worker.team_id))


async def _tell_of_check(team: Team, evidence: Evidence) -> None:
    text = f"The goal is not reached: its check `{evidence.command}` exits {evidence.exit_code}.\n{evidence.tail}"
    await team.store.notify(team.id, LEAD, text)


async def _over(team: Team, watch: StandingWatch, *, is_checked: bool) -> tuple[Outcome, tuple[str, ...]] | None:
    standing = await watch.look()
    if standing.verdict is Verdict.MOVES:
        return None
    outcome, lines = _outcome(await team.store.get_snapshot(team.id), standing)
    if outcome is Outcome.DONE and not is_checked:
        # A lead that ends with a question has not finished. Where a check decides, it decides.
        word = await last_word(team, LEAD)
        if word.endswith("?"):
            return Outcome.ASKS, (f"{LEAD} asks: {word.splitlines()[-1]}",)
    return outcome, lines


def _outcome(snapshot: Snapshot, standing: Standing) -> tuple[Outcome, tuple[str, ...]]:
    broke = [member for member in snapshot.members if member.status_reason.startswith(BUDGET_SPENT)]
    if broke:
        return Outcome.BUDGET, (broke[0].status_reason,)
    lead = next(member for member in snapshot.members if member.kind is MemberKind.LEAD)
    unanswered = lead.counters.get("unanswered")
    if unanswered or lead.status_reason.startswith("error: "):
        return Outcome.ERROR, (unanswered or lead.status_reason,)
    if lead.status is MemberStatus.SHUTDOWN and lead.status_reason in ("asked", "forced"):
        return Outcome.STOPPED, ()
    if failed := lead.counters.get("failed"):
        return Outcome.FAILED, (failed,)
    match standing.verdict:
        case Verdict.ASKS:
            return Outcome.ASKS, standing.lines
        case Verdict.STALLED:
            return Outcome.STALLED, standing.lines
        case _:
            return Outcome.DONE, ()


async def make_report(team: Team, outcome: Outcome, lines: tuple[str, ...], seconds: float) -> Report:
    # The lead may have named it meanwhile.
    team.record = await team.store.get_team(team.id)
    return Report(
        team=team.name,
        tasks=tuple(await team.list_tasks()),
        outcome=outcome,
        text=await last_word(team, LEAD),
        lines=lines,
        accounts=tuple(await team.store.list_accounts(team.id)),
        seconds=seconds,
    )


async def last_word(team: Team, name: str) -> str:
    """What a member said last."""
    turns = await team.store.list_turns(team.id, name)
    for turn in reversed(turns):
        if turn.kind == TurnKind.ASSISTANT:
            parts = decode_reply(turn.content["parts"])
            text = "".join(part.text for part in parts if isinstance(part, TextPart)).strip()
            if text:
                return text
    return ""


__all__ = ["Hosting", "Listener", "OpenModel", "make_report"]
