"""Laws of context, pruning and compaction, over transcripts that a member could really have."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bullpen.agent.context import Context, build_context, decode_reply, encode_reply
from bullpen.agent.memory import (
    LEAST_WINDOW_TOKENS,
    RECENT_REPLIES,
    choose_pruning,
    compaction_limit,
    context_tokens,
    cut,
    estimate_tokens,
    learned_limits,
    mechanical_summary,
    plan_compaction,
    prune_batch_characters,
)
from bullpen.domain.prompt import (
    AssistantMessage,
    CallPart,
    ChatMessage,
    ResultPart,
    TextPart,
    ThinkingPart,
    UserMessage,
)
from bullpen.domain.transcript import Turn, TurnKind
from bullpen.provider import ModelLimits
from tests.support.protocol_server.ledger import common_prefix

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
IDENTITY = "You are 'ana', role: analyst, team: graphql."
SMALL = ModelLimits(window_tokens=32_000, max_output_tokens=8_000)

texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=60) | st.just("x" * 3_000)


class Writer:
    """Writes a transcript as the runtime does: replies, then the results of their calls, then what came in."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []

    def add(self, kind: str, content: Any) -> None:
        self.turns.append(
            Turn(
                team_id=1,
                member="ana",
                seq=len(self.turns) + 1,
                kind=kind,
                content=content,
                incarnation=1,
                created_at=MOMENT,
            )
        )

    def told(self, text: str) -> None:
        self.add(TurnKind.USER, {"text": text})

    def mailed(self, text: str) -> None:
        self.add(TurnKind.MAIL, [{"message": len(self.turns), "text": text}])

    def replied(self, text: str, results: Sequence[str]) -> None:
        # Also where others have written before: no store takes an id twice.
        before = sum(turn.kind == TurnKind.TOOL_RESULT for turn in self.turns)
        ids = [f"call-{before + number}" for number in range(len(results))]
        calls = [CallPart(call_id=call_id, name="bash", arguments={"command": "ls"}) for call_id in ids]
        self.add(TurnKind.ASSISTANT, {"parts": encode_reply(AssistantMessage((TextPart(text), *calls)))})
        for call_id, result in zip(ids, results, strict=True):
            self.add(TurnKind.TOOL_RESULT, {"call_id": call_id, "name": "bash", "text": result, "is_error": False})


@st.composite
def transcripts(draw: st.DrawFn, min_replies: int = 0) -> list[Turn]:
    writer = Writer()
    writer.told("begin")
    for _ in range(draw(st.integers(min_replies, 12))):
        writer.replied(draw(texts), draw(st.lists(texts, max_size=3)))
        for is_mail, text in draw(st.lists(st.tuples(st.booleans(), texts), max_size=2)):
            (writer.mailed if is_mail else writer.told)(text)
    return writer.turns


def assert_legal(messages: tuple[ChatMessage, ...]) -> None:
    assert isinstance(messages[0], UserMessage)
    open_calls: list[str] = []
    for previous, message in zip((None, *messages), messages, strict=False):
        assert type(previous) is not type(message)
        assert message.parts
        assert all(part.text.strip() for part in message.parts if isinstance(part, TextPart | ResultPart))
        if isinstance(message, AssistantMessage):
            assert not open_calls
            open_calls = [part.call_id for part in message.parts if isinstance(part, CallPart)]
        else:
            answered = [part.call_id for part in message.parts if isinstance(part, ResultPart)]
            assert answered == open_calls
            assert all(isinstance(part, ResultPart) for part in message.parts[: len(answered)])
            open_calls = []
    assert not open_calls


def with_compaction(turns: list[Turn], summary: str, limits: ModelLimits = SMALL) -> list[Turn]:
    plan = plan_compaction(turns, limits, identity=IDENTITY, summary=summary, state="task #1 is open")
    writer = Writer()
    writer.turns = [*turns]
    writer.add(TurnKind.COMPACTION, {"text": plan.text, "keep_from": plan.keep_from})
    return writer.turns


