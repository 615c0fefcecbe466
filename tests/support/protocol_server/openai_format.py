"""OpenAI chat completions: what is legal, what it means, how the answer is written.

https://platform.openai.com/docs/api-reference/chat and the errors that the real API gives.
"""

from __future__ import annotations

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

NAME = "openai"
PATH = "/v1/chat/completions"
_TOP = {
    "model", "messages", "stream", "stream_options", "max_completion_tokens", "max_tokens", "tools", "tool_choice",
    "parallel_tool_calls", "temperature", "top_p", "stop", "seed", "n", "user", "reasoning_effort",
    "response_format", "prompt_cache_key", "frequency_penalty", "presence_penalty",
}  # fmt: skip
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_STOPS = {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length", "refusal": "content_filter"}


def authorise(headers: Mapping[str, str], keys: frozenset[str]) -> None:
    key = headers.get("authorization", "").removeprefix("Bearer ")
    if not key:
        raise Refused(401, "invalid_request_error", "You didn't provide an API key.")
    if key not in keys:
        message = f"Incorrect API key provided: {key}. You can find your API key at https://platform.openai.com."
        raise Refused(401, "invalid_request_error", message, code="invalid_api_key")


def hear(body: Mapping[str, Any], raw: str) -> Heard:
    for name in ("model", "messages"):
        check(name in body, f"Missing required parameter: '{name}'.")
    for name in body:
        check(name in _TOP, f"Unrecognized request argument supplied: {name}")
    check(
        not ("max_tokens" in body and "max_completion_tokens" in body),
        "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
    )
    limit = body.get("max_completion_tokens", body.get("max_tokens", 4096))
    check(isinstance(limit, int) and limit >= 1, "Invalid 'max_completion_tokens': integer below minimum value.")
    check("stream_options" not in body or body.get("stream"), "'stream_options' is only allowed when 'stream' is true.")
    tools = _tools(body)
    system, messages = _messages(body["messages"])
    request = ModelRequest(
        system=system, tools=tools, messages=messages, max_output_tokens=limit, member=member_of(system)
    )
    return Heard(format=NAME, model=body["model"], request=request, stream=bool(body.get("stream")), body=body, raw=raw)


def _tools(body: Mapping[str, Any]) -> tuple[ToolSpec, ...]:
    tools = body.get("tools")
    if tools is None:
        for name in ("tool_choice", "parallel_tool_calls"):
            check(name not in body, f"'{name}' is only allowed when 'tools' are specified.")
        return ()
    check(tools, "Invalid 'tools': empty array. Expected an array with minimum length 1.")
    specs = []
    for number, tool in enumerate(tools):
        check(tool.get("type") == "function", f"Invalid value for 'tools[{number}].type'.")
        function = tool["function"]
        extra = set(function) - {"name", "description", "parameters", "strict"}
        check(not extra, f"Unknown parameter: 'tools[{number}].function.{min(extra, default='')}'.")
        check(
            _NAME.fullmatch(function["name"]),
            f"Invalid 'tools[{number}].function.name': string does not match pattern '^[a-zA-Z0-9_-]{{1,64}}$'.",
        )
        schema = function.get("parameters", {"type": "object"})
        check(
            schema.get("type") == "object",
            f"Invalid schema for function '{function['name']}': schema must be a JSON Schema of 'type: \"object\"'.",
        )
        check_text(function.get("description", ""), f"tools[{number}]")
        specs.append(ToolSpec(name=function["name"], description=function.get("description", ""), parameters=schema))
    return tuple(specs)


def _messages(messages: Any) -> tuple[str, tuple[ChatMessage, ...]]:
    check(isinstance(messages, list) and messages, "Invalid 'messages': empty array.")
    system: list[str] = []
    heard: list[ChatMessage] = []
    waiting: dict[str, str] = {}
    pending: list[TextPart | ResultPart] = []
    seen: set[str] = set()

    def finish_user() -> None:
        if pending:
            heard.append(UserMessage(tuple(pending)))
            pending.clear()

    for number, message in enumerate(messages):
        where = f"messages[{number}]"
        role = message.get("role")
        if role != "tool":
            check(
                not waiting,
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                "'tool_call_id'. The following tool_call_ids did not have response messages: " + ", ".join(waiting),
            )
        match role:
            case "system" | "developer":
                check(not heard and not pending, f"{where}: the system message stands first here")
                system.append(_content(message.get("content"), where))
            case "user":
                check(set(message) == {"role", "content"}, f"Unknown parameter: '{where}'.")
                text = _content(message.get("content"), where)
                check(text.strip(), f"Invalid '{where}.content': empty")
                pending.append(TextPart(text))
            case "tool":
                check(set(message) == {"role", "content", "tool_call_id"}, f"Unknown parameter: '{where}'.")
                call_id = message["tool_call_id"]
                check(
                    call_id in waiting,
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                    "'tool_calls'.",
                )
                check(isinstance(message["content"], str), f"Invalid type for '{where}.content': expected a string.")
                text = check_text(message["content"], where)
                pending.append(ResultPart(call_id=call_id, name=waiting.pop(call_id), text=text))
            case "assistant":
                finish_user()
                check(heard, "the conversation begins with a user message here")
                assistant = _assistant(message, where, seen)
                check(isinstance(heard[-1], UserMessage), f"{where}: two assistant messages in a row")
                waiting = {part.call_id: part.name for part in assistant.parts if isinstance(part, CallPart)}
                heard.append(assistant)
            case _:
                raise Refused(400, "invalid_request_error", f"Invalid value: '{role}' at '{where}.role'.")
    check(not waiting, "An assistant message with 'tool_calls' must be followed by tool messages.")
    finish_user()
    check(heard and isinstance(heard[-1], UserMessage), "the conversation ends with a user or tool message here")
    return "\n".join(system), tuple(heard)


def _content(content: Any, where: str) -> str:
    if isinstance(content, list):
        check(content, f"Invalid '{where}.content': empty array.")
        for part in content:
            check(part.get("type") == "text", f"Invalid value: '{part.get('type')}' at '{where}.content'.")
            check_text(part.get("text"), where)
        return "\n".join(part["text"] for part in content)
    check(isinstance(content, str), f"Invalid type for '{where}.content': expected a string or an array.")
    return check_text(content, where)


def _assistant(message: Mapping[str, Any], where: str, seen: set[str]) -> AssistantMessage:
    extra = set(message) - {"role", "content", "tool_calls", "refusal", "reasoning_content"}
    check(not extra, f"Unknown parameter: '{where}.{min(extra, default='')}'.")
    parts: list[TextPart | ThinkingPart | CallPart] = []
    if message.get("reasoning_content"):
        parts.append(ThinkingPart(text=message["reasoning_content"], provider=NAME))
    if message.get("content") is not None:
        text = _content(message["content"], where)
        check(text.strip(), f"Invalid '{where}.content': empty")
        parts.append(TextPart(text))
    calls = message.get("tool_calls")
    check(calls is None or calls, f"Invalid '{where}.tool_calls': empty array. Expected minimum length 1.")
    for place, call in enumerate(calls or []):
        at = f"{where}.tool_calls[{place}]"
        check(set(call) == {"id", "type", "function"} and call["type"] == "function", f"Invalid value at '{at}'.")
        function = call["function"]
        check(call["id"], f"Invalid '{at}.id': empty string.")
        check(len(call["id"]) <= 40, f"Invalid '{at}.id': string too long. Expected maximum length 40.")
        check(call["id"] not in seen, f"Duplicate value for 'tool_call_id' of '{call['id']}'.")
        seen.add(call["id"])
        check(_NAME.fullmatch(function["name"]), f"Invalid '{at}.function.name': string does not match pattern.")
        check(isinstance(function["arguments"], str), f"Invalid type for '{at}.function.arguments'.")
        arguments = _arguments(function["arguments"], at)
        parts.append(CallPart(call_id=call["id"], name=function["name"], arguments=arguments))
    check(
        any(not isinstance(part, ThinkingPart) for part in parts),
        f"Invalid value for 'content': expected a string, got null. ({where})",
    )
    return AssistantMessage(tuple(parts))


def _arguments(text: str, where: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    check(isinstance(value, dict), f"Invalid '{where}.function.arguments': not a JSON object.")
    check_text(json.dumps(value, ensure_ascii=False), where)
    return dict(value)


def refusal(error: Refused) -> dict[str, Any]:
    return {"error": {"message": error.message, "type": error.kind, "param": None, "code": error.code}}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens},
    }


