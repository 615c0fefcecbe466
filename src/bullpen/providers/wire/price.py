"""List prices, from genai-prices."""

from __future__ import annotations

import time
from functools import lru_cache

from genai_prices import Usage, calc_price

ESTIMATE_STEP_TOKENS = 1_000


def list_price_usd(model: str, *, input_tokens: int, output_tokens: int) -> float | None:
    """What these tokens cost without a cache; None if the model's price is not known."""
    provider, _, name = model.partition(":")
    usage = Usage(input_tokens=input_tokens, output_tokens=output_tokens)
    # `openai-chat` is priced as `openai`; an unknown provider's model may be known by its name alone.
    for provider_id in (provider, provider.partition("-")[0], None):
        try:
            return float(calc_price(usage, name, provider_id=provider_id).total_price)
        except LookupError:
            continue
    return None


def estimated_price_usd(model: str, *, input_tokens: int, output_tokens: int) -> float | None:
    """At most that much, before it is known how many tokens it will be. From turn to turn a request grows by little:
    for the next thousand tokens the price is the same, and finding it out costs half a millisecond."""
    steps = -(-input_tokens // ESTIMATE_STEP_TOKENS)
    # Some prices depend on the time of day.
    return _price_in_this_hour(model, steps * ESTIMATE_STEP_TOKENS, output_tokens, int(time.time() // 3600))


@lru_cache(maxsize=256)
def _price_in_this_hour(model: str, input_tokens: int, output_tokens: int, hour: int) -> float | None:
    return list_price_usd(model, input_tokens=input_tokens, output_tokens=output_tokens)
