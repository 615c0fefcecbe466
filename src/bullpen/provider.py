"""The contract of a model provider: one request, one reply, typed errors, nothing kept in between.

- A provider makes one attempt. Retries, waiting and budgets belong to the caller,
  who knows the whole team.
- The request's `leave` is asked as the last thing before anything is sent. What it raises leaves the provider as it
  is, and nothing was sent.
- Text is handed to `on_text` as it streams; it is lossy by design and never stored.
  The reply that is returned is the whole.
- Errors are those of `bullpen.errors`: RateLimited (with what the provider asked
  for), Overloaded (5xx, time-outs, a stream that broke off), ContextOverflow,
  Unauthorised, UnknownModel, BadRequest, BadReply. No other exception leaves a
  provider, and no key is in any message.
- The same request yields the same bytes: system prompt and tools are sent first and
  unchanged, with cache breakpoints where the provider has them, so that from call
  to call the prefix stays.
- A lone surrogate or NUL in a text never reaches the wire.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from bullpen.domain.leave import Leave, at_any_time
from bullpen.domain.prompt import ChatMessage, Reply, ToolSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLimits:
    window_tokens: int
    max_output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """`member` and `purpose` (`turn`, `compaction`, `subagent`) are for scripts and recordings, never sent.

    `memo` is where a provider may keep what it made of the conversation, for the next request of the same one. It is
    the caller's, who may drop it at any time; without it the same is sent.
    """

    system: str
    tools: tuple[ToolSpec, ...]
    messages: tuple[ChatMessage, ...]
    max_output_tokens: int
    member: str = ""
    purpose: str = "turn"
    memo: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    leave: Leave = field(default=at_any_time, compare=False, repr=False)


class Provider(Protocol):
    model: str
    """As the user named it, `anthropic:NAME`."""

    key_id: str
    """Whose rate limit a request counts against: the same for the same provider, address and key; not the key."""

    limits: ModelLimits

    async def reply(self, request: ModelRequest, *, on_text: Callable[[str], None] | None = None) -> Reply: ...

    async def estimate_cost_usd(self, *, input_tokens: int, output_tokens: int) -> float | None:
        """What such a request would cost at most: nothing of it is read from a cache, and where writing into one costs
        more, all of it is written; None if no price is known. The first time it may take as long to get ready as
        `reply`, and fail like that."""
        ...

    async def close(self) -> None: ...
