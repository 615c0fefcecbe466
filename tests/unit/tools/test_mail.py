"""SendMessage and its older names, list_teammates, read_inbox, idle, submit_plan; compact."""

from __future__ import annotations

import pytest

from bullpen.domain.request import RequestKind
from bullpen.errors import NotFound, ToolError
from bullpen.tools import toolbox_for
from bullpen.tools.mail import IDLE, LIST_TEAMMATES, READ_INBOX, SEND_MESSAGE, SUBMIT_PLAN
from bullpen.tools.memory import COMPACT
from tests.unit.tools.conftest import MakeHands

pytestmark = pytest.mark.anyio


async def test_a_message_comes_from_its_sender_and_looking_does_not_drain(hands: MakeHands) -> None:
    ana, ben = hands("ana"), hands("ben")
    text = await ana.text(SEND_MESSAGE, to="ben", content="users.id is a string now")
    assert text == "message 1 to ben: delivered between two of their steps"
    for _ in range(2):
        inbox = await ben.text(READ_INBOX)
        assert 'from="ana"' in inbox
        assert inbox.startswith("waiting ")
    with pytest.raises(NotFound):
        await ana.call(SEND_MESSAGE, recipient="nobody", content="x")


async def test_the_older_names_speak_too(hands: MakeHands) -> None:
    lead, ana = hands("lead"), hands("ana")
    box = toolbox_for("lead")
    assert (await lead.say(box, "broadcast", content="listen")).text == "sent to 3 members: user, ana, ben"
    asked = (await lead.say(box, "shutdown_request", teammate="ana")).text
    assert "after 30 s it is forced" in asked
    (request,) = await lead.store.list_requests(lead.team.id, asked="ana")
    answered = await ana.say(
        toolbox_for("teammate"), "shutdown_response", request_id=request.id, approve=True, reason="done"
    )
    assert "approved" in answered.text


async def test_a_plan_is_handed_in_and_decided_under_the_same_name(hands: MakeHands) -> None:
    lead, ana = hands("lead"), hands("ana")
    output = await ana.say(toolbox_for("teammate"), "plan_approval", plan="Change api.py")
    assert output.ends_phase == "awaiting_messages"
    (request,) = await lead.store.list_requests(lead.team.id, asked="lead")
    assert (request.kind, request.content) == (RequestKind.PLAN, "Change api.py")
    decided = await lead.say(
        toolbox_for("lead"), "plan_approval", request_id=request.id, approve=False, feedback="too much"
    )
    assert "rejected" in decided.text
    assert (await lead.store.get_request(lead.team.id, request.id)).reason == "too much"


async def test_only_who_was_asked_answers_a_plan(hands: MakeHands) -> None:
    ana, ben = hands("ana"), hands("ben")
    await ana.call(SUBMIT_PLAN, plan="x")
    (request,) = await ana.store.list_requests(ana.team.id)
    with pytest.raises(Exception, match="only they may answer"):
        await ben.call(SEND_MESSAGE, type="plan_approval_response", request_id=request.id, approve=True)


async def test_an_answer_without_a_verdict_is_refused(hands: MakeHands) -> None:
    with pytest.raises(ToolError, match="approve"):
        await hands("lead").call(SEND_MESSAGE, type="plan_approval_response", request_id=1)


async def test_everybody_is_listed_with_what_it_does(hands: MakeHands) -> None:
    ana = hands("ana")
    await ana.store.create_task(ana.ref, "paint")
    await ana.store.claim_next_task(ana.ref)
    assert "ana: teammate, role dev, working, works on #1 paint" in await ana.text(LIST_TEAMMATES)


async def test_idle_ends_the_phase_and_compact_asks_for_a_summary(hands: MakeHands) -> None:
    assert (await hands().call(IDLE, reason="waiting for ben")).ends_phase == "waiting for ben"
    assert (await hands().call(COMPACT)).compact == ""
    assert (await hands().call(COMPACT, focus="the tests")).compact == "the tests"
