"""SPEC 7 in a whole team: what is compacted, when, and that nobody forgets who it is."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from bullpen.agent.memory import compaction_limit, estimate_tokens
from bullpen.domain.event import EventKind
from bullpen.domain.prompt import AssistantMessage, CallPart, ResultPart, UserMessage
from bullpen.domain.transcript import TurnKind
from bullpen.provider import ModelLimits, ModelRequest
from bullpen.providers.scripted import Fault, Script, Step
from tests.agents.stage import Recorder, calls, newest_of, results, text_of, turns_of
from tests.support.troupe import call, done, hosted, troupe, until

SMALL = ModelLimits(window_tokens=30_000, max_output_tokens=1_000)


def small(summarise: Step, *steps: Step | str) -> Recorder:
    """A model with a small window, that says these in turn: a script would lose its place with its memory."""
    rest = iter(steps)
    turn = Step(make=lambda request: next(rest), repeat=True)
    return Recorder(Script(steps={"ana": (turn, summarise)}, limits=SMALL))


def summary(say: str = "I read big files.", **rest: Any) -> Step:
    return Step(say=say, purpose="compaction", **rest)


def check_legal(request: ModelRequest) -> None:
    """As the real interfaces check it: user first and last, turns alternate, each call has its result."""
    messages = request.messages
    assert isinstance(messages[0], UserMessage)
    assert isinstance(messages[-1], UserMessage)
    for one, next_one in pairwise(messages):
        assert type(one) is not type(next_one)
        if isinstance(one, AssistantMessage):
            made = {part.call_id for part in one.parts if isinstance(part, CallPart)}
            answered = {part.call_id for part in next_one.parts if isinstance(part, ResultPart)}
            assert made == answered


async def read_much(tmp_path: Path, model: Recorder) -> list[ModelRequest]:
    for number in range(8):
        (tmp_path / f"big{number}.txt").write_text(f"file {number}\n" + "0123456789 abcdef\n" * 1_500)
    async with troupe(model, tmp_path) as team:
        await team.create_task("Read them all", description="Every big file.")
        await team.spawn("ana", role="reader", prompt="Take it.")
        async with hosted(team):
            await until(team, EventKind.PHASE_ENDED, member="ana")
        assert await turns_of(team, "ana", TurnKind.COMPACTION)
    return model.of("ana")


def reads() -> list[Step]:
    return [call("read_file", path=f"big{number}.txt") for number in range(8)]


async def test_over_the_limit_it_is_compacted_with_the_newest_part_and_knows_who_it_is(tmp_path: Path) -> None:
    model = small(summary(repeat=True), *reads(), done(), "Finished.")
    requests = await read_much(tmp_path, model)
    for request in requests:
        check_legal(request)
        assert estimate_tokens(request.messages) <= compaction_limit(SMALL)
    # What the summary was made from ends with the newest result.
    [first, *_] = model.of("ana", "compaction")
    check_legal(first)
    last_file = max(number for number in range(8) if f"file {number}\n" in text_of(first))
    assert f"file {last_file}" in newest_of(first)
    after = next(request for request in requests if "I read big files." in text_of(request))
    opening = text_of(after)
    assert "<identity>You are 'ana', role: reader, team: troupe." in opening
    assert "Current task: #1 Read them all" in opening
    assert '<task id="1">' in opening
    assert "Every big file." in opening
    assert after.system == requests[0].system


@pytest.mark.parametrize(
    "failing",
    [summary(say="   ", repeat=True), summary(faults=(Fault(kind="bad_request", times=100),), repeat=True)],
    ids=["empty", "failed"],
)
async def test_a_summary_that_is_empty_or_fails_is_made_from_the_store(tmp_path: Path, failing: Step) -> None:
    model = small(failing, *reads(), done(), "Finished.")
    requests = await read_much(tmp_path, model)
    after = next(request for request in requests if "<summary>" in text_of(request))
    assert "- called read_file" in text_of(after)
    assert "<identity>You are 'ana'" in text_of(after)
    for request in requests:
        check_legal(request)


async def test_compact_is_a_tool_and_keeps_what_it_is_asked_to_keep(tmp_path: Path) -> None:
    model = Recorder(
        {
            "ana": [
                call("bash", command="echo 42"),
                call("compact", focus="the number"),
                "Finished.",
                summary("It is 42."),
            ]
        }
    )
    async with troupe(model, tmp_path) as team:
        await team.spawn("ana", prompt="Find the number.")
        async with hosted(team):
            await until(team, EventKind.PHASE_ENDED, member="ana")
        # Nothing of the transcript is lost.
        assert any("42" in text for text in await results(team, "ana"))
    [asked] = model.of("ana", "compaction")
    assert "Above all, keep what concerns: the number" in newest_of(asked)
    assert "It is 42." in text_of(model.of("ana")[-1])


async def test_old_results_become_stubs_in_one_batch_and_what_is_new_is_whole(tmp_path: Path) -> None:
    # Four of these results are more than a third of what fits, all eight are less than all of it.
    window = ModelLimits(window_tokens=100_000, max_output_tokens=8_192)
    model = Recorder({"ana": [*reads(), "Finished."]}, limits=window)
    for number in range(8):
        (tmp_path / f"big{number}.txt").write_text(f"file {number}\n" + "0123456789 abcdef\n" * 1_500)
    async with troupe(model, tmp_path) as team:
        await team.spawn("ana", prompt="Read them.")
        async with hosted(team):
            await until(team, EventKind.PHASE_ENDED, member="ana")
        prunings = await turns_of(team, "ana", TurnKind.PRUNING)
        whole = await results(team, "ana")
    assert len(prunings) == 1
    last = text_of(model.of("ana")[-1])
    assert "characters of read_file are no longer shown; call it again if you need them" in last
    assert all(f"file {number}" in last for number in (5, 6, 7))
    # What each request shows for the first time is never a stub.
    for number, request in enumerate(model.of("ana")[1:]):
        assert f"file {number}" in newest_of(request)
    assert all(len(text) > 10_000 for text in whole)


async def test_each_request_begins_with_the_one_before_it(tmp_path: Path) -> None:
    steps = [calls(("bash", {"command": f"echo {number}"}), say=f"Step {number}.") for number in range(10)]
    model = Recorder({"ana": [*steps, "Finished."]})
    async with troupe(model, tmp_path) as team:
        await team.spawn("ana", prompt="Count.")
        async with hosted(team):
            await until(team, EventKind.PHASE_ENDED, member="ana")
    requests = model.of("ana")
    for one, next_one in pairwise(requests):
        assert (next_one.system, next_one.tools) == (one.system, one.tools)
        assert next_one.messages[: len(one.messages)] == one.messages
