"""A request's one step out of open, and whose it is."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bullpen.domain.request import PermissionScope, Request, RequestStatus, answer, close, digest_of, facts_of
from bullpen.errors import Conflict, NotAllowed
from tests.unit.domain.strategies import json_values, moments, names, records, texts

requests = records(Request, asker=names, asked=names, status=st.sampled_from(RequestStatus))
open_requests = records(Request, asker=names, asked=names, digest=texts, incarnation=st.none() | st.integers(0, 9))
closed = st.sampled_from([status for status in RequestStatus if status is not RequestStatus.OPEN])


@given(open_requests, closed, moments)
def test_an_open_request_is_closed_in_one_step(request: Request, status: RequestStatus, at: datetime) -> None:
    over = close(request, status, at=at)
    assert (over.status, over.closed_at) == (status, at)
    assert over.approved is None
    for further in set(RequestStatus) - {RequestStatus.OPEN}:
        with pytest.raises(Conflict):
            close(over, further, at=at)
    with pytest.raises(Conflict):
        answer(over, by=over.asked, approve=True, at=at)


@given(requests, moments)
def test_nothing_is_opened_again(request: Request, at: datetime) -> None:
    with pytest.raises(ValueError):
        close(request, RequestStatus.OPEN, at=at)


@given(open_requests, st.booleans(), st.sampled_from([None, *PermissionScope]), moments)
def test_the_one_asked_answers_in_any_spelling_of_its_name(
    request: Request, approve: bool, scope: PermissionScope | None, at: datetime
) -> None:
    answered = answer(request, by=request.asked.swapcase(), approve=approve, reason="because", scope=scope, at=at)
    assert (answered.status, answered.approved, answered.scope) == (RequestStatus.ANSWERED, approve, scope)
    assert (answered.reason, answered.closed_at) == ("because", at)
    assert (answered.digest, answered.incarnation, answered.payload) == (
        request.digest,
        request.incarnation,
        request.payload,
    )


@given(requests, names, moments)
def test_nobody_else_answers_whatever_the_state(request: Request, name: str, at: datetime) -> None:
    assume(name.lower() != request.asked.lower())
    with pytest.raises(NotAllowed):
        answer(request, by=name, approve=True, at=at)


@given(json_values, json_values)
def test_a_digest_is_the_same_for_the_same_and_for_nothing_else(one: object, two: object) -> None:
    assert digest_of(one) == digest_of(one)
    if digest_of(one) == digest_of(two):
        assert one == two or repr(one) == repr(two)


@given(st.dictionaries(st.text(max_size=5), st.integers(), min_size=2, max_size=5))
def test_the_order_of_keys_does_not_matter_to_a_digest(arguments: dict[str, int]) -> None:
    assert digest_of(arguments) == digest_of(dict(reversed(arguments.items())))


def test_a_digest_takes_text_that_could_not_be_stored() -> None:
    assert digest_of("\ud800") != digest_of("\ufffd")


@given(requests)
def test_the_facts_of_a_request_name_it(request: Request) -> None:
    facts = facts_of(request)
    assert (facts["request"], facts["asker"], facts["asked"]) == (request.id, request.asker, request.asked)
