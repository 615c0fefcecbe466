"""A task's states, who may take which step, and when it can be claimed: compared with the words of the spec."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.domain.task import (
    FINISHED,
    RELEASES_DEPENDENTS,
    TRANSITIONS,
    UNSET,
    Task,
    TaskChanges,
    TaskStatus,
    check_claimable,
    check_transition,
    is_claimable,
    parse_task_id,
    parse_task_status,
    why_not_claimable,
)
from bullpen.domain.text import normalise_role
from bullpen.errors import AlreadyClaimed, Conflict, NotAllowed, UsageError
from tests.unit.domain.strategies import records

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
PENDING, RUNNING = TaskStatus.PENDING, TaskStatus.IN_PROGRESS
COMPLETED, FAILED, DELETED = TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.DELETED

people = st.sampled_from(["ana", "ANA", "ben", "cat"])
roles = st.sampled_from([None, "", "backend", "Back End", "back-end", "frontend"])
tasks = records(
    Task,
    status=st.sampled_from(TaskStatus),
    owner=st.none() | people,
    created_by=people,
    role=roles,
    open_blockers=st.sampled_from([0, 0, 1, 3]),
    blocked_by=st.just((1, 2, 3)),
)
statuses = st.sampled_from(TaskStatus)

LEGAL = {
    (PENDING, RUNNING),
    (PENDING, COMPLETED),
    (PENDING, FAILED),
    (RUNNING, PENDING),
    (RUNNING, COMPLETED),
    (RUNNING, FAILED),
    (FAILED, PENDING),
    *((status, DELETED) for status in TaskStatus if status is not DELETED),
}


def outcome(task: Task, to: TaskStatus, name: str, leads: bool) -> type[Exception] | None:
    try:
        check_transition(task, to, name=name, leads=leads)
    except (Conflict, NotAllowed) as error:
        return type(error)
    return None


def test_the_table_has_exactly_the_legal_steps() -> None:
    table = {(before, after) for before, afters in TRANSITIONS.items() for after in afters}
    assert table == LEGAL
    assert set(TRANSITIONS) == set(TaskStatus)


@pytest.mark.parametrize(
    ("before", "to", "line"),
    [
        (COMPLETED, COMPLETED, "#3 is completed already; create a new task for what is still to be done"),
        (FAILED, RUNNING, "#3 is failed and cannot become in_progress; set it to pending to have it tried again"),
        (PENDING, PENDING, "#3 is pending already"),
    ],
)  # fmt: skip
def test_a_refused_step_says_what_to_do_instead(before: TaskStatus, to: TaskStatus, line: str) -> None:
    task = Task(team_id=1, id=3, subject="Analyse", status=before, created_at=NOW, updated_at=NOW)
    with pytest.raises(Conflict, match=f"^{re.escape(line)}$"):
        check_transition(task, to, name="ana", leads=True)


@given(tasks, statuses, people)
def test_an_illegal_step_is_nobodys(task: Task, to: TaskStatus, name: str) -> None:
    for leads in (True, False):
        refused = outcome(task, to, name, leads) is Conflict
        assert refused == ((task.status, to) not in LEGAL)


@given(tasks, statuses, people)
def test_a_legal_step_is_always_the_leads(task: Task, to: TaskStatus, name: str) -> None:
    if (task.status, to) in LEGAL:
        assert outcome(task, to, name, leads=True) is None


@given(tasks, statuses, people)
def test_a_teammate_takes_only_its_own_steps(task: Task, to: TaskStatus, name: str) -> None:
    """Deleting is its creator's; completing, failing and releasing its owner's, and only once it is in progress."""
    if (task.status, to) not in LEGAL:
        return
    owns = task.owner is not None and task.owner.lower() == name.lower()
    created = task.created_by.lower() == name.lower()
    allowed = created if to is DELETED else owns and task.status is RUNNING
    assert (outcome(task, to, name, leads=False) is None) == allowed


def test_a_completed_task_is_never_resurrected() -> None:
    assert TRANSITIONS[COMPLETED] == {DELETED}
    assert TRANSITIONS[DELETED] == frozenset()


def test_a_failed_blocker_is_finished_and_still_holds_its_dependents() -> None:
    assert {COMPLETED, FAILED, DELETED} == FINISHED
    assert {COMPLETED, DELETED} == RELEASES_DEPENDENTS


@given(tasks, people, roles)
def test_claimable_is_what_the_spec_says(task: Task, name: str, role: str | None) -> None:
    """Pending, no open blocker; assigned to the claimer, or unowned with its role absent or the claimer's."""
    mine = task.owner is not None and task.owner.lower() == name.lower()
    fits = normalise_role(task.role) in ("", normalise_role(role))
    expected = task.status is PENDING and task.open_blockers == 0 and (mine or (task.owner is None and fits))
    assert is_claimable(task, name=name, role=role) == expected
    reason = why_not_claimable(task, name=name, role=role)
    assert (reason is None) == expected
    if reason is not None:
        assert f"#{task.id}" in reason
        with pytest.raises(AlreadyClaimed, match="take another task"):
            check_claimable(task, name=name, role=role)


# -- what people and models write ----------------------------------------------------------


@given(st.integers(1, 2**53 - 1), st.sampled_from(["{}", "#{}", " {} ", " #{}\n", "00{}"]))
def test_a_number_is_understood_however_it_is_written(number: int, form: str) -> None:
    written = form.format(number)
    if len(written.strip().removeprefix("#")) <= 20:
        assert parse_task_id(written) == number
    assert parse_task_id(number) == number


@given(st.text(max_size=30) | st.integers() | st.booleans())
def test_a_number_is_a_number_or_a_usage_error(written: str | int) -> None:
    try:
        number = parse_task_id(written)
    except UsageError:
        return
    assert 0 < number < 2**53
    assert str(number) in str(written)


@pytest.mark.parametrize(
    "written", ["", "#", "three", "3.0", "-3", "0", "1e3", "##3", "3 4", True, False, "٣", "9" * 400]
)
def test_what_is_no_task_number_is_refused(written: str | int) -> None:
    with pytest.raises(UsageError):
        parse_task_id(written)


@given(statuses, st.sampled_from([str.upper, str.lower, str.title]), st.sampled_from(["_", "-", " "]))
def test_a_status_is_understood_in_any_spelling(status: TaskStatus, case: object, joint: str) -> None:
    assert callable(case)
    assert parse_task_status(f" {case(status.value.replace('_', joint))} ") is status


@pytest.mark.parametrize(("word", "status"), [("done", COMPLETED), ("Complete", COMPLETED), ("OPEN", PENDING)])
def test_what_people_type_instead_is_understood(word: str, status: TaskStatus) -> None:
    assert parse_task_status(word) is status


@given(st.text(st.characters(exclude_characters="_- "), max_size=20))
def test_any_other_word_is_refused_with_those_that_exist(word: str) -> None:
    if word.strip().casefold() not in {*TaskStatus, "done", "complete", "open"}:
        with pytest.raises(UsageError, match="in_progress"):
            parse_task_status(word)


def test_changes_tell_leaving_alone_from_emptying() -> None:
    changes = TaskChanges(subject="x", role=None, owner=None)
    assert changes.fields == {"subject": "x", "role": None}
    assert changes.check is UNSET
    assert TaskChanges().fields == {}
