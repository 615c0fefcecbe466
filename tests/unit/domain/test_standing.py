"""How a team stands, judged from one snapshot: nobody in the middle of a step is taken for one who rests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from bullpen.domain.budget import BUDGET_SPENT
from bullpen.domain.member import Member, MemberKind, MemberStatus, Team
from bullpen.domain.request import digest_of
from bullpen.domain.standing import Snapshot, Verdict, judge
from bullpen.domain.task import Task, TaskStatus

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def member(name: str, **fields: Any) -> Member:
    known: dict[str, Any] = {
        "team_id": 1,
        "name": name,
        "kind": MemberKind.LEAD if name == "lead" else MemberKind.TEAMMATE,
        "status": MemberStatus.IDLE,
        "worker_id": 1,
        "created_at": NOW,
        "status_at": NOW,
    }
    return Member(**known | fields)


def task(**fields: Any) -> Task:
    known: dict[str, Any] = {
        "team_id": 1,
        "id": 1,
        "subject": "build",
        "created_by": "lead",
        "created_at": NOW,
        "updated_at": NOW,
    }
    return Task(**known | fields)


def verdict(*members: Member, tasks: tuple[Task, ...] = (), can_host: bool = True, **lead: Any) -> Verdict:
    snapshot = Snapshot(
        team=Team(id=1, name="team", created_at=NOW),
        members=(member("lead", **lead), *members),
        tasks=tasks,
        requests=(),
        mail_for=frozenset(),
        running=0,
        has_host=True,
        can_host=can_host,
        question=None,
    )
    return judge(snapshot).verdict


def test_a_team_at_rest_is_done() -> None:
    assert verdict(member("ana")) is Verdict.DONE


def test_a_wanted_lead_comes_although_no_slot_is_free_and_a_wanted_teammate_does_not() -> None:
    assert verdict(can_host=False, status=MemberStatus.WANTED, worker_id=None) is Verdict.MOVES
    assert verdict(member("ana", status=MemberStatus.WANTED, worker_id=None), can_host=False) is Verdict.DONE


def test_who_has_not_read_its_prompt_will_begin() -> None:
    assert verdict(member("ana", prompt="Go.")) is Verdict.MOVES
    assert verdict(member("ana", prompt="Go.", counters={"briefed": digest_of("Go.")})) is Verdict.DONE


def test_who_waits_for_a_blocked_task_does_not_begin_with_its_prompt() -> None:
    blocked = task(open_blockers=1, blocked_by=(2,))
    assert verdict(member("ana", prompt="Go."), tasks=(blocked,)) is Verdict.STALLED


def test_who_has_just_claimed_will_begin_and_who_rests_with_a_task_will_not() -> None:
    held = task(status=TaskStatus.IN_PROGRESS, owner="ana")
    assert verdict(member("ana"), tasks=(held,)) is Verdict.MOVES
    assert verdict(member("ana", counters={"held": 1}), tasks=(held,)) is Verdict.STALLED


def test_whose_work_phase_is_open_is_at_work() -> None:
    assert verdict(member("ana", counters={"phase": 2})) is Verdict.MOVES


def test_who_rests_with_a_task_or_waits_for_an_answer_takes_no_other() -> None:
    held = task(status=TaskStatus.IN_PROGRESS, owner="ana")
    free = task(id=2)
    assert verdict(member("ana", counters={"held": 1}), tasks=(held, free)) is Verdict.STALLED
    assert verdict(member("ana", counters={"waits": "plan"}), tasks=(free,)) is Verdict.STALLED
    assert verdict(member("ana", counters={"held": 1}), member("bea"), tasks=(held, free)) is Verdict.MOVES


def test_who_waits_for_a_larger_budget_takes_no_task() -> None:
    broke = {"status": MemberStatus.WAITING, "status_reason": f"{BUDGET_SPENT}: of the team"}
    assert verdict(member("ana", **broke), tasks=(task(),)) is Verdict.STALLED
    assert verdict(member("ana"), tasks=(task(),)) is Verdict.MOVES
