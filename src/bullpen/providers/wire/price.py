"""Prices, from genai-prices.

A price is a sum: so many tokens of each kind, at the rates of the model. The library finds the model, its rates and
the kinds anew for each sum, which takes a twelfth of a turn. So it is asked for the rates, twice an hour (some change
with the time of day, at half past too), and the sum is made here, as long as it is as simple as that: only the kinds
of tokens that every reply has, and rates that do not depend on how many they are. Else the library is asked for the
sum.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

from genai_prices import Usage, calc_price
from genai_prices.types import AbstractUsage, PriceCalculation, TieredPrices
from pydantic_ai.messages import ModelResponse
from pydantic_ai.usage import RequestUsage

ESTIMATE_STEP_TOKENS = 1_000
PERIOD_SECONDS = 1_800
_MILLION = 1_000_000
_COUNTED = frozenset({"input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"})


class Rates(NamedTuple):
    """Of a million tokens. Those of the cache are also among the input, and cost their own rate instead."""

    input: Decimal
    output: Decimal
    cache_read: Decimal
    cache_write: Decimal

    def price_usd(
        self, *, input_tokens: int, output_tokens: int, read_tokens: int = 0, written_tokens: int = 0
    ) -> float:
        fresh = input_tokens - read_tokens - written_tokens
        whole = self.input * fresh + self.output * output_tokens
        return float((whole + self.cache_read * read_tokens + self.cache_write * written_tokens) / _MILLION)


def reply_price_usd(response: ModelResponse) -> float:
    """What a reply cost. LookupError, ValueError or AssertionError where nobody can say."""
    usage = response.usage
    rates = _rates_of_reply(response)
    if rates is None or usage.input_tokens < usage.cache_read_tokens + usage.cache_write_tokens:
        return float(response.cost().total_price)
    return rates.price_usd(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        read_tokens=usage.cache_read_tokens,
        written_tokens=usage.cache_write_tokens,
    )


def list_price_usd(model: str, *, input_tokens: int, output_tokens: int) -> float | None:
    """What these tokens cost without a cache; None if the model's price is not known."""
    calculation = _calculation(model, Usage(input_tokens=input_tokens, output_tokens=output_tokens))
    return None if calculation is None else float(calculation.total_price)


def estimated_price_usd(model: str, *, input_tokens: int, output_tokens: int) -> float | None:
    """At most that much, before it is known how many tokens it will be: some providers take more for what they write
    into their cache, and all of it may be. Where the rates depend on their number, it is the price of the next full
    thousand, which is the same for several turns."""
    rates = _list_rates(model, _period())
    if rates is not None:
        dearest = rates._replace(input=max(rates.input, rates.cache_write))
        return dearest.price_usd(input_tokens=input_tokens, output_tokens=output_tokens)
    steps = -(-input_tokens // ESTIMATE_STEP_TOKENS)
    return _price_in_this_period(model, steps * ESTIMATE_STEP_TOKENS, output_tokens, _period())


@lru_cache(maxsize=256)
def _price_in_this_period(model: str, input_tokens: int, output_tokens: int, period: int) -> float | None:
    tokens = {"input_tokens": input_tokens, "output_tokens": output_tokens}
    ways = (Usage(**tokens), Usage(**tokens, cache_write_tokens=input_tokens))
    prices = [float(one.total_price) for usage in ways if (one := _calculation(model, usage)) is not None]
    return max(prices, default=None)


def _period() -> int:
    """No price changes within one."""
    return int(time.time() // PERIOD_SECONDS)


def _calculation(model: str, usage: AbstractUsage) -> PriceCalculation | None:
    provider, _, name = model.partition(":")
    # `openai-chat` is priced as `openai`; an unknown provider's model may be known by its name alone.
    for provider_id in (provider, provider.partition("-")[0], None):
        try:
            return calc_price(usage, name, provider_id=provider_id)
        except LookupError:
            continue
    return None


# -- rates ----------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _list_rates(model: str, period: int) -> Rates | None:
    return _rates(lambda **tokens: _calculation(model, Usage(**tokens)))


def _rates_of_reply(response: ModelResponse) -> Rates | None:
    used = {name for name, count in vars(response.usage).items() if count and name != "details"}
    if not response.model_name or not used <= _COUNTED:
        return None
    asked = (response.model_name, response.provider_url, response.provider_name)
    # What a server says of a reply (its service tier) may decide about the price; most of it never does.
    details = response.provider_details or {}
    deciding = tuple((key, details.get(key)) for key in _deciding(*asked))
    if not all(isinstance(value, str | None) for _, value in deciding):
        # Said by a server as no other says it, and perhaps nothing that can be kept.
        return None
    return _rates_at(*asked, deciding, _period())


@lru_cache(maxsize=256)
def _deciding(model_name: str, url: str | None, provider: str | None) -> tuple[str, ...]:
    found = _priced_reply(model_name, url, provider, {}, input_tokens=1)
    return tuple(sorted({key for variant in found.model.price_variants or () for key in variant.when}))


@lru_cache(maxsize=256)
def _rates_at(
    model_name: str, url: str | None, provider: str | None, details: tuple[tuple[str, Any], ...], period: int
) -> Rates | None:
    return _rates(lambda **tokens: _priced_reply(model_name, url, provider, dict(details), **tokens))


def _priced_reply(
    model_name: str, url: str | None, provider: str | None, details: dict[str, Any], **tokens: int
) -> PriceCalculation:
    reply = ModelResponse(parts=[], model_name=model_name, provider_url=url, provider_name=provider)
    usage: Any = RequestUsage
    return replace(reply, usage=usage(**tokens), provider_details=details).cost()


def _rates(calculate: Callable[..., PriceCalculation | None]) -> Rates | None:
    """None if they depend on how many tokens there are, or are not known."""
    found = [
        calculate(**dict.fromkeys(kinds, _MILLION))
        for kinds in (
            ("input_tokens",),
            ("output_tokens",),
            ("input_tokens", "cache_read_tokens"),
            ("input_tokens", "cache_write_tokens"),
        )
    ]
    known = [one for one in found if one is not None]
    if len(known) < len(found) or any(isinstance(rate, TieredPrices) for rate in vars(known[0].model_price).values()):
        return None
    return Rates(*(one.total_price for one in known))
