"""Both wire formats through HTTP, with the real client libraries, against a server as strict as the real ones."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bullpen.domain.prompt import (
    AssistantMessage,
    CallPart,
    ChatMessage,
    Reply,
    ResultPart,
    StopReason,
    TextPart,
    ThinkingPart,
    Usage,
    UserMessage,
)
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
from bullpen.provider import ModelRequest, Provider
from bullpen.providers import open_provider
from bullpen.providers.wire import client
from bullpen.providers.wire.message import outgoing
from tests.support.protocol_server import (
    Answer,
    Cut,
    Garbage,
    HangUp,
    ProtocolServer,
    RawCall,
    Slow,
    Status,
    StreamError,
)
from tests.support.protocol_server.anthropic_format import sign
from tests.support.protocol_server.server import KEY, environ_for
from tests.support.requests import BASH, answered, ask, user

MODELS = {"anthropic": "anthropic:claude-sonnet-5", "openai": "openai:gpt-5.5"}


@dataclass
class Wire:
    """A provider on a server whose next answers the test decides."""

    format: str
    watched: bool
    server: ProtocolServer
    provider: Provider
    answers: list[Answer | str]

    async def reply(self, request: ModelRequest | None = None, *answers: Answer | str) -> Reply:
        self.answers.extend(answers)
        return await self.provider.reply(request or ask("hi"), on_text=(lambda text: None) if self.watched else None)

    async def error(self, request: ModelRequest | None = None) -> ProviderError:
        with pytest.raises(ProviderError) as caught:
            await self.reply(request)
        assert KEY not in str(caught.value)
        assert caught.value.__cause__ is None
        assert self.server.ledger.requests <= 1, "there was more than one attempt"
        return caught.value


@asynccontextmanager
async def opened(
    format: str, *, watched: bool = False, timeout_seconds: float = 60, **options: Any
) -> AsyncIterator[Wire]:
    answers: list[Answer | str] = []
    async with ProtocolServer(lambda heard: answers.pop(0) if answers else "ok", **options) as server:
        provider = open_provider(MODELS[format], environ=server.environ, timeout_seconds=timeout_seconds)
        try:
            yield Wire(format, watched, server, provider, answers)
        finally:
            await provider.close()


@pytest.fixture(
    params=[(name, watched) for name in MODELS for watched in (False, True)],
    ids=lambda it: f"{it[0]}-{'sse' if it[1] else 'plain'}",
)
async def wire(request: pytest.FixtureRequest) -> AsyncIterator[Wire]:
    name, watched = request.param
    async with opened(name, watched=watched) as wire:
        yield wire


def call(number: int = 1, **arguments: Any) -> CallPart:
    return CallPart(call_id=f"toolu_{number}", name="bash", arguments=arguments or {"command": "ls"})


async def test_every_kind_of_part_comes_and_goes_back(wire: Wire) -> None:
    request = ask("begin")
    parts = (ThinkingPart(text="Let me see.", provider=""), TextPart("I look."), call(1), call(2, command="pwd"))
    reply = await wire.reply(request, Answer(parts=parts))
    assert [type(part) for part in reply.message.parts] == [ThinkingPart, TextPart, CallPart, CallPart]
    following = UserMessage(
        (
            ResultPart(call_id="toolu_1", name="bash", text="a.py"),
            ResultPart(call_id="toolu_2", name="bash", text="no such thing", is_error=True),
            TextPart('<message from="ben">hi</message>'),
        )
    )
    await wire.reply(ask(*request.messages, reply.message, following))
    heard = wire.server.heard[-1]
    assert [type(part).__name__ for part in heard.request.messages[1].parts] == [
        "ThinkingPart",
        "TextPart",
        "CallPart",
        "CallPart",
    ]
    assert heard.request.messages[1].parts[2:] == parts[2:]
    assert [result.call_id for result in heard.results] == ["toolu_1", "toolu_2"]
    assert "no such thing" in heard.results[1].text
    assert heard.results[1].is_error or heard.format == "openai"
    assert heard.text == '<message from="ben">hi</message>'
    assert heard.request.system == request.system
    assert heard.request.tools == request.tools
    assert heard.request.max_output_tokens == 8_000


async def test_thinking_goes_back_to_its_provider_and_to_no_other(wire: Wire) -> None:
    signed = ThinkingPart(text="mine", provider=wire.format, signature=sign("mine"), extra={"id": "reasoning_content"})
    if wire.format == "anthropic":
        signed = ThinkingPart(text="mine", provider="anthropic", signature=sign("mine"))
    foreign = ThinkingPart(text="FOREIGN", provider="somebody", signature="x", extra={"id": "reasoning_content"})
    said = AssistantMessage((foreign, signed, TextPart("done")))
    only = AssistantMessage((foreign,))
    await wire.reply(ask("a", said, "b", only, "c"))
    heard = wire.server.heard[-1]
    assert "FOREIGN" not in heard.raw
    assert [part.text for part in heard.request.messages[1].parts if not isinstance(part, CallPart)] == ["mine", "done"]
    assert heard.request.messages[3] == AssistantMessage((TextPart("(no text)"),))


async def test_a_server_that_thinks_on_some_turns_only_gets_the_others_as_it_got_them_before() -> None:
    thought = ThinkingPart(text="Hm.", provider="openai", extra={"id": "reasoning_content"})
    replies = [(call(1),), (thought, call(2)), (call(3),), (TextPart("so far"),), (call(4),), (thought, call(5))]
    messages: list[ChatMessage] = [user("begin")]
    async with opened("openai") as wire:
        for parts in replies:
            messages.append(AssistantMessage(parts))
            results = [
                ResultPart(call_id=part.call_id, name="bash", text="ok")
                for part in messages[-1].parts
                if isinstance(part, CallPart)
            ]
            messages.append(UserMessage(tuple(results)) if results else user("go on"))
            await wire.reply(ask(*messages))
        sent = [heard.body["messages"] for heard in wire.server.heard]
    for before, after in pairwise(sent):
        assert after[: len(before)] == before
    calls = [message for message in sent[-1] if message.get("tool_calls")]
    assert [message.get("reasoning_content") for message in calls] == [None, "Hm.", "", "", "Hm."]


async def test_redacted_thinking_goes_back_unread() -> None:
    async with opened("anthropic") as wire:
        redacted = ThinkingPart(text="", provider="", extra={"redacted": True})
        request = ask("hi")
        reply = await wire.reply(request, Answer(parts=(redacted, TextPart("so"))))
        await wire.reply(answered(request, reply, "on"))
        assert wire.server.ledger.refusals == []
        assert "redacted_thinking" in wire.server.heard[-1].raw


async def test_thinking_that_went_stale_is_dropped_and_that_is_learnt() -> None:
    dropped = {"input_transformations": [{"type": "thinking_dropped", "reason": "prefix_binding_mismatch"}]}
    for watched in (False, True):
        answers: list[Answer | str] = [Answer(parts=(TextPart("so"),), extra=dropped)]
        async with ProtocolServer(lambda heard, answers=answers: answers.pop() if answers else "ok") as server:  # type: ignore[misc]
            provider = open_provider("anthropic:claude-sonnet-5-5", environ=server.environ)
            server.inject(Status(status=400, message="x: The block is bound to a different conversation"))
            thought = ThinkingPart(text="t", provider="anthropic", signature=sign("t"))
            request = ask("pruned", AssistantMessage((thought, TextPart("a"))), "b")
            on_text = (lambda text: None) if watched else None
            assert (await provider.reply(request, on_text=on_text)).text == "so"
            assert server.ledger.requests == 2
            assert (await provider.reply(request, on_text=on_text)).text == "ok"
            assert server.ledger.requests == 3
            assert server.heard[-1].body["thinking"]["block_binding"] == {"prefix_mismatch_behavior": "drop_block"}
            await provider.close()


async def test_text_is_streamed_as_it_comes() -> None:
    for name in MODELS:
        async with opened(name) as wire:
            pieces: list[str] = []
            wire.answers.append(
                Answer(parts=(ThinkingPart(text="hidden", provider=""), TextPart("one two three four")))
            )
            reply = await wire.provider.reply(ask("hi"), on_text=pieces.append)
            assert len(pieces) > 1
            assert "".join(pieces) == reply.text == "one two three four"


async def test_stop_reasons_are_ours(wire: Wire) -> None:
    cases = {
        "end_turn": (Answer(parts=(TextPart("x"),)), StopReason.END_TURN),
        "tool_use": (Answer(parts=(call(),)), StopReason.TOOL_USE),
        "max_tokens": (Answer(parts=(TextPart("x"),), stop="max_tokens"), StopReason.MAX_OUTPUT),
        "refusal": (Answer(parts=(TextPart("x"),), stop="refusal"), StopReason.REFUSAL),
    }
    for answer, expected in cases.values():
        assert (await wire.reply(None, answer)).stop_reason is expected


async def test_what_openai_says_when_it_refuses_is_the_text() -> None:
    for watched in (False, True):
        async with opened("openai", watched=watched) as wire:
            reply = await wire.reply(None, Answer(refusal="I will not do that."))
            assert (reply.stop_reason, reply.text) == (StopReason.REFUSAL, "I will not do that.")


async def test_a_call_that_the_output_limit_cut_is_a_problem(wire: Wire) -> None:
    torn = RawCall(call_id="c2", name="bash", arguments='{"command": "cat > file << EOF')
    reply = await wire.reply(None, Answer(parts=(call(1), torn), stop="max_tokens"))
    whole, cut = reply.calls
    assert whole.problem is None
    assert dict(whole.arguments) == {"command": "ls"}
    assert dict(cut.arguments) == {}
    assert cut.problem is not None
    assert "output limit" in cut.problem


async def test_arguments_that_are_no_object_are_a_problem(wire: Wire) -> None:
    for text in ('["ls"]', "17"):
        reply = await wire.reply(None, Answer(parts=(RawCall(call_id="c1", name="bash", arguments=text),)))
        assert reply.calls[0].problem is not None, text
        assert dict(reply.calls[0].arguments) == {}
    reply = await wire.reply(None, Answer(parts=(RawCall(call_id="c1", name="bash", arguments=""),)))
    assert reply.calls[0].problem is None


async def test_a_problem_call_goes_back_as_a_legal_one(wire: Wire) -> None:
    broken = CallPart(call_id="c1", name="bash", problem="cut off")
    said = AssistantMessage((broken,))
    result = UserMessage((ResultPart(call_id="c1", name="bash", text="cut off", is_error=True),))
    await wire.reply(ask("hi", said, result))
    assert wire.server.ledger.refusals == []


async def test_a_call_id_that_was_used_before_becomes_another(wire: Wire) -> None:
    request = ask("hi")
    for _ in range(3):
        reply = await wire.reply(request, Answer(parts=(call(0), call(0))))
        request = answered(request, reply)
    await wire.reply(request)
    assert wire.server.ledger.refusals == []


async def test_names_and_ids_of_another_provider_become_legal(wire: Wire) -> None:
    odd = CallPart(call_id="functions.bash:0|" + "x" * 80, name="functions.bash ünd", arguments={"command": "ls"})
    result = ResultPart(call_id=odd.call_id, name=odd.name, text="")
    await wire.reply(ask("hi", AssistantMessage((odd,)), UserMessage((result,))))
    heard = wire.server.heard[-1]
    assert heard.results[0].text == "(no output)"
    assert heard.results[0].name == "functions_bash__nd"


async def test_a_conversation_with_calls_is_legal_without_tools(wire: Wire) -> None:
    request = ask("hi")
    reply = await wire.reply(request, Answer(parts=(call(),)))
    following = answered(request, reply)
    await wire.reply(ask(*following.messages, tools=()))
    assert wire.server.ledger.refusals == []
    assert wire.server.heard[-1].body["tool_choice"] in ("none", {"type": "none"})


async def test_usage_counts_what_came_from_the_cache(wire: Wire) -> None:
    used = Usage(input_tokens=100, output_tokens=7, cache_read_tokens=80, cache_write_tokens=15)
    reply = await wire.reply(None, Answer(parts=(TextPart("x"),), usage=used))
    assert reply.usage.input_tokens == 100
    assert reply.usage.output_tokens == 7
    assert reply.usage.cache_read_tokens == 80
    assert reply.usage.cache_write_tokens == (15 if wire.format == "anthropic" else 0)


async def test_a_cached_token_costs_less(wire: Wire) -> None:
    whole = Usage(input_tokens=1_000_000, output_tokens=1000)
    cached = Usage(input_tokens=1_000_000, output_tokens=1000, cache_read_tokens=900_000)
    dear = (await wire.reply(None, Answer(parts=(TextPart("x"),), usage=whole))).cost_usd
    cheap = (await wire.reply(None, Answer(parts=(TextPart("x"),), usage=cached))).cost_usd
    assert dear is not None
    assert cheap is not None
    assert 0 < cheap < dear
    written = Usage(input_tokens=1_000_000, output_tokens=1000, cache_write_tokens=1_000_000)
    dearest = (await wire.reply(None, Answer(parts=(TextPart("x"),), usage=written))).cost_usd
    assert dearest is not None
    assert await wire.provider.estimate_cost_usd(input_tokens=1_000_000, output_tokens=1000) == pytest.approx(
        max(dear, dearest)
    )


async def test_a_server_that_does_not_count_is_not_free(wire: Wire) -> None:
    reply = await wire.reply(ask("x" * 4000), Answer(parts=(TextPart("y" * 400),), usage=Usage()))
    assert reply.usage.input_tokens >= 1000
    assert reply.usage.output_tokens >= 100
    assert reply.cost_usd is not None
    assert reply.cost_usd > 0


async def test_a_model_without_a_price_costs_none() -> None:
    async with ProtocolServer(lambda heard: "ok") as server:
        for model in ("anthropic:our-own", "openai:our-own"):
            provider = open_provider(model, environ=server.environ)
            assert (await provider.reply(ask("hi"))).cost_usd is None
            assert await provider.estimate_cost_usd(input_tokens=1, output_tokens=1) is None
            await provider.close()


async def test_the_newest_message_system_and_tools_are_cache_breakpoints() -> None:
    async with opened("anthropic") as wire:
        request = ask("one")
        reply = await wire.reply(request, Answer(parts=(TextPart("x"), call())))
        await wire.reply(answered(request, reply, "two"))
        body = wire.server.heard[-1].body
        assert "cache_control" in body["system"][-1]
        assert "cache_control" in body["tools"][-1]
        assert "cache_control" in body["messages"][-1]["content"][-1]
        assert json.dumps(body).count("cache_control") == 3


async def test_the_prefix_stays_from_call_to_call(wire: Wire) -> None:
    request = ask("begin", system="You are 'ana'. " + "Rules. " * 500)
    for number in range(40):
        reply = await wire.reply(request, Answer(parts=(TextPart(f"step {number}"), call(number))))
        request = answered(request, reply, result=lambda name: "line\n" * 60)
    (conversation,) = wire.server.ledger.conversations.values()
    assert conversation.requests == 40
    assert conversation.share > 0.95
    assert (await wire.reply(request)).usage.cache_read_tokens > 0


async def test_the_same_request_is_the_same_bytes(wire: Wire) -> None:
    await wire.reply(ask("hi"))
    await wire.reply(ask("hi"))
    first, second = wire.server.heard
    assert first.raw == second.raw


async def test_a_kept_conversation_that_changed_is_sent_as_it_is_now(wire: Wire) -> None:
    """Old results are pruned, a compaction replaces the beginning, a request failed: what went out before is no more
    than a saving."""
    results = [UserMessage((ResultPart(call_id=f"toolu_{n}", name="bash", text=f"result {n}"),)) for n in range(4)]
    said = [AssistantMessage((TextPart(f"step {n}"), call(n))) for n in range(4)]
    pruned = UserMessage((ResultPart(call_id="toolu_0", name="bash", text="[pruned]"),))
    versions = [
        ("a", said[0], results[0], said[1], results[1]),
        ("a", said[0], results[0], said[1], results[1], said[2], results[2]),
        ("a", said[0], pruned, said[1], results[1], said[2], results[2], said[3], results[3]),
        ("a", said[0], pruned, said[1], results[1]),
        ("all that was", said[3], results[3]),
    ]
    memo: dict[Any, Any] = {}
    for messages in versions:
        await wire.reply(ask(*messages, memo=memo))
        wire.server.inject(Status(status=500))
        with pytest.raises(Overloaded):
            await wire.reply(ask("something else", *messages[1:], memo=memo))
        await wire.reply(ask(*messages, memo=memo))
        await wire.reply(ask(*messages))
        kept, again, anew = (heard.raw for heard in (*wire.server.heard[-4:-3], *wire.server.heard[-2:]))
        assert kept == again == anew


@pytest.mark.parametrize("format", MODELS)
async def test_what_was_sent_before_is_not_converted_again(format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from bullpen.providers.wire import line

    converted: list[int] = []

    def counted(messages: Any, **rest: Any) -> Any:
        converted.append(len(messages))
        return outgoing(messages, **rest)

    monkeypatch.setattr(line, "outgoing", counted)
    async with opened(format) as wire:
        request = ask("begin", memo={})
        for number in range(5):
            reply = await wire.reply(request, Answer(parts=(TextPart(f"step {number}"), call(number))))
            request = answered(request, reply, memo=request.memo)
    assert converted == [1, 3, 3, 3, 3]


async def test_connections_are_kept(wire: Wire) -> None:
    for _ in range(5):
        await wire.reply()
    assert wire.server.ledger.connections == 1


FAULTS: dict[str, tuple[Any, type[ProviderError], float | None]] = {
    "429": (Status(status=429, retry_after="12"), RateLimited, 12),
    "429 with half a second": (Status(status=429, retry_after="0.5"), RateLimited, 0.5),
    "429 without a word": (Status(status=429), RateLimited, None),
    "500": (Status(status=500), Overloaded, None),
    "502": (Status(status=502), Overloaded, None),
    "503 with a time": (Status(status=503, retry_after="3"), Overloaded, 3),
    "529": (Status(status=529), Overloaded, None),
    "408": (Status(status=408), Overloaded, None),
    "401": (Status(status=401, kind="authentication_error"), Unauthorised, None),
    "403": (Status(status=403, kind="permission_error"), Unauthorised, None),
    "404": (Status(status=404, kind="not_found_error"), UnknownModel, None),
    "413": (Status(status=413, kind="request_too_large"), ContextOverflow, None),
    "400": (Status(status=400, message="temperature: no"), BadRequest, None),
    "422": (Status(status=422), BadRequest, None),
    "no credit": (Status(status=402, kind="billing_error"), Unauthorised, None),
    "html": (Garbage(content_type="text/html"), BadReply, None),
    "not JSON": (Garbage(), BadReply, None),
    "another JSON": (Garbage(body='{"hello": 1}'), BadReply, None),
    "null": (Garbage(body="null"), BadReply, None),
    "hang-up": (HangUp(), Overloaded, None),
    "cut": (Cut(), Overloaded, None),
}


TOO_LONG = (
    "input length and `max_tokens` exceed context limit: 190000 + 16000 > 200000, decrease input length",
    "request (33000 tokens) exceeds the available context size (32768 tokens), try increasing it",
    "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
    "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
)


@pytest.mark.parametrize("said", TOO_LONG)
async def test_a_conversation_that_is_too_long_is_known_by_the_words_of_each_server(wire: Wire, said: str) -> None:
    wire.server.inject(Status(status=400, message=said))
    assert type(await wire.error()) is ContextOverflow


@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_of_the_server_is_our_error(wire: Wire, name: str) -> None:
    fault, expected, retry_after = FAULTS[name]
    wire.server.inject(fault)
    error = await wire.error()
    assert type(error) is expected
    assert getattr(error, "retry_after_seconds", None) == retry_after
    assert (await wire.reply()).text == "ok"


async def test_retry_after_may_be_a_date(wire: Wire) -> None:
    at = datetime.now(UTC) + timedelta(seconds=100)
    wire.server.inject(Status(status=429, retry_after=format_datetime(at, usegmt=True)))
    error = await wire.error()
    assert isinstance(error, RateLimited)
    assert error.retry_after_seconds is not None
    assert 60 < error.retry_after_seconds <= 100


@pytest.mark.parametrize("format", MODELS)
async def test_a_stream_that_ends_too_early_is_overloaded(format: str) -> None:
    for cut in (Cut(events=events, clean=clean) for events in range(5) for clean in (False, True)):
        async with opened(format, watched=True) as wire:
            wire.answers.append("a text that is long enough to be cut")
            wire.server.inject(cut)
            # A stream that ends properly without a single event cannot be told from a page of something else.
            expected = BadReply if cut == Cut(events=0, clean=True) else Overloaded
            assert type(await wire.error()) is expected, cut


@pytest.mark.parametrize("format", MODELS)
async def test_an_error_in_a_stream_is_the_error_it_would_have_been(format: str) -> None:
    for kind, expected in (
        ("overloaded_error", Overloaded),
        ("rate_limit_error", RateLimited),
        ("api_error", Overloaded),
    ):
        async with opened(format, watched=True) as wire:
            wire.server.inject(StreamError(kind=kind))
            assert type(await wire.error()) is expected


@pytest.mark.parametrize("format", MODELS)
async def test_no_answer_in_time_is_overloaded(format: str) -> None:
    for watched in (False, True):
        async with opened(format, watched=watched) as wire:
            await wire.reply()  # the connection stands, the time is for the answer alone
            slow = Slow()
            wire.server.inject(slow)
            hasty = open_provider(MODELS[format], environ=wire.server.environ, timeout_seconds=0.3)
            with pytest.raises(Overloaded, match="timed out"):
                await hasty.reply(ask("hi"), on_text=(lambda text: None) if watched else None)
            await hasty.close()


@pytest.mark.parametrize("format", MODELS)
async def test_nobody_there_is_overloaded(format: str) -> None:
    # Kept, but not listened on: one that was given back might be somebody else's by now.
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        provider = open_provider(MODELS[format], environ=environ_for(deaf.getsockname()[1], KEY))
        with pytest.raises(Overloaded):
            await provider.reply(ask("hi"))
        await provider.close()


@pytest.mark.parametrize("format", MODELS)
async def test_a_refused_key_is_told_with_the_variable_and_without_the_key(format: str) -> None:
    async with opened(format, keys=("another",)) as wire:
        error = await wire.error()
        assert type(error) is Unauthorised
        assert f"{format.upper()}_API_KEY" in str(error)


@pytest.mark.parametrize("format", MODELS)
async def test_a_missing_key_is_told_without_asking_anybody(format: str) -> None:
    provider = open_provider(MODELS[format], environ={})
    with pytest.raises(Unauthorised, match=f"set {format.upper()}_API_KEY"):
        await provider.reply(ask("hi"))


async def test_a_server_of_ones_own_may_want_no_key() -> None:
    async with ProtocolServer(lambda heard: "ok", keys=("no-key",)) as server:
        environ = {"OPENAI_BASE_URL": server.environ["OPENAI_BASE_URL"]}
        provider = open_provider("openai:llama", environ=environ)
        assert (await provider.reply(ask("hi"))).text == "ok"
        await provider.close()


async def test_every_other_prefix_is_a_model_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for watched in (False, True):
        async with ProtocolServer(lambda heard: "ok", keys=(KEY,)) as server:
            monkeypatch.setenv("OLLAMA_BASE_URL", server.environ["OPENAI_BASE_URL"])
            monkeypatch.setenv("OLLAMA_API_KEY", KEY)
            provider = open_provider("ollama:llama")
            server.inject(Status(status=500))
            with pytest.raises(Overloaded):
                await provider.reply(ask("hi"))
            assert server.ledger.requests == 1
            assert (await provider.reply(ask("hi"), on_text=(lambda text: None) if watched else None)).text == "ok"
            await provider.close()


async def test_a_token_instead_of_a_key_is_understood_by_anthropic() -> None:
    async with ProtocolServer(lambda heard: "ok") as server:
        environ = {"ANTHROPIC_BASE_URL": server.environ["ANTHROPIC_BASE_URL"] + "/v1/", "ANTHROPIC_AUTH_TOKEN": KEY}
        provider = open_provider("anthropic:claude-sonnet-5", environ=environ)
        assert (await provider.reply(ask("hi"))).text == "ok"
        await provider.close()


@pytest.mark.parametrize("format", MODELS)
async def test_a_model_that_is_not_there_is_unknown(format: str) -> None:
    async with opened(format, models=("other",)) as wire:
        error = await wire.error()
        assert type(error) is UnknownModel
        assert MODELS[format] in str(error)


@pytest.mark.parametrize("format", MODELS)
async def test_a_conversation_beyond_the_window_overflows(format: str) -> None:
    async with opened(format, window_tokens=1000) as wire:
        assert type(await wire.error(ask("x" * 8000))) is ContextOverflow


@pytest.mark.parametrize("format", MODELS)
async def test_an_illegal_request_is_refused_with_the_servers_words(format: str) -> None:
    async with opened(format) as wire:
        unanswered = AssistantMessage((call(),))
        error = await wire.error(ask("hi", unanswered, "no result"))
        assert type(error) is BadRequest
        assert "tool" in str(error)
        assert "HTTP 400" in str(error)


async def test_an_unknown_provider_is_told() -> None:
    provider = open_provider("nobody:x", environ={})
    with pytest.raises(UnknownModel, match="nobody:x"):
        await provider.reply(ask("hi"))


async def test_five_hundred_members_are_served_over_one_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    # Client and server share one loop here: a turn of it for all five hundred may take seconds.
    monkeypatch.setattr(client, "CONNECT_TIMEOUT_SECONDS", 180.0)
    async with ProtocolServer(lambda heard: f"I am {heard.member}.") as server:
        provider = open_provider("openai:gpt-5.5", environ=server.environ)
        names = [f"m{number}" for number in range(500)]
        replies = await asyncio.gather(*(provider.reply(ask("who?", member=name)) for name in names))
        assert [reply.text for reply in replies] == [f"I am {name}." for name in names]
        await provider.close()


texts = st.text(max_size=30) | st.sampled_from(["", " ", "\n\t", "a\x00b", "\ud800", "ünïcode 🙂", "x" * 300])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from(["bash", "idle", "read_file"]) | st.text(max_size=70)


@st.composite
def conversations(draw: st.DrawFn) -> tuple[ChatMessage, ...]:
    """A conversation as our own transcripts may hold it, legal in our terms."""
    messages: list[ChatMessage] = [user(*draw(st.lists(texts, max_size=3)))]
    ids = draw(st.permutations([f"{draw(st.text(max_size=50))}{number}" for number in range(6)]))
    fresh = iter(ids)
    for _ in range(draw(st.integers(0, 3))):
        calls = [
            CallPart(
                call_id=next(fresh),
                name=draw(names),
                arguments=draw(st.dictionaries(st.text(max_size=5), values, max_size=3)),
                problem=draw(st.none() | st.just("cut")),
            )
            for _ in range(draw(st.integers(0, 2)))
        ]
        thought = draw(st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=10))
        thinking = [
            ThinkingPart(text=thought, provider="anthropic", signature=sign(thought)),
            ThinkingPart(text="unsigned", provider="anthropic"),
            ThinkingPart(text=thought, provider="openai", extra={"id": "reasoning_content"}),
            ThinkingPart(text="?", provider="scripted", extra={"turn": 1}),
        ]
        said = [TextPart(text) for text in draw(st.lists(texts, max_size=2))]
        parts: list[Any] = [*draw(st.lists(st.sampled_from(thinking), max_size=2)), *said, *calls]
        messages.append(AssistantMessage(tuple(parts)))
        results = [
            ResultPart(call_id=item.call_id, name=item.name, text=draw(texts), is_error=draw(st.booleans()))
            for item in calls
        ]
        mail = [TextPart(text) for text in draw(st.lists(texts, max_size=2))]
        messages.append(UserMessage((*results, *mail)))
    return tuple(messages)


@pytest.fixture(scope="module", params=list(MODELS))
async def shared(request: pytest.FixtureRequest) -> AsyncIterator[Wire]:
    async with opened(request.param) as wire:
        yield wire


@settings(max_examples=150)
@given(messages=conversations())
async def test_every_conversation_is_legal_on_the_wire(shared: Wire, messages: tuple[ChatMessage, ...]) -> None:
    request = ask(*messages, tools=(BASH,))
    assert (await shared.reply(request)).text == "ok"
    heard = shared.server.heard.pop()
    assert [type(message) for message in heard.request.messages] == [type(message) for message in messages]
    for told, message in zip(heard.request.messages, messages, strict=True):
        calls = [part for part in message.parts if isinstance(part, CallPart)]
        assert len([part for part in told.parts if isinstance(part, CallPart)]) == len(calls)
        results = [part for part in message.parts if isinstance(part, ResultPart)]
        assert len([part for part in told.parts if isinstance(part, ResultPart)]) == len(results)


@settings(max_examples=100)
@given(messages=conversations())
async def test_a_conversation_that_grows_is_sent_as_if_it_were_new(
    shared: Wire, messages: tuple[ChatMessage, ...]
) -> None:
    memo: dict[Any, Any] = {}
    for end in range(1, len(messages) + 1, 2):
        await shared.reply(ask(*messages[:end], memo=memo))
        await shared.reply(ask(*messages[:end]))
        kept, anew = shared.server.heard.pop(), shared.server.heard.pop()
        assert kept.raw == anew.raw


@pytest.mark.parametrize(
    ("arguments", "read"), [(None, {}), ("", {}), ({"reason": "tired"}, {"reason": "tired"})], ids=str
)
async def test_openai_arguments_that_are_no_text_are_understood(arguments: Any, read: dict[str, Any]) -> None:
    """As servers of other people's making send them."""
    call = {"id": "call_1", "type": "function", "function": {"name": "idle", "arguments": arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
    answer = {"id": "c", "object": "chat.completion", "created": 1700000000, "model": "ours", "choices": [choice]}
    async with ProtocolServer(lambda heard: "") as server:
        server.inject(Garbage(body=json.dumps(answer), content_type="application/json"))
        provider = open_provider(MODELS["openai"], environ=server.environ)
        reply = await provider.reply(ask("hi"))
        await provider.close()
    [part] = reply.message.parts
    assert isinstance(part, CallPart)
    assert (part.arguments, part.problem) == (read, None)


CALLED = {"name": "bash", "arguments": {"command": "ls"}}
BARE: dict[str, dict[str, Any] | list[dict[str, Any]]] = {
    "anthropic-plain": {
        "content": [{"type": "text", "text": "hi"}, {"type": "tool_use", "name": "bash", "input": {"command": "ls"}}]
    },
    "anthropic-sse": [
        {"type": "message_start", "message": {"role": "assistant", "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "hi"}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "tool_use", "name": "bash", "input": {"command": "ls"}},
        },
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
        {"type": "message_stop"},
    ],
    "openai-plain": {"choices": [{"message": {"content": "hi", "tool_calls": [{"id": None, "function": CALLED}]}}]},
    "openai-sse": [
        {"choices": [{"delta": {"content": "hi", "tool_calls": [{"function": CALLED}]}}]},
        {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]},
    ],
}


@pytest.mark.parametrize("way", BARE)
async def test_an_answer_that_has_only_what_was_said_is_a_reply(way: str) -> None:
    """Servers of other people's making leave out ids, times, names and counts; a client has no need of them."""
    bare = BARE[way]
    events = bare if isinstance(bare, list) else []
    stream = "".join(f"event: {event.get('type')}\ndata: {json.dumps(event)}\n\n" for event in events)
    async with ProtocolServer(lambda heard: "") as server:
        server.inject(
            Garbage(body=stream, content_type="text/event-stream")
            if events
            else Garbage(body=json.dumps(bare), content_type="Application/JSON")
        )
        provider = open_provider(MODELS[way.partition("-")[0]], environ=server.environ)
        reply = await provider.reply(ask("hi"), on_text=(lambda text: None) if events else None)
        await provider.close()
    text, call = reply.message.parts
    assert text == TextPart("hi")
    assert isinstance(call, CallPart)
    assert (call.name, call.arguments, call.problem) == ("bash", {"command": "ls"}, None)
    assert call.call_id
    assert reply.stop_reason is StopReason.TOOL_USE
    assert reply.usage.input_tokens > 0
    assert reply.cost_usd
