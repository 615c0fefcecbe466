"""List prices, and what is reserved before a call."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime

import pytest
from genai_prices import Usage, calc_price
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import TimeOfDateConstraint
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import ModelResponse
from pydantic_ai.usage import RequestUsage

from bullpen.providers.wire.price import (
    ESTIMATE_STEP_TOKENS,
    PERIOD_SECONDS,
    estimated_price_usd,
    list_price_usd,
    reply_price_usd,
)

WITH_TIERS = "anthropic:claude-sonnet-4-5"
WITHOUT_TIERS = "anthropic:claude-sonnet-5"
TOKENS = st.integers(min_value=0, max_value=500_000)


@pytest.mark.parametrize("model", [WITH_TIERS, WITHOUT_TIERS, "openai-chat:gpt-5"])
@given(input_tokens=TOKENS, output_tokens=TOKENS, share=st.floats(min_value=0, max_value=1))
def test_an_estimate_is_never_below_the_price_and_hardly_above_it(
    model: str, input_tokens: int, output_tokens: int, share: float
) -> None:
    provider, _, name = model.partition(":")

    def price(input_tokens: int, written_tokens: int) -> float:
        usage = Usage(input_tokens=input_tokens, output_tokens=output_tokens, cache_write_tokens=written_tokens)
        return float(calc_price(usage, name, provider_id=provider.removesuffix("-chat")).total_price)

    estimate = estimated_price_usd(model, input_tokens=input_tokens, output_tokens=output_tokens)
    assert estimate is not None
    # However much of it is written into the provider's cache, which some of them charge for.
    assert price(input_tokens, int(input_tokens * share)) <= estimate * (1 + 1e-12)
    above = input_tokens + ESTIMATE_STEP_TOKENS
    assert estimate <= max(price(above, 0), price(above, above))


def test_no_price_changes_while_its_rates_are_kept() -> None:
    """DeepSeek's night begins at half past: rates of the day before it would be kept, and the other way round."""
    daily = [
        constraint
        for provider in get_snapshot().providers
        for model in provider.models
        for price in (model.prices if isinstance(model.prices, list) else [])
        if isinstance(constraint := price.constraint, TimeOfDateConstraint)
    ]
    moments = {moment for one in daily for moment in (one.start_time, one.end_time)}
    assert any(moment.minute for moment in moments)
    for moment in moments:
        changes_at = datetime.combine(date(2026, 1, 1), moment.replace(tzinfo=moment.tzinfo or UTC))
        assert changes_at.timestamp() % PERIOD_SECONDS == 0


@pytest.mark.parametrize("tier", [None, "default", "flex", "priority"])
@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("claude-sonnet-5", "anthropic"),
        ("claude-sonnet-4-5", "anthropic"),
        ("claude-opus-4-6", "anthropic"),
        ("gpt-5", "openai"),
        ("gpt-5.5", "openai"),
        ("gpt-4o", "openai"),
    ],
)
@given(
    fresh=TOKENS,
    output_tokens=TOKENS,
    read=TOKENS,
    written=TOKENS,
    searches=st.sampled_from([0, 0, 3]),
    sound=st.sampled_from([0, 0, 50]),
)
def test_what_a_reply_cost_is_what_the_library_says(
    model: str,
    provider: str,
    tier: str | None,
    fresh: int,
    output_tokens: int,
    read: int,
    written: int,
    searches: int,
    sound: int,
) -> None:
    usage = RequestUsage(
        input_tokens=fresh + read + written,
        output_tokens=output_tokens + sound,
        cache_read_tokens=read,
        cache_write_tokens=written,
        output_audio_tokens=sound,
    )
    if searches:
        usage.web_searches = searches  # type: ignore[attr-defined]
    details = {"finish_reason": "stop", "timestamp": datetime.now(UTC)} | ({"service_tier": tier} if tier else {})
    response = ModelResponse(
        parts=[],
        usage=usage,
        model_name=model,
        provider_name=provider,
        provider_details=details,
        provider_url="http://127.0.0.1:1/v1/",
    )
    try:
        expected = float(response.cost().total_price)
    except ValueError:
        with pytest.raises(ValueError):
            reply_price_usd(response)
    else:
        assert reply_price_usd(response) == pytest.approx(expected, rel=1e-12)


def test_a_reply_whose_counts_make_no_sense_is_the_librarys_affair() -> None:
    usage = RequestUsage(input_tokens=10, cache_read_tokens=500)
    response = ModelResponse(parts=[], usage=usage, model_name="claude-sonnet-5", provider_name="anthropic")
    with pytest.raises(ValueError):
        reply_price_usd(response)


def test_a_service_tier_that_is_no_text_costs_no_reply() -> None:
    response = ModelResponse(
        parts=[],
        usage=RequestUsage(input_tokens=1000, output_tokens=10),
        model_name="gpt-5",
        provider_name="openai",
        provider_details={"service_tier": {"name": "default"}},
    )
    assert reply_price_usd(response) == float(response.cost().total_price)


def test_a_reply_of_a_model_that_nobody_knows_has_no_price() -> None:
    response = ModelResponse(parts=[], usage=RequestUsage(input_tokens=10), model_name="ours", provider_name="nobody")
    with pytest.raises(LookupError):
        reply_price_usd(response)


@pytest.mark.parametrize("price", [list_price_usd, estimated_price_usd])
def test_a_model_that_nobody_knows_has_no_price(price: Callable[..., float | None]) -> None:
    assert price("nobody:our-own", input_tokens=1, output_tokens=1) is None
