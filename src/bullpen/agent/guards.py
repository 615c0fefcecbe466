"""Guards against going round in circles: the same call again and again, two members who only write to each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from typing import Any

from bullpen.domain.message import Message, Origin
from bullpen.domain.transcript import INTERRUPTED_TEXT, Turn, TurnKind

TOLD_AFTER = 3
STOPPED_AFTER = 5
MAX_EXCHANGES = 10


@dataclass(frozen=True, slots=True)
class Repetition:
    """How often the last call was made with the same arguments and the same result: in a row, or each time beside the
    same other calls, which had the same results too."""

    count: int
    name: str


Made = tuple[str, Any, str]
"""A call: its tool, its arguments, its result."""


def find_repetition(turns: Sequence[Turn], *, since_seq: int = 0) -> Repetition:
    newest: list[Made] = []
    in_a_row = alike = 0
    is_row = is_alike = True
    for reply in _replies(turns, since_seq):
        newest = newest or reply
        if is_row:
            same = _count_same(reply, newest[0])
            in_a_row += same
            is_row = same == len(reply)
        is_alike = is_alike and reply == newest
        alike += is_alike
        if not is_row and not is_alike:
            break
    return Repetition(max(in_a_row, alike), newest[0][0] if newest else "")


def _count_same(reply: Sequence[Made], last: Made) -> int:
    return sum(1 for _ in takewhile(lambda made: made == last, reply))


def _replies(turns: Sequence[Turn], since_seq: int) -> Iterator[list[Made]]:
    """The calls of each reply, the newest first. From the end, and no further than is asked for: in a long conversation
    nearly nothing is looked at."""
    results: dict[str, str] = {}
    for turn in reversed(turns):
        if turn.seq <= since_seq:
            return
        if turn.kind == TurnKind.TOOL_RESULT:
            results[turn.content["call_id"]] = turn.content["text"]
        elif turn.kind == TurnKind.ASSISTANT:
            parts = [part for part in reversed(turn.content["parts"]) if part["type"] == "call"]
            made = [(part["name"], part["arguments"], results.get(part["call_id"])) for part in parts]
            # What died with its process, however often, is nobody's circle.
            living = list(takewhile(lambda one: one[2] != INTERRUPTED_TEXT, made))
            if answered := [(name, arguments, text) for name, arguments, text in living if text is not None]:
                yield answered
            if len(living) < len(made):
                return


def last_exchange(mine: Sequence[Message], theirs: Sequence[Message], me: str, other: str) -> datetime | None:
    """When the tenth last message between these two was sent, if there were as many; who looks whether anything has
    changed since."""
    keys = {me.casefold(), other.casefold()}
    between = [
        message
        for message in {message.id: message for message in (*mine, *theirs)}.values()
        if message.origin is Origin.AGENT and {message.sender.casefold(), message.recipient_key} == keys
    ]
    if len(between) < MAX_EXCHANGES:
        return None
    return sorted(between, key=lambda message: message.id)[-MAX_EXCHANGES].sent_at
