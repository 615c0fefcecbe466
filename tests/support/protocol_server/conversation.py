"""What the server heard and what its model answers, the same for both formats."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from bullpen.domain.prompt import CallPart, ResultPart, TextPart, ThinkingPart, Usage, UserMessage
from bullpen.provider import ModelRequest

CHARACTERS_PER_TOKEN = 4
_NAMED = re.compile(r"You are '([^']+)'")


class Refused(Exception):
    """The request is not legal; what the real API would say."""

    def __init__(self, status: int, kind: str, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.message = message
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """One legal request."""

    format: str
    model: str
    request: ModelRequest
    stream: bool
    body: Mapping[str, Any]
    raw: str
    key: str = ""
    at: datetime | None = None
    """With which key it came, and when."""

    @property
    def member(self) -> str:
        return self.request.member

    @property
    def newest(self) -> UserMessage:
        message = self.request.messages[-1]
        assert isinstance(message, UserMessage)
        return message

    @property
    def text(self) -> str:
        return "\n".join(part.text for part in self.newest.parts if isinstance(part, TextPart))

    @property
    def results(self) -> tuple[ResultPart, ...]:
        return tuple(part for part in self.newest.parts if isinstance(part, ResultPart))


@dataclass(frozen=True, slots=True, kw_only=True)
class RawCall:
    """A call whose arguments go out as this text, whatever it is."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`stop`: end_turn, tool_use, max_tokens or refusal; by itself what the parts call for. `extra`: more fields."""

    parts: tuple[TextPart | ThinkingPart | CallPart | RawCall, ...] = ()
    stop: str | None = None
    usage: Usage | None = None
    refusal: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, value: Answer | str) -> Answer:
        return value if isinstance(value, Answer) else cls(parts=(TextPart(value),))

    @property
    def reason(self) -> str:
        if self.stop is not None:
            return self.stop
        return "tool_use" if any(isinstance(part, CallPart | RawCall) for part in self.parts) else "end_turn"


Model = Callable[[Heard], Answer | str | Awaitable[Answer | str]]


def member_of(system: str) -> str:
    found = _NAMED.search(system)
    return found[1] if found else ""


def tokens(text: str) -> int:
    return len(text) // CHARACTERS_PER_TOKEN + 1


def pieces(text: str, size: int = 12) -> list[str]:
    """The text as it streams."""
    return [text[start : start + size] for start in range(0, len(text), size)]


def check(condition: object, message: str, *, status: int = 400, kind: str = "invalid_request_error") -> None:
    if not condition:
        raise Refused(status, kind, message)


def check_text(value: Any, where: str) -> str:
    check(isinstance(value, str), f"{where}: Input should be a valid string")
    bad = re.search("[\x00\ud800-\udfff]", value)
    check(bad is None, f"The request body is not valid JSON: {where} has a NUL or a lone surrogate")
    return str(value)
