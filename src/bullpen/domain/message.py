"""Mail between members, and the frame in which a member reads it.

Invariant: `sender` and `origin` are set by the runtime, never by the text, and
`frame` escapes everything inside it, so no content can close its frame and pose
as another message. Only `origin="human"` is the human.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from bullpen.domain.text import name_key
from bullpen.errors import UsageError


class MessageType(StrEnum):
    MESSAGE = "message"
    BROADCAST = "broadcast"
    SHUTDOWN_REQUEST = "shutdown_request"
    SHUTDOWN_RESPONSE = "shutdown_response"
    PLAN_APPROVAL_REQUEST = "plan_approval_request"
    PLAN_APPROVAL_RESPONSE = "plan_approval_response"
    RESULT = "result"
    NOTICE = "notice"
    ERROR = "error"


# Made by the runtime about what it knows; nobody can write them as mail.
RUNTIME_TYPES = frozenset({MessageType.RESULT, MessageType.NOTICE, MessageType.ERROR})
# Handled by the runtime through the request that they carry.
CONTROL_TYPES = frozenset(
    {
        MessageType.SHUTDOWN_REQUEST,
        MessageType.SHUTDOWN_RESPONSE,
        MessageType.PLAN_APPROVAL_REQUEST,
        MessageType.PLAN_APPROVAL_RESPONSE,
    }
)


class Origin(StrEnum):
    HUMAN = "human"
    AGENT = "agent"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    team_id: int
    id: int
    type: MessageType
    sender: str
    recipient: str
    content: str
    origin: Origin
    request_id: int | None = None
    reply_to: int | None = None
    wakes: bool = True
    sent_at: datetime
    delivered_at: datetime | None = None
    delivered_turn: int | None = None
    answered_at: datetime | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def recipient_key(self) -> str:
        return name_key(self.recipient)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What the sender is told: the message is stored, and what that means for its recipient."""

    message: Message
    outcome: str  # queued | revives | kept


def parse_message_type(text: str) -> MessageType:
    try:
        kind = MessageType(text.strip().casefold())
    except ValueError:
        kind = None
    if kind is None or kind in RUNTIME_TYPES:
        allowed = ", ".join(kind for kind in MessageType if kind not in RUNTIME_TYPES)
        raise UsageError(f"{text[:40]!r} is not a type of message that can be sent; one of {allowed}")
    return kind


def frame(message: Message) -> str:
    """The message as its recipient's model reads it."""
    attributes: dict[str, str | None] = {
        "from": message.sender,
        "origin": message.origin,
        "type": message.type,
        "id": str(message.id),
        "sent_at": message.sent_at.isoformat(timespec="seconds"),
        "request_id": None if message.request_id is None else str(message.request_id),
        "reply_to": None if message.reply_to is None else str(message.reply_to),
    }
    written = " ".join(f'{key}="{escape(value)}"' for key, value in attributes.items() if value is not None)
    return f"<message {written}>{escape(message.content)}</message>"


_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"})


def escape(text: str) -> str:
    """Text that can close neither an attribute nor a frame. (`xml.sax.saxutils` would import an HTTP client.)"""
    return text.translate(_ESCAPES)
