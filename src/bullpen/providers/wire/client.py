"""The connection to a provider: pydantic-ai's model object, over a client that makes one attempt.

Two things are changed in the clients of Anthropic and OpenAI, both through what they offer for it:

- The order of the request's body: tools and system prompt first, messages last, so that from call to call the
  bytes stay the same up to what is new.
- OpenAI's client walks every message and tool through its type hints (25 ms of CPU for 80 messages, measured);
  what pydantic-ai made is already what goes on the wire, so it is passed as the extra body that is left alone.
"""

from __future__ import annotations

import warnings
from functools import cached_property
from typing import Any

import httpx2
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI, omit
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
    async def _prepare_options(self, options: Any) -> Any:
        options = await super()._prepare_options(options)
        if isinstance(options.json_data, dict):
            body = options.json_data
            options.json_data = {name: body[name] for name in sorted(body, key=lambda name: _LAST.get(name, 0))}
        return options


class _AsMade(AsyncOpenAI):
    @cached_property
    def chat(self) -> AsyncChat:
        return _Chat(self)


class _Chat(AsyncChat):
    @cached_property
    def completions(self) -> AsyncCompletions:
        return _Completions(self._client)


class _Completions(AsyncCompletions):
    async def create(self, *, messages: Any, tools: Any = omit, extra_body: Any = None, **rest: Any) -> Any:
        body = dict(extra_body or {})
        if tools is not omit:
            body["tools"] = tools
        body["messages"] = messages
        create: Any = super().create
        return await create(messages=omit, extra_body=body, **rest)
