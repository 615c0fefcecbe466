"""OpenAI and what speaks its protocol: pydantic-ai's model over a client that makes one attempt, with the body of a
request as we want it."""

from __future__ import annotations

import json
from functools import cached_property
from typing import Any

import httpx2
from openai import AsyncOpenAI, NotGiven, Omit
from openai._models import construct_type
from openai.resources.chat import AsyncChat, AsyncCompletions
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.openai import OpenAIProvider

from bullpen.errors import Unauthorised
from bullpen.providers.account import Account
from bullpen.providers.wire.body import as_bytes, encoded
from bullpen.providers.wire.carried import Carried

# What compatible servers call what they thought.
_THOUGHTS = ("reasoning", "reasoning_content")


def open_openai(name: str, account: Account, timeout: httpx2.Timeout) -> OpenAIChatModel:
    return OpenAIChatModel(
        name,
        provider=OpenAIProvider(openai_client=_client(account, timeout)),
        # Tool schemas are ours and go out as they are: no rewriting on each call, no `strict`.
        profile=OpenAIModelProfile(json_schema_transformer=None, openai_chat_streaming_requires_finish_reason=True),
    )


def _client(account: Account, timeout: httpx2.Timeout) -> AsyncOpenAI:
    if account.key is None and account.base_url is None:
        raise Unauthorised(f"there is no key for OpenAI: {account.how_to_set}")
    # A server of one's own often wants no key, but the client wants one.
    return _AsMade(api_key=account.key or "no-key", base_url=account.base_url, timeout=timeout, max_retries=0)


class _AsMade(Carried, AsyncOpenAI):
    unset = (NotGiven, Omit)
    construct = staticmethod(construct_type)

    def _understood(self, answer: dict[str, Any]) -> dict[str, Any]:
        return _as_promised(answer)

    @cached_property
    def chat(self) -> AsyncChat:
        return _Chat(self)

    async def _prepare_options(self, options: Any) -> Any:
        return as_bytes(await super()._prepare_options(options))


class _Chat(AsyncChat):
    @cached_property
    def completions(self) -> AsyncCompletions:
        return _Completions(self._client)


class _Completions(AsyncCompletions):
    async def create(self, *, messages: Any, tools: Any = (), extra_body: Any = None, **rest: Any) -> Any:
        create: Any = super().create
        return await create(messages=(), extra_body=encoded(extra_body, _alike(messages), tools), **rest)


def _as_promised(answer: dict[str, Any]) -> dict[str, Any]:
    """Servers of other people's making leave out what hardly anybody reads, and the library refuses the whole answer
    for it. What was said counts."""
    for choice in answer.get("choices") or ():
        _fill(choice, index=0)
        message = choice.get("message") or {}
        _fill(message, role="assistant")
        for call in message.get("tool_calls") or ():
            # Without an id it gets one of ours, as one that was used before.
            _fill(call, id="", type="function")
            _as_text(call.get("function") or {})
    # Some count its moment in milliseconds, some write it as a date.
    return {**_fill(answer, id="", object="chat.completion", model=""), "created": 0}


def _fill(value: dict[str, Any], **usual: Any) -> dict[str, Any]:
    for name, one in usual.items():
        if value.get(name) is None:
            value[name] = one
    return value


def _as_text(function: dict[str, Any]) -> None:
    """Some servers answer with arguments that are an object, or nothing, where the protocol has a text."""
    arguments = function.get("arguments")
    if arguments is None or isinstance(arguments, dict):
        function["arguments"] = json.dumps(arguments or {})


def _alike(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Some servers refuse a call without thinking beside others that have it, so the library gives it an empty one, but
    takes that away when a newer user message follows. Here each call after the first thought has one for ever."""
    field: str | None = None
    alike = []
    for message in messages:
        if message["role"] == "assistant":
            message = {key: value for key, value in message.items() if value != "" or key not in _THOUGHTS}
            field = next((name for name in _THOUGHTS if name in message), field)
            if field is not None and message.get("tool_calls"):
                message.setdefault(field, "")
        alike.append(message)
    return alike
