"""SPEC 2: how a teammate lives: it works, rests, wakes, times out and comes back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bullpen.domain.event import EventKind
from bullpen.domain.member import Autonomy, MemberStatus
from bullpen.domain.message import MessageType
from bullpen.domain.task import TaskStatus
from bullpen.domain.transcript import TurnKind
from bullpen.provider import ModelRequest
from bullpen.providers.scripted import Step
from tests.agents.stage import Recorder, calls, facts, mail_of, member, newest_of, seeing, told, turns_of
from tests.support.sandboxes import until_true
from tests.support.troupe import call, done, hosted, settings, troupe, until, until_event

SHORT_IDLE = {"idle": {"timeout_seconds": 0.3}}
LONG_IDLE = {"idle": {"timeout_seconds": 3600}}


async def test_a_teammate_works_through_the_board_one_task_after_the_other(tmp_path: Path, store_url: str) -> None:
    work = (done(), "Finished.")
    model = Recorder({"ana": [*work, *work, *work]})
    async with troupe(model, tmp_path, store=store_url, settings=settings(**SHORT_IDLE)) as team:
        for number in range(1, 4):
            await team.create_task(f"Part {number}")
        await team.spawn("ana", prompt="Take what is on the board.")
        async with hosted(team):
            await until(team, EventKind.MEMBER_SHUT_DOWN, member="ana")
        assert [task.status for task in await team.list_tasks()] == [TaskStatus.COMPLETED] * 3
        claimed = [event.data["task"] for event in await facts(team, EventKind.TASK_CLAIMED)]
        assert claimed == [1, 2, 3]
    assert model.script.unused_steps() == ()


async def test_an_idle_teammate_makes_no_model_call_until_it_times_out(tmp_path: Path) -> None:
    model = Recorder({"ana": [done(), "Finished."]})
    async with troupe(model, tmp_path, settings=settings(**SHORT_IDLE)) as team:
        await team.create_task("The only one")
        await team.spawn("ana", prompt="Take what is on the board.")
        async with hosted(team):
            gone = await until(team, EventKind.MEMBER_SHUT_DOWN, member="ana")
        assert gone.data["reason"] == "timeout"
        assert (await member(team, "ana")).status is MemberStatus.SHUTDOWN
    assert model.count("ana") == 2


async def test_a_teammate_that_stays_is_not_timed_out_and_still_costs_nothing(tmp_path: Path) -> None:
    model = Recorder({"ana": ["Ready.", "Noted."], "bea": ["Ready."]})
    stays = settings(idle={"timeout_seconds": 0.1, "on_timeout": "stay"})
    async with troupe(model, tmp_path, settings=stays) as team:
        await team.spawn("ana", prompt="Be there.")
        async with hosted(team):
            first = await until(team, EventKind.PHASE_ENDED, member="ana")
            # Another one times out meanwhile many times over, if it could.
            await team.spawn("bea", prompt="Be there.")
            await until(team, EventKind.PHASE_ENDED, member="bea")
            await team.send("ana", "Are you there?")
            await until(team, EventKind.PHASE_ENDED, after=first.position, member="ana")
        assert await facts(team, EventKind.MEMBER_SHUT_DOWN) == []
    assert model.count("ana") == 2


async def test_the_idle_clock_stands_still_while_a_task_could_become_the_members(tmp_path: Path) -> None:
    model = Recorder({"frontend": [done(), "Finished."], "backend": [done(), "Finished."]})
    held = model.hold("backend", 1)
    async with troupe(model, tmp_path, settings=settings(idle={"timeout_seconds": 0.2})) as team:
        await team.create_task("Resolvers", role="backend")
        await team.create_task("Pages", role="frontend", blocked_by=[1])
        await team.spawn("frontend", role="frontend", prompt="Pages are yours.")
        await team.spawn("backend", role="backend", prompt="Resolvers are yours.")
        # Nothing is for her: when she has timed out, several times his timeout has passed as well.
        await team.spawn("third", role="tester", prompt="")
        async with hosted(team):
            await held.reached()
            await until(team, EventKind.MEMBER_STATUS_CHANGED, member="frontend", status="idle")
            await until(team, EventKind.MEMBER_SHUT_DOWN, member="third")
            assert (await member(team, "frontend")).status is MemberStatus.IDLE
            assert model.count("frontend") == 0
            held.release()
            await until(team, EventKind.TASK_COMPLETED, task=2)
        assert (await team.get_task(2)).owner == "frontend"


async def test_mail_brings_back_one_who_timed_out_with_its_memory(tmp_path: Path, store_url: str) -> None:
    model = Recorder({"ana": ["My number is 17.", "It is still 17."]})
    async with troupe(model, tmp_path, store=store_url, settings=settings(**SHORT_IDLE)) as team:
        await team.spawn("ana", prompt="Think of a number.")
        async with hosted(team):
            gone = await until(team, EventKind.MEMBER_SHUT_DOWN, member="ana")
            receipt = await team.send("ana", "Which number?")
            assert receipt.outcome == "revives"
            await until(team, EventKind.PHASE_ENDED, after=gone.position, member="ana")
        again = model.of("ana")[1]
        assert "Which number?" in newest_of(again)
        assert "My number is 17." in "".join(str(message) for message in again.messages)


async def test_a_task_that_only_a_timed_out_member_could_take_brings_it_back(tmp_path: Path) -> None:
    model = Recorder({"ana": ["Nothing to do.", done(), "Finished."]})
    async with troupe(model, tmp_path, settings=settings(**SHORT_IDLE)) as team:
        await team.spawn("ana", role="tester", prompt="Test.")
        async with hosted(team):
            await until(team, EventKind.MEMBER_SHUT_DOWN, member="ana")
            await team.create_task("Test it", role="tester")
            await until(team, EventKind.TASK_COMPLETED, task=1)
        assert (await team.get_task(1)).owner == "ana"


async def test_a_new_task_wakes_an_idle_teammate(tmp_path: Path, store_url: str) -> None:
    model = Recorder({"ana": ["Nothing to do.", done(), "Finished."]})
    async with troupe(model, tmp_path, store=store_url, settings=settings(**LONG_IDLE)) as team:
        await team.spawn("ana", prompt="Take what comes.")
        async with hosted(team):
            await until(team, EventKind.PHASE_ENDED, member="ana")
            await team.create_task("It came")
            await until(team, EventKind.TASK_COMPLETED, task=1)
        assert (await team.get_task(1)).owner == "ana"


async def test_a_teammate_on_assignment_claims_nothing_by_itself(tmp_path: Path) -> None:
    model = Recorder({"ana": [done(), "Finished."], "bea": [done(), "Finished."]})
    async with troupe(model, tmp_path, settings=settings(**LONG_IDLE)) as team:
        await team.create_task("For anybody")
        await team.create_task("For ana")
        await team.spawn("ana", prompt="Do what you are given.", autonomy=Autonomy.ASSIGNED)
        async with hosted(team):
            await team.update_task(2, owner="ana")
            await until(team, EventKind.TASK_COMPLETED, task=2)
            assert (await team.get_task(1)).status is TaskStatus.PENDING
            await team.spawn("bea", prompt="Take what is there.")
            await until(team, EventKind.TASK_COMPLETED, task=1)
        assert (await team.get_task(1)).owner == "bea"


async def test_an_assigned_task_comes_before_those_with_smaller_numbers(tmp_path: Path) -> None:
    model = Recorder({"ana": [done(), "Finished."] * 2})
    async with troupe(model, tmp_path, settings=settings(**SHORT_IDLE)) as team:
        await team.create_task("For anybody")
        await team.create_task("For ana")
        await team.spawn("ana", prompt="Take what is there.", task_id=2)
        async with hosted(team):
            await until(team, EventKind.MEMBER_SHUT_DOWN, member="ana")
        assert [event.data["task"] for event in await facts(team, EventKind.TASK_CLAIMED)] == [2, 1]


async def test_who_stops_with_an_open_task_is_reminded_once_and_then_waits_holding_it(tmp_path: Path) -> None:
    model = Recorder({"ana": ["I think that is it.", "Really.", done(), "Finished."]})
    async with troupe(model, tmp_path, settings=settings(idle={"timeout_seconds": 0.05})) as team:
        await team.create_task("The one", role="coder")
        await team.spawn("ana", role="coder", prompt="Take it.")
        await team.spawn("other", role="tester", prompt="")
        async with hosted(team):
            ended = await until(team, EventKind.PHASE_ENDED, member="ana")
            await until(team, EventKind.MEMBER_SHUT_DOWN, member="other")
            held = await team.get_task(1)
            assert (held.status, held.owner) == (TaskStatus.IN_PROGRESS, "ana")
            assert model.count("ana") == 2
            assert (await told(team, "ana")).count("Your task is still open") == 1
            await team.send("ana", "Say that it is done.")
            await until(team, EventKind.TASK_COMPLETED, task=1, after=ended.position)
        assert (await told(team, "ana")).count("Your task is still open") == 1


async def test_who_calls_idle_with_an_open_task_is_not_reminded(tmp_path: Path) -> None:
    model = Recorder({"ana": [call("idle", reason="waiting for the key")]})
    async with troupe(model, tmp_path) as team:
        await team.create_task("The one")
        await team.spawn("ana", prompt="Take it.")
        async with hosted(team):
            ended = await until(team, EventKind.PHASE_ENDED, member="ana")
        assert ended.data["why"] == "idle_tool"
        assert "Your task is still open" not in await told(team, "ana")
        assert (await team.get_task(1)).owner == "ana"
    assert model.count("ana") == 1


async def test_idle_runs_last_in_its_batch(tmp_path: Path) -> None:
    both = calls(("idle", {}), ("write_file", {"path": "note.txt", "content": "written"}))
    async with troupe({"ana": [both]}, tmp_path) as team:
        await team.spawn("ana", prompt="Write a note.")
        async with hosted(team):
            await until(team, EventKind.PHASE_ENDED, member="ana")
        order = [event.data["tool"] for event in await facts(team, EventKind.TOOL_CALL_FINISHED)]
    assert order == ["write_file", "idle"]
    assert (tmp_path / "note.txt").read_text() == "written"


async def test_the_final_text_goes_to_the_lead_once_with_why_it_stopped(tmp_path: Path) -> None:
    script = {
        "ana": ["The answer is 42."],
        "bea": [Step(say="I wait for ana.", calls=call("idle", reason="awaiting_messages").calls)],
    }
    async with troupe(script, tmp_path) as team:
        await team.spawn("ana", prompt="What is the answer?")
        await team.spawn("bea", prompt="Ask ana.")
        async with hosted(team):
            await until(team, EventKind.PHASE_ENDED, member="ana")
            await until(team, EventKind.PHASE_ENDED, member="bea")
        sent = {mail.sender: mail for mail in await mail_of(team, "lead") if mail.type is MessageType.RESULT}
        assert len([mail for mail in await mail_of(team, "lead") if mail.type is MessageType.RESULT]) == 2
        assert sent["ana"].content == "[no_tool_use] The answer is 42."
        assert sent["bea"].content == "[awaiting_messages] I wait for ana."


async def test_a_checkpoint_asks_for_progress_once_and_goes_on(tmp_path: Path) -> None:
    looks = [call("bash", command=f"echo {number}") for number in range(4)]
    model = Recorder({"ana": [*looks, "Finished."]})
    async with troupe(model, tmp_path, settings=settings(work={"checkpoint_turns": 3})) as team:
        await team.spawn("ana", prompt="Count.")
        async with hosted(team):
            await until(team, EventKind.PHASE_ENDED, member="ana")
        assert (await told(team, "ana")).count("3 turns of this phase are behind you") == 1
    assert "Say in a line how far" in newest_of(model.of("ana")[3])
    assert model.script.unused_steps() == ()


async def test_after_max_turns_it_reports_to_the_lead_and_waits_with_its_task(tmp_path: Path) -> None:
    looks = [call("bash", command=f"echo {number}") for number in range(3)]
    go_on = seeing("max_turns", call("SendMessage", recipient="ana", content="Go on."))
    model = Recorder({"ana": [*looks, done(), "Finished."], "lead": [go_on, "Told."]})
    async with troupe(model, tmp_path, settings=settings(work={"max_turns": 3}, **LONG_IDLE)) as team:
        await team.create_task("The one")
        await team.spawn("ana", prompt="Take it.")
        await team.store.want_member(team._me, "lead")
        async with hosted(team):
            ended = await until(team, EventKind.PHASE_ENDED, member="ana")
            assert ended.data["why"] == "max_turns"
            # Only the lead can tell it to go on.
            await until(team, EventKind.TASK_COMPLETED, task=1)
        [report] = [mail for mail in await mail_of(team, "lead") if mail.content.startswith("[max_turns]")]
        assert "3 turns" in report.content


async def test_the_same_call_with_the_same_result_is_told_at_three_and_ends_the_phase_at_five(tmp_path: Path) -> None:
    model = Recorder({"ana": [Step(calls=call("bash", command="echo same").calls, repeat=True)]})
    async with troupe(model, tmp_path) as team:
        await team.spawn("ana", prompt="Look.")
        async with hosted(team):
            ended = await until(team, EventKind.PHASE_ENDED, member="ana")
        assert ended.data["why"] == "error"
        assert "bash was called 5 times with the same result" in ended.data["result"]
        words = await told(team, "ana")
    assert words.count("times in a row with the same arguments") == 2  # at three and at four
    assert "You have called bash 3 times" in newest_of(model.of("ana")[3])
    assert "times in a row" not in newest_of(model.of("ana")[2])
    assert model.count("ana") == 5


async def test_the_same_call_with_another_result_is_no_circle(tmp_path: Path) -> None:
    look = call("bash", command="echo x >> log; wc -l < log")
    model = Recorder({"ana": [*[look] * 6, "Finished."]})
    async with troupe(model, tmp_path) as team:
        await team.spawn("ana", prompt="Look.")
        async with hosted(team):
            ended = await until(team, EventKind.PHASE_ENDED, member="ana")
        assert ended.data["why"] == "no_tool_use"
    assert model.script.unused_steps() == ()


async def test_two_who_only_write_to_each_other_pause_and_the_lead_is_told(tmp_path: Path) -> None:
    names = ("ana", "bea")

    def chatter(to: str, *, begins: bool = False) -> Callable[[ModelRequest], Step | str]:
        """Answers each message, whatever it comes along with."""

        def reply(request: ModelRequest) -> Step | str:
            is_first = begins and len(request.messages) == 1
            if is_first or 'type="message"' in newest_of(request):
                return call("SendMessage", recipient=to, content="Thank you!")
            return "Waiting."

        return reply

    model = Recorder({"ana": chatter("bea", begins=True), "bea": chatter("ana")})
    async with troupe(model, tmp_path, settings=settings(**LONG_IDLE)) as team:

        async def rest() -> bool:
            """Nobody acts, and nothing is there to act upon."""
            unread = [mail for name in names for mail in await mail_of(team, name) if mail.delivered_at is None]
            return not unread and {(await member(team, name)).status for name in names} == {MemberStatus.IDLE}

        await team.spawn("bea", prompt="Be polite.")
        await team.spawn("ana", prompt="Be polite.")
        async with hosted(team):
            await until_event(
                team,
                lambda event: (
                    event.kind == EventKind.MESSAGE_SENT
                    and event.data["to"] == "lead"
                    and "exchanged ten messages" in event.data["text"]
                ),
            )
            await until_true(rest)
        between = await facts(team, EventKind.MESSAGE_SENT, type="message")
        assert len(between) == 10


async def test_a_reply_cut_by_the_output_limit_goes_on_and_a_cut_call_comes_back_as_an_error(tmp_path: Path) -> None:
    from bullpen.domain.prompt import StopReason
    from bullpen.providers.scripted import Call

    model = Recorder(
        {
            "ana": [
                Step(say="First half,", stop=StopReason.MAX_OUTPUT),
                Step(calls=(Call(name="write_file", problem="cut off in the middle"),), stop=StopReason.MAX_OUTPUT),
                "second half.",
            ]
        }
    )
    async with troupe(model, tmp_path) as team:
        await team.spawn("ana", prompt="Say it all.")
        async with hosted(team):
            ended = await until(team, EventKind.PHASE_ENDED, member="ana")
        assert ended.data["result"] == "second half."
        [result] = await turns_of(team, "ana", TurnKind.TOOL_RESULT)
    assert "was cut off by its length limit" in newest_of(model.of("ana")[1])
    assert result.content["is_error"]
    assert "cut off in the middle" in result.content["text"]
    assert list(tmp_path.iterdir()) == []


async def test_a_refusal_and_an_empty_reply_are_reported_as_such(tmp_path: Path) -> None:
    from bullpen.domain.prompt import StopReason

    script = {"ana": [Step(say="I will not.", stop=StopReason.REFUSAL)], "bea": [Step()]}
    async with troupe(script, tmp_path) as team:
        await team.spawn("ana", prompt="Do it.")
        await team.spawn("bea", prompt="Do it.")
        async with hosted(team):
            refused = await until(team, EventKind.PHASE_ENDED, member="ana")
            empty = await until(team, EventKind.PHASE_ENDED, member="bea")
    assert (refused.data["why"], refused.data["result"]) == ("error", "the model refused to answer: I will not.")
    assert empty.data["result"] == "(the model replied with nothing)"
