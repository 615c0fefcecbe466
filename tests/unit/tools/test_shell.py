"""bash, TaskOutput, TaskStop: in real sandboxes, with a real store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bullpen.domain.background import Background, BackgroundState
from bullpen.errors import StoreUnavailable, ToolError, UsageError
from bullpen.sandbox import CommandResult, Sandbox
from bullpen.store import Store
from bullpen.tools import toolbox_for
from bullpen.tools.backgrounds import Backgrounds
from bullpen.tools.files import READ_FILE
from bullpen.tools.shell import BASH, READING_BASH, SUBAGENT_BASH, TASK_OUTPUT, TASK_STOP
from tests.support.sandboxes import Ground, Token, until
from tests.unit.tools.conftest import MakeHands
from tests.unit.tools.hands import Hands

pytestmark = pytest.mark.anyio


@pytest.fixture
async def ana(hands: MakeHands, ground: Ground, sandbox: Sandbox) -> AsyncIterator[Hands]:
    async with working(hands, ground, sandbox) as member:
        yield member


@asynccontextmanager
async def working(hands: MakeHands, ground: Ground, sandbox: Sandbox, name: str = "ana") -> AsyncIterator[Hands]:
    private = ground.store / "members" / "ana"
    settings = {"hidden_paths": (ground.store,), "readable_paths": (private,)}
    member = hands(name, workspace=ground.workspace, sandbox=sandbox, settings=settings)
    try:
        yield member
    finally:
        await member.resource(Backgrounds).aclose()


async def background(member: Hands, number: int = 1) -> Background:
    (found,) = [one for one in await member.store.list_backgrounds(member.team.id) if one.id == number]
    return found


async def notices(member: Hands) -> list[str]:
    mail = await member.store.list_mail(member.team.id, member.member.name)
    return [message.content for message in mail if message.type == "notice" and "bg-" in message.content]


# -- in the foreground


async def test_output_and_exit_code_are_reported(ana: Hands) -> None:
    assert await ana.text(BASH, command="echo out; echo err >&2; exit 3") == "out\nerr\n[exit code 3]"
    assert await ana.text(BASH, command="true") == "(no output)\n[exit code 0]"


async def test_a_timeout_kills_all_that_was_started(ana: Hands, token: Token) -> None:
    # Long enough to begin on a busy machine.
    output = await ana.call(BASH, command=f"echo begun; setsid sleep {token} & sleep {token}", timeout_seconds="2.5")
    assert output.is_error
    # In between, the shell may have time to say that its child was terminated.
    first, *_, last = output.text.splitlines()
    assert first == "begun"
    assert last.startswith("[killed after 2.5 s, with everything that it started; exit code ")
    assert token.processes() == []


@pytest.mark.parametrize(
    ("given", "seconds", "remark"),
    [
        ({}, 120, ""),
        ({"timeout": 5}, 5, ""),
        ({"timeout": 120_000}, 120, "milliseconds"),
        ({"timeout_seconds": 1800}, 600, "at most"),
        ({"timeout_seconds": 0}, 120, ""),
    ],
)
async def test_a_timeout_is_understood_as_it_was_meant(
    hands: MakeHands, given: dict[str, Any], seconds: float, remark: str
) -> None:
    class Recording:
        async def run(self, command: str, *, timeout_seconds: float, **_: Any) -> CommandResult:
            return CommandResult(exit_code=0, output=f"{timeout_seconds:g}", output_path=Path("/"), seconds=0)

    output = await hands(sandbox=Recording()).call(BASH, command="x", **given)
    assert output.text == f"{seconds:g}\n[exit code 0]"
    assert remark in " ".join(output.remarks)


async def test_long_output_keeps_head_and_tail_and_the_whole_can_be_read(ana: Hands) -> None:
    text = await ana.text(BASH, command="seq 1 100000")
    assert len(text) < 30_100
    assert text.startswith("1\n2\n")
    assert text.endswith("100000\n[exit code 0]")
    path = text.partition("the whole output is in ")[2].split()[0]
    assert " 50000\t50000" in await ana.text(READ_FILE, path=path, offset=50_000, limit=1)


async def test_an_empty_command_is_refused(ana: Hands) -> None:
    with pytest.raises(ToolError, match="empty"):
        await ana.call(BASH, command=" ")


# -- until the plan is approved


@pytest.mark.parametrize("tool", [BASH, READING_BASH], ids=["gated", "explore"])
async def test_who_may_only_look_cannot_write(ana: Hands, ground: Ground, tool: Any) -> None:
    ana.is_gated = tool is BASH
    (ground.workspace / "a").write_text("here")
    command = "cat a; echo changed > a; touch b"
    if ana.sandbox.name == "local":
        with pytest.raises(ToolError, match=r"^refused: .* read"):
            await ana.call(tool, command=command)
    else:
        assert (await ana.text(tool, command=command)).startswith("here")
    assert (ground.workspace / "a").read_text() == "here"
    assert not (ground.workspace / "b").exists()


async def test_a_subagent_starts_nothing_in_the_background(ana: Hands) -> None:
    output = await ana.call(SUBAGENT_BASH, command="echo done", run_in_background=True)
    assert output.text == "done\n[exit code 0]"
    assert "ignored" in output.remarks[0]


# -- in the background


async def test_a_background_command_is_known_at_once_readable_while_it_runs_and_told_at_its_end(
    ana: Hands, ground: Ground
) -> None:
    text = await ana.text(
        BASH, command="echo first; until test -e go; do sleep 0.02; done; exit 7", run_in_background=True
    )
    assert text.startswith("bg-1 runs in the background")
    assert (await background(ana)).state is BackgroundState.RUNNING
    path = (await background(ana)).output_path
    assert path is not None
    await until(lambda: "first" in Path(path).read_text())
    shown = await ana.text(TASK_OUTPUT, task_id="bg-1")
    assert shown.startswith("bg-1 [running for ")
    assert shown.endswith("\nfirst")
    assert await notices(ana) == []
    (ground.workspace / "go").touch()
    ended = await ana.text(TASK_OUTPUT, task_id=1, block=True, timeout=60_000)
    assert ended.startswith("bg-1 [finished, exit code 7] echo first;")
    assert ended.endswith("\nfirst")
    (notice,) = await notices(ana)
    assert "bg-1" in notice
    assert "exit code 7" in notice
    assert "first" in notice


async def test_a_command_without_a_word_has_its_notice_too(ana: Hands) -> None:
    await ana.call(BASH, command="true", run_in_background=True)
    await ana.call(TASK_OUTPUT, task_id="bg-1", block=True)
    assert len(await notices(ana)) == 1


async def test_a_server_in_the_background_is_reachable_by_the_next_command(ana: Hands) -> None:
    await ana.say(toolbox_for("teammate"), "background_run", command="mkfifo p; echo ready; cat p")
    await until(lambda: (ana.workspace / "p").exists())
    await ana.call(BASH, command="echo hello > p")
    assert (await ana.text(TASK_OUTPUT, task_id="bg-1", block=True)).endswith("ready\nhello")


async def test_waiting_for_one_that_goes_on_ends_with_the_time(ana: Hands, token: Token) -> None:
    await ana.call(BASH, command=f"sleep {token}", run_in_background=True)
    assert "[running for" in await ana.text(TASK_OUTPUT, task_id="bg-1", block=True, timeout=50)


async def test_stop_really_stops_and_is_told_once(ana: Hands, token: Token) -> None:
    await ana.call(BASH, command=f"echo up; setsid sleep {token} & sleep {token}", run_in_background=True)
    await token.until(2)
    text = await ana.text(TASK_STOP, task_id="bg-1")
    assert token.processes() == []
    assert text.startswith("bg-1 [stopped")
    assert (await background(ana)).state is BackgroundState.STOPPED
    assert await notices(ana) == []
    assert (await ana.text(TASK_STOP, task_id="bg-1")).startswith("bg-1 [stopped")
    assert await ana.text(TASK_OUTPUT, task_id="bg-1") == text


async def test_stopping_what_has_ended_changes_nothing(ana: Hands) -> None:
    await ana.call(BASH, command="exit 4", run_in_background=True)
    await ana.call(TASK_OUTPUT, task_id="bg-1", block=True)
    assert (await ana.text(TASK_STOP, task_id="bg-1")).startswith("bg-1 [finished, exit code 4]")


async def test_everything_is_listed_and_only_ones_own(ana: Hands, hands: MakeHands, token: Token) -> None:
    box = toolbox_for("teammate")
    assert (await ana.say(box, "check_background")).text == "you have started nothing in the background"
    await ana.call(BASH, command="echo one", run_in_background=True)
    await ana.call(BASH, command=f"sleep {token}", run_in_background=True)
    await token.until(1)
    await ana.call(TASK_OUTPUT, task_id="bg-1", block=True)
    first, second = (await ana.say(box, "check_background")).text.splitlines()
    assert first == "bg-1 [finished, exit code 0] echo one"
    assert second.startswith("bg-2 [running for ")
    ben = hands("ben", sandbox=ana.sandbox)
    for tool in (TASK_OUTPUT, TASK_STOP):
        with pytest.raises(ToolError, match="you have nothing called bg-2 in the background; yours: none"):
            await ben.call(tool, task_id="bg-2")
    assert len(token.processes()) == 1
    with pytest.raises(UsageError, match="bg-3"):
        await ana.call(TASK_OUTPUT, task_id="the server")


async def test_when_the_hosting_ends_nothing_is_marked_and_nothing_runs(ana: Hands, token: Token) -> None:
    await ana.call(BASH, command=f"sleep {token}", run_in_background=True)
    await token.until(1)
    await ana.resource(Backgrounds).aclose()
    assert token.processes() == []
    assert (await background(ana)).state is BackgroundState.RUNNING
    assert await notices(ana) == []
    with pytest.raises(ToolError, match="does not run any more"):
        await ana.call(TASK_STOP, task_id="bg-1")


async def test_stopped_for_good_all_are_marked(ana: Hands, token: Token) -> None:
    for _ in range(2):
        await ana.call(BASH, command=f"sleep {token}", run_in_background=True)
    await ana.resource(Backgrounds).stop_all()
    assert token.processes() == []
    states = {one.state for one in await ana.store.list_backgrounds(ana.team.id)}
    assert states == {BackgroundState.STOPPED}


class Moody:
    """A store whose disk is full for a while."""

    def __init__(self, store: Store, method: str, times: int) -> None:
        self._store, self._method, self.left = store, method, times

    def __getattr__(self, name: str) -> Any:
        if name != self._method:
            return getattr(self._store, name)

        async def fail_first(*given: Any, **named: Any) -> Any:
            if self.left:
                self.left -= 1
                raise StoreUnavailable
            return await getattr(self._store, name)(*given, **named)

        return fail_first


async def test_an_end_that_cannot_be_stored_is_tried_again(hands: MakeHands, ground: Ground, walled: Sandbox) -> None:
    async with working(hands, ground, walled) as ana:
        moody = Moody(ana.store, "finish_background", 3)
        ana.store = moody
        await ana.call(BASH, command="exit 5", run_in_background=True)
        assert "[finished, exit code 5]" in await ana.text(TASK_OUTPUT, task_id="bg-1", block=True)
        assert moody.left == 0
        assert len(await notices(ana)) == 1


async def test_a_command_that_the_store_does_not_know_does_not_run(
    hands: MakeHands, ground: Ground, walled: Sandbox, token: Token
) -> None:
    async with working(hands, ground, walled) as ana:
        ana.store = Moody(ana.store, "start_background", 1)
        with pytest.raises(StoreUnavailable):
            await ana.call(BASH, command=f"sleep {token}", run_in_background=True)
        assert token.processes() == []


async def test_a_sandbox_that_dies_is_told_as_lost(
    hands: MakeHands, ground: Ground, walled: Sandbox, token: Token
) -> None:
    async with working(hands, ground, walled) as ana:
        await ana.call(BASH, command=f"sleep {token}", run_in_background=True)
        await token.until(1)
        await walled.__aexit__(None, None, None)
        await ana.call(TASK_OUTPUT, task_id="bg-1", block=True)
        assert (await background(ana)).state is not BackgroundState.RUNNING
        assert len(await notices(ana)) == 1


async def test_a_successor_reads_what_a_lost_one_printed(hands: MakeHands, ground: Ground, walled: Sandbox) -> None:
    async with working(hands, ground, walled) as ana:
        await ana.call(BASH, command="echo precious; sleep 1000", run_in_background=True)
        path = (await background(ana)).output_path
        assert path is not None
        await until(lambda: "precious" in Path(path).read_text())
    async with working(hands, ground, walled) as successor:
        assert (await successor.text(TASK_OUTPUT, task_id="bg-1")).endswith("precious")


async def test_many_end_at_once_and_each_is_told_once(hands: MakeHands, ground: Ground, walled: Sandbox) -> None:
    async with working(hands, ground, walled) as ana:
        for _ in range(10):
            await ana.call(BASH, command="until test -e go; do sleep 0.05; done", run_in_background=True)
        (ground.workspace / "go").touch()
        waits = (ana.resource(Backgrounds).wait(ana.team.id, number, 60) for number in range(1, 11))
        await asyncio.gather(*waits)
        assert len(await notices(ana)) == 10
