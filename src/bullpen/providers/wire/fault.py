"""What a provider's failure means to us. Whether to retry is a property of our types, not decided here."""

from __future__ import annotations

import asyncio
import json
import re

import httpx2
from pydantic_ai import exceptions as wire

from bullpen.errors import (
    BadReply,
    BadRequest,
    ContextOverflow,
    Overloaded,
    ProviderError,
    RateLimited,
    Unauthorised,
    UnknownModel,
)
from bullpen.providers.account import Account

_TRANSIENT_STATUS = frozenset({408, 409, 425})
_MAX_SHOWN = 1000
# How servers say it in words that the library does not know: Anthropic of input and output together, llama.cpp, vLLM,
# Gemini.
_TOO_LONG = re.compile(
    r"exceeds? (the available )?context (limit|size|window|length)"
    r"|longer than the maximum model length"
    r"|input token count\b.{0,40} exceeds the maximum",
    re.IGNORECASE,
)


def fault_of(error: Exception, model: str, account: Account) -> ProviderError:
    """Our error for whatever the library raised; its text has no key in it."""
    if isinstance(error, ProviderError):
        return error
    told = account.without_key(_told(error))
    match error:
        case wire.ModelContextWindowExceededError() | wire.ModelRequestRejectedError() if _is_too_long(error, told):
            return ContextOverflow(f"the conversation is longer than the window of {model}: {told}")
        case wire.ModelQuotaExceededError():
            return Unauthorised(f"the account of {model} has no credit or quota left: {told}; {account.how_to_set}")
        case wire.ModelRateLimitError():
            return RateLimited(f"{model} asks to wait: {told}", retry_after_seconds=_retry_after(error))
        case wire.ModelAuthenticationError():
            return Unauthorised(f"{model} refuses the key: {told}; {account.how_to_set}")
        case wire.ModelNotFoundError():
            return UnknownModel(f"there is no model {model} at {account.base_url or 'its provider'}: {told}")
        case wire.ModelRequestRejectedError():
            return BadRequest(f"{model} refuses the request: {told}")
        case wire.ModelHTTPError():
            return _by_status(error, model, told)
        case wire.ModelAPIError():
            if _is_garbage(error):
                return BadReply(f"{model} answered with something that is no reply: {told}")
            return Overloaded(f"{model} cannot answer now: {told}", retry_after_seconds=_retry_after(error))
        case wire.UserError():
            return _by_use(model, told, account)
        case httpx2.HTTPError() | OSError() | asyncio.TimeoutError():
            return Overloaded(f"{model} cannot be reached, or broke off: {told}")
        case _:
            # UnexpectedModelBehavior, or any stumble of the library over a reply of no known shape.
            return BadReply(f"{model} answered with something that is no reply: {type(error).__name__}: {told}")


def _by_status(error: wire.ModelHTTPError, model: str, told: str) -> ProviderError:
    if error.status_code == 413:
        return ContextOverflow(f"the request is too large for {model}: {told}")
    if error.status_code >= 500 or error.status_code in _TRANSIENT_STATUS:
        return Overloaded(f"{model} cannot answer now: {told}", retry_after_seconds=_retry_after(error))
    return BadRequest(f"{model} refuses the request: {told}")


def _by_use(model: str, told: str, account: Account) -> ProviderError:
    if "Unknown model" in told or "Unknown provider" in told:
        return UnknownModel(f"there is no model {model}: name it PROVIDER:NAME, such as anthropic:NAME")
    if "environment variable" in told:
        return Unauthorised(f"there is no key for {model}: {account.how_to_set}")
    return BadRequest(f"{model}: {told}")


def _is_too_long(error: Exception, told: str) -> bool:
    return isinstance(error, wire.ModelContextWindowExceededError) or _TOO_LONG.search(told) is not None


def _is_garbage(error: wire.ModelAPIError) -> bool:
    cause = error.__cause__
    undecodable = isinstance(cause, json.JSONDecodeError | UnicodeDecodeError)
    return undecodable or error.message.startswith("Expected a JSON response")


def _retry_after(error: wire.ModelAPIError) -> float | None:
    if error.retry_after is not None:
        return error.retry_after
    headers = error.headers if isinstance(error, wire.ModelHTTPError) and error.headers else {}
    try:
        seconds = float(headers.get("retry-after", ""))
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None


def _told(error: Exception) -> str:
    """What the server said, without the wrapping of two libraries around it."""
    body = error.body if isinstance(error, wire.ModelAPIError) else None
    while isinstance(body, dict):
        inner = body.get("error", body.get("message"))
        if inner is None:
            break
        body = inner
    status = f"HTTP {error.status_code}: " if isinstance(error, wire.ModelHTTPError) else ""
    text = body if isinstance(body, str) and body.strip() else (str(error) or type(error).__name__)
    return (status + " ".join(text.split()))[:_MAX_SHOWN]
