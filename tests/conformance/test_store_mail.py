"""Mail: exactly once into the transcript, in order, from whom the runtime says it is."""

from __future__ import annotations

import asyncio

import pytest

from bullpen.domain.event import EventKind
from bullpen.domain.member import MemberStatus
from bullpen.domain.message import CONTROL_TYPES, RUNTIME_TYPES, MessageType, Origin
from bullpen.domain.request import RequestKind
from bullpen.domain.transcript import TurnKind
from bullpen.errors import LeaseLost, NotAllowed, NotFound, ToolCallsOpen, UsageError
from tests.conformance.board import Board
from tests.conformance.conftest import OpenAnother

# -- sending -------------------------------------------------------------------------------


async def test_a_message_is_stored_with_its_sender_and_origin(board: Board) -> None:
    ana = await board.teammate("ana")
    [from_user] = await board.store.send(board.user, "ANA", "hello")
    [from_lead] = await board.store.send(board.lead, "ana", "hello too")
    [from_ana] = await board.store.send(ana, "lead", "hello back", reply_to=from_lead.message.id)
    message = from_user.message
    assert (message.sender, message.recipient, message.origin) == ("user", "ana", Origin.HUMAN)
    assert (message.type, message.content, message.sent_at) == (MessageType.MESSAGE, "hello", board.clock.now())
    assert (message.delivered_at, message.delivered_turn, message.answered_at) == (None, None, None)
    assert from_user.outcome == "queued"
    assert (from_lead.message.sender, from_lead.message.origin) == ("lead", Origin.AGENT)
    assert (from_ana.message.sender, from_ana.message.reply_to) == ("ana", from_lead.message.id)
    assert message.id < from_lead.message.id < from_ana.message.id
    assert await board.store.get_message(board.id, message.id) == message


async def test_mail_to_nobody_is_an_error(board: Board) -> None:
    for name in ("nobody", "", None, "../lead", "*"):
        with pytest.raises((NotFound, UsageError)):
            await board.store.send(board.user, name, "hello?")
    assert EventKind.MESSAGE_SENT not in await board.kinds()


async def test_the_lead_and_the_user_always_have_an_inbox(board: Board) -> None:
    ana = await board.teammate("ana")
    for name in ("lead", "user"):
        [receipt] = await board.store.send(ana, name, f"dear {name}")
        assert receipt.outcome == "queued"
        assert [message.content for message in await board.inbox(name)] == [f"dear {name}"]


