"""What servers and models get wrong: ids twice or not at all, garbage for arguments, unknown tools, replies cut off.

Nothing of it ends a member, the model is told what was wrong, and the next request is legal.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bullpen.domain.prompt import CallPart, TextPart, ThinkingPart
from bullpen.providers.scripted import Step
from bullpen.team import Outcome
from tests.support.cast import call
from tests.support.company import Company, Said, Wire, acting, company, in_turn
from tests.support.protocol_server import Answer, RawCall


async def converse(wire: Wire, workspace: Path, *replies: Said) -> Company:
    """A lead that says these, and then that it is done."""
    async with company(wire, acting({"lead": in_turn(*replies, "Done.")}), workspace) as here:
        report = await here.run()
    assert (report.outcome, report.text) == (Outcome.DONE, "Done.")
    assert len(here.server.heard) == len(replies) + 1
    here.check_legal()
    return here


def raw(name: str, arguments: str, call_id: str) -> RawCall:
    return RawCall(call_id=call_id, name=name, arguments=arguments)


def answers(here: Company) -> list[str]:
    """What the newest results say."""
    return [result.text for result in here.server.heard[-1].results]


async def test_parallel_calls_are_answered_together_in_their_order(wire: Wire, tmp_path: Path) -> None:
    commands = tuple(call("bash", command=f"echo {word} >> said") for word in ("one", "two"))
    here = await converse(wire, tmp_path, Step(say="At once.", calls=(*commands, call("TaskList"), call("bash"))))
    assert (tmp_path / "said").read_text() == "one\ntwo\n"
    names = [result.name for result in here.server.heard[-1].results]
    assert names == ["bash", "bash", "TaskList", "bash"]
    assert "command" in answers(here)[3], "it is told which argument is missing"


async def test_thinking_goes_back_before_what_was_said_with_it(wire: Wire, tmp_path: Path) -> None:
    here = await converse(wire, tmp_path, Step(think="What is there?", say="I look.", calls=(call("TaskList"),)))
    [_, reply, _] = here.server.heard[-1].request.messages
    if wire.format == "anthropic":
        # Signed: the server would have refused it if a letter had changed.
        assert isinstance(reply.parts[0], ThinkingPart)
        assert reply.parts[0].text == "What is there?"
    assert [type(part) for part in reply.parts if not isinstance(part, ThinkingPart)] == [TextPart, CallPart]


@pytest.mark.parametrize("length", [180, 200, 10_000])
async def test_ids_that_are_long_and_differ_only_at_their_end_are_two_calls(
    wire: Wire, tmp_path: Path, length: int
) -> None:
    def named(place: str) -> str:
        return place.rjust(length, "x")

    batch = Answer(
        parts=tuple(raw("TaskCreate", f'{{"subject": "part {end}"}}', named(f"create_{end}")) for end in "ab")
    )
    done = Answer(
        parts=tuple(raw("TaskUpdate", f'{{"taskId": {n}, "status": "deleted"}}', named(f"update_{n}")) for n in (1, 2))
    )
    here = await converse(wire, tmp_path, batch, done)
    [first, second] = here.server.heard[1].results
    assert "part a" in first.text
    assert "part b" in second.text


async def test_ids_that_are_given_twice_or_not_at_all_become_ids_of_their_own(wire: Wire, tmp_path: Path) -> None:
    batch = Answer(
        parts=(
            raw("bash", '{"command": "echo first"}', "call_0"),
            raw("bash", '{"command": "echo second"}', "call_0"),
            raw("bash", '{"command": "echo third"}', ""),
        )
    )
    here = await converse(wire, tmp_path, batch, batch)
    assert [text.splitlines()[0] for text in answers(here)] == ["first", "second", "third"]
    ids = [
        part.call_id
        for message in here.server.heard[-1].request.messages
        for part in message.parts
        if isinstance(part, CallPart)
    ]
    assert len(set(ids)) == len(ids) == 6


@pytest.mark.parametrize("arguments", ['{"subject": ', "[1, 2]", '"text"', "null", "not JSON at all"])
async def test_garbage_for_arguments_is_told_and_nothing_is_done(wire: Wire, tmp_path: Path, arguments: str) -> None:
    here = await converse(wire, tmp_path, Answer(parts=(raw("TaskCreate", arguments, "call_1"),)))
    [told] = answers(here)
    assert "arguments" in told or "subject" in told
    # It goes back as a call that the API takes.
    [_, reply, _] = here.server.heard[-1].request.messages
    assert reply.parts == (CallPart(call_id="call_1", name="TaskCreate", arguments={}),)


async def test_unknown_tools_are_told_with_what_there_is(wire: Wire, tmp_path: Path) -> None:
    batch = Answer(
        parts=(
            raw("fly", '{"to": "the moon"}', "call_1"),
            raw("functions.bash: run!", '{"command": "true"}', "call_2"),
            raw("idle", "{}", "call_3"),
            raw("TaskLst", "{}", "call_4"),
        )
    )
    here = await converse(wire, tmp_path, batch)
    told = answers(here)
    assert len(told) == 4
    assert "TaskList" in told[3]


async def test_a_reply_cut_by_the_output_limit_goes_on_where_it_stopped(wire: Wire, tmp_path: Path) -> None:
    cut = Answer(parts=(TextPart("The first half of"),), stop="max_tokens")
    here = await converse(wire, tmp_path, cut)
    assert "cut off" in here.server.heard[-1].text
    assert here.server.heard[-1].request.messages[1].parts == (TextPart("The first half of"),)


async def test_a_call_cut_by_the_output_limit_is_an_error_and_is_not_run(wire: Wire, tmp_path: Path) -> None:
    cut = Answer(
        parts=(
            TextPart("I write two files."),
            raw("write_file", '{"path": "whole.txt", "content": "all of it"}', "call_1"),
            raw("write_file", '{"path": "half.txt", "content": "only ha', "call_2"),
        ),
        stop="max_tokens",
    )
    here = await converse(wire, tmp_path, cut)
    assert (tmp_path / "whole.txt").read_text() == "all of it"
    assert not (tmp_path / "half.txt").exists()
    assert "output limit" in answers(here)[1]


async def test_a_reply_that_only_thinks_until_the_limit_is_asked_to_go_on(wire: Wire, tmp_path: Path) -> None:
    thought = Answer(parts=(ThinkingPart(text="Hm, hm, hm …", provider=wire.format),), stop="max_tokens")

    def lead(request: object) -> Said:
        return "Done." if len(here.server.heard) > 1 else thought

    async with company(wire, acting({"lead": lead}), tmp_path) as here:
        report = await here.run()
    here.check_legal()
    assert (report.outcome, report.text) == (Outcome.DONE, "Done.")


async def test_blank_texts_and_lone_surrogates_never_reach_the_wire(wire: Wire, tmp_path: Path) -> None:
    odd = call("bash", command="printf 'a\\355\\240\\200b\\000c'")
    here = await converse(wire, tmp_path, Step(say=" \n ", calls=(odd, call("bash", command="true"))))
    assert all(result.text.strip() for result in here.server.heard[-1].results)
