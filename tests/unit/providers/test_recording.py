from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bullpen.domain.prompt import AssistantMessage, CallPart, Reply, ResultPart, TextPart, UserMessage
from bullpen.errors import BadRequest, Overloaded, UsageError
from bullpen.provider import ModelRequest, Provider
from bullpen.providers import open_provider
from bullpen.providers.recording import RecordingProvider, ReplayProvider
from bullpen.providers.scripted import Call, Fault, ScriptedProvider, Step
from tests.support.requests import answered, ask

LS = Call(name="bash", arguments={"command": "ls", "nested": {"a": [1, None, "ü"]}})


def team() -> ScriptedProvider:
    return ScriptedProvider(
        {
            "ana": [Step(say="I look.", think="hm", calls=(LS, Call(name="idle"))), "Done.", "More."],
            "ben": ["Ben here.", Step(calls=(LS,)), "Ben is done."],
        }
    )


async def play(provider: Provider, member: str, *, result: str = "now", turns: int = 3) -> list[Reply]:
    """A member's life; what its tools say differs from run to run."""
    request = ask("begin", member=member)
    replies = []
    for _ in range(turns):
        replies.append(await provider.reply(request))
        request = answered(request, replies[-1], f"mail at {result}", result=lambda name: f"{name} at {result}")
    return replies


async def test_a_team_is_replayed_without_a_model(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "one.jsonl"
    recording = RecordingProvider(team(), path)
    told = await asyncio.gather(play(recording, "ana"), play(recording, "ben"))
    replay = open_provider(f"replay:{path}")
    again = await asyncio.gather(play(replay, "ana", result="later"), play(replay, "ben", result="later"))
    assert again == told
    assert isinstance(replay, ReplayProvider)
    assert replay.unused_records() == 0
    assert replay.limits == recording.limits


async def test_a_member_that_is_resumed_is_replayed_from_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    told = await play(RecordingProvider(team(), path), "ana")
    request = ask("begin")
    for reply in told:
        assert await ReplayProvider(path).reply(request) == reply
        request = answered(request, reply)


async def test_another_conversation_shows_the_first_difference(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    await play(RecordingProvider(team(), path), "ana")
    replay = ReplayProvider(path)
    first = await replay.reply(ask("begin"))
    other = AssistantMessage(
        tuple(
            CallPart(call_id=part.call_id, name="bash", arguments={"command": "rm"})
            if isinstance(part, CallPart)
            else part
            for part in first.message.parts
        )
    )
    results = UserMessage(tuple(ResultPart(call_id=call.call_id, name="bash", text="x") for call in first.calls))
    with pytest.raises(BadRequest, match=r'at step 2 it was call bash .*"ls".*, now it is call bash .*"rm"'):
        await replay.reply(ask("begin", other, results))
    with pytest.raises(BadRequest, match=r"nothing of 'cat' \(turn\)"):
        await replay.reply(ask("begin", member="cat"))
    beyond = await _beyond(replay)
    with pytest.raises(BadRequest, match=r"it was the end of the conversation, now it is said More"):
        await replay.reply(beyond)


async def _beyond(replay: ReplayProvider) -> ModelRequest:
    request = ask("begin")
    for _ in range(3):
        request = answered(request, await replay.reply(request))
    return request


async def test_conversations_of_one_shape_are_told_apart_by_their_texts(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    recording = RecordingProvider(
        ScriptedProvider({"ana": [Step(say="about {{newest}}", purpose="subagent", repeat=True)]}), path
    )
    for text in ("one", "two", "three"):
        await recording.reply(ask(text, purpose="subagent"))
    replay = ReplayProvider(path)
    assert (await replay.reply(ask("three", purpose="subagent"))).text == "about three"
    assert (await replay.reply(ask("one", purpose="subagent"))).text == "about one"
    assert (await replay.reply(ask("something else", purpose="subagent"))).text == "about two"
    assert replay.unused_records() == 0


async def test_a_failed_attempt_is_not_recorded(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    recording = RecordingProvider(ScriptedProvider({"ana": [Step(say="ok", faults=(Fault(kind="cut"),))]}), path)
    with pytest.raises(Overloaded):
        await recording.reply(ask("hi"))
    await recording.reply(ask("hi"))
    assert len(path.read_text(encoding="utf-8").splitlines()) == 1


async def test_what_streams_is_replayed_too(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    seen: list[str] = []
    recording = RecordingProvider(team(), path)
    await recording.reply(ask("begin"), on_text=seen.append)
    again: list[str] = []
    await ReplayProvider(path).reply(ask("begin"), on_text=again.append)
    assert "".join(seen) == "".join(again) == "I look."


APPEND = """
import asyncio, sys
from pathlib import Path
from bullpen.providers.recording import RecordingProvider
from bullpen.providers.scripted import ScriptedProvider
from tests.support.requests import ask

async def main(name):
    provider = RecordingProvider(ScriptedProvider({"*": lambda request: name * 20000}), Path(sys.argv[1]))
    for _ in range(40):
        await provider.reply(ask("hi", member=name))

asyncio.run(main(sys.argv[2]))
"""


def test_several_processes_write_one_record(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    root = Path(__file__).parents[3]
    started = [
        subprocess.Popen([sys.executable, "-c", APPEND, str(path), name], cwd=root) for name in ("a", "b", "c", "d")
    ]
    assert [process.wait() for process in started] == [0, 0, 0, 0]
    lines: list[dict[str, Any]] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert len(lines) == 160
    assert sorted(line["member"] for line in lines) == sorted("abcd" * 40)


async def test_half_a_line_at_the_end_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    await play(RecordingProvider(team(), path), "ana")
    with path.open("a", encoding="utf-8") as file:
        file.write('{"version": 1, "mem')
    assert (await ReplayProvider(path).reply(ask("begin"))).text == "I look."


def test_a_file_that_is_no_record_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("", encoding="utf-8")
    with pytest.raises(UsageError, match="nothing recorded"):
        ReplayProvider(path)
    path.write_text('{"a": 1}\n', encoding="utf-8")
    with pytest.raises(UsageError, match="line 1 of"):
        ReplayProvider(path)


async def test_a_text_no_file_can_hold_is_recorded_cleaned(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    provider = RecordingProvider(ScriptedProvider({"ana": lambda request: "x\ud800y"}), path)
    await provider.reply(ask("a\udfff"))
    assert (await ReplayProvider(path).reply(ask("a\udfff"))).message.parts[-1] == TextPart("x\ufffdy")