@given(transcripts())
def test_every_context_is_legal_for_every_provider(turns: list[Turn]) -> None:
    assert_legal(build_context(turns))


@given(transcripts(), st.integers(1, 40))
def test_a_transcript_cut_anywhere_by_a_kill_still_makes_a_legal_context(turns: list[Turn], length: int) -> None:
    assert_legal(build_context(turns[:length]))


@given(transcripts(), texts)
def test_what_is_added_leaves_the_prefix_as_it_was(turns: list[Turn], text: str) -> None:
    before = build_context(turns)
    writer = Writer()
    writer.turns = [*turns]
    writer.replied("more", ["done"])
    writer.told(text)
    after = build_context(writer.turns)
    settled = len(before) - 1 if isinstance(before[-1], AssistantMessage) else len(before)
    assert after[:settled] == before[:settled]


@st.composite
def shaped_transcripts(draw: st.DrawFn) -> list[Turn]:
    """With all that may stand in one: prunings and compactions anywhere, replies without a word, a kind of tomorrow."""
    writer = Writer()
    writer.turns = draw(transcripts())
    for _ in range(draw(st.integers(0, 8))):
        match draw(st.sampled_from(["reply", "told", "pruning", "compaction", "blank", "unknown"])):
            case "reply":
                writer.replied(draw(texts), draw(st.lists(texts, max_size=2)))
            case "told":
                writer.told(draw(texts))
            case "pruning":
                calls = [turn.content["call_id"] for turn in writer.turns if turn.kind == TurnKind.TOOL_RESULT]
                writer.add(TurnKind.PRUNING, {"calls": calls[: draw(st.integers(0, 5))]})
            case "compaction":
                replies = [turn.seq for turn in writer.turns if turn.kind == TurnKind.ASSISTANT]
                end = writer.turns[-1].seq + 1
                writer.add(TurnKind.COMPACTION, {"text": "so far", "keep_from": draw(st.sampled_from([*replies, end]))})
            case "blank":
                writer.replied(" ", [])
                writer.told(" ")
            case _:
                writer.add("of tomorrow", {})
    return writer.turns


@given(shaped_transcripts(), st.sets(st.integers(1, 80)))
def test_a_context_that_grows_is_the_one_that_is_made_anew(turns: list[Turn], lengths: set[int]) -> None:
    context = Context()
    for length in sorted(lengths):
        assert context.build(turns[:length]) == build_context(turns[:length])


def test_what_stands_before_the_last_reply_is_the_same_objects() -> None:
    writer, context = Writer(), Context()
    writer.told("begin")
    writer.replied("first", ["one"])
    writer.replied("second", ["two"])
    before = context.build(writer.turns)
    writer.replied("third", ["three"])
    after = context.build(writer.turns)
    assert [one is other for one, other in zip(before, after, strict=False)] == [True, True, True, False, False]


@given(transcripts(), texts)
def test_a_compaction_keeps_pairs_whole_identity_first_and_the_size_below_the_limit(
    turns: list[Turn], summary: str
) -> None:
    compacted = build_context(with_compaction(turns, summary))
    assert_legal(compacted)
    first = compacted[0].parts[0]
    assert isinstance(first, TextPart)
    assert first.text.startswith(f"<identity>{IDENTITY}</identity>")
    assert estimate_tokens(compacted) < compaction_limit(SMALL)


def test_a_summary_of_any_length_leaves_the_context_below_the_limit() -> None:
    writer = Writer()
    writer.told("begin")
    writer.replied("x" * 500_000, ["y" * 500_000])
    compacted = build_context(with_compaction(writer.turns, "z" * 5_000_000))
    assert estimate_tokens(compacted) < compaction_limit(SMALL)


@given(transcripts(min_replies=1))
def test_compacting_twice_is_legal_and_keeps_the_identity(turns: list[Turn]) -> None:
    once = with_compaction(turns, "first")
    writer = Writer()
    writer.turns = once
    writer.replied("again", ["result"])
    assert_legal(build_context(with_compaction(writer.turns, "second")))


