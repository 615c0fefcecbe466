"""What of a conversation has been sent before, as it was sent: only what is new is converted and encoded.

From call to call a conversation grows at its end, and what the libraries make of a message does not depend on the
messages before it. So they are given the new ones, and the old ones go out as the same bytes again.

Never kept is the last message of a request (a cache breakpoint stands in it), nor anything whose bytes cannot be told
from its neighbours': then the next request converts everything.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bullpen.domain.prompt import AssistantMessage, ChatMessage, ResultPart, TextPart, ThinkingPart

_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def encode(value: Any) -> bytes:
    """JSON as both clients write it."""
    return _encoder.encode(value).encode()


class Said:
    """One conversation with one model. `recall` before a request, `add` once for each time that it is sent."""

    def __init__(self, count: Callable[[ChatMessage], int]) -> None:
        """`count` says of how many messages a message of ours consists on the wire."""
        self._count = count
        self._messages: Sequence[ChatMessage] = ()
        self._encoded: list[bytes] = []
        self._recalled = 0

    def recall(self, messages: Sequence[ChatMessage]) -> int:
        """How many of these, from the first on, went out before and need not be converted."""
        same = 0
        for message, before in zip(messages[:-1], self._messages[: len(self._encoded)], strict=False):
            if message is not before and message != before:
                break
            same += 1
        self._messages = messages
        self._recalled = same
        del self._encoded[same:]
        return same

    def add(self, opening: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]) -> bytes:
        """All messages as a JSON array: `opening` (what is sent anew each time), what was recalled, and `new`, which
        is what the other messages have become."""
        del self._encoded[self._recalled :]
        fresh = self._messages[self._recalled :]
        counts = [self._count(message) for message in fresh]
        roles = [
            isinstance(message, AssistantMessage) for message, n in zip(fresh, counts, strict=True) for _ in range(n)
        ]
        encoded = [encode(message) for message in new]
        whole = b",".join([*map(encode, opening), *self._encoded, *encoded])
        if roles == [message["role"] == "assistant" for message in new]:
            start = 0
            for n in counts[:-1]:
                self._encoded.append(b",".join(encoded[start : start + n]))
                start += n
        else:
            self._encoded, self._messages = [], ()
        return b"[" + whole + b"]"


def one(message: ChatMessage) -> int:
    """Anthropic: results and text are blocks of one message."""
    return 1


def one_for_each_result(message: ChatMessage) -> int:
    """OpenAI: results are messages of their own, before the text."""
    if isinstance(message, AssistantMessage):
        return 1
    results = sum(isinstance(part, ResultPart) for part in message.parts)
    has_text = any(isinstance(part, TextPart) and part.text.strip() for part in message.parts)
    return results + 1 if has_text or not results else results


def has_thinking(messages: Sequence[ChatMessage]) -> bool:
    return any(isinstance(part, ThinkingPart) for message in messages for part in message.parts)
