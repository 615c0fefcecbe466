"""What goes on beside a member: numbered, ended once, told once, and lost when its host dies."""

from __future__ import annotations

import pytest

from bullpen.domain.background import BackgroundKind, BackgroundState
from bullpen.domain.event import EventKind
from bullpen.domain.member import MemberRef
from bullpen.errors import NotFound, UsageError
from tests.conformance.board import Board

COMMAND = BackgroundKind.COMMAND


async def notices(board: Board, name: str) -> list[str]:
    return [message.content for message in await board.inbox(name) if message.sender == "system"]


async def test_background_commands_are_numbered_from_one_in_each_team(board: Board) -> None:
    ana, ben = await board.teammate("ana"), await board.teammate("ben")
    started = [await board.store.start_background(ref, COMMAND, "make serve", pid=7) for ref in (ana, ben, ana)]
    assert [(one.id, one.member, one.label) for one in started] == [
        (1, "ana", "bg-1"),
        (2, "ben", "bg-2"),
        (3, "ana", "bg-3"),
    ]
    other = await board.store.create_team("other")
    lead = MemberRef(other.id, "lead", 0)
    assert (await board.store.start_background(lead, BackgroundKind.SUBAGENT, "look around")).id == 1


async def test_background_commands_are_listed_by_number_member_and_whether_they_run(board: Board) -> None:
    ana, ben = await board.teammate("ana"), await board.teammate("ben")
    for ref in (ana, ben, ana):
        await board.store.start_background(ref, COMMAND, "make serve")
    await board.store.finish_background(ana, 1)

    async def listed(**wishes: object) -> list[int]:
        return [one.id for one in await board.store.list_backgrounds(board.id, **wishes)]  # type: ignore[arg-type]

    assert await listed() == [1, 2, 3]
    assert await listed(name="ANA") == [1, 3]
    assert await listed(running_only=True) == [2, 3]
    assert await listed(name="ana", running_only=True) == [3]


async def test_the_end_is_stored_and_told_once_to_its_member(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.store.start_background(ana, COMMAND, "make serve", output_path="/tmp/bg-1.txt")
    async with board.recording() as seen:
        ended = await board.store.finish_background(ana, 1, exit_code=3, output="no such port")
        assert await board.store.finish_background(ana, 1, exit_code=0, output="something else") == ended
    assert (ended.state, ended.exit_code, ended.output) == (BackgroundState.FINISHED, 3, "no such port")
    assert [event.kind for event in seen].count(EventKind.BACKGROUND_ENDED) == 1
    [notice] = await notices(board, "ana")
    assert all(part in notice for part in ("bg-1", "make serve", "exit code 3", "/tmp/bg-1.txt", "no such port"))


async def test_the_end_wakes_an_idle_member(board: Board) -> None:
    ana = await board.idle_teammate("ana")
    await board.store.start_background(ana, COMMAND, "sleep 1")
    async with board.store.listen_member(ana) as bell:
        bell.clear()
        await board.store.finish_background(ana, 1, exit_code=0)
        assert await bell.wait(60)
    assert await board.store.find_work(ana) == "mail"


async def test_what_its_member_stopped_is_not_told(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.store.start_background(ana, COMMAND, "make serve")
    stopped = await board.store.finish_background(ana, 1, state=BackgroundState.STOPPED)
    assert stopped.state is BackgroundState.STOPPED
    assert await notices(board, "ana") == []


async def test_nobody_ends_what_is_another_members(board: Board) -> None:
    ana, ben = await board.teammate("ana"), await board.teammate("ben")
    await board.store.start_background(ana, COMMAND, "make serve")
    for number in (1, 2):
        with pytest.raises(NotFound):
            await board.store.finish_background(ben, number)
    with pytest.raises(UsageError):
        await board.store.finish_background(ana, 1, state=BackgroundState.RUNNING)
    [running] = await board.store.list_backgrounds(board.id)
    assert running.state is BackgroundState.RUNNING


async def test_what_a_dead_host_left_running_is_lost_with_one_notice(board: Board) -> None:
    doomed = await board.store.register_worker(slots=1)
    ana = await board.teammate("ana", worker=doomed)
    await board.store.start_background(ana, COMMAND, "make serve", pid=7, start_ticks=99)
    await board.store.start_background(ana, COMMAND, "make watch")
    await board.store.finish_background(ana, 2, exit_code=0)
    await board.store.lapse_worker(doomed.id, renewals_seen=None)
    again = await board.host("ana")
    await board.store.start_background(again, COMMAND, "make serve")
    [lost] = await board.store.lose_backgrounds(again)
    assert (lost.id, lost.state, lost.pid, lost.start_ticks) == (1, BackgroundState.LOST, 7, 99)
    assert await board.store.lose_backgrounds(again) == []
    assert [notice for notice in await notices(board, "ana") if "lost" in notice] == [
        notice for notice in await notices(board, "ana") if notice.startswith("bg-1")
    ]
    assert [one.id for one in await board.store.list_backgrounds(board.id, running_only=True)] == [3]
