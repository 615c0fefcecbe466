"""Going round in circles is noticed, and nothing else is."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from bullpen.agent.guards import find_repetition, last_exchange
from bullpen.domain.message import Message, MessageType, Origin
from bullpen.domain.transcript import INTERRUPTED_TEXT, Turn, TurnKind

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def made(*calls: tuple[str, str, str]) -> list[Turn]:
    """Turns of replies with one call each: name, argument, result."""
    return replied(*([call] for call in calls))


def replied(*replies: Sequence[tuple[str, str, str]]) -> list[Turn]:
    """Turns of replies with these calls, and their results."""
    turns: list[Turn] = []
    for number, calls in enumerate(replies):
        ids = [f"c{number}.{position}" for position in range(len(calls))]
        parts = [
            {"type": "call", "call_id": call_id, "name": name, "arguments": {"x": argument}, "problem": None}
            for call_id, (name, argument, _) in zip(ids, calls, strict=True)
        ]
        turns.append(turn(len(turns) + 1, TurnKind.ASSISTANT, {"parts": parts}))
        for call_id, (name, _, result) in zip(ids, calls, strict=True):
            content = {"call_id": call_id, "name": name, "text": result, "is_error": False}
            turns.append(turn(len(turns) + 1, TurnKind.TOOL_RESULT, content))
    return turns


def turn(seq: int, kind: str, content: object) -> Turn:
    return Turn(team_id=1, member="ana", seq=seq, kind=kind, content=content, incarnation=1, created_at=NOON)


def test_the_same_call_with_the_same_result_is_counted() -> None:
    assert find_repetition(made(*[("bash", "ls", "a")] * 4)).count == 4


def test_calls_that_are_made_side_by_side_again_and_again_are_counted() -> None:
    both = [("bash", "test -s out", "[exit code 1]"), ("TaskUpdate", "completed", "the check failed")]
    assert find_repetition(replied(*[both] * 5)).count == 5


def test_calls_side_by_side_of_which_one_tells_something_new_are_progress() -> None:
    assert find_repetition(replied(*([("bash", "date", f"12:0{n}"), ("bash", "ls", "a")] for n in range(5)))).count == 1


def test_a_row_that_begins_in_the_middle_of_a_reply_is_counted_from_there() -> None:
    ls, pwd = ("bash", "ls", "a"), ("bash", "pwd", "/")
    assert find_repetition(replied([ls], [pwd, ls], [ls, ls])).count == 3


def test_another_result_is_progress() -> None:
    assert find_repetition(made(("bash", "ls", "a"), ("bash", "ls", "a"), ("bash", "ls", "b"))).count == 1


def test_what_died_with_its_process_is_no_repetition() -> None:
    assert find_repetition(made(*[("bash", "ls", INTERRUPTED_TEXT)] * 4)).count == 0


def test_other_arguments_are_another_call() -> None:
    assert find_repetition(made(("bash", "ls", "a"), ("bash", "pwd", "a"))).count == 1


def test_only_the_phase_counts() -> None:
    turns = made(*[("bash", "ls", "a")] * 4)
    assert find_repetition(turns, since_seq=4).count == 2


def test_nothing_called_is_nothing_repeated() -> None:
    assert find_repetition([]).count == 0


def mail(number: int, sender: str, recipient: str, origin: Origin = Origin.AGENT) -> Message:
    return Message(
        team_id=1,
        id=number,
        type=MessageType.MESSAGE,
        sender=sender,
        recipient=recipient,
        content="and you?",
        origin=origin,
        sent_at=NOON + timedelta(seconds=number),
    )


def exchange(count: int, others: Sequence[Message] = ()) -> datetime | None:
    letters = [mail(n, *(("ana", "Ben") if n % 2 else ("Ben", "ana"))) for n in range(1, count + 1)]
    to_ana = [letter for letter in letters if letter.recipient == "ana"]
    to_ben = [letter for letter in letters if letter.recipient == "Ben"]
    return last_exchange([*to_ana, *others], to_ben, "ana", "ben")


def test_ten_messages_between_two_are_an_exchange() -> None:
    assert exchange(10) == NOON + timedelta(seconds=1)
    assert exchange(12) == NOON + timedelta(seconds=3)


def test_nine_are_not_nor_are_those_of_others() -> None:
    assert exchange(9) is None
    assert exchange(9, [mail(50, "cat", "ana"), mail(51, "user", "ana", Origin.HUMAN)]) is None
