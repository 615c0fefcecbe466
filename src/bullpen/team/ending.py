"""What has become of a team in which nothing moves any more: how it ended, and the report of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bullpen.agent.context import decode_reply
from bullpen.domain.budget import BUDGET_SPENT
from bullpen.domain.member import LEAD, MemberKind, MemberStatus
from bullpen.domain.prompt import TextPart
from bullpen.domain.standing import Snapshot, Standing, Verdict
from bullpen.domain.transcript import TurnKind
from bullpen.team.report import Outcome, Report

if TYPE_CHECKING:
    from bullpen.team.team import Team

Over = tuple[Outcome, tuple[str, ...]]
"""How it ended, and what it waits for if that was not well."""


async def find_outcome(team: Team, standing: Standing, *, is_checked: bool) -> Over:
    """Of a team that does not move."""
    outcome, lines = _outcome(await team.store.get_snapshot(team.id), standing)
    if outcome is Outcome.DONE and not is_checked:
        # A lead that ends with a question has not finished. Where a check decides, it decides.
        word = await last_word(team, LEAD)
        if word.endswith("?"):
            return Outcome.ASKS, (f"{LEAD} asks: {word.splitlines()[-1]}",)
    return outcome, lines


def _outcome(snapshot: Snapshot, standing: Standing) -> Over:
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
