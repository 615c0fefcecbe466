"""The body of a request to Anthropic or OpenAI, changed in two ways, through what their clients offer for it:

- The order: tools and system prompt first, messages last, so that from call to call the bytes stay the same up to what
  is new.
- Both clients walk every message and tool (OpenAI's through its type hints: 25 ms of CPU for 80 messages, measured).
  What pydantic-ai made is already what goes on the wire, and most of it went there before: see `said`. So messages and
  tools are handed on as bytes, in the extra body, which is left alone.
"""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from bullpen.providers.wire.said import Said, encode

SAID = "bullpen_said"
"""In the extra body of a request: the `Said` of its conversation."""

_LAST = {"tools": 1, "system": 2, "messages": 3}


def encoded(extra_body: Any, messages: list[dict[str, Any]], tools: Any) -> dict[str, Any]:
    """The extra body, with messages and tools as JSON."""
    body = dict(extra_body)
    said: Said = body.pop(SAID)
    # OpenAI's format has the system prompt among the messages.
    opening = list(takewhile(lambda message: message["role"] in ("system", "developer"), messages))
    if isinstance(tools, list):
        body["tools"] = encode(tools)
    body["messages"] = said.add(opening, messages[len(opening) :])
    return body


def as_bytes(options: Any, unset: tuple[type, ...] = ()) -> Any:
    """The request's body in our order; what is bytes there is JSON already. A value of these types is none."""
    body = {**(options.json_data or {}), **(options.extra_json or {})}
    body = {name: value for name, value in body.items() if not isinstance(value, unset)}
    if body:
        fields = [
            encode(name) + b":" + (value if isinstance(value, bytes) else encode(value))
            for name, value in sorted(body.items(), key=lambda item: _LAST.get(item[0], 0))
        ]
        options.content = b"{" + b",".join(fields) + b"}"
        options.json_data = options.extra_json = None
    return options
