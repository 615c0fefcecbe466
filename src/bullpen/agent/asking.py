"""Asking the model: leave first (budget, pause, rate), then the request, again if that is worth it.

Every request is reserved before it is sent and settled after it, whatever became of it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from bullpen.agent.agent import Agent
from bullpen.agent.governor import retry_delay
from bullpen.agent.memory import estimate_tokens
from bullpen.agent.pricing import find_price_usd, tell_unpriced
from bullpen.domain.budget import BUDGET_SPENT, Refusal, Reservation, Reserved, Settlement
from bullpen.domain.member import MemberStatus
from bullpen.domain.prompt import ChatMessage, Reply, ToolSpec, Usage
from bullpen.domain.request import digest_of
from bullpen.domain.text import MAX_KEY_LENGTH
from bullpen.errors import BadReply, ProviderError, ShuttingDown
from bullpen.provider import ModelRequest, Provider
from bullpen.tools.patience import seen_through

logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 7
MAX_BAD_REPLIES = 3
# How often one who waits for budget or the end of a pause looks again; a change of the team rings at once.
LOOK_AGAIN_SECONDS = 5.0


async def ask(
    agent: Agent,
    messages: Sequence[ChatMessage],
    *,
    purpose: str = "turn",
    system: str | None = None,
    tools: tuple[ToolSpec, ...] | None = None,
    provider: Provider | None = None,
    input_tokens: int | None = None,
    max_output_tokens: int | None = None,
    on_text: Callable[[str], None] | None = None,
    memo: dict[Any, Any] | None = None,
) -> tuple[Reply, Settlement]:
    """The reply, and its settlement, which is to be written together with it. ProviderError when it is given up."""
    provider = provider or agent.provider
    request = ModelRequest(
        system=agent.system if system is None else system,
        tools=agent.specs if tools is None else tools,
        messages=tuple(messages),
        max_output_tokens=max_output_tokens or provider.limits.max_output_tokens,
        member=agent.member.name,
        purpose=purpose,
        memo={} if memo is None else memo,
        leave=agent.house.confirm,
    )
    tokens = input_tokens or _estimate(request)
    failures: list[ProviderError] = []
    while True:
        reservation = await _reserve(agent, provider, request, tokens)
        try:
            return await _attempt(agent, provider, request, reservation, on_text)
        except ProviderError as error:
            failures.append(error)
            if not error.retryable or _is_enough(failures):
                raise
            await _back_off(agent, provider, error, len(failures))


def _is_enough(failures: Sequence[ProviderError]) -> bool:
    return len(failures) >= MAX_ATTEMPTS or sum(isinstance(one, BadReply) for one in failures) >= MAX_BAD_REPLIES


async def _attempt(
    agent: Agent,
    provider: Provider,
    request: ModelRequest,
    reservation: Reservation,
    on_text: Callable[[str], None] | None,
) -> tuple[Reply, Settlement]:
    governor = agent.house.models.governor(provider)
    try:
        if agent.member.status is MemberStatus.WAITING:
            # A subagent beside it may ask while the member itself rests.
            is_at_work = bool(agent.counters.get("phase"))
            await agent.set_status(MemberStatus.WORKING if is_at_work else MemberStatus.IDLE)
        async with governor.slot():
            try:
                reply = await provider.reply(request, on_text=on_text)
            except ProviderError as error:
                if error.retryable and not isinstance(error, BadReply):
                    governor.note_refusal()
                raise
            governor.note_answer()
        cost_usd = await _cost(agent, provider, reply)
        return reply, Settlement(reservation_id=reservation.id, usage=reply.usage, cost_usd=cost_usd)
    except BaseException:
        # It leaves no reply to be settled with. What a broken-off call has cost nobody can say: as the bill shows it.
        await asyncio.shield(_settle_unused(agent, reservation))
        raise


async def _settle_unused(agent: Agent, reservation: Reservation) -> None:
    await agent.store.settle(agent.ref, Settlement(reservation_id=reservation.id, usage=Usage(), cost_usd=0.0))


async def _back_off(agent: Agent, provider: Provider, error: ProviderError, attempt: int) -> None:
    seconds = retry_delay(error, attempt - 1)
    logger.info("%s waits %.1f s: %s", agent.member.name, seconds, error)
    if getattr(error, "retry_after_seconds", None):
        # Everyone who shares the key waits, in other processes too.
        await agent.store.block_provider(_key_of(provider), seconds=seconds)
    else:
        await asyncio.sleep(seconds)


def _key_of(provider: Provider) -> str:
    """It names an address, or a file, and these may be longer than the store keeps a key."""
    return provider.key_id if len(provider.key_id) <= MAX_KEY_LENGTH else digest_of(provider.key_id)


async def _reserve(agent: Agent, provider: Provider, request: ModelRequest, tokens: int) -> Reservation:
    """Leave to ask, waited for: until others settle, the pause ends, or the budget is raised."""
    price = await find_price_usd(agent, provider, input_tokens=tokens, output_tokens=request.max_output_tokens)
    if price is None:
        await tell_unpriced(agent, provider)
    while True:
        outcome = await seen_through(
            agent.store.reserve(
                agent.ref,
                purpose=request.purpose,
                provider_key=_key_of(provider),
                model=provider.model,
                tokens=tokens + request.max_output_tokens,
                cost_usd=price or 0.0,
            ),
            partial(_give_back, agent),
        )
        if outcome.reservation is not None:
            return outcome.reservation
        assert outcome.refusal is not None
        await _wait_for_room(agent, outcome.refusal)


async def _give_back(agent: Agent, outcome: Reserved) -> None:
    """Cut off while it was written: open, it would count as spent, and others would wait for it to be settled."""
    if outcome.reservation is not None:
        await _settle_unused(agent, outcome.reservation)


async def _wait_for_room(agent: Agent, refusal: Refusal) -> None:
    if refusal.until is not None:
        # Spread out, so that those who waited for the same moment do not come at the same moment.
        left = (refusal.until - agent.clock.now()).total_seconds()
        await asyncio.sleep(max(left, 0.0) + random.uniform(0.0, 0.25))
        return
    async with agent.store.listen_events(agent.team.id) as bell:
        bell.clear()
        await agent.refresh()
        if agent.is_asked_to_stop:
            raise ShuttingDown
        # Idle: a subagent beside it waits, so what it has running does not move the team either.
        if refusal.is_final and agent.member.status in (MemberStatus.WORKING, MemberStatus.IDLE):
            reason = f"{BUDGET_SPENT}: {refusal.why}"
            await agent.set_status(MemberStatus.WAITING, reason=reason)
        await agent.house.wait_open(bell, LOOK_AGAIN_SECONDS)


def _estimate(request: ModelRequest) -> int:
    fixed = len(request.system) + sum(len(spec.description) + len(str(spec.parameters)) for spec in request.tools)
    return estimate_tokens(request.messages) + math.ceil(fixed / 4)


async def _cost(agent: Agent, provider: Provider, reply: Reply) -> float:
    if reply.cost_usd is not None:
        return reply.cost_usd
    usage = reply.usage
    price = await find_price_usd(agent, provider, input_tokens=usage.input_tokens, output_tokens=usage.output_tokens)
    return price or 0.0
