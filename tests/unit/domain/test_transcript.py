"""The states of a tool call."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.domain.transcript import CALL_TRANSITIONS, OPEN_CALLS, CallState, ToolCall, step_call
from bullpen.errors import Conflict
from tests.unit.domain.strategies import moments, records

LEGAL = {
    (CallState.QUEUED, CallState.STARTED),
    (CallState.QUEUED, CallState.FINISHED),
    (CallState.STARTED, CallState.FINISHED),
    (CallState.STARTED, CallState.INTERRUPTED),
}


def test_the_table_has_exactly_the_legal_steps() -> None:
    assert {(before, after) for before, afters in CALL_TRANSITIONS.items() for after in afters} == LEGAL
    assert {before for before, _ in LEGAL} == OPEN_CALLS


@given(records(ToolCall, state=st.sampled_from(CallState)), st.sampled_from(CallState), moments)
def test_a_call_takes_legal_steps_alone(call: ToolCall, to: CallState, at: datetime) -> None:
    if (call.state, to) not in LEGAL:
        with pytest.raises(Conflict):
            step_call(call, to, at=at, result="x")
        return
    after = step_call(call, to, at=at, result="done", is_error=True)
    assert after.state is to
    assert (after.call_id, after.name, after.arguments, after.turn_seq) == (
        call.call_id,
        call.name,
        call.arguments,
        call.turn_seq,
    )
    if to is CallState.STARTED:
        assert (after.started_at, after.result, after.finished_at) == (at, call.result, call.finished_at)
    else:
        assert (after.finished_at, after.result, after.is_error) == (at, "done", True)


@given(st.lists(st.sampled_from(CallState), max_size=8), moments)
def test_every_way_through_the_states_ends_and_has_at_most_one_result(steps: list[CallState], at: datetime) -> None:
    call = ToolCall(team_id=1, member="ana", call_id="c", turn_seq=1, name="bash", incarnation=1, queued_at=at)
    results = 0
    for step in steps:
        try:
            call = step_call(call, step, at=at, result="r")
        except Conflict:
            continue
        results += step in (CallState.FINISHED, CallState.INTERRUPTED)
    assert results <= 1
    assert (call.result is not None) == (results == 1) == (call.state not in OPEN_CALLS)
