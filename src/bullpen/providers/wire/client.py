"""The connection to a provider: pydantic-ai's model object, over a client that makes one attempt.

Two things are changed in the clients of Anthropic and OpenAI, both through what they offer for it:

- The order of the request's body: tools and system prompt first, messages last, so that from call to call the
  bytes stay the same up to what is new.
- Both clients walk every message and tool (OpenAI's through its type hints: 25 ms of CPU for 80 messages, measured).
  What pydantic-ai made is already what goes on the wire, and most of it went there before: see `said`. So messages and
  tools are handed on as bytes, in the extra body, which is left alone.
"""

from __future__ import annotations

import warnings
from functools import cached_property
from itertools import takewhile
from typing import Any

import httpx2
from anthropic import AsyncAnthropic
from anthropic.resources.beta import AsyncBeta, AsyncMessages
from openai import AsyncOpenAI
from openai.resources.chat import AsyncChat, AsyncCompletions
from pydantic_ai.models import Model, infer_model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.profiles.anthropic import AnthropicModelProfile
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from bullpen.errors import Unauthorised
from bullpen.providers.account import Account
from bullpen.providers.wire.said import Said, encode

SAID = "bullpen_said"
"""In the extra body of a request: the `Said` of its conversation."""

CONNECT_TIMEOUT_SECONDS = 10.0
_LAST = {"tools": 1, "system": 2, "messages": 3}


def open_model(model: str, account: Account, *, timeout_seconds: float) -> Model:
    """The model object. ImportError if its provider needs a package that is not there, UserError if unknown."""
    hush()
    timeout = httpx2.Timeout(timeout_seconds, connect=min(CONNECT_TIMEOUT_SECONDS, timeout_seconds))
    name = model.partition(":")[2]
    # Tool schemas are ours and go out as they are: no rewriting on each call, no `strict`.
    match account.provider:
        case "anthropic":
            return AnthropicModel(
                name,
                provider=AnthropicProvider(anthropic_client=_anthropic(account, timeout)),
                profile=AnthropicModelProfile(json_schema_transformer=None),
            )
        case "openai" | "openai-chat":
            return OpenAIChatModel(
                name,
                provider=OpenAIProvider(openai_client=_openai(account, timeout)),
                profile=OpenAIModelProfile(
                    json_schema_transformer=None, openai_chat_streaming_requires_finish_reason=True
                ),
            )
        case _:
            return infer_model(model)


def hush() -> None:
    """What these libraries warn of (a retired model, a setting left out) is for their own users, not for ours."""
    for library in ("pydantic_ai", "anthropic", "openai", "genai_prices"):
        warnings.filterwarnings("ignore", module=rf"{library}(\.|$)")
    warnings.filterwarnings("ignore", message=r"The model '.*' is deprecated")


def _anthropic(account: Account, timeout: httpx2.Timeout) -> AsyncAnthropic:
    if account.key is None:
        raise Unauthorised(f"there is no key for Anthropic: {account.how_to_set}")
    if account.variable == "ANTHROPIC_AUTH_TOKEN":
        return _PrefixFirst(auth_token=account.key, base_url=account.base_url, timeout=timeout, max_retries=0)
    return _PrefixFirst(api_key=account.key, base_url=account.base_url, timeout=timeout, max_retries=0)


def _openai(account: Account, timeout: httpx2.Timeout) -> AsyncOpenAI:
    if account.key is None and account.base_url is None:
        raise Unauthorised(f"there is no key for OpenAI: {account.how_to_set}")
    # A server of one's own often wants no key, but the client wants one.
    return _AsMade(api_key=account.key or "no-key", base_url=account.base_url, timeout=timeout, max_retries=0)


class _PrefixFirst(AsyncAnthropic):
    @cached_property
    def beta(self) -> AsyncBeta:
        return _Beta(self)

    async def _prepare_options(self, options: Any) -> Any:
        return _as_bytes(await super()._prepare_options(options))


class _Beta(AsyncBeta):
    @cached_property
    def messages(self) -> AsyncMessages:
        return _Messages(self._client)


class _Messages(AsyncMessages):
    async def create(self, *, messages: Any, tools: Any = (), extra_body: Any = None, **rest: Any) -> Any:
        create: Any = super().create
        return await create(messages=(), extra_body=_encoded(extra_body, messages, tools), **rest)


class _AsMade(AsyncOpenAI):
    @cached_property
    def chat(self) -> AsyncChat:
        return _Chat(self)

    async def _prepare_options(self, options: Any) -> Any:
        return _as_bytes(await super()._prepare_options(options))


class _Chat(AsyncChat):
    @cached_property
    def completions(self) -> AsyncCompletions:
        return _Completions(self._client)


class _Completions(AsyncCompletions):
    async def create(self, *, messages: Any, tools: Any = (), extra_body: Any = None, **rest: Any) -> Any:
        create: Any = super().create
        return await create(messages=(), extra_body=_encoded(extra_body, messages, tools), **rest)


def _encoded(extra_body: Any, messages: list[dict[str, Any]], tools: Any) -> dict[str, Any]:
    """The extra body, with messages and tools as JSON."""
    body = dict(extra_body)
    said: Said = body.pop(SAID)
    # OpenAI's format has the system prompt among the messages.
    opening = list(takewhile(lambda message: message["role"] in ("system", "developer"), messages))
    if isinstance(tools, list):
        body["tools"] = encode(tools)
    body["messages"] = said.add(opening, messages[len(opening) :])
    return body


def _as_bytes(options: Any) -> Any:
    """The request's body in our order; what is bytes there is JSON already."""
    body = {**(options.json_data or {}), **(options.extra_json or {})}
    if body:
        fields = [
            encode(name) + b":" + (value if isinstance(value, bytes) else encode(value))
            for name, value in sorted(body.items(), key=lambda item: _LAST.get(item[0], 0))
        ]
        options.content = b"{" + b",".join(fields) + b"}"
        options.json_data = options.extra_json = None
    return options
