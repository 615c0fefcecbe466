"""What the human does to a member at work: cuts it off, has its memory compressed, answers it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bullpen.domain.event import EventKind
from bullpen.domain.transcript import TurnKind
from bullpen.providers.scripted import Step
from bullpen.team import Outcome
from tests.agents.stage import Recorder, seeing, turns_of
from tests.support.troupe import BOUND_SECONDS, call, hosted, troupe, until


async def test_an_interrupt_while_the_member_rests_does_not_cut_off_what_it_does_next(tmp_path: Path) -> None:
    model = Recorder({"ana": ["Ready.", "Noted."]})
    async with troupe(model, tmp_path) as team:
        await team.spawn("ana", prompt="Be there.")
        async with hosted(team):
            first = await until(team, EventKind.PHASE_ENDED, member="ana")
            await team.interrupt("ana")
            await team.send("ana", "Are you there?")
            await until(team, EventKind.PHASE_ENDED, after=first.position, member="ana")
        kinds = [turn.kind for turn in await turns_of(team, "ana")]
    assert kinds == [TurnKind.USER, TurnKind.ASSISTANT, TurnKind.MAIL, TurnKind.ASSISTANT]


async def test_a_compaction_that_the_human_wants_comes_before_the_next_request_and_only_once(tmp_path: Path) -> None:
    summary = Step(say="I am ready, and was told of the schema.", purpose="compaction")
    model = Recorder({"ana": ["Ready.", "Noted.", "Noted again.", summary]})
    async with troupe(model, tmp_path) as team:
        await team.spawn("ana", prompt="Be there.")
        async with hosted(team):
            first = await until(team, EventKind.PHASE_ENDED, member="ana")
            await team.compact("ana", "the schema")
            await team.send("ana", "Go on.")
            second = await until(team, EventKind.PHASE_ENDED, after=first.position, member="ana")
            await team.send("ana", "And on.")
            await until(team, EventKind.PHASE_ENDED, after=second.position, member="ana")
        [asked] = model.of("ana", "compaction")
        assert "the schema" in str(asked.messages[-1])
        compactions = [turn for turn in await turns_of(team, "ana") if turn.kind == TurnKind.COMPACTION]
        assert len(compactions) == 1
        assert "I am ready" in compactions[0].content["text"]


async def test_a_run_with_somebody_there_waits_for_the_answer_to_the_leads_question(tmp_path: Path) -> None:
    asks = call("SendMessage", recipient="user", content="Which colour?")
    model = Recorder({"lead": [asks, "I wait.", seeing("Blue", "It is blue.")]})
    async with troupe(model, tmp_path, is_interactive=True) as team:
        running = asyncio.create_task(team.run("Paint it."))
        await until(team, EventKind.PHASE_ENDED, member="lead")
        # It is looked at whether it is over more often than that.
        assert await asyncio.wait({running}, timeout=0.5) == (set(), {running})
        await team.send("lead", "Blue")
        async with asyncio.timeout(BOUND_SECONDS):
            report = await running
    assert (report.outcome, report.text) == (Outcome.DONE, "It is blue.")
