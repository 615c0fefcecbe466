"""SPEC 6, shutdown: noticed at once or at the next boundary, always answered, and the deadline wins."""

from __future__ import annotations

from pathlib import Path

from bullpen.domain.event import EventKind
from bullpen.domain.member import MemberStatus
from bullpen.domain.message import MessageType
from bullpen.domain.request import RequestStatus
from bullpen.domain.task import TaskStatus
from tests.agents.stage import Recorder, calls, facts, mail_of, member, newest_of, results, seeing
from tests.support.sandboxes import Token
from tests.support.troupe import call, done, hosted, settings, troupe, until

LONG_IDLE = {"idle": {"timeout_seconds": 3600}}
ASKING = {"shutdown": {"policy": "ask"}}


async def test_an_idle_member_ends_at_once_and_without_a_model_call(tmp_path: Path, store_url: str) -> None:
    model = Recorder({"ana": ["Ready."]})
    async with troupe(model, tmp_path, store=store_url, settings=settings(**LONG_IDLE)) as team:
        await team.spawn("ana", prompt="Be there.")
        async with hosted(team):
            await until(team, EventKind.PHASE_ENDED, member="ana")
            request = await team.shut_down("ana", reason="enough")
            gone = await until(team, EventKind.MEMBER_SHUT_DOWN, member="ana")
        answered = await team.store.get_request(team.id, request.id)
        assert gone.data["reason"] == "asked"
        assert (answered.status, answered.approved) == (RequestStatus.ANSWERED, True)
        [answer] = [mail for mail in await mail_of(team, "user") if mail.type is MessageType.SHUTDOWN_RESPONSE]
        assert answer.request_id == request.id
    assert model.count("ana") == 1


async def test_one_at_work_ends_at_the_next_turn_boundary_and_gives_its_task_back(tmp_path: Path) -> None:
    model = Recorder({"ana": [call("write_file", path="half.txt", content="half"), done(), "Finished."]})
    asked = model.hold("ana", 1)
    async with troupe(model, tmp_path) as team:
        await team.create_task("Hers")
        await team.spawn("ana", prompt="Take it.")
        async with hosted(team):
            await asked.reached()
            await team.shut_down("ana")
            asked.release()
            await until(team, EventKind.MEMBER_SHUT_DOWN, member="ana")
        task = await team.get_task(1)
        assert (task.status, task.owner) == (TaskStatus.PENDING, None)
        assert [handover.by for handover in task.handovers] == ["ana"]
    # What the reply that was under way had called was done; nothing was asked after it.
    assert (tmp_path / "half.txt").read_text() == "half"
    assert model.count("ana") == 1


async def test_with_policy_ask_the_model_may_refuse_and_stays(tmp_path: Path) -> None:
    refuse = calls(
        ("shutdown_response", {"request_id": "{{request_id}}", "approve": False, "reason": "one test is still red"})
    )
    model = Recorder({"ana": ["Ready.", seeing("shutdown_request", refuse), "I stay.", done(), "Finished."]})
    async with troupe(model, tmp_path, settings=settings(**ASKING, **LONG_IDLE)) as team:
        await team.spawn("ana", prompt="Be there.")
        async with hosted(team):
            first = await until(team, EventKind.PHASE_ENDED, member="ana")
            request = await team.shut_down("ana", reason="enough")
            closed = await until(team, EventKind.REQUEST_CLOSED, request=request.id)
            assert closed.data["approved"] is False
            await until(team, EventKind.PHASE_ENDED, member="ana", after=first.position)
            # She may claim again.
            await team.create_task("One more")
            await until(team, EventKind.TASK_COMPLETED, task=1)
        [answer] = [mail for mail in await mail_of(team, "user") if mail.type is MessageType.SHUTDOWN_RESPONSE]
        assert "one test is still red" in answer.content
        assert await facts(team, EventKind.MEMBER_SHUT_DOWN) == []


async def test_with_policy_ask_the_model_may_agree_and_ends(tmp_path: Path) -> None:
    agree = calls(("SendMessage", {"type": "shutdown_response", "request_id": "{{request_id}}", "approve": True}))
    model = Recorder({"ana": ["Ready.", seeing("shutdown_request", agree)]})
    async with troupe(model, tmp_path, settings=settings(**ASKING, **LONG_IDLE)) as team:
        await team.spawn("ana", prompt="Be there.")
        async with hosted(team):
            await until(team, EventKind.PHASE_ENDED, member="ana")
            request = await team.shut_down("ana")
            gone = await until(team, EventKind.MEMBER_SHUT_DOWN, member="ana")
        assert gone.data["reason"] == "asked"
        assert (await team.store.get_request(team.id, request.id)).approved
    assert model.count("ana") == 2


