"""How the calls of a reply begin: stored as started with the reply itself where nobody has to be asked, and not before
it is their turn."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bullpen.domain.event import EventKind
from bullpen.domain.request import RequestKind
from bullpen.domain.transcript import CallState, ToolCall, Turn, TurnKind
from bullpen.team import Team
from tests.agents.stage import Recorder, calls, results, turns_of
from tests.support.troupe import call, hosted, settings, troupe, until

ASKS = {"sandbox": {"kind": "local"}, "permissions": {"allow": []}, "idle": {"timeout_seconds": 3600}}


async def made(team: Team) -> tuple[Turn, list[ToolCall]]:
    """Ana's first reply, and its calls."""
    [reply, *_] = await turns_of(team, "ana", TurnKind.ASSISTANT)
    of_all = await team.store.list_calls(team.id, "ana")
    return reply, sorted((one for one in of_all if one.turn_seq == reply.seq), key=lambda one: one.position)


async def test_what_comes_before_the_first_barrier_begins_in_the_step_that_stores_the_reply(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("A")
    several = calls(
        ("read_file", {"path": "a.txt"}),
        ("glob", {"pattern": "*.txt"}),
        ("write_file", {"path": "b.txt", "content": "B"}),
        ("read_file", {"path": "b.txt"}),
    )
    model = Recorder({"ana": [several, "Finished."]})
    async with troupe(model, tmp_path) as team:
        await team.spawn("ana", prompt="Look, write, look.")
        async with hosted(team):
            await until(team, EventKind.PHASE_ENDED, member="ana")
        reply, [read, listed, wrote, again] = await made(team)
        assert read.started_at == listed.started_at == reply.created_at
        assert read.finished_at is not None
        assert wrote.started_at is not None
        assert again.started_at is not None
        assert reply.created_at < wrote.started_at < again.started_at
        assert read.finished_at <= wrote.started_at
        assert all(one.state is CallState.FINISHED for one in (read, listed, wrote, again))
        assert "B" in (await results(team, "ana"))[-1]


async def test_a_call_that_is_wrong_or_asks_does_not_begin_with_its_reply(tmp_path: Path) -> None:
    model = Recorder({"ana": [calls(("read_file", {}), ("bash", {"command": "touch made"})), "Finished."]})
    async with troupe(model, tmp_path, settings=settings(**ASKS), is_interactive=True) as team:
        await team.spawn("ana", prompt="Touch it.")
        async with hosted(team):
            opened = await until(team, EventKind.REQUEST_OPENED, request_kind=RequestKind.PERMISSION)
            _, [wrong, asks] = await made(team)
            assert (wrong.state, wrong.started_at, wrong.is_error) == (CallState.FINISHED, None, True)
            assert (asks.state, asks.started_at) == (CallState.QUEUED, None)
            await team.approve(opened.data["request"])
            await until(team, EventKind.PHASE_ENDED, member="ana")
        assert (await made(team))[1][1].started_at is not None
    assert (tmp_path / "made").exists()


async def test_a_worker_that_leaves_begins_nothing_and_the_next_one_runs_it(tmp_path: Path) -> None:
    model = Recorder({"ana": [call("write_file", path="made", content="once"), "Finished."]})
    answers = model.hold("ana", 1)
    async with troupe(model, tmp_path) as team:
        await team.spawn("ana", prompt="Write it.")
        hosting = hosted(team)
        await hosting.__aenter__()
        await answers.reached()
        leaving = asyncio.create_task(hosting.__aexit__(None, None, None))
        # Its first step says that it leaves; then it waits for who is in the middle of a turn.
        await asyncio.sleep(0)
        answers.release()
        await leaving
        _, [queued] = await made(team)
        assert (queued.state, queued.started_at) == (CallState.QUEUED, None)
        assert not (tmp_path / "made").exists()
        async with hosted(team):
            await until(team, EventKind.PHASE_ENDED, member="ana")
        assert (await made(team))[1][0].state is CallState.FINISHED
    assert (tmp_path / "made").read_text() == "once"
