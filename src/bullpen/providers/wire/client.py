"""The connection to a provider: pydantic-ai's model object.

Each of the two clients of our own is imported only for its own provider: they are thousands of modules, and take a
second each.
"""

from __future__ import annotations

import warnings
from typing import Any

import httpx2
from pydantic_ai.models import Model, infer_model
from pydantic_ai.providers import infer_provider_class

from bullpen.errors import UsageError
from bullpen.providers.account import Account

CONNECT_TIMEOUT_SECONDS = 10.0


def check_prefix(prefix: str) -> None:
    """UsageError for a provider that nobody knows, or whose package is not there."""
    try:
        infer_provider_class(prefix)
    except ImportError as error:
        raise UsageError(f"{prefix}: needs another package: {error}") from error
    except ValueError:
        raise UsageError(
            f"there is no provider {prefix!r}: name a model PROVIDER:NAME, such as anthropic:NAME or openai:NAME"
        ) from None


def open_model(model: str, account: Account, *, timeout_seconds: float) -> Model:
    """The model object. ImportError if its provider needs a package that is not there, UserError if unknown."""
    hush()
    timeout = httpx2.Timeout(timeout_seconds, connect=min(CONNECT_TIMEOUT_SECONDS, timeout_seconds))
    name = model.partition(":")[2]
    match account.provider:
        case "anthropic":
            from bullpen.providers.wire.anthropic_client import open_anthropic

            return open_anthropic(name, account, timeout)
        case "openai" | "openai-chat":
            from bullpen.providers.wire.openai_client import open_openai

            return open_openai(name, account, timeout)
        case _:
            return infer_model(model)


async def close_model(model: Model, account: Account) -> None:
    if account.provider in ("anthropic", "openai", "openai-chat"):
        ours: Any = model
        await ours.client.close()
    else:
        # The library closes the connections that it opened itself when its model is left.
        async with model:
            pass


def hush() -> None:
    """What these libraries warn of (a retired model, a setting left out) is for their own users, not for ours."""
    for library in ("pydantic_ai", "anthropic", "openai", "genai_prices"):
        warnings.filterwarnings("ignore", module=rf"{library}(\.|$)")
    warnings.filterwarnings("ignore", message=r"The model '.*' is deprecated")
