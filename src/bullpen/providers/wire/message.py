"""Our messages as pydantic-ai's, and its responses as ours.

What goes out is legal whatever the transcript holds: results before texts, no blank text, no empty message, names
and ids within what every API accepts. The same message always becomes the same bytes.

Thinking goes back to the provider that it came from. Some providers also sign other parts (Gemini its calls):
such a signature is kept as a `ThinkingPart` without text directly before the part it belongs to, under
`extra["attached"]`, so it is dropped with the thinking when the conversation changes its provider.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic_ai import messages as wire

from bullpen.domain.prompt import (
    AssistantMessage,
    CallPart,
    ChatMessage,
    ResultPart,
    TextPart,
    ThinkingPart,
    UserMessage,
)
from bullpen.domain.text import storable

NO_TEXT = "(no text)"
NO_OUTPUT = "(no output)"
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_CALL_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")

Part = TextPart | ThinkingPart | CallPart


def outgoing(messages: Sequence[ChatMessage], *, provider: str, system: str) -> list[wire.ModelMessage]:
    """`provider` is how our parts name it, `system` how pydantic-ai does."""
    return [
        _user(message) if isinstance(message, UserMessage) else _assistant(message, provider=provider, system=system)
        for message in messages
    ]


def _user(message: UserMessage) -> wire.ModelRequest:
    results = [part for part in message.parts if isinstance(part, ResultPart)]
    texts = [part.text for part in message.parts if isinstance(part, TextPart) and part.text.strip()]
    parts: list[wire.ModelRequestPart] = [
        wire.ToolReturnPart(
            tool_name=wire_name(result.name),
            content=storable(result.text) if result.text.strip() else NO_OUTPUT,
            tool_call_id=wire_id(result.call_id),
            outcome="failed" if result.is_error else "success",
        )
        for result in results
    ]
    if texts or not results:
        parts.append(wire.UserPromptPart(storable("\n\n".join(texts)) or NO_TEXT))
    return wire.ModelRequest(parts=parts)


def _assistant(message: AssistantMessage, *, provider: str, system: str) -> wire.ModelResponse:
    parts: list[wire.ModelResponsePart] = []
    attached: Mapping[str, Any] = {}
    for part in message.parts:
        match part:
            case ThinkingPart():
                if part.provider != provider:
                    continue
                if "attached" in part.extra:
                    attached = part.extra["attached"]
                elif (part.signature or part.extra.get("id")) and storable(part.text) == part.text:
                    # Unsigned or not sendable as it came: then not at all, a changed one would be refused.
                    parts.append(_thinking(part, system))
                continue
            case TextPart() if part.text.strip():
                parts.append(wire.TextPart(storable(part.text), **_signed(attached, system)))
            case CallPart():
                parts.append(
                    wire.ToolCallPart(
                        tool_name=wire_name(part.name),
                        args=storable(part.arguments),
                        tool_call_id=wire_id(part.call_id),
                        **_signed(attached, system),
                    )
                )
        attached = {}
    if not any(isinstance(part, wire.TextPart | wire.ToolCallPart) for part in parts):
        parts.append(wire.TextPart(NO_TEXT))
    return wire.ModelResponse(parts=parts, provider_name=system)


def _thinking(part: ThinkingPart, system: str) -> wire.ThinkingPart:
    return wire.ThinkingPart(
        part.text,
        id=part.extra.get("id"),
        signature=part.signature,
        provider_name=system,
        provider_details=part.extra.get("details"),
    )


def _signed(attached: Mapping[str, Any], system: str) -> dict[str, Any]:
    if not attached:
        return {}
    return {"id": attached.get("id"), "provider_name": system, "provider_details": attached.get("details")}


def wire_name(name: str) -> str:
    """A model may have called a tool by a name that no API takes back."""
    return name if _NAME.fullmatch(name) else re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or "unknown"


def wire_id(call_id: str) -> str:
    """Another provider's ids may be too long or have characters that this one refuses."""
    if _CALL_ID.fullmatch(call_id):
        return call_id
    return f"call_{hashlib.sha256(call_id.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"


def called_names(messages: Iterable[ChatMessage]) -> list[str]:
    """The tools that the conversation has called, each once, in the order of their first call."""
    return list(
        dict.fromkeys(
            wire_name(part.name)
            for message in messages
            for part in message.parts
            if isinstance(part, CallPart | ResultPart)
        )
    )


def incoming(response: wire.ModelResponse, *, provider: str, cut: bool, taken_ids: Iterable[str]) -> tuple[Part, ...]:
    """The parts of a response. `cut`: the output limit ended it, so its last call may be incomplete."""
    taken = set(taken_ids)
    parts: list[Part] = []
    for part in response.parts:
        last = part is response.parts[-1]
        match part:
            case wire.ThinkingPart():
                extra = _jsonable({"id": part.id, "details": part.provider_details})
                parts.append(ThinkingPart(text=part.content, provider=provider, signature=part.signature, extra=extra))
            case wire.TextPart() if part.content:
                parts.extend(_attached(part.id, part.provider_details, provider))
                parts.append(TextPart(part.content))
            case wire.ToolCallPart():
                parts.extend(_attached(part.id, part.provider_details, provider))
                arguments, problem = read_arguments(part.args, cut=cut and last)
                # Some servers count their calls from 0 in every reply; two calls of one id would be one to the API.
                call_id = part.tool_call_id if part.tool_call_id and part.tool_call_id not in taken else _new_id()
                taken.add(call_id)
                parts.append(CallPart(call_id=call_id, name=part.tool_name, arguments=arguments, problem=problem))
    return tuple(parts)


def _attached(id: str | None, details: Mapping[str, Any] | None, provider: str) -> list[Part]:
    attached = _jsonable({"id": id, "details": details})
    return [ThinkingPart(text="", provider=provider, extra={"attached": attached})] if attached else []


def _jsonable(values: Mapping[str, Any]) -> dict[str, Any]:
    """What is set, without what a transcript could not keep."""
    kept: dict[str, Any] = {}
    for name, value in values.items():
        if value is not None and value != {}:
            try:
                kept[name] = json.loads(json.dumps(value))
            except (TypeError, ValueError):
                continue
    return kept


def read_arguments(raw: Any, *, cut: bool) -> tuple[dict[str, Any], str | None]:
    """The arguments of a call, or why there are none."""
    too_long = "the output limit cut this call off before its arguments were complete: send it again, in smaller pieces"
    if isinstance(raw, Mapping):
        # Already parsed by the server, so nothing proves that it is whole.
        return ({}, too_long) if cut else (dict(raw), None)
    if raw is None or (isinstance(raw, str) and not raw.strip()):
        return ({}, too_long) if cut else ({}, None)
    value = raw
    try:
        # Some models write the object as a text within the text.
        for _ in range(2):
            value = json.loads(value, strict=False) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        return value, None
    if cut:
        return {}, too_long
    return {}, f"the arguments are not a JSON object: {str(raw)[:200]}"


def _new_id() -> str:
    return f"call_{uuid.uuid4().hex[:24]}"
