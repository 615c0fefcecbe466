"""List prices, and what is reserved before a call."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.providers.wire.price import ESTIMATE_STEP_TOKENS, estimated_price_usd, list_price_usd

MODEL = "anthropic:claude-sonnet-4-5"
TOKENS = st.integers(min_value=0, max_value=500_000)


@given(input_tokens=TOKENS, output_tokens=TOKENS)
def test_an_estimate_is_never_below_the_price_and_hardly_above_it(input_tokens: int, output_tokens: int) -> None:
    price = list_price_usd(MODEL, input_tokens=input_tokens, output_tokens=output_tokens)
    estimate = estimated_price_usd(MODEL, input_tokens=input_tokens, output_tokens=output_tokens)
    above = list_price_usd(MODEL, input_tokens=input_tokens + ESTIMATE_STEP_TOKENS, output_tokens=output_tokens)
    assert price is not None
    assert estimate is not None
    assert above is not None
    assert price <= estimate <= above


@pytest.mark.parametrize("price", [list_price_usd, estimated_price_usd])
def test_a_model_that_nobody_knows_has_no_price(price: Callable[..., float | None]) -> None:
    assert price("nobody:our-own", input_tokens=1, output_tokens=1) is None
