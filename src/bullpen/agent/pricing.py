"""What calls of a model cost: its list price; for a model without one, what the settings say.

A model whose price nobody knows cannot be held to a limit in dollars: the human is told so, once, before it is asked.
"""

from __future__ import annotations

from bullpen.agent.agent import Agent
from bullpen.domain.budget import limits_of
from bullpen.domain.member import USER
from bullpen.provider import Provider

MILLION = 1_000_000


async def find_price_usd(agent: Agent, provider: Provider, *, input_tokens: int, output_tokens: int) -> float | None:
    """None if nobody knows."""
    listed = await provider.estimate_cost_usd(input_tokens=input_tokens, output_tokens=output_tokens)
    budget = agent.settings.budget
    if listed is not None or budget.input_price_usd is None or budget.output_price_usd is None:
        return listed
    return (input_tokens * budget.input_price_usd + output_tokens * budget.output_price_usd) / MILLION


async def tell_unpriced(agent: Agent, provider: Provider) -> None:
    known = f"unpriced/{agent.team.id}/{provider.model}"
    if known in agent.house.told or limits_of(agent.team.settings).max_cost_usd is None:
        return
    agent.house.told.add(known)
    text = (
        f"no price is known for {provider.model}: what it costs does not count towards --max-cost. "
        "--max-tokens limits it; budget.input_price_usd and budget.output_price_usd in the settings give it a price"
    )
    await agent.store.notify(agent.team.id, USER, text, operation_id=known)
