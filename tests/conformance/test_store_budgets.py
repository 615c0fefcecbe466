"""Budgets: set aside before the call, settled after it, never passed, whoever asks at once and whoever dies."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from bullpen.domain.budget import BUDGET_SPENT, TEAM_ACCOUNT, Account, Reservation, Reserved, Settlement
from bullpen.domain.event import EventKind
from bullpen.domain.member import MemberRef, MemberStatus
from bullpen.domain.prompt import Usage
from bullpen.errors import NotFound, UsageError
from tests.conformance.board import Board
from tests.conformance.conftest import OpenAnother


async def ask(board: Board, by: MemberRef, *, tokens: int = 100, cost_usd: float = 1.0, **rest: Any) -> Reserved:
    wish = {"purpose": "turn", "provider_key": "key", "model": "m", "tokens": tokens, "cost_usd": cost_usd, **rest}
    return await board.store.reserve(by, **wish)


async def given(board: Board, by: MemberRef, **wish: Any) -> Reservation:
    outcome = await ask(board, by, **wish)
    assert outcome.reservation is not None, outcome.refusal
    return outcome.reservation


def settlement(reservation: Reservation, *, input_tokens: int = 40, cost_usd: float = 0.25) -> Settlement:
    usage = Usage(input_tokens=input_tokens, output_tokens=10, cache_read_tokens=30)
    return Settlement(reservation_id=reservation.id, usage=usage, cost_usd=cost_usd)


async def limit(board: Board, **budget: Any) -> None:
    await board.store.change_team(board.user, settings={"budget": budget})


async def account(board: Board, key: str = TEAM_ACCOUNT) -> Account:
    [found] = [one for one in await board.store.list_accounts(board.id) if one.member_key == key]
    return found


async def test_what_is_reserved_is_open_and_what_is_settled_is_spent(board: Board) -> None:
    ana = await board.teammate("ana")
    reservation = await given(board, ana)
    for key in (TEAM_ACCOUNT, "ana"):
        before = await account(board, key)
        assert (before.open_calls, before.open_tokens, before.open_cost_usd, before.calls) == (1, 100, 1.0, 0)
    async with board.recording() as seen:
        first = await board.store.settle(ana, settlement(reservation))
        assert await board.store.settle(ana, settlement(reservation, cost_usd=9.0)) == first
    for key in (TEAM_ACCOUNT, "ana"):
        after = await account(board, key)
        assert (after.open_calls, after.open_tokens, after.open_cost_usd, after.calls) == (0, 0, 0.0, 1)
        assert (after.input_tokens, after.output_tokens, after.cache_read_tokens) == (40, 10, 30)
        assert after.cost_usd == pytest.approx(0.25)
    [answered] = [event for event in seen if event.kind == EventKind.MODEL_ANSWERED]
    assert (answered.data["member"], answered.data["cost_usd"]) == ("ana", 0.25)


async def test_a_reply_settles_its_request_in_the_same_step(board: Board) -> None:
    ana = await board.teammate("ana")
    reservation = await given(board, ana)
    await board.store.record_turn(ana, "assistant", "hello", settlement=settlement(reservation))
    assert (await account(board, "ana")).calls == 1
    with pytest.raises(NotFound):
        await board.store.record_turn(
            ana, "assistant", "again", settlement=Settlement(reservation_id=99, usage=Usage(), cost_usd=0.0)
        )
    assert len(await board.store.list_turns(board.id, "ana")) == 1


async def test_only_who_reserved_settles(board: Board) -> None:
    ana, ben = await board.teammate("ana"), await board.teammate("ben")
    reservation = await given(board, ana)
    with pytest.raises(NotFound):
        await board.store.settle(ben, settlement(reservation))
    assert (await account(board)).open_calls == 1


@pytest.mark.parametrize(
    ("budget", "name"),
    [({"max_cost_usd": 2.5}, "max_cost_usd"), ({"max_tokens": 250}, "max_tokens"), ({"max_calls": 2}, "max_calls")],
)
async def test_a_call_that_might_pass_a_limit_is_refused_before_it_is_made(
    board: Board, budget: dict[str, Any], name: str
) -> None:
    await limit(board, **budget)
    ana, ben = await board.teammate("ana"), await board.teammate("ben")
    first, second = await given(board, ana), await given(board, ben)
    waiting = (await ask(board, ana)).refusal
    assert waiting is not None
    assert name in waiting.why
    assert not waiting.is_final, "those under way may settle for less"
    await board.store.settle(ana, settlement(first, input_tokens=90, cost_usd=1.0))
    await board.store.settle(ben, settlement(second, input_tokens=90, cost_usd=1.0))
    over = (await ask(board, ana)).refusal
    assert over is not None
    assert over.is_final


async def test_a_member_has_limits_of_its_own(board: Board) -> None:
    await limit(board, member={"max_calls": 1})
    ana, ben = await board.teammate("ana"), await board.teammate("ben")
    await board.store.settle(ana, settlement(await given(board, ana)))
    refusal = (await ask(board, ana)).refusal
    assert refusal is not None
    assert refusal.is_final
    assert "ana" in refusal.why
    await given(board, ben)


async def test_a_limit_that_is_raised_makes_room_in_place(board: Board) -> None:
    await limit(board, max_cost_usd=1.0)
    ana = await board.teammate("ana")
    await board.store.settle(ana, settlement(await given(board, ana)))
    assert (await ask(board, ana)).refusal is not None
    await limit(board, max_cost_usd=2.0)
    await given(board, ana)


async def test_the_end_of_a_budget_is_told_once_to_the_lead_and_the_human(board: Board) -> None:
    await limit(board, max_cost_usd=0.5)
    ana, ben = await board.teammate("ana"), await board.teammate("ben")
    for ref in (ana, ben, ana):
        assert (await ask(board, ref)).refusal is not None
    for name in ("lead", "user"):
        told = [message for message in await board.inbox(name) if "No more calls" in message.content]
        assert len(told) == 1, name
    assert await board.store.find_work(board.lead) is None, (
        "a budget that is spent must not wake the lead to spend more"
    )


async def test_the_human_is_warned_once_at_four_fifths(board: Board) -> None:
    await limit(board, max_cost_usd=10.0)
    ana = await board.teammate("ana")
    for cost in (7.9, 0.2, 0.2):
        await board.store.settle(ana, settlement(await given(board, ana), cost_usd=cost))
    told = [message for message in await board.inbox("user") if "max_cost_usd" in message.content]
    assert len(told) == 1
    assert "81%" in told[0].content


async def test_what_the_dead_had_reserved_counts_as_spent(board: Board) -> None:
    await limit(board, max_cost_usd=2.0)
    doomed = await board.store.register_worker(slots=1)
    ana = await board.teammate("ana", worker=doomed)
    ben = await board.teammate("ben")
    await given(board, ana, cost_usd=1.5)
    await board.store.lapse_worker(doomed.id, renewals_seen=None)
    async with board.recording() as seen:
        refusal = (await ask(board, ben)).refusal
    assert refusal is not None
    assert refusal.is_final, "nobody is left who could settle it for less"
    team = await account(board)
    assert (team.cost_usd, team.open_calls) == (1.5, 0)
    assert EventKind.BUDGET_WRITTEN_OFF in [event.kind for event in seen]
    await given(board, ben, cost_usd=0.5)


async def test_what_a_member_had_reserved_before_it_died_is_spent_when_it_asks_again(board: Board) -> None:
    ana = await board.teammate("ana")
    await given(board, ana, cost_usd=1.5)
    await board.store.release_member(ana, note="crashed")
    again = await board.host("ana")
    await given(board, again, cost_usd=0.25)
    for key in (TEAM_ACCOUNT, "ana"):
        spent = await account(board, key)
        assert (spent.cost_usd, spent.open_cost_usd, spent.open_calls) == (1.5, 0.25, 1)


async def test_what_one_who_left_had_reserved_counts_as_spent(board: Board) -> None:
    """Its incarnation has not ended, but the fence lets it settle nothing more."""
    ana, ben = await board.teammate("ana"), await board.teammate("ben")
    await limit(board, max_cost_usd=2)
    await given(board, ana, cost_usd=1.5)
    await board.store.shut_down_member(ana)
    refusal = (await ask(board, ben, cost_usd=1.0)).refusal
    assert refusal is not None
    assert refusal.is_final
    assert (await account(board)).open_calls == 0


async def test_who_waits_for_a_budget_and_tries_again_says_so_once(board: Board) -> None:
    """Each try wakes who follows the log: two who wait would wake each other for ever."""
    ana = await board.teammate("ana")
    await limit(board, max_calls=0)
    async with board.recording() as seen:
        await ask(board, ana)
        await board.store.set_member_status(ana, MemberStatus.WAITING, reason=f"{BUDGET_SPENT}: max_calls")
        for _ in range(3):
            refusal = (await ask(board, ana)).refusal
            assert refusal is not None
            assert refusal.is_final
    assert [event.kind for event in seen].count(EventKind.BUDGET_REFUSED) == 1


async def test_a_paused_team_asks_nobody(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.store.change_team(board.user, settings={"paused": True})
    refusal = (await ask(board, ana)).refusal
    assert refusal is not None
    assert not refusal.is_final
    await board.store.change_team(board.user, settings={"paused": False})
    await given(board, ana)


async def test_a_provider_that_asked_to_be_left_alone_is_left_alone_by_every_team(board: Board) -> None:
    other = await board.store.create_team("other")
    stranger = MemberRef(other.id, "lead", 0)
    ana = await board.teammate("ana")
    gate = await board.store.block_provider("key", seconds=30)
    assert await board.store.block_provider("key", seconds=5) == gate, "never shortened"
    for ref in (ana, stranger):
        refusal = (await ask(board, ref)).refusal
        assert refusal is not None
        assert refusal.until == gate.blocked_until
    await given(board, ana, provider_key="another key")
    board.clock.advance(31)
    await given(board, ana)
    later = await board.store.block_provider("key", seconds=60)
    assert later.blocked_until - gate.blocked_until > timedelta(seconds=30)


async def test_many_who_ask_at_once_never_pass_the_limit(board: Board, open_another: OpenAnother) -> None:
    await limit(board, max_calls=7)
    other = await open_another()
    members = [await board.teammate(f"m{number}") for number in range(12)]

    async def reserve(number: int, ref: MemberRef) -> Reserved:
        store = (board.store, other)[number % 2]
        return await store.reserve(ref, purpose="turn", provider_key="key", model="m", tokens=1, cost_usd=0.1)

    outcomes = await asyncio.gather(*(reserve(number, ref) for number, ref in enumerate(members)))
    granted = [outcome.reservation.id for outcome in outcomes if outcome.reservation is not None]
    assert sorted(granted) == list(range(1, 8)), "each has a number of its own"


@pytest.mark.parametrize(("tokens", "cost_usd"), [(-1, 0.0), (1, -0.1), (1, float("inf")), (1, float("nan"))])
async def test_amounts_that_make_no_sense_are_refused(board: Board, tokens: int, cost_usd: float) -> None:
    with pytest.raises(UsageError):
        await ask(board, board.lead, tokens=tokens, cost_usd=cost_usd)


@pytest.mark.parametrize("nonsense", ["much", None, -1, True, float("inf"), {"x": 1}])
async def test_a_limit_that_is_no_number_is_none(board: Board, nonsense: object) -> None:
    await limit(board, max_cost_usd=nonsense)
    await given(board, board.lead, cost_usd=1000.0)
