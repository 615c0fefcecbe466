"""What the server counted: requests, refusals, tokens, and how much of each request was said before.

The prefix is that of the body as it was sent, character by character, against the previous request of the same
conversation (one format, one system prompt): what a prompt cache could have reused at best.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from bullpen.domain.prompt import Usage
from tests.support.protocol_server.conversation import CHARACTERS_PER_TOKEN, Answer, Heard, RawCall, tokens


def common_prefix(left: str, right: str) -> int:
    """How many characters both begin with."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


@dataclass(slots=True)
class Conversation:
    member: str
    requests: int = 0
    characters: int = 0
    reused_characters: int = 0
    shares: list[float] = field(default_factory=list)
    last: str = ""

    @property
    def share(self) -> float:
        """Of all characters sent after the first request, how many were an unchanged prefix."""
        return self.reused_characters / self.characters if self.characters else 0.0


@dataclass(slots=True)
class Ledger:
    requests: int = 0
    refusals: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    usage: Usage = field(default_factory=Usage)
    connections: int = 0
    conversations: dict[tuple[str, str], Conversation] = field(default_factory=dict)

    def count(self, heard: Heard) -> int:
        """Counts the request; how many of its characters are new is what no cache could have known."""
        key = (heard.format, heard.request.system)
        conversation = self.conversations.setdefault(key, Conversation(heard.member))
        common = common_prefix(conversation.last, heard.raw)
        if conversation.requests:
            conversation.characters += len(heard.raw)
            conversation.reused_characters += common
            conversation.shares.append(common / len(heard.raw))
        conversation.requests += 1
        conversation.last = heard.raw
        return common

    def bill(self, heard: Heard, answer: Answer, common: int) -> Usage:
        """What the answer says of usage: its own numbers, else counted, with what a cache would have saved."""
        sent = tokens(heard.raw)
        cached = min(common // CHARACTERS_PER_TOKEN, sent)
        marked = heard.format == "anthropic" and "cache_control" in heard.raw
        written = sent - cached if marked else 0
        read = cached if marked or (heard.format == "openai" and cached >= 1024) else 0
        texts = [part.arguments if isinstance(part, RawCall) else str(part) for part in answer.parts]
        usage = answer.usage or Usage(
            input_tokens=sent, output_tokens=tokens("".join(texts)), cache_read_tokens=read, cache_write_tokens=written
        )
        self.usage += usage
        return usage

    def facts(self) -> dict[str, Any]:
        """For other processes, as JSON."""
        return {
            "requests": self.requests,
            "refusals": self.refusals,
            "faults": dict(self.faults),
            "connections": self.connections,
            "input_tokens": self.usage.input_tokens,
            "output_tokens": self.usage.output_tokens,
            "conversations": [
                {
                    "format": kind,
                    "member": it.member,
                    "requests": it.requests,
                    "characters": it.characters,
                    "reused_characters": it.reused_characters,
                    "share": round(it.share, 4),
                }
                for (kind, _), it in self.conversations.items()
            ],
        }