async def test_with_policy_ask_who_does_not_answer_is_forced_at_the_deadline(tmp_path: Path) -> None:
    model = Recorder({"ana": ["Ready.", "Which shutdown?"]})
    async with troupe(model, tmp_path, settings=settings(**ASKING, **LONG_IDLE)) as team:
        await team.spawn("ana", prompt="Be there.")
        async with hosted(team):
            await until(team, EventKind.PHASE_ENDED, member="ana")
            request = await team.shut_down("ana", timeout_seconds=0.5)
            gone = await until(team, EventKind.MEMBER_SHUT_DOWN, member="ana")
        assert gone.data["reason"] == "forced"
        assert (await team.store.get_request(team.id, request.id)).status is RequestStatus.EXPIRED


async def test_the_deadline_wins_over_a_running_tool_call_and_kills_what_it_started(
    tmp_path: Path, token: Token
) -> None:
    model = Recorder({"ana": [call("bash", command=f"setsid sleep {token} & sleep {token}"), "Never said."]})
    async with troupe(model, tmp_path) as team:
        await team.create_task("Hers")
        await team.spawn("ana", prompt="Take it.")
        async with hosted(team):
            await token.until(2)
            before = await member(team, "ana")
            await team.shut_down("ana", timeout_seconds=0.2)
            gone = await until(team, EventKind.MEMBER_SHUT_DOWN, member="ana")
            assert gone.data["reason"] == "forced"
            now = await member(team, "ana")
            assert (now.status, now.incarnation) == (MemberStatus.SHUTDOWN, before.incarnation + 1)
            await token.until(0)
        told = [mail.content for mail in await mail_of(team, "lead")]
        assert any("ana did not answer in time and was shut down by force" in text for text in told)
        assert (await team.get_task(1)).status is TaskStatus.PENDING
    assert model.count("ana") == 1


async def test_the_lead_that_asks_is_bound_by_the_deadline_of_the_settings(tmp_path: Path) -> None:
    ask = call("SendMessage", recipient="ana", type="shutdown_request", content="Enough.")
    model = Recorder({"lead": [ask, "Asked."], "ana": ["Never said."]})
    stuck = model.hold("ana", 1)
    quick = settings(shutdown={"deadline_seconds": 0.3})
    async with troupe(model, tmp_path, settings=quick) as team:
        await team.spawn("ana", prompt="Be slow.")
        async with hosted(team):
            await stuck.reached()
            await team.send("lead", "Stop ana.")
            await team.store.want_member(team._me, "lead")
            gone = await until(team, EventKind.MEMBER_SHUT_DOWN, member="ana")
            await until(team, EventKind.TOOL_CALL_FINISHED, tool="SendMessage")
            [said] = await results(team, "lead")
    assert gone.data["reason"] == "forced"
    assert "after 0.3 s it is forced" in said


async def test_asking_one_who_is_gone_answers_the_lead_at_once(tmp_path: Path) -> None:
    ask = call("SendMessage", recipient="ana", type="shutdown_request")
    model = Recorder({"lead": [ask, "So be it."], "ana": ["Ready."]})
    async with troupe(model, tmp_path, settings=settings(idle={"timeout_seconds": 0.1})) as team:
        await team.spawn("ana", prompt="Be there.")
        async with hosted(team):
            await until(team, EventKind.MEMBER_SHUT_DOWN, member="ana")
            await team.send("lead", "Stop ana.")
            await team.store.want_member(team._me, "lead")
            await until(team, EventKind.PHASE_ENDED, member="lead")
            [said] = await results(team, "lead")
        assert "ana has shut down already" in said
        assert await team.list_requests() == []


async def test_who_was_asked_to_stop_claims_nothing_more(tmp_path: Path) -> None:
    model = Recorder({"ana": [done(), "Finished."], "bea": [done(), "Finished."]})
    last = model.hold("ana", 2)
    async with troupe(model, tmp_path, settings=settings(**LONG_IDLE)) as team:
        await team.create_task("Hers")
        await team.create_task("The next")
        await team.spawn("ana", prompt="Take what is there.")
        async with hosted(team):
            await last.reached()
            await team.shut_down("ana")
            last.release()
            await until(team, EventKind.MEMBER_SHUT_DOWN, member="ana")
            assert (await team.get_task(2)).status is TaskStatus.PENDING
            await team.spawn("bea", prompt="Take what is there.")
            await until(team, EventKind.TASK_COMPLETED, task=2)
        assert (await team.get_task(2)).owner == "bea"


async def test_a_stopped_team_goes_on_with_its_memory(tmp_path: Path) -> None:
    model = Recorder({"lead": ["The number is 7."], "ana": ["Ready.", "It was 8."]})
    async with troupe(model, tmp_path, settings=settings(**LONG_IDLE)) as team:
        await team.spawn("ana", prompt="Think of 8.")
        async with hosted(team):
            first = await until(team, EventKind.PHASE_ENDED, member="ana")
            await team.stop()
            await until(team, EventKind.MEMBER_SHUT_DOWN, member="ana")
        async with hosted(team):
            await team.spawn("ana", prompt="Which number was it?")
            await until(team, EventKind.PHASE_ENDED, member="ana", after=first.position)
    again = model.of("ana")[1]
    assert "Ready." in str(again.messages)
    assert "<identity>" in newest_of(again)
