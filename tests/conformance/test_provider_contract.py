"""One suite over every provider: the same script is played by the scripted provider itself, by a server that speaks
Anthropic's and OpenAI's protocol, and from a recording.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bullpen.domain.prompt import Reply, StopReason, TextPart
from bullpen.errors import (
    BadReply,
    BadRequest,
    ContextOverflow,
    LeaseLost,
    Overloaded,
    ProviderError,
    RateLimited,
    Unauthorised,
    UnknownModel,
)
from bullpen.provider import ModelLimits, ModelRequest, Provider
from bullpen.providers import open_provider
from bullpen.providers.recording import RecordingProvider, ReplayProvider
from bullpen.providers.scripted import Call, Fault, ScriptedProvider, Step
from tests.support.leave import TAKEN_OVER, Leave
from tests.support.protocol_server import Cut, Garbage, ProtocolServer, Status
from tests.support.protocol_server.server import KEY, scripted
from tests.support.requests import answered, ask

Open = Callable[[Mapping[str, Sequence[Any]]], Provider]
WIRE = {"wire-anthropic": "anthropic:claude-sonnet-5", "wire-openai": "openai:gpt-5.5"}


class AgainFromTheRecord:
    """Every request is recorded first, and what is handed out is the replay of that record."""

    def __init__(self, inner: Provider, path: Path) -> None:
        self._recording = RecordingProvider(inner, path)
        self._path = path
        self.model = f"replay:{path}"
        self.key_id = self.model
        self.limits: ModelLimits = inner.limits

    async def reply(self, request: ModelRequest, *, on_text: Callable[[str], None] | None = None) -> Reply:
        await self._recording.reply(request)
        return await ReplayProvider(self._path).reply(request, on_text=on_text)

    async def estimate_cost_usd(self, *, input_tokens: int, output_tokens: int) -> float | None:
        return await ReplayProvider(self._path).estimate_cost_usd(
            input_tokens=input_tokens, output_tokens=output_tokens
        )

    async def close(self) -> None:
        await self._recording.close()


@pytest.fixture(params=[*WIRE, "scripted", "replay"])
async def open_with(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Open]:
    """Opens the provider under test on a script."""
    async with AsyncExitStack() as stack:
        script: ScriptedProvider | None = None
        server = await stack.enter_async_context(ProtocolServer(lambda heard: model(heard)))

        def model(heard: Any) -> Any:
            assert script is not None
            return scripted(script)(heard)

        def open_one(steps: Mapping[str, Sequence[Any]]) -> Provider:
            nonlocal script
            script = ScriptedProvider(_moved(steps, server) if request.param in WIRE else steps)
            provider: Provider = script
            if request.param in WIRE:
                provider = open_provider(WIRE[request.param], environ=server.environ)
            elif request.param == "replay":
                provider = AgainFromTheRecord(script, tmp_path / "run.jsonl")
            stack.push_async_callback(provider.close)
            return provider

        yield open_one


FAULTS: Mapping[str, Any] = {
    "rate_limited": Status(status=429, retry_after="7"),
    "overloaded": Status(status=529),
    "cut": Cut(),
    "garbage": Garbage(),
    "unauthorised": Status(
        status=401, kind="authentication_error", message="invalid x-api-key", code="invalid_api_key"
    ),
    "unknown_model": Status(status=404, kind="not_found_error", message="model: x", code="model_not_found"),
    "context_overflow": Status(status=400, message="prompt is too long: maximum context length is 9 tokens"),
    "bad_request": Status(status=400, message="no"),
}


def _moved(steps: Mapping[str, Sequence[Any]], server: ProtocolServer) -> Mapping[str, Sequence[Any]]:
    """The script without its faults: what it would raise, the server does."""
    for step in (step for items in steps.values() for step in items if isinstance(step, Step)):
        for fault in step.faults:
            server.inject(FAULTS[fault.kind], times=fault.times)
    return {
        name: [replace(step, faults=()) if isinstance(step, Step) else step for step in items]
        for name, items in steps.items()
    }


async def test_a_text_ends_the_turn_and_says_what_it_used(open_with: Open) -> None:
    provider = open_with({"ana": ["Hello."]})
    reply = await provider.reply(ask("hi"))
    assert reply.text == "Hello."
    assert reply.calls == ()
    assert reply.stop_reason is StopReason.END_TURN
    assert reply.usage.input_tokens > 0
    assert reply.usage.output_tokens > 0
    assert reply.model
    assert reply.cost_usd is not None


async def test_parallel_calls_come_in_order_with_ids_of_their_own(open_with: Open) -> None:
    calls = (Call(name="bash", arguments={"command": "ls"}), Call(name="bash", arguments={"command": "a\nb ü"}))
    provider = open_with({"ana": [Step(say="Both.", calls=(*calls, Call(name="idle")))]})
    reply = await provider.reply(ask("hi"))
    assert [(call.name, dict(call.arguments), call.problem) for call in reply.calls] == [
        ("bash", {"command": "ls"}, None),
        ("bash", {"command": "a\nb ü"}, None),
        ("idle", {}, None),
    ]
    assert len({call.call_id for call in reply.calls}) == 3
    assert reply.stop_reason is StopReason.TOOL_USE


async def test_a_conversation_goes_on_with_the_results(open_with: Open) -> None:
    steps = [Step(calls=(Call(name="bash", arguments={"command": "ls"}),)), "It said: {{result}}."]
    provider = open_with({"ana": steps})
    request = ask("hi")
    first = await provider.reply(request)
    second = await provider.reply(answered(request, first, "and there is mail"))
    assert second.text == "It said: bash ran."


async def test_what_streams_is_the_reply_and_the_reply_is_the_same_without(open_with: Open) -> None:
    provider = open_with({"ana": [Step(say="Several words, streamed.", calls=(Call(name="idle"),), repeat=True)]})
    streamed: list[str] = []
    watched = await provider.reply(ask("hi"), on_text=streamed.append)
    unwatched = await provider.reply(ask("hi"))
    assert "".join(streamed) == watched.text == "Several words, streamed."
    assert watched.message == unwatched.message
    assert watched.stop_reason is unwatched.stop_reason


@pytest.mark.parametrize("is_watched", [False, True])
async def test_who_has_no_leave_is_told_as_it_is_and_the_next_one_is_served(open_with: Open, is_watched: bool) -> None:
    provider = open_with({"ana": ["Hello."]})
    on_text = (lambda text: None) if is_watched else None
    with pytest.raises(LeaseLost):
        await provider.reply(ask("hi", leave=Leave(TAKEN_OVER)), on_text=on_text)
    assert (await provider.reply(ask("hi"), on_text=on_text)).text == "Hello."


async def test_an_empty_reply_is_a_reply(open_with: Open) -> None:
    provider = open_with({"ana": [Step(), "Now more."]})
    request = ask("hi")
    reply = await provider.reply(request)
    assert (reply.text, reply.calls, reply.stop_reason) == ("", (), StopReason.END_TURN)
    assert (await provider.reply(answered(request, reply, "go on"))).text == "Now more."


async def test_texts_that_no_wire_can_carry_are_cleaned(open_with: Open) -> None:
    provider = open_with({"ana": [Step(calls=(Call(name="bash", arguments={"command": "x"}),)), "fine"]})
    request = ask("a\x00b\ud800c", system="You are 'ana'\x00\udfff.")
    reply = await provider.reply(request)
    following = answered(request, reply, result=lambda name: "binary \x00\udc80 output")
    assert (await provider.reply(following)).text == "fine"


async def test_members_are_served_at_the_same_time(open_with: Open) -> None:
    names = [f"m{number}" for number in range(40)]
    provider = open_with({name: [f"I am {name}."] for name in names})
    replies = await asyncio.gather(*(provider.reply(ask("who?", member=name)) for name in names))
    assert [reply.text for reply in replies] == [f"I am {name}." for name in names]


ERRORS: Mapping[str, type[ProviderError]] = {
    "rate_limited": RateLimited,
    "overloaded": Overloaded,
    "cut": Overloaded,
    "garbage": BadReply,
    "unauthorised": Unauthorised,
    "unknown_model": UnknownModel,
    "context_overflow": ContextOverflow,
    "bad_request": BadRequest,
}


@pytest.mark.parametrize("watched", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("kind", ERRORS)
async def test_a_fault_is_its_error_and_the_next_attempt_succeeds(open_with: Open, kind: str, watched: bool) -> None:
    provider = open_with({"ana": [Step(say="At last, here.", faults=(Fault(kind=kind, retry_after_seconds=7),))]})
    on_text = (lambda text: None) if watched else None
    with pytest.raises(ProviderError) as caught:
        await provider.reply(ask("hi"), on_text=on_text)
    assert type(caught.value) is ERRORS[kind]
    assert KEY not in str(caught.value)
    if isinstance(caught.value, RateLimited):
        assert caught.value.retry_after_seconds == 7
    assert (await provider.reply(ask("hi"), on_text=on_text)).text == "At last, here."


async def test_a_reply_that_is_cancelled_leaves_the_provider_usable(open_with: Open) -> None:
    provider = open_with({"ana": [Step(say="late", delay_seconds=3600)], "ben": ["here"]})
    asked = asyncio.create_task(provider.reply(ask("hi")))
    assert (await provider.reply(ask("hi", member="ben"))).text == "here"
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert (await provider.reply(ask("hi", member="ben"))).text == "here"


async def test_a_provider_says_what_it_is(open_with: Open) -> None:
    provider = open_with({"ana": ["x"]})
    await provider.reply(ask("hi"))
    assert ":" in provider.model
    assert provider.key_id
    assert KEY not in provider.key_id
    assert provider.limits.window_tokens > provider.limits.max_output_tokens >= 8_000
    estimate = await provider.estimate_cost_usd(input_tokens=1000, output_tokens=1000)
    assert estimate is None or estimate >= 0


async def test_closing_twice_is_no_mistake(open_with: Open) -> None:
    provider = open_with({"ana": ["x"]})
    await provider.close()
    await provider.reply(ask("hi"))
    await provider.close()
    await provider.close()


async def test_what_the_member_is_called_is_never_sent(open_with: Open) -> None:
    provider = open_with({"*": ["by the system prompt alone"]})
    reply = await provider.reply(ask("hi", member="ana", system="You are 'somebody'."))
    assert reply.message.parts[-1] == TextPart("by the system prompt alone")
