"""A question that nobody answers does not hold a team up for ever."""

from __future__ import annotations

from pathlib import Path

from bullpen.providers.scripted import Step
from bullpen.team import Outcome
from tests.support.troupe import call, troupe


async def test_a_lead_that_leaves_a_plan_unanswered_is_told_once_and_then_the_run_ends(tmp_path: Path) -> None:
    script = {
        "ana": [call("submit_plan", plan="One table."), Step(say="I wait.", repeat=True)],
        "lead": [Step(say="I see.", repeat=True)],
    }
    async with troupe(script, tmp_path) as team:
        await team.create_task("Design the schema")
        await team.spawn("ana", require_plan=True, prompt="Plan first.")
        report = await team.run("See to it that the schema is designed")
        assert report.outcome is Outcome.STALLED
        assert any("request 1 (plan) of ana waits for an answer of lead" in line for line in report.lines)
        told = [message for message in await team.list_mail("lead") if "The team has stalled" in message.content]
        assert len(told) == 1


async def test_a_lead_that_ends_with_a_question_has_not_finished(tmp_path: Path) -> None:
    script = {"lead": [Step(say="Two ways are open.\nWhich port shall it be?"), Step(say="8080 it is.")]}
    async with troupe(script, tmp_path) as team:
        report = await team.run("Choose a port")
        assert (report.outcome, report.lines) == (Outcome.ASKS, ("lead asks: Which port shall it be?",))
        await team.send("lead", "8080")
        assert (await team.run()).outcome is Outcome.DONE


async def test_where_a_check_decides_a_closing_question_does_not(tmp_path: Path) -> None:
    async with troupe({"lead": [Step(say="Done. Anything else?")]}, tmp_path) as team:
        report = await team.run("Do nothing", check="true")
        assert report.outcome is Outcome.DONE
