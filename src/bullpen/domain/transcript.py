"""A member's memory: turns that are only ever appended, and the tool calls between them.

    tool call:  queued ──> started ──> finished
                              └──────> interrupted (the process died: outcome unknown)

`started` is written before the effect, by itself or with the reply. After a kill, queued calls run, started
ones come back as interrupted, finished ones are never repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from bullpen.domain.message import Message
from bullpen.domain.text import name_key
from bullpen.errors import Conflict


class TurnKind(StrEnum):
    """Readers tolerate kinds they do not know: a newer version may have written them."""

    USER = "user"
    MAIL = "mail"
    ASSISTANT = "assistant"
    TOOL_RESULT = "tool_result"
    COMPACTION = "compaction"
    PRUNING = "pruning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    team_id: int
    member: str
    seq: int
    kind: str
    content: Any
    incarnation: int
    created_at: datetime

    @property
    def member_key(self) -> str:
        return name_key(self.member)


class CallState(StrEnum):
    QUEUED = "queued"
    STARTED = "started"
    FINISHED = "finished"
    INTERRUPTED = "interrupted"


OPEN_CALLS = frozenset({CallState.QUEUED, CallState.STARTED})

CALL_TRANSITIONS: Mapping[CallState, frozenset[CallState]] = {
    CallState.QUEUED: frozenset({CallState.STARTED, CallState.FINISHED}),
    CallState.STARTED: frozenset({CallState.FINISHED, CallState.INTERRUPTED}),
    CallState.FINISHED: frozenset(),
    CallState.INTERRUPTED: frozenset(),
}

ABOUT_LENGTH = 60
INTERRUPTED_TEXT = "interrupted, outcome unknown: look before you repeat"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    team_id: int
    member: str
    call_id: str
    turn_seq: int
    position: int = 0
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    state: CallState = CallState.QUEUED
    result: str | None = None
    is_error: bool = False
    incarnation: int
    queued_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None

    @property
    def member_key(self) -> str:
        return name_key(self.member)

    @property
    def about(self) -> str:
        """What it is about, in a few words: the first short text among its arguments."""
        texts = (value for value in self.arguments.values() if isinstance(value, str) and value.strip())
        return " ".join(next(texts, "")[: 4 * ABOUT_LENGTH].split())[:ABOUT_LENGTH]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCall:
    """A tool call as the model's reply asks for it. `is_started`: it is about to run, as soon as this is stored."""

    call_id: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    is_started: bool = False


class TranscriptEnd(NamedTuple):
    """Where the next turn comes, and whether mail may stand there: never between a call and its result."""

    seq: int
    """Of the last turn, 0 if there is none."""
    has_open_calls: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenMail:
    """The turn that the mail became, and the mail."""

    turn: Turn
    messages: tuple[Message, ...]


def step_call(
    call: ToolCall, to: CallState, *, at: datetime, result: str | None = None, is_error: bool = False
) -> ToolCall:
    """The call in its next state; Conflict if it may not go there."""
    if to not in CALL_TRANSITIONS[call.state]:
        raise Conflict(f"tool call {call.call_id} is {call.state} and cannot become {to}")
    if to is CallState.STARTED:
        return replace(call, state=to, started_at=at)
    return replace(call, state=to, finished_at=at, result=result, is_error=is_error)
