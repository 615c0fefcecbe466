"""List prices, from genai-prices."""

from __future__ import annotations

from genai_prices import Usage, calc_price


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
