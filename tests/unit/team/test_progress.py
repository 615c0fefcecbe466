"""What the log says of time: who was busy, and how long the team was run at all."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from bullpen import open_team
from bullpen.domain.event import Event, EventKind
from bullpen.domain.member import MemberKind, MemberRef, MemberStatus
from bullpen.domain.task import TaskStatus
from bullpen.team.progress import LEFT_IN_ORDER, Progress

BEGAN = datetime(2026, 11, 17, 12, 0, tzinfo=UTC)


class Log:
    def __init__(self) -> None:
        self.progress = Progress()
        self.now = BEGAN

    def at(self, seconds: float) -> Log:
        self.now = BEGAN + timedelta(seconds=seconds)
        return self

    def add(self, kind: EventKind, actor: str = "system", **data: Any) -> None:
        self.progress.follow(Event(team_id=1, position="p", kind=kind, at=self.now, actor=actor, data=data))

    def status(self, name: str, status: MemberStatus) -> None:
        self.add(EventKind.MEMBER_STATUS_CHANGED, name, member=name, status=status)

    @property
    def busy(self) -> float:
        return self.progress.busy_until(self.now)

    @property
    def hosted(self) -> float:
        return self.progress.hosted_until(self.now)


def test_busy_time_is_that_of_all_members_and_wall_time_that_of_the_runs() -> None:
    log = Log()
    log.at(0).add(EventKind.MEMBER_HOSTED, member="ana")
    log.at(1).add(EventKind.MEMBER_HOSTED, member="bea")
    log.at(3).status("ana", MemberStatus.IDLE)
    assert (log.busy, log.hosted) == (3 + 2, 3)
    for name in ("ana", "bea"):
        log.at(5).add(EventKind.MEMBER_LAPSED, member=name, status="wanted", reason=LEFT_IN_ORDER)
    assert (log.at(60).busy, log.hosted) == (3 + 4, 5)
    log.at(100).add(EventKind.MEMBER_HOSTED, member="ana")
    assert (log.at(102).busy, log.hosted) == (3 + 4 + 2, 5 + 2)


def test_who_died_was_busy_until_it_was_last_heard_of() -> None:
    log = Log()
    log.at(0).add(EventKind.MEMBER_HOSTED, "ana", member="ana")
    log.at(4).add(EventKind.TOOL_CALL_STARTED, "ana", tool="bash", about="make")
    assert log.progress.members["ana"].tool == "bash make"
    # An hour later somebody notices.
    log.at(3600).add(EventKind.MEMBER_LAPSED, member="ana", status="wanted", reason="its worker died")
    assert (log.busy, log.hosted) == (4, 4)


def test_a_pause_is_known_from_the_log() -> None:
    log = Log()
    log.add(EventKind.TEAM_CHANGED, "user", goal="g", settings={"paused": True})
    assert log.progress.is_paused
    log.add(EventKind.TEAM_CHANGED, "user", goal="g", settings={"budget": {}})
    assert log.progress.is_paused
    log.add(EventKind.TEAM_CHANGED, "user", goal="g", settings={"paused": False})
    assert not log.progress.is_paused


async def test_the_log_alone_says_how_the_board_and_its_members_stand() -> None:
    async with open_team("crew", store="sqlite:///:memory:") as team:

        async def agree() -> None:
            progress = await team.get_progress()
            tasks = await team.list_tasks()
            assert {task.id: (task.subject, task.status, task.owner) for task in tasks} == {
                task.id: (task.subject, task.status, task.owner) for task in progress.tasks.values()
            }
            assert {task.id for task in tasks if task.verifying} == {
                task.id for task in progress.tasks.values() if task.is_verifying
            }
            assert {task.owner: task.id for task in tasks if task.status is TaskStatus.IN_PROGRESS} == {
                member.name: member.task for member in progress.members.values() if member.task is not None
            }
            crew = [member for member in await team.list_members() if member.kind is MemberKind.EXTERNAL]
            for member in crew:
                seen = progress.member(member.name)
                assert (seen.role, seen.status) == (member.role, member.status)

        async with team.join("ana", role="tester") as ana, team.join("ben") as ben:
            await team.create_task("for ana", owner="ana")
            await team.create_task("open", check="true")
            await agree()
            await team.update_task(2, subject="renamed", role="tester")
            await agree()
            await ana.claim_next_task()
            await team.update_task(1, owner="ben")
            await agree()
            await ben.claim_next_task()
            await team.store.start_check(MemberRef(team.id, "user", 0), 2)
            await agree()
            await ana.claim_task(2)
            await agree()
            await ana.release_task(2)
            await team.complete_task(2, unverified=True)
            await agree()