async def test_a_broadcast_goes_to_everyone_but_the_sender(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.teammate("ben")
    await board.external("cat")
    receipts = await board.store.send(ana, None, "lunch?", type=MessageType.BROADCAST)
    assert {receipt.message.recipient for receipt in receipts} == {"lead", "user", "ben", "cat"}
    assert {receipt.message.type for receipt in receipts} == {MessageType.BROADCAST}
    assert await board.inbox("ana") == []


async def test_order_per_sender_is_kept(board: Board, open_another: OpenAnother) -> None:
    other = await open_another()
    ana, ben, cat = [await board.teammate(name) for name in ("ana", "ben", "cat")]

    async def write(by: object, store: object) -> None:
        for number in range(15):
            await store.send(by, "cat", f"{number}")  # type: ignore[attr-defined]

    await asyncio.gather(write(ana, board.store), write(ben, other))
    taken = await board.store.take_mail(cat)
    assert taken is not None
    for name in ("ana", "ben"):
        mine = [int(message.content) for message in taken.messages if message.sender == name]
        assert mine == list(range(15))


@pytest.mark.parametrize("type", sorted(CONTROL_TYPES | RUNTIME_TYPES))
async def test_nobody_writes_what_the_runtime_writes(board: Board, type: MessageType) -> None:
    ana = await board.teammate("ana")
    for by in (ana, board.lead, board.user):
        with pytest.raises(UsageError):
            await board.store.send(by, "user", "approved!", type=type)
    assert await board.inbox("user") == []


@pytest.mark.parametrize("type", sorted(set(MessageType) - RUNTIME_TYPES))
async def test_the_runtime_writes_only_its_own_types(board: Board, type: MessageType) -> None:
    with pytest.raises(UsageError):
        await board.store.notify(board.id, "lead", "hello", type=type)


async def test_the_runtimes_word_comes_from_the_system(board: Board) -> None:
    message = await board.store.notify(board.id, "LEAD", "disk is full", type=MessageType.ERROR, wakes=False)
    assert (message.sender, message.recipient, message.origin) == ("system", "lead", Origin.SYSTEM)
    assert (message.type, message.wakes) == (MessageType.ERROR, False)
    assert await board.store.get_message(board.id, message.id) == message
    with pytest.raises(NotFound):
        await board.store.notify(board.id, "nobody", "hello")
    with pytest.raises(NotFound):
        await board.store.notify(99, "lead", "hello")


async def test_an_empty_message_is_refused(board: Board) -> None:
    for nothing in ("", "  \n "):
        with pytest.raises(UsageError):
            await board.store.send(board.user, "lead", nothing)


async def test_a_receipt_says_what_becomes_of_mail_to_who_is_gone(board: Board) -> None:
    store = board.store
    await board.timed_out_teammate("ana")
    ben = await board.teammate("ben")
    await store.shut_down_member(ben)
    cat = await board.external("cat")
    await store.shut_down_member(cat)
    outcomes = {}
    for name in ("ana", "ben", "cat"):
        [receipt] = await store.send(board.user, name, "hello")
        outcomes[name] = receipt.outcome
    assert outcomes == {"ana": "revives", "ben": "kept", "cat": "kept"}
    again = await board.external("cat")
    taken = await store.take_mail(again)
    assert taken is not None
    assert [message.content for message in taken.messages] == ["hello"]


# -- replies -------------------------------------------------------------------------------


async def test_a_reply_marks_the_question_as_answered(board: Board) -> None:
    ana = await board.teammate("ana")
    [question] = await board.store.send(board.user, "ana", "how far?")
    board.clock.advance(3)
    await board.store.send(ana, "user", "half", reply_to=question.message.id)
    answered = await board.store.get_message(board.id, question.message.id)
    assert answered.answered_at == board.clock.now()
    board.clock.advance(3)
    await board.store.send(ana, "user", "all of it", reply_to=question.message.id)
    assert await board.store.get_message(board.id, question.message.id) == answered, "the first answer counts"


async def test_one_replies_only_to_what_one_got(board: Board) -> None:
    ana = await board.teammate("ana")
    [note] = await board.store.send(board.user, "lead", "for the lead")
    for number in (note.message.id, 9999):
        with pytest.raises(NotFound):
            await board.store.send(ana, "user", "answer", reply_to=number)
    assert (await board.store.get_message(board.id, note.message.id)).answered_at is None
    assert await board.inbox("user") == []


# -- looking and taking --------------------------------------------------------------------


async def test_looking_at_the_inbox_empties_nothing(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.store.send(board.user, "ana", "hello")
    for _ in range(3):
        [message] = await board.inbox("ana", undelivered_only=True)
        assert message.delivered_at is None
    taken = await board.store.take_mail(ana)
    assert taken is not None
    assert await board.inbox("ana", undelivered_only=True) == []
    assert [message.content for message in await board.inbox("ana")] == ["hello"], "what was delivered is still shown"


async def test_the_newest_mail_is_listed_oldest_first(board: Board) -> None:
    for number in range(5):
        await board.store.send(board.user, "lead", f"{number}")
    newest = await board.store.list_mail(board.id, "lead", limit=2)
    assert [message.content for message in newest] == ["3", "4"]
    assert await board.store.list_mail(board.id, "lead", limit=0) == []
    with pytest.raises(NotFound):
        await board.store.list_mail(board.id, "nobody")


async def test_taking_mail_writes_it_into_the_transcript_in_the_same_moment(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.store.send(board.user, "ana", "one & two")
    await board.store.send(board.lead, "ana", "three")
    await board.store.notify(board.id, "ana", "four", wakes=False)
    board.clock.advance(1)
    taken = await board.store.take_mail(ana)
    assert taken is not None
    assert [message.content for message in taken.messages] == ["one & two", "three", "four"]
    assert {(m.delivered_at, m.delivered_turn) for m in taken.messages} == {(board.clock.now(), taken.turn.seq)}
    [turn] = await board.store.list_turns(board.id, "ana")
    assert turn == taken.turn
    assert turn.kind == TurnKind.MAIL
    assert [entry["message"] for entry in turn.content] == [message.id for message in taken.messages]
    assert '<message from="user" origin="human" type="message"' in turn.content[0]["text"]
    assert "one &amp; two</message>" in turn.content[0]["text"]
    assert await board.inbox("ana") == list(taken.messages)
    assert await board.store.take_mail(ana) is None
    assert len(await board.store.list_turns(board.id, "ana")) == 1


async def test_mail_is_taken_in_batches_and_the_rest_stays(board: Board) -> None:
    ana = await board.teammate("ana")
    for number in range(5):
        await board.store.send(board.user, "ana", f"{number}")
    sizes = []
    while (taken := await board.store.take_mail(ana, limit=2)) is not None:
        sizes.append([message.content for message in taken.messages])
    assert sizes == [["0", "1"], ["2", "3"], ["4"]]


async def test_mail_never_stands_between_a_call_and_its_result(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.open_call(ana)
    await board.store.send(board.user, "ana", "hello")
    with pytest.raises(ToolCallsOpen):
        await board.store.take_mail(ana)
    assert len(await board.inbox("ana", undelivered_only=True)) == 1
    await board.store.finish_call(ana, "call-1", "ok")
    assert await board.store.take_mail(ana) is not None
    kinds = [turn.kind for turn in await board.store.list_turns(board.id, "ana")]
    assert kinds == ["assistant", "tool_result", "mail"]


async def test_each_message_is_in_exactly_one_turn_however_many_take_at_once(
    board: Board, open_another: OpenAnother
) -> None:
    """An append between read and truncate was lost; here sending and taking run against each other."""
    other = await open_another()
    ana = await board.teammate("ana")
    sent: list[int] = []

    async def write(number: int) -> None:
        for _ in range(10):
            [receipt] = await (board.store, other)[number % 2].send(board.user, "ana", "x")
            sent.append(receipt.message.id)

    async def take(number: int, writing: asyncio.Future[list[None]]) -> None:
        while not writing.done():
            await (board.store, other)[number % 2].take_mail(ana, limit=3)

    writing = asyncio.gather(*(write(number) for number in range(4)))
    await asyncio.gather(writing, *(take(number, writing) for number in range(4)))
    while await board.store.take_mail(ana):
        pass
    turns = await board.store.list_turns(board.id, "ana")
    delivered = [entry["message"] for turn in turns for entry in turn.content]
    assert sorted(delivered) == sorted(sent)
    assert [turn.seq for turn in turns] == list(range(1, len(turns) + 1))
    assert (await board.kinds()).count(EventKind.MESSAGE_DELIVERED) == 40


async def test_a_control_message_takes_nothing_else_of_its_batch_along(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.store.send(board.user, "ana", "before")
    await board.store.open_request(board.lead, RequestKind.SHUTDOWN, "ana", content="we are done")
    await board.store.send(board.user, "ana", "after")
    taken = await board.store.take_mail(ana)
    assert taken is not None
    assert [message.type for message in taken.messages] == ["message", "shutdown_request", "message"]
    assert taken.messages[1].request_id is not None


async def test_mail_goes_to_its_recipient_alone(board: Board) -> None:
    ana, ben = await board.teammate("ana"), await board.teammate("ben")
    await board.store.send(board.user, "ana", "for ana")
    assert await board.store.take_mail(ben) is None
    assert await board.inbox("ben") == []
    taken = await board.store.take_mail(ana)
    assert taken is not None


# -- acknowledging -------------------------------------------------------------------------


async def test_an_external_member_is_offered_mail_until_it_has_acknowledged_it(board: Board) -> None:
    store = board.store
    cat = await board.external("cat")
    [first] = await store.send(board.user, "cat", "one")
    [second] = await store.send(board.user, "cat", "two")
    offered = await board.inbox("cat", undelivered_only=True)
    assert [message.id for message in offered] == [first.message.id, second.message.id]
    assert await board.inbox("cat", undelivered_only=True) == offered
    async with board.recording() as seen:
        await store.acknowledge_mail(cat, [first.message.id])
        await store.acknowledge_mail(cat, [first.message.id])
    assert [event.kind for event in seen] == [EventKind.MESSAGE_DELIVERED]
    assert [message.id for message in await board.inbox("cat", undelivered_only=True)] == [second.message.id]


async def test_of_more_mail_than_is_offered_at_once_the_oldest_comes_first(board: Board) -> None:
    cat = await board.external("cat")
    for number in range(5):
        await board.store.send(board.user, "cat", f"{number}")
    read = []
    while offered := await board.store.list_offered_mail(cat, limit=2):
        assert await board.store.list_offered_mail(cat, limit=2) == offered
        read += [message.content for message in offered]
        await board.store.acknowledge_mail(cat, [message.id for message in offered])
    assert read == ["0", "1", "2", "3", "4"]


async def test_who_has_left_is_offered_nothing(board: Board) -> None:
    cat = await board.external("cat")
    await board.store.send(board.user, "cat", "for whoever comes back")
    await board.store.shut_down_member(cat)
    with pytest.raises(LeaseLost):
        await board.store.list_offered_mail(cat)


async def test_one_acknowledges_only_ones_own_mail(board: Board) -> None:
    cat, _ = await board.external("cat"), await board.external("dan")
    [receipt] = await board.store.send(board.user, "dan", "for dan")
    await board.store.acknowledge_mail(cat, [receipt.message.id, 9999])
    assert len(await board.inbox("dan", undelivered_only=True)) == 1


async def test_the_human_acknowledges_what_was_shown(board: Board) -> None:
    [receipt] = await board.store.send(board.lead, "user", "all done")
    await board.store.acknowledge_mail(board.user, [receipt.message.id])
    assert await board.inbox("user", undelivered_only=True) == []


async def test_a_teammates_mail_goes_into_its_transcript_and_nowhere_else(board: Board) -> None:
    ana = await board.teammate("ana")
    [receipt] = await board.store.send(board.user, "ana", "remember this")
    for by in (ana, board.lead):
        with pytest.raises(NotAllowed):
            await board.store.acknowledge_mail(by, [receipt.message.id])
    assert len(await board.inbox("ana", undelivered_only=True)) == 1


async def test_sending_and_delivering_are_recorded(board: Board) -> None:
    ana = await board.teammate("ana")
    async with board.recording() as seen:
        [receipt] = await board.store.send(board.user, "ana", "x" * 5000)
        taken = await board.store.take_mail(ana)
    assert taken is not None
    sent = next(event for event in seen if event.kind == EventKind.MESSAGE_SENT)
    assert (sent.actor, sent.data["message"], sent.data["to"]) == ("user", receipt.message.id, "ana")
    assert len(sent.data["text"]) < 500, "an event is a fact, not a copy"
    delivered = next(event for event in seen if event.kind == EventKind.MESSAGE_DELIVERED)
    assert (delivered.data["message"], delivered.data["turn"]) == (receipt.message.id, taken.turn.seq)


async def test_a_member_is_known_by_its_own_name_to_all(board: Board) -> None:
    """Every teammate's mail said from "lead"; names are stored as they were given."""
    ana = await board.teammate("Ana")
    [receipt] = await board.store.send(ana, "lead", "hi")
    assert receipt.message.sender == "Ana"
    assert (await board.member("ana")).status is MemberStatus.WORKING


async def test_an_unknown_message_is_not_found(board: Board) -> None:
    with pytest.raises(NotFound):
        await board.store.get_message(board.id, 1)
