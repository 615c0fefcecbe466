"""Anthropic: pydantic-ai's model over a client that makes one attempt, with the body of a request as we want it."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import httpx2
from anthropic import AsyncAnthropic, NotGiven, Omit
from anthropic._models import construct_type
from anthropic.resources.beta import AsyncBeta, AsyncMessages
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.profiles.anthropic import AnthropicModelProfile
from pydantic_ai.providers.anthropic import AnthropicProvider

from bullpen.errors import Unauthorised
from bullpen.providers.account import Account
from bullpen.providers.wire.body import as_bytes, encoded
from bullpen.providers.wire.carried import Carried


def open_anthropic(name: str, account: Account, timeout: httpx2.Timeout) -> AnthropicModel:
    return AnthropicModel(
        name,
        provider=AnthropicProvider(anthropic_client=_client(account, timeout)),
        # Tool schemas are ours and go out as they are: no rewriting on each call, no `strict`.
        profile=AnthropicModelProfile(json_schema_transformer=None),
    )


def _client(account: Account, timeout: httpx2.Timeout) -> AsyncAnthropic:
    if account.key is None:
        raise Unauthorised(f"there is no key for Anthropic: {account.how_to_set}")
    if account.variable == "ANTHROPIC_AUTH_TOKEN":
        return _PrefixFirst(auth_token=account.key, base_url=account.base_url, timeout=timeout, max_retries=0)
    return _PrefixFirst(api_key=account.key, base_url=account.base_url, timeout=timeout, max_retries=0)


class _PrefixFirst(Carried, AsyncAnthropic):
    unset = (NotGiven, Omit)
    construct = staticmethod(construct_type)

    def _understood(self, answer: dict[str, Any]) -> dict[str, Any]:
        understood: dict[str, Any] = _with_usage(answer)
        return understood

    @cached_property
    def beta(self) -> AsyncBeta:
        return _Beta(self)

    async def _prepare_options(self, options: Any) -> Any:
        return as_bytes(await super()._prepare_options(options))

    def _process_response_data(self, *, data: Any, **rest: Any) -> Any:
        return super()._process_response_data(data=_with_usage(data), **rest)


def _with_usage(data: Any) -> Any:
    """An answer, or an event of one. The library cannot do without usage, and not every server that speaks this
    protocol counts: then it is estimated."""
    match data:
        case {"type": "message_start", "message": dict(message)}:
            return {**data, "message": _with_usage({**message, "type": "message"})}
        case {"type": "message_delta"}:
            return {**data, "usage": data.get("usage") or {"output_tokens": 0}}
        case {"content": list()}:
            return {**data, "usage": data.get("usage") or {"input_tokens": 0, "output_tokens": 0}}
        case _:
            return data


class _Beta(AsyncBeta):
    @cached_property
    def messages(self) -> AsyncMessages:
        return _Messages(self._client)


class _Messages(AsyncMessages):
    async def create(self, *, messages: Any, tools: Any = (), extra_body: Any = None, **rest: Any) -> Any:
        create: Any = super().create
        return await create(messages=(), extra_body=encoded(extra_body, messages, tools), **rest)