def _calls(answer: Answer) -> list[dict[str, Any]]:
    return [
        {
            "id": part.call_id,
            "type": "function",
            "function": {
                "name": part.name,
                "arguments": part.arguments if isinstance(part, RawCall) else json.dumps(dict(part.arguments)),
            },
        }
        for part in answer.parts
        if isinstance(part, CallPart | RawCall)
    ]


def _texts(answer: Answer) -> str | None:
    texts = [part.text for part in answer.parts if isinstance(part, TextPart)]
    return "".join(texts) if texts else None


def _thinking(answer: Answer) -> str:
    return "".join(part.text for part in answer.parts if isinstance(part, ThinkingPart))


def whole(answer: Answer, heard: Heard, usage: Usage) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": _texts(answer), "refusal": answer.refusal}
    if thinking := _thinking(answer):
        message["reasoning_content"] = thinking
    if calls := _calls(answer):
        message["tool_calls"] = calls
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": heard.model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": _STOPS[answer.reason]}],
        "usage": _usage(usage),
        **answer.extra,
    }


def events(answer: Answer, heard: Heard, usage: Usage) -> list[bytes]:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": piece} for piece in pieces(_thinking(answer))]
    deltas += [{"content": piece} for piece in pieces(_texts(answer) or "")]
    deltas += [{"refusal": piece} for piece in pieces(answer.refusal or "")]
    for index, call in enumerate(_calls(answer)):
        function = call["function"]
        deltas.append({"tool_calls": [{**call, "index": index, "function": {**function, "arguments": ""}}]})
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
            for piece in pieces(function["arguments"])
        ]
    chunks = [_chunk(heard, [{"index": 0, "delta": delta, "finish_reason": None}]) for delta in deltas]
    chunks.append(_chunk(heard, [{"index": 0, "delta": {}, "finish_reason": _STOPS[answer.reason]}]))
    if heard.body.get("stream_options", {}).get("include_usage"):
        chunks.append({**_chunk(heard, []), "usage": _usage(usage)})
    return [*(f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks), b"data: [DONE]\n\n"]


def _chunk(heard: Heard, choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": heard.model,
        "choices": choices,
    }


def error_event(kind: str, message: str) -> bytes:
    kind = {"overloaded_error": "server_is_overloaded", "rate_limit_error": "rate_limit_exceeded"}.get(kind, kind)
    return f"data: {json.dumps({'error': {'message': message, 'type': kind, 'code': kind}})}\n\n".encode()
