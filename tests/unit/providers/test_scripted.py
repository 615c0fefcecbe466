from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bullpen.domain.prompt import AssistantMessage, CallPart, StopReason, TextPart, ThinkingPart, Usage
from bullpen.errors import BadRequest, Overloaded, RateLimited, UsageError
from bullpen.provider import ModelRequest
from bullpen.providers import open_provider
from bullpen.providers.scripted import Call, Fault, Script, ScriptedProvider, Step, When
from tests.support.requests import answered, ask

SCRIPT = r"""
[model]
window_tokens = 50000
max_output_tokens = 9000
usage = { input_tokens = 1000, output_tokens = 10, cache_read_tokens = 900 }
price = { input_usd = 3.0, output_usd = 15.0 }

[[members.ana]]
say = "I take #{{task_id}}."
calls = [{ name = "bash", arguments = { command = "make {{task_id}}", list = ["{{member}}"] } }]

[[members.ana]]
say = "Done: {{result}}"

[[members.ana]]
when = { newest_matches = 'from="(?P<who>\w+)"' }
say = "Thank you, {{who}} ({{1}}), for {{last_message_id}}."
repeat = true

[[members.ana]]
when = { newest = "stop" }
say = "Stopped."
stop = "refusal"

[[members.ana]]
purpose = "compaction"
say = 'We did {{find:make (\d+)}}.'

[[members."*"]]
say = "I am {{member}}."
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "team.toml"
    path.write_text(SCRIPT, encoding="utf-8")
    return path


async def talk(provider: ScriptedProvider, request: ModelRequest, *mail: str) -> list[str]:
    """The texts of a conversation in which this mail arrives, one after the other."""
    texts = []
    for text in [*mail, ""]:
        reply = await provider.reply(request)
        texts.append(reply.text)
        if text:
            request = answered(request, reply, text)
    return texts


async def test_steps_follow_in_order_and_see_what_is_there(path: Path) -> None:
    provider = ScriptedProvider.from_file(path)
    request = ask('<task id="7">do it</task>')
    first = await provider.reply(request)
    assert first.text == "I take #7."
    assert first.stop_reason is StopReason.TOOL_USE
    assert first.calls == (
        CallPart(call_id="call_ana_1_1", name="bash", arguments={"command": "make 7", "list": ["ana"]}),
    )
    second = await provider.reply(answered(request, first))
    assert second.text == "Done: bash ran"
    assert second.usage == Usage(input_tokens=1000, output_tokens=10, cache_read_tokens=900)
    assert second.cost_usd == pytest.approx(0.00315)
    assert provider.limits.window_tokens == 50_000


async def test_a_matching_step_comes_before_those_in_order(path: Path) -> None:
    provider = ScriptedProvider.from_file(path)
    mail = '<message from="{}" type="message" id="{}">hi</message>'
    texts = await talk(provider, ask('<task id="1"/>' + mail.format("ben", 12)), mail.format("cat", 13), "go", "stop")
    assert texts == ["Thank you, ben (ben), for 12.", "Thank you, cat (cat), for 13.", "I take #1.", "Stopped."]


async def test_a_member_goes_on_at_the_right_step_in_another_process(path: Path) -> None:
    request = ask('<task id="1"/>')
    texts = []
    for _ in range(2):
        # Nothing is shared but the conversation.
        reply = await ScriptedProvider.from_file(path).reply(request)
        texts.append(reply.text)
        request = answered(request, reply)
    assert texts == ["I take #1.", "Done: bash ran"]


async def test_a_step_is_the_same_until_its_reply_is_kept(path: Path) -> None:
    provider = ScriptedProvider.from_file(path)
    request = ask('<task id="1"/>')
    assert (await provider.reply(request)) == (await provider.reply(request))


async def test_a_compaction_that_keeps_a_turn_loses_no_step() -> None:
    provider = ScriptedProvider({"ana": ["one", "two", Step(calls=(Call(name="idle"),)), "four"]})
    request = ask("hi")
    for _ in range(3):
        reply = await provider.reply(request)
        request = answered(request, reply, "on")
    kept = ask("summary", *request.messages[-2:])
    last = await provider.reply(kept)
    assert last.text == "four"
    assert all(call.call_id == "call_ana_3_1" for message in kept.messages for call in _calls(message))


def _calls(message: Any) -> list[CallPart]:
    return [part for part in message.parts if isinstance(part, CallPart)]


async def test_without_a_trace_the_number_of_replies_is_the_number_of_steps() -> None:
    provider = ScriptedProvider({"ana": ["one", "two", "three"]})
    said = AssistantMessage((TextPart("whatever"),))
    assert (await provider.reply(ask("a", said, "b"))).text == "two"
    assert (await provider.reply(ask("a", said, "b", said, "c"))).text == "three"


async def test_the_place_in_the_script_is_no_text(path: Path) -> None:
    reply = await ScriptedProvider.from_file(path).reply(ask('<task id="1"/>'))
    place = reply.message.parts[0]
    assert isinstance(place, ThinkingPart)
    assert (place.text, place.provider) == ("", "scripted")
    assert json.loads(json.dumps(dict(place.extra))) == place.extra


async def test_who_has_no_steps_left_takes_those_of_everybody(path: Path) -> None:
    provider = ScriptedProvider.from_file(path)
    assert (await provider.reply(ask("hi", member="ben"))).text == "I am ben."
    assert (await provider.reply(ask("hi", member="cat"))).text == "I am cat."
    texts = await talk(provider, ask('<task id="1"/>'), "on", "on")
    assert texts == ["I take #1.", "Done: bash ran", "I am ana."]


async def test_a_missing_step_says_who_which_and_what_was_seen(path: Path) -> None:
    provider = ScriptedProvider.from_file(path)
    with pytest.raises(BadRequest, match=r"no step 2 for 'ben' \(turn\); it saw: the next one"):
        await talk(provider, ask("hi", member="ben"), "the next one")
    assert not BadRequest.retryable


async def test_a_template_that_stands_for_nothing_is_an_error(path: Path) -> None:
    with pytest.raises(BadRequest, match=r"script of 'ana', step 1: \{\{task_id\}\} stands for nothing"):
        await ScriptedProvider.from_file(path).reply(ask("no task"))
    with pytest.raises(BadRequest, match="not known"):
        await ScriptedProvider({"ana": ["{{what}}"]}).reply(ask("hi"))


async def test_purposes_have_steps_of_their_own(path: Path) -> None:
    provider = ScriptedProvider.from_file(path)
    request = ask('<task id="3"/>')
    reply = await provider.reply(request)
    following = answered(request, reply)
    for _ in range(2):
        summary = await provider.reply(ask(*following.messages, purpose="compaction"))
        assert summary.text == "We did 3."
    assert (await provider.reply(following)).text == "Done: bash ran"


async def test_two_subagents_of_one_member_have_calls_of_their_own() -> None:
    provider = ScriptedProvider({"ana": [Step(calls=(Call(name="idle"),), purpose="subagent")]})
    one = await provider.reply(ask("look here", purpose="subagent"))
    other = await provider.reply(ask("look there", purpose="subagent"))
    assert one.calls[0].call_id != other.calls[0].call_id


async def test_faults_come_so_often_and_then_it_succeeds() -> None:
    faults = (Fault(kind="overloaded", times=2), Fault(kind="rate_limited", retry_after_seconds=1.5))
    provider = ScriptedProvider({"*": [Step(say="ok", faults=faults)]})
    for _ in range(2):
        with pytest.raises(Overloaded):
            await provider.reply(ask("hi"))
    with pytest.raises(RateLimited) as caught:
        await provider.reply(ask("hi"))
    assert caught.value.retry_after_seconds == 1.5
    assert (await provider.reply(ask("hi"))).text == "ok"
    with pytest.raises(Overloaded):
        await provider.reply(ask("hi", member="ben"))


async def test_a_cut_streams_half_of_the_text_first() -> None:
    provider = ScriptedProvider({"ana": [Step(say="one two", faults=(Fault(kind="cut"),))]})
    streamed: list[str] = []
    with pytest.raises(Overloaded):
        await provider.reply(ask("hi"), on_text=streamed.append)
    assert streamed == ["one"]


async def test_a_delay_is_waited_for() -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    await ScriptedProvider({"ana": [Step(say="x", delay_seconds=2.5)]}, sleep=sleep).reply(ask("hi"))
    assert waited == [2.5]


async def test_functions_answer_too() -> None:
    def answer(request: ModelRequest) -> Step | str:
        return f"{len(request.messages)} messages" if len(request.messages) < 3 else Step(say="enough")

    provider = ScriptedProvider({"*": answer, "ben": [lambda request: "once"]})
    assert await talk(provider, ask("a"), "b") == ["1 messages", "enough"]
    assert (await provider.reply(ask("a", member="ben"))).text == "once"


async def test_steps_that_were_never_played_are_told(path: Path) -> None:
    provider = ScriptedProvider.from_file(path)
    await talk(provider, ask('<task id="1"/>'), "on")
    assert provider.unused_steps() == (
        "ana, step 3: Thank you, {{who}} ({{1}}), for {{last_message_id}}.",
        "ana, step 4: Stopped.",
        r"ana, step 5: We did {{find:make (\d+)}}.",
        "*, step 1: I am {{member}}.",
    )


async def test_what_another_process_played_counts_as_played() -> None:
    script = {"ana": ["one", Step(say="match", when=When(newest="!")), "two", "three"]}
    request = ask("!")
    for _ in range(2):
        reply = await ScriptedProvider(script).reply(request)
        request = answered(request, reply, "on")
    resumed = ScriptedProvider(script)
    assert (await resumed.reply(request)).text == "two"
    assert resumed.unused_steps() == ("ana, step 4: three",)


async def test_a_script_may_be_json(tmp_path: Path) -> None:
    path = tmp_path / "team.json"
    path.write_text(json.dumps({"members": {"ana": [{"say": "hi", "think": "hm"}]}}), encoding="utf-8")
    provider = open_provider(f"scripted:{path}", window_tokens=9000)
    reply = await provider.reply(ask("x"))
    assert reply.text == "hi"
    assert ThinkingPart(text="hm", provider="scripted") in reply.message.parts
    assert provider.limits.window_tokens == 9000
    assert reply.cost_usd == 0


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("members = 3", "table `members`"),
        ("[members]\nana = 3", r"write \[\[members.ana\]\]"),
        ("extra = 1\n[members]", "`extra` is not known"),
        ("[[members.ana]]\nsays = 'x'", "step 1 of ana: `says` is not known in a step"),
        ("[[members.ana]]\nstop = 'later'", "`stop` is one of end_turn"),
        ("[[members.ana]]\nfault = 'flood'", "there is no fault 'flood'"),
        ("[[members.ana]]\nwhen = {}", "without a condition"),
        ("[[members.ana]]\nwhen = { newest_matches = '(' }", "not a regular expression"),
        ("[[members.ana]]\ncalls = [{ tool = 'x' }]", "`tool` is not known in a call"),
        ("[[members.ana]]\ncalls = [{ arguments = {} }]", "a call: .*name"),
        ("[model]\ncolour = 1\n[members]", "`colour` is not known in `model`"),
        ("not toml", "not TOML"),
    ],
)
def test_what_is_wrong_in_a_script_is_told_when_it_is_read(tmp_path: Path, text: str, wrong: str) -> None:
    path = tmp_path / "x.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=wrong):
        Script.from_file(path)
