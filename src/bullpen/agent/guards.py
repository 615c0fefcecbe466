"""Guards against going round in circles: the same call again and again, two members who only write to each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bullpen.domain.message import Message, Origin
from bullpen.domain.transcript import INTERRUPTED_TEXT, Turn, TurnKind

TOLD_AFTER = 3
STOPPED_AFTER = 5
MAX_EXCHANGES = 10


@dataclass(frozen=True, slots=True)
class Repetition:
    """How often the last call was made in a row with the same arguments and the same result."""

    count: int
    name: str


def find_repetition(turns: Sequence[Turn], *, since_seq: int = 0) -> Repetition:
    results: dict[str, str] = {}
    last: tuple[Any, ...] | None = None
    count = 0
    # From the end, and no further than the row goes: in a long conversation nearly nothing is looked at.
    for turn in reversed(turns):
        if turn.seq <= since_seq:
            break
        if turn.kind == TurnKind.TOOL_RESULT:
            results[turn.content["call_id"]] = turn.content["text"]
        elif turn.kind == TurnKind.ASSISTANT:
            for part in reversed(turn.content["parts"]):
                if part["type"] != "call" or part["call_id"] not in results:
                    continue
                if results[part["call_id"]] == INTERRUPTED_TEXT:
                    # It died with its process, however often: that is nobody's circle.
                    return Repetition(count, "" if last is None else last[0])
                made = (part["name"], part["arguments"], results[part["call_id"]])
                if last is not None and made != last:
                    return Repetition(count, last[0])
                last = made
                count += 1
    return Repetition(count, "" if last is None else last[0])


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