@given(transcripts())
def test_an_unseen_result_is_never_pruned(turns: list[Turn]) -> None:
    chosen = set(choose_pruning(turns, SMALL))
    replies = [turn.seq for turn in turns if turn.kind == TurnKind.ASSISTANT]
    for turn in turns:
        if turn.kind == TurnKind.TOOL_RESULT and turn.content["call_id"] in chosen:
            assert sum(seq > turn.seq for seq in replies) >= RECENT_REPLIES


def test_old_long_results_are_pruned_in_one_batch_and_say_how_to_get_them_back() -> None:
    writer = Writer()
    writer.told("begin")
    for _ in range(RECENT_REPLIES + 2):
        writer.replied("look", ["r" * prune_batch_characters(SMALL)])
    chosen = choose_pruning(writer.turns, SMALL)
    assert chosen == ("call-0", "call-1")
    writer.add(TurnKind.PRUNING, {"calls": list(chosen)})
    messages = build_context(writer.turns)
    assert_legal(messages)
    stubs = [
        part
        for message in messages
        for part in message.parts
        if isinstance(part, ResultPart) and "call it again" in part.text
    ]
    assert len(stubs) == 2
    assert choose_pruning(writer.turns, SMALL) == ()


def test_a_hundred_turns_of_long_results_send_nearly_nothing_twice() -> None:
    """At least 95 % of all characters sent are an unchanged prefix, prunings included."""
    limits = ModelLimits(window_tokens=200_000, max_output_tokens=8_000)
    writer = Writer()
    writer.told("begin")
    sent, reused, before = 0, 0, ""
    for number in range(100):
        writer.replied("look", [f"{number:4}" * 1_250])
        if chosen := choose_pruning(writer.turns, limits):
            writer.add(TurnKind.PRUNING, {"calls": list(chosen)})
        now = "".join(map(str, build_context(writer.turns)))
        sent += len(now)
        reused += common_prefix(before, now)
        before = now
    assert any(turn.kind == TurnKind.PRUNING for turn in writer.turns)
    assert reused / sent >= 0.95


def test_the_providers_count_is_used_until_the_context_shrinks() -> None:
    writer = Writer()
    writer.told("begin")
    writer.add(
        TurnKind.ASSISTANT,
        {"parts": encode_reply(AssistantMessage((TextPart("ok"),))), "usage": {"input_tokens": 5_000}},
    )
    writer.told("x" * 400)
    assert 5_100 <= context_tokens(writer.turns) <= 5_110
    assert context_tokens(with_compaction(writer.turns, "short")) < 1_000


def test_thinking_and_calls_come_back_as_they_were_stored() -> None:
    parts = (
        ThinkingPart(text="hm", provider="anthropic", signature="s", extra={"a": 1}),
        TextPart("so"),
        CallPart(call_id="c", name="bash", arguments={}, problem="cut off"),
    )
    assert decode_reply(encode_reply(AssistantMessage(parts))) == parts


@given(st.text(max_size=300), st.integers(0, 300))
def test_cut_never_returns_more_than_it_was_allowed(text: str, length: int) -> None:
    assert len(cut(text, length)) <= length


@given(transcripts())
def test_the_mechanical_summary_is_bounded_and_never_empty(turns: list[Turn]) -> None:
    summary = mechanical_summary(turns, room_characters=2_000)
    assert 0 < len(summary) <= 2_100


@given(
    known=st.integers(8_000, 2_000_000),
    output=st.integers(1_000, 128_000),
    refused=st.integers(LEAST_WINDOW_TOKENS, 2_000_000),
)
def test_what_was_too_long_is_compacted_at_three_quarters_of_it_from_then_on(
    known: int, output: int, refused: int
) -> None:
    limits = ModelLimits(window_tokens=known, max_output_tokens=output)
    learned = learned_limits(limits, refused)
    assert learned.max_output_tokens == output
    assert compaction_limit(learned) == min(compaction_limit(limits), refused * 3 // 4)
