"""Anthropic Messages: what is legal, what it means, how the answer is written.

https://docs.claude.com/en/api/messages and the errors that the real API gives.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from typing import Any

from bullpen.domain.prompt import (
    AssistantMessage,
    CallPart,
    ChatMessage,
    ResultPart,
    TextPart,
    ThinkingPart,
    ToolSpec,
    Usage,
    UserMessage,
)
from bullpen.provider import ModelRequest
from tests.support.protocol_server.conversation import (
    Answer,
    Heard,
    RawCall,
    Refused,
    check,
    check_text,
    member_of,
    pieces,
)

NAME = "anthropic"
PATH = "/v1/messages"
_TOP = {
    "model", "max_tokens", "messages", "system", "tools", "tool_choice", "stream", "metadata", "stop_sequences",
    "temperature", "top_p", "top_k", "thinking", "service_tier", "output_config",
}  # fmt: skip
_CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_SECRET = b"the server signs its thinking"


def authorise(headers: Mapping[str, str], keys: frozenset[str]) -> None:
    key = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
    check(key, "x-api-key header is required", status=401, kind="authentication_error")
    check(key in keys, f"invalid x-api-key: {key}", status=401, kind="authentication_error")
    check(headers.get("anthropic-version"), "anthropic-version: header is required")


def hear(body: Mapping[str, Any], raw: str) -> Heard:
    for name in ("model", "max_tokens", "messages"):
        check(name in body, f"{name}: Field required")
    for name in body:
        check(name in _TOP, f"{name}: Extra inputs are not permitted")
    limit = body["max_tokens"]
    check(isinstance(limit, int) and limit >= 1, "max_tokens: Input should be greater than or equal to 1")
    _check_cache_controls(body)
    system = _system(body.get("system", ""))
    tools = _tools(body.get("tools", []))
    messages = _messages(body["messages"], has_tools=bool(tools))
    request = ModelRequest(
        system=system, tools=tools, messages=messages, max_output_tokens=limit, member=member_of(system)
    )
    return Heard(format=NAME, model=body["model"], request=request, stream=bool(body.get("stream")), body=body, raw=raw)


def _check_cache_controls(body: Mapping[str, Any]) -> None:
    found: list[Any] = []

    def look(value: Any) -> None:
        if isinstance(value, Mapping):
            if "cache_control" in value:
                found.append(value["cache_control"])
            for name, item in value.items():
                # What the model wrote or a schema describes is no place for a breakpoint.
                if name not in ("input", "input_schema"):
                    look(item)
        elif isinstance(value, list):
            for item in value:
                look(item)

    look(body)
    check(len(found) <= 4, f"A maximum of 4 blocks with cache_control may be provided. Found {len(found)}.")
    for control in found:
        legal = control.get("type") == "ephemeral" and control.get("ttl", "5m") in ("5m", "1h")
        check(legal and set(control) <= {"type", "ttl"}, "cache_control: Input should be 'ephemeral'")


def _system(system: Any) -> str:
    if isinstance(system, str):
        return check_text(system, "system")
    check(isinstance(system, list), "system: Input should be a valid list")
    for number, block in enumerate(system):
        check(block.get("type") == "text", f"system.{number}.type: Input should be 'text'")
        check(set(block) <= {"type", "text", "cache_control"}, f"system.{number}: Extra inputs are not permitted")
        _check_filled(block["text"], "system")
    return "\n".join(block["text"] for block in system)


def _check_filled(text: Any, where: str) -> None:
    check_text(text, where)
    check(text != "", f"{where}: text content blocks must be non-empty")
    check(text.strip(), f"{where}: text content blocks must contain non-whitespace text")


def _tools(tools: Any) -> tuple[ToolSpec, ...]:
    check(isinstance(tools, list), "tools: Input should be a valid list")
    for number, tool in enumerate(tools):
        where = f"tools.{number}.custom"
        extra = set(tool) - {"name", "description", "input_schema", "cache_control", "type"}
        check(not extra, f"{where}.{min(extra, default='')}: Extra inputs are not permitted")
        name = tool.get("name", "")
        check(_TOOL_NAME.fullmatch(name), f"{where}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
        schema = tool.get("input_schema")
        check(isinstance(schema, dict), f"{where}.input_schema: Field required")
        check("type" in schema, f"{where}.input_schema.type: Field required")
        check(schema["type"] == "object", f"{where}.input_schema.type: Input should be 'object'")
        check_text(tool.get("description", ""), f"{where}.description")
    names = [tool["name"] for tool in tools]
    check(len(set(names)) == len(names), "tools: Tool names must be unique.")
    return tuple(
        ToolSpec(name=tool["name"], description=tool.get("description", ""), parameters=tool["input_schema"])
        for tool in tools
    )


def _messages(messages: Any, *, has_tools: bool) -> tuple[ChatMessage, ...]:
    check(isinstance(messages, list) and messages, "messages: at least one message is required")
    heard: list[ChatMessage] = []
    seen: set[str] = set()
    open_calls: dict[str, str] = {}
    for number, message in enumerate(messages):
        role = message.get("role")
        check(role in ("user", "assistant"), f'messages: Unexpected role "{role}".')
        check(set(message) == {"role", "content"}, f"messages.{number}: Extra inputs are not permitted")
        wanted = "user" if number % 2 == 0 else "assistant"
        if number == 0:
            check(role == wanted, 'messages: first message must use the "user" role')
        in_a_row = f'but found multiple "{role}" roles in a row'
        check(role == wanted, f'messages: roles must alternate between "user" and "assistant", {in_a_row}')
        blocks = _blocks(message["content"], number, role)
        if role == "user":
            heard.append(_user(blocks, number, open_calls))
            open_calls = {}
        else:
            assistant = _assistant(blocks, number, seen)
            open_calls = {part.call_id: part.name for part in assistant.parts if isinstance(part, CallPart)}
            check(not open_calls or has_tools, "Requests which have `tool_use` blocks in `messages` must define tools")
            heard.append(assistant)
    check(
        isinstance(heard[-1], UserMessage),
        "This model does not support assistant message prefill. The conversation must end with a user message.",
    )
    return tuple(heard)


def _blocks(content: Any, number: int, role: str) -> list[dict[str, Any]]:
    if isinstance(content, str):
        content = [{"type": "text", "text": content}] if content else []
    check(isinstance(content, list), f"messages.{number}.content: Input should be a valid list")
    check(content, f"messages.{number}: {role} messages must have non-empty content")
    return list(content)


def _user(blocks: list[dict[str, Any]], number: int, open_calls: Mapping[str, str]) -> UserMessage:
    parts: list[TextPart | ResultPart] = []
    answered: list[str] = []
    for place, block in enumerate(blocks):
        where = f"messages.{number}.content.{place}"
        if block.get("type") == "text":
            check(set(block) <= {"type", "text", "cache_control"}, f"{where}: Extra inputs are not permitted")
            _check_filled(block.get("text"), "messages")
            parts.append(TextPart(block["text"]))
            continue
        check(block.get("type") == "tool_result", f"{where}: Input tag {block.get('type')!r} is not allowed here")
        extra = set(block) - {"type", "tool_use_id", "content", "is_error", "cache_control"}
        check(not extra, f"{where}: Extra inputs are not permitted")
        check(
            not any(isinstance(part, TextPart) for part in parts),
            f"{where}: `tool_result` blocks must come before other content",
        )
        call_id = block["tool_use_id"]
        check(
            call_id in open_calls,
            f"{where}: unexpected `tool_use_id` found in `tool_result` blocks: {call_id}. Each `tool_result` block "
            "must have a corresponding `tool_use` block in the previous message.",
        )
        check(call_id not in answered, f"{where}: each tool_use must have a single result. Found multiple: {call_id}")
        answered.append(call_id)
        text = _result_text(block.get("content", ""), where)
        parts.append(
            ResultPart(call_id=call_id, name=open_calls[call_id], text=text, is_error=block.get("is_error", False))
        )
    missing = ", ".join(call_id for call_id in open_calls if call_id not in answered)
    check(
        not missing,
        f"messages.{number}: `tool_use` ids were found without `tool_result` blocks immediately after: {missing}. "
        "Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
    )
    return UserMessage(tuple(parts))


def _result_text(content: Any, where: str) -> str:
    if isinstance(content, str):
        return check_text(content, where)
    for block in content:
        check(block.get("type") == "text", f"{where}: only texts are understood here")
        _check_filled(block.get("text"), "messages")
    return "\n".join(block["text"] for block in content)


def _assistant(blocks: list[dict[str, Any]], number: int, seen: set[str]) -> AssistantMessage:
    parts: list[TextPart | ThinkingPart | CallPart] = []
    for place, block in enumerate(blocks):
        where = f"messages.{number}.content.{place}"
        match block.get("type"):
            case "text":
                _check_filled(block.get("text"), "messages")
                parts.append(TextPart(block["text"]))
            case "thinking":
                text, signature = block.get("thinking", ""), block.get("signature", "")
                check(signature == sign(text), f"{where}: Invalid `signature` in `thinking` block")
                check("cache_control" not in block, f"{where}.cache_control: Extra inputs are not permitted")
                parts.append(ThinkingPart(text=text, provider=NAME, signature=signature))
            case "redacted_thinking":
                check(block.get("data") == sign("redacted"), f"{where}: Invalid `data` in `redacted_thinking` block")
                parts.append(ThinkingPart(text="", provider=NAME, signature=block["data"], extra={"redacted": True}))
            case "tool_use":
                call_id, name = block.get("id", ""), block.get("name", "")
                check(_CALL_ID.fullmatch(call_id), f"{where}.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
                check(call_id not in seen, "messages: `tool_use` ids must be unique")
                seen.add(call_id)
                check(_TOOL_NAME.fullmatch(name), f"{where}.name: String should match '^[a-zA-Z0-9_-]{{1,128}}$'")
                check(isinstance(block.get("input"), dict), f"{where}.input: Input should be a valid dictionary")
                check_text(json.dumps(block["input"], ensure_ascii=False), f"{where}.input")
                parts.append(CallPart(call_id=call_id, name=name, arguments=block["input"]))
            case other:
                raise Refused(400, "invalid_request_error", f"{where}: Input tag {other!r} is not allowed here")
    last = blocks[-1].get("type")
    check(
        last not in ("thinking", "redacted_thinking"),
        f"messages.{number}: The final block in an assistant message cannot be `thinking`.",
    )
    return AssistantMessage(tuple(parts))


def sign(text: str) -> str:
    """A signature that any process of the server can check."""
    return hmac.new(_SECRET, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def refusal(error: Refused) -> dict[str, Any]:
    return {"type": "error", "error": {"type": error.kind, "message": error.message}, "request_id": "req_1"}


def _usage(usage: Usage) -> dict[str, int]:
    fresh = usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens
    return {
        "input_tokens": fresh,
        "output_tokens": usage.output_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
    }


def _block(part: TextPart | ThinkingPart | CallPart | RawCall) -> dict[str, Any]:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ThinkingPart() if part.extra.get("redacted"):
            return {"type": "redacted_thinking", "data": sign("redacted")}
        case ThinkingPart():
            return {"type": "thinking", "thinking": part.text, "signature": sign(part.text)}
        case CallPart():
            return {"type": "tool_use", "id": part.call_id, "name": part.name, "input": dict(part.arguments)}
        case RawCall():
            try:
                arguments = json.loads(part.arguments)
            except ValueError:
                arguments = {}
            return {"type": "tool_use", "id": part.call_id, "name": part.name, "input": arguments}


def whole(answer: Answer, heard: Heard, usage: Usage) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": heard.model,
        "content": [_block(part) for part in answer.parts],
        "stop_reason": answer.reason,
        "stop_sequence": None,
        "usage": _usage(usage),
        **answer.extra,
    }


def events(answer: Answer, heard: Heard, usage: Usage) -> list[bytes]:
    start = {**whole(Answer(extra=answer.extra), heard, usage), "stop_reason": None}
    start["usage"] = {**_usage(usage), "output_tokens": 1}
    stream: list[dict[str, Any]] = [{"type": "message_start", "message": start}, {"type": "ping"}]
    for index, part in enumerate(answer.parts):
        block = _block(part)
        first = dict(block)
        deltas: list[dict[str, Any]] = []
        match block["type"]:
            case "text":
                first["text"] = ""
                deltas = [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
            case "thinking":
                first |= {"thinking": "", "signature": ""}
                deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"])]
                deltas.append({"type": "signature_delta", "signature": block["signature"]})
            case "tool_use":
                first["input"] = {}
                text = part.arguments if isinstance(part, RawCall) else json.dumps(block["input"])
                deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ["", *pieces(text)]]
        stream.append({"type": "content_block_start", "index": index, "content_block": first})
        stream += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        stream.append({"type": "content_block_stop", "index": index})
    stream.append(
        {
            "type": "message_delta",
            "delta": {"stop_reason": answer.reason, "stop_sequence": None},
            "usage": {"output_tokens": usage.output_tokens},
        }
    )
    stream.append({"type": "message_stop"})
    return [_event(data) for data in stream]


def error_event(kind: str, message: str) -> bytes:
    return _event({"type": "error", "error": {"type": kind, "message": message}})


def _event(data: Mapping[str, Any]) -> bytes:
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode()
