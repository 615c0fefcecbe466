"""SPEC 2 and 5: mail reaches a member between any two of its model calls, and an interrupt delivers it at once."""

from __future__ import annotations

from pathlib import Path

from bullpen.domain.event import EventKind
from bullpen.domain.prompt import ResultPart, TextPart
from bullpen.domain.transcript import CallState, TurnKind
from tests.agents.stage import Recorder, calls, newest_of, results, turns_of
from tests.support.troupe import call, hosted, troupe, until


async def test_mail_that_comes_during_a_model_call_stands_after_the_results_of_its_tools(
    tmp_path: Path, store_url: str
) -> None:
    both = calls(("TaskList", {}), ("bash", {"command": "echo looked"}))
    model = Recorder({"ana": [both, "I have read it."]})
    held = model.hold("ana", 1)
    async with troupe(model, tmp_path, store=store_url) as team:
        await team.spawn("ana", prompt="Look around.")
        async with hosted(team):
            await held.reached()
            await team.send("ana", "The port is 8080.")
            held.release()
            await until(team, EventKind.PHASE_ENDED, member="ana")
        kinds = [turn.kind for turn in await turns_of(team, "ana")]
    assert kinds == [
        TurnKind.USER,
        TurnKind.ASSISTANT,
        TurnKind.TOOL_RESULT,
        TurnKind.TOOL_RESULT,
        TurnKind.MAIL,
        TurnKind.ASSISTANT,
    ]
    newest = model.of("ana")[1].messages[-1]
    assert [type(part) for part in newest.parts] == [ResultPart, ResultPart, TextPart]
    assert "The port is 8080." in newest_of(model.of("ana")[1])


async def test_mail_that_comes_with_the_last_reply_is_read_in_the_same_phase(tmp_path: Path) -> None:
    model = Recorder({"ana": ["That is all.", "Not quite all: 8080."]})
    held = model.hold("ana", 1)
    async with troupe(model, tmp_path) as team:
        await team.spawn("ana", prompt="Look around.")
        async with hosted(team):
            await held.reached()
            await team.send("ana", "The port is 8080.")
            held.release()
            ended = await until(team, EventKind.PHASE_ENDED, member="ana")
    assert ended.data["result"] == "Not quite all: 8080."


async def test_each_message_of_a_long_phase_is_seen_in_the_next_request_and_only_once(tmp_path: Path) -> None:
    looks = [call("bash", command=f"echo {number}") for number in range(4)]
    model = Recorder({"ana": [*looks, "Finished."]})
    holds = [model.hold("ana", number) for number in range(1, 5)]
    async with troupe(model, tmp_path) as team:
        await team.spawn("ana", prompt="Look around.")
        async with hosted(team):
            for number, held in enumerate(holds):
                await held.reached()
                await team.send("ana", f"Letter {number}.")
                held.release()
            await until(team, EventKind.PHASE_ENDED, member="ana")
    for number in range(4):
        shown = [f"Letter {number}." in newest_of(request) for request in model.of("ana")]
        assert shown == [place == number + 1 for place in range(5)]


async def test_an_interrupt_cuts_off_a_model_call_and_delivers_its_text_at_once(tmp_path: Path) -> None:
    model = Recorder({"ana": ["Blue it is."]})
    never = model.hold("ana", 1)
    async with troupe(model, tmp_path) as team:
        await team.spawn("ana", prompt="Think about it for ever.")
        async with hosted(team):
            await never.reached()
            await team.interrupt("ana", "Enough: blue.")
            ended = await until(team, EventKind.PHASE_ENDED, member="ana")
        [mail] = await team.list_mail("ana")
        assert mail.delivered_at is not None
        assert (await team.store.list_accounts(team.id))[0].open_calls == 0
    assert ended.data["result"] == "Blue it is."
    assert "Enough: blue." in newest_of(model.of("ana")[1])
    assert "The human interrupted your reply." in newest_of(model.of("ana")[1])


async def test_an_interrupt_kills_the_running_command_and_what_was_not_begun_is_not_begun(tmp_path: Path) -> None:
    both = calls(
        ("bash", {"command": "echo begun > begun.txt; sleep 3600; echo late > late.txt", "timeout_seconds": 600}),
        ("write_file", {"path": "after.txt", "content": "after"}),
    )
    model = Recorder({"ana": [both, "Stopped."]})
    async with troupe(model, tmp_path) as team:
        await team.spawn("ana", prompt="Run it.")
        async with hosted(team):
            await until(team, EventKind.TOOL_CALL_STARTED, tool="bash")
            await team.interrupt("ana", "Stop that.")
            await until(team, EventKind.PHASE_ENDED, member="ana")
            states = [one.state for one in await team.store.list_calls(team.id, "ana")]
        first, second = await results(team, "ana")
    assert states == [CallState.FINISHED] * 2
    assert "interrupted by the human" in first
    assert "not begun" in second
    assert "Stop that." in newest_of(model.of("ana")[1])
    assert not (tmp_path / "after.txt").exists()
    assert not (tmp_path / "late.txt").exists()
