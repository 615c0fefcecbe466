"""What a model is told and what it answers, in our own words: these types are what transcripts keep.

A conversation alternates: it begins and ends with a user message when it is sent,
every tool call of an assistant message is answered by a result in the next user
message, and results stand before anything else there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as the model sees it; `parameters` is a JSON schema."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TextPart:
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingPart:
    """Reasoning that must be handed back as it came, to the provider that it came from and to no other."""

    text: str
    provider: str
    signature: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPart:
    """A tool call. `problem` says why its arguments could not be read (cut off, not JSON): then they are empty."""

    call_id: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultPart:
    call_id: str
    name: str
    text: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class UserMessage:
    parts: tuple[TextPart | ResultPart, ...]


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    parts: tuple[TextPart | ThinkingPart | CallPart, ...]


ChatMessage = UserMessage | AssistantMessage


class StopReason(StrEnum):
    END_TURN = "end_turn"
    TOOL_USE = "tool_use"
    MAX_OUTPUT = "max_output"
    REFUSAL = "refusal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """`input_tokens` counts everything that was sent, what came from the cache included."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    message: AssistantMessage
    stop_reason: StopReason
    usage: Usage
    model: str
    cost_usd: float | None = None

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.message.parts if isinstance(part, TextPart))

    @property
    def calls(self) -> tuple[CallPart, ...]:
        return tuple(part for part in self.message.parts if isinstance(part, CallPart))
