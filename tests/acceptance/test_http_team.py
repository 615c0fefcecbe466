"""Whole teams over HTTP, on both wire formats, whole and streamed: boards with dependencies, plans, mail, failures."""

from __future__ import annotations

from pathlib import Path

import pytest

from bullpen.domain.event import EventKind
from bullpen.domain.message import MessageType
from bullpen.domain.request import RequestKind, RequestStatus
from bullpen.domain.task import TaskStatus
from bullpen.provider import ModelRequest
from bullpen.providers.scripted import Step
from bullpen.team import Outcome
from tests.support.cast import Job, Play, View, call
from tests.support.company import Wire, acting, company, playing
from tests.support.invariants import check_invariants
from tests.support.protocol_server import Answer

PLAY = Play(
    jobs=(
        Job(subject="read the endpoints"),
        Job(subject="design the schema", blocked_by=(1,)),
        Job(subject="write the server", blocked_by=(2,), fails=True),
        Job(subject="write the client", blocked_by=(2,)),
        Job(subject="test both", blocked_by=(3, 4)),
    ),
    teammates=("ana", "ben", "cy"),
    planners=frozenset({"ben"}),
)


async def test_a_team_finishes_a_board_with_dependencies_plans_mail_and_a_failure(wire: Wire, tmp_path: Path) -> None:
    async with company(wire, playing(PLAY), tmp_path) as here:
        report = await here.run()
        assert report.outcome is Outcome.DONE
        past = await check_invariants(here.team.store, here.team.id, tmp_path)
    here.check_legal()
    assert {heard.stream for heard in here.server.heard} == {wire.is_streamed}
    assert {heard.format for heard in here.server.heard} == {wire.format}
    # That all of it happened: a plan was approved, a task failed and was tried again, teammates wrote to each other.
    assert 'type="plan_approval_response"' in "".join(heard.text for heard in here.heard("ben"))
    assert [event.data["task"] for event in past.of(EventKind.TASK_RETRIED)] == [3]
    assert len({message.sender for message in past.mail if message.type is MessageType.MESSAGE} - {"user"}) > 1


# -- plans ---------------------------------------------------------------------------------------------------


def _deciding_lead(request: ModelRequest) -> Step | str:
    """Rejects the first plan and approves the second."""
    view = View(request)
    if view.is_first:
        return Step(
            calls=(
                call("TaskCreate", subject="write the server"),
                call("Task", name="ana", prompt="Plan first.", require_plan=True),
            )
        )
    if 'type="plan_approval_request"' not in view.text:
        return "Noted."
    is_good = "with tests" in view.text
    number = view.text.partition('request_id="')[2].partition('"')[0]
    return Step(
        calls=(
            call(
                "SendMessage",
                type="plan_approval_response",
                request_id=number,
                approve=is_good,
                content="Go on." if is_good else "And the tests?",
            ),
        )
    )


def _planning_teammate(request: ModelRequest) -> Step | str:
    view = View(request)
    write = call("write_file", path="server.py", content="print('served')\n")
    if view.is_first:
        return Step(say="Hasty.", think="Perhaps nobody looks.", calls=(write, call("submit_plan", plan="write it")))
    if "And the tests?" in view.text:
        return Step(say="Again.", calls=(call("submit_plan", plan="write it with tests"),))
    if "Go on." in view.text:
        return Step(calls=(write, call("TaskUpdate", taskId=1, status="completed", result="written and tested")))
    return "It is done."


async def test_a_rejected_plan_is_followed_by_a_new_one_and_nothing_changes_before(wire: Wire, tmp_path: Path) -> None:
    async with company(wire, acting({"lead": _deciding_lead, "ana": _planning_teammate}), tmp_path) as here:
        report = await here.run()
        requests = await here.team.list_requests(status=None)
    here.check_legal()
    assert report.succeeded
    assert [(one.kind, one.status, one.approved) for one in requests] == [
        (RequestKind.PLAN, RequestStatus.ANSWERED, False),
        (RequestKind.PLAN, RequestStatus.ANSWERED, True),
    ]
    assert "your plan is not approved yet" in here.heard("ana")[1].results[0].text
    assert (tmp_path / "server.py").read_text() == "print('served')\n"


# -- a reply that is no answer ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("last", "reported"),
    [
        (Answer(stop="refusal", refusal="I will not."), "[error] the model refused to answer"),
        (Answer(), "[no_tool_use] (the model replied with nothing)"),
    ],
    ids=["refusal", "empty"],
)
async def test_a_refusal_and_an_empty_reply_of_a_teammate_reach_the_lead_as_such(
    wire: Wire, tmp_path: Path, last: Answer, reported: str
) -> None:
    def lead(request: ModelRequest) -> Step | str:
        view = View(request)
        if view.is_first:
            return Step(calls=(call("Task", name="ana", prompt="Say something."),))
        return "I have heard it." if 'type="result"' in view.text else "I wait."

    async with company(wire, acting({"lead": lead, "ana": lambda request: last}), tmp_path) as here:
        report = await here.run()
        told = await here.team.list_mail("lead")
    here.check_legal()
    assert report.text == "I have heard it."
    [result] = [message.content for message in told if message.type is MessageType.RESULT]
    assert result.startswith(reported)
    assert len(here.heard("ana")) == 1


async def test_a_failed_task_is_retried_by_the_lead_with_what_was_tried(wire: Wire, tmp_path: Path) -> None:
    play = Play(jobs=(Job(subject="build", fails=True),), teammates=("ana",), writes_mail=False)
    async with company(wire, playing(play), tmp_path) as here:
        report = await here.run()
    here.check_legal()
    [task] = report.tasks
    assert task.status is TaskStatus.COMPLETED
    again = [heard.text for heard in here.heard("ana") if "<handover" in heard.text]
    assert "no way" in again[0]
