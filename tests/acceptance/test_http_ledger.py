"""What a team's requests cost, by the server's own ledger: prefixes stay, who rests asks nothing, notices are free."""

from __future__ import annotations

from pathlib import Path

import pytest

from bullpen.domain.member import Autonomy, MemberStatus
from bullpen.domain.message import MessageType
from bullpen.provider import ModelRequest
from bullpen.providers.scripted import Step
from bullpen.team import Outcome
from tests.support.cast import Job, Play, View, call
from tests.support.company import Wire, acting, company, playing
from tests.support.troupe import settings

RICH = {"budget": {"max_cost_usd": 1_000}}
TURNS = 100


@pytest.fixture(params=["anthropic", "openai"])
def whole(request: pytest.FixtureRequest) -> Wire:
    return Wire(request.param, False)


async def test_over_a_hundred_turns_nearly_all_that_is_sent_was_sent_before(whole: Wire, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("".join(f"line {number} of the notes\n" for number in range(60)))

    def ana(request: ModelRequest) -> Step | str:
        view = View(request)
        turn = int(view.token.partition("-")[2])
        if turn >= TURNS - 1:
            return Step(calls=(call("TaskUpdate", taskId=1, status="completed", result="read all"),))
        look = call("read_file", path="notes.txt", offset=turn % 50 + 1, limit=8)
        return Step(think=f"Turn {turn}.", say=f"I read on from line {turn}.", calls=(look, call("TaskList")))

    def ends(request: ModelRequest) -> Step | str:
        return "All read." if View(request).has_called("TaskUpdate") else ana(request)

    tireless = settings(work={"max_turns": 2 * TURNS}, **RICH)
    async with company(
        whole, acting({"ana": ends, "lead": lambda request: "Fine."}), tmp_path, settings=tireless
    ) as here:
        await here.team.create_task("Read the notes")
        await here.team.spawn("ana", prompt="Read.")
        await here.run()
    here.check_legal()
    [conversation] = [one for one in here.server.ledger.conversations.values() if one.member == "ana"]
    assert conversation.requests >= TURNS
    assert conversation.share >= 0.95, conversation.share


async def test_who_rests_asks_nothing_while_others_work(whole: Wire, tmp_path: Path) -> None:
    play = Play(
        jobs=tuple(
            Job(subject=f"step {number}", blocked_by=(number - 1,) if number > 1 else ()) for number in range(1, 5)
        ),
        teammates=("ana",),
        writes_mail=False,
    )
    async with company(whole, playing(play), tmp_path, settings=settings(idle={"on_timeout": "stay"})) as here:
        for name in ("ben", "cy"):
            # They take only what is given to them, and without a prompt there is nothing to say.
            await here.team.spawn(name, role="tester", autonomy=Autonomy.ASSIGNED)
        report = await here.run()
        assert report.outcome is Outcome.DONE
        up = {member.name: member.status for member in await here.team.list_members() if member.role == "tester"}
    here.check_legal()
    assert set(up.values()) == {MemberStatus.WANTED}, "they rest with the team until the next run"
    assert {heard.member for heard in here.server.heard} == {"lead", "ana"}


async def test_results_of_completed_tasks_and_idle_notices_cost_the_lead_nothing(whole: Wire, tmp_path: Path) -> None:
    play = Play(
        jobs=tuple(Job(subject=f"part {number}") for number in range(1, 9)), teammates=("ana", "ben"), writes_mail=False
    )
    async with company(whole, playing(play), tmp_path) as here:
        report = await here.run()
        told = await here.team.list_mail("lead")
    here.check_legal()
    assert report.outcome is Outcome.DONE
    assert sum(message.type is MessageType.RESULT for message in told) == len(play.jobs)
    # It splits the goal, reads the results of its calls, and hears that all is finished: with every result along.
    heard = here.heard("lead")
    assert len(heard) == 3
    assert "All tasks are finished" in heard[-1].text
