"""Keeping a context within the model's window without forgetting: what is pruned, what is compacted, what is kept.

All decisions are pure functions of stored turns and of the token counts that the
provider reported. Laws, each a property test:

- a result that the model has not seen yet is never pruned;
- pruning happens in batches, so that between two of them every request begins with
  the one before it (prompt caches hold);
- a compaction keeps calls and results together, carries the identity, and leaves
  the context below the limit, whatever the summary says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bullpen.agent.context import build_context, last_compaction
from bullpen.domain.prompt import CallPart, ChatMessage, ResultPart, TextPart, ThinkingPart
from bullpen.domain.transcript import Turn, TurnKind
from bullpen.provider import ModelLimits

RESERVE_TOKENS = 13_000
# Whoever says that less is too much: what matters would have to be thrown away, and there is no such model.
LEAST_WINDOW_TOKENS = 8_000
CHARACTERS_PER_TOKEN = 4
RECENT_REPLIES = 3
PRUNE_ABOVE_CHARACTERS = 1_000
# What a batch of old results must have of what fits before it is pruned: all that comes after the first of them is
# sent anew then. With a twelfth, 100 turns that read 3,000 characters each sent more than 5 % of everything anew.
PRUNE_SHARE = 1 / 3
# What a compaction keeps word for word: the last complete turns, up to this share of what fits.
KEPT_SHARE = 0.2
# What the text that replaces the rest may take of it.
OPENING_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """`text` stands for everything before `keep_from`."""

    text: str
    keep_from: int


def compaction_limit(limits: ModelLimits) -> int:
    """Above this many tokens of context, compact. At least a quarter of the window, however small that is."""
    return max(limits.window_tokens - limits.max_output_tokens - RESERVE_TOKENS, limits.window_tokens // 4)


def learned_limits(limits: ModelLimits, refused_tokens: int) -> ModelLimits:
    """The window is smaller than was known, or what was sent larger than was thought: so many tokens of context were
    too much. From now on the limit is at three quarters of them; should those be too much as well, it is learned again.
    """
    limit = refused_tokens * 3 // 4
    window = max(min(limit + limits.max_output_tokens + RESERVE_TOKENS, limit * 4), LEAST_WINDOW_TOKENS)
    return replace(limits, window_tokens=min(limits.window_tokens, window))


_COUNTED_AT = (TurnKind.ASSISTANT, TurnKind.COMPACTION, TurnKind.PRUNING)
"""Turns after which the size of the context is known, or is another one."""


def prune_batch_characters(limits: ModelLimits) -> int:
    return int(compaction_limit(limits) * CHARACTERS_PER_TOKEN * PRUNE_SHARE)


def estimate_tokens(messages: Sequence[ChatMessage]) -> int:
    return sum(_characters(part) for message in messages for part in message.parts) // CHARACTERS_PER_TOKEN


def context_tokens(turns: Sequence[Turn]) -> int:
    """How large the next request's conversation is: what the provider counted for the last one, and what came since.

    The count is of a context that a later compaction or pruning made smaller: then it is estimated anew.
    """
    # Looked for from the end, which is near: a transcript may have thousands of turns.
    place = next((n for n in range(len(turns) - 1, -1, -1) if turns[n].kind in _COUNTED_AT), None)
    newest = None if place is None else turns[place]
    if newest is None or newest.kind != TurnKind.ASSISTANT:
        return estimate_tokens(build_context(turns))
    counted = int(newest.content.get("usage", {}).get("input_tokens", 0))
    return counted + estimate_tokens(build_context(turns[place:] if counted else turns))


# -- pruning -----------------------------------------------------------------------------


def choose_pruning(turns: Sequence[Turn], limits: ModelLimits) -> tuple[str, ...]:
    """The calls whose results are to be shown as a stub from now on; empty while a batch is not worth it."""
    replies = [turn.seq for turn in turns if turn.kind == TurnKind.ASSISTANT]
    if len(replies) <= RECENT_REPLIES:
        return ()
    # Everything before the third last reply has been seen by it.
    edge = replies[-RECENT_REPLIES]
    compaction = last_compaction(turns)
    start = 0 if compaction is None else int(compaction.content["keep_from"])
    done = {call_id for turn in turns if turn.kind == TurnKind.PRUNING for call_id in turn.content["calls"]}
    old = [
        turn
        for turn in turns
        if turn.kind == TurnKind.TOOL_RESULT
        and start <= turn.seq < edge
        and turn.content["call_id"] not in done
        and len(turn.content["text"]) > PRUNE_ABOVE_CHARACTERS
    ]
    if sum(len(turn.content["text"]) for turn in old) < prune_batch_characters(limits):
        return ()
    return tuple(turn.content["call_id"] for turn in old)


# -- compaction -----------------------------------------------------------------------------


def plan_compaction(
    turns: Sequence[Turn], limits: ModelLimits, *, identity: str, summary: str, state: str
) -> Compaction:
    """Who it is, what was, what is open; then the last complete turns as they were.

    `state` is what the store knows (open task, roster, unanswered requests, files). Identity and state always
    survive whole up to half of the room each; a summary that is too long is cut, from its middle.
    """
    room = compaction_limit(limits) * CHARACTERS_PER_TOKEN
    opening = int(room * OPENING_SHARE)
    fixed = f"<identity>{identity}</identity>\n\n{cut(state, opening // 3)}".strip()
    left = max(opening - len(fixed), 0)
    text = f"{cut(fixed, opening)}\n\n<summary>\n{cut(summary.strip(), left)}\n</summary>"
    return Compaction(text=text, keep_from=_keep_from(turns, int(room * KEPT_SHARE)))


def mechanical_summary(turns: Sequence[Turn], *, room_characters: int = 12_000) -> str:
    """When no model can summarise: what was asked and said, newest last, and which tools ran."""
    lines = [line for turn in turns for line in _digest(turn)]
    kept: list[str] = []
    for line in reversed(lines):
        room_characters -= len(line) + 1
        if room_characters < 0:
            kept.append(f"({len(lines) - len(kept)} earlier lines are in the transcript only)")
            break
        kept.append(line)
    return "\n".join(reversed(kept)) or "(nothing has happened yet)"


def cut(text: str, length: int) -> str:
    """At most `length` characters, head and tail."""
    if len(text) <= length:
        return text
    mark = "\n[…]\n"
    if length <= len(mark):
        return text[:length]
    head = (length - len(mark)) * 2 // 3
    tail = length - len(mark) - head
    return text[:head] + mark + (text[-tail:] if tail else "")


def _keep_from(turns: Sequence[Turn], room: int) -> int:
    """The earliest reply from which on everything fits; a cut before a reply never parts a call from its result."""
    end = turns[-1].seq + 1 if turns else 1
    best = end
    for turn in reversed(turns):
        if turn.kind != TurnKind.ASSISTANT:
            continue
        kept = [later for later in turns if later.seq >= turn.seq and later.kind != TurnKind.COMPACTION]
        if estimate_tokens(build_context(kept)) * CHARACTERS_PER_TOKEN > room:
            break
        best = turn.seq
    return best


def _digest(turn: Turn) -> list[str]:
    match turn.kind:
        case TurnKind.USER:
            return [f"- told: {_line(str(turn.content['text']))}"]
        case TurnKind.MAIL:
            return [f"- mail: {_line(str(entry['text']))}" for entry in turn.content]
        case TurnKind.ASSISTANT:
            parts = turn.content["parts"]
            said = [
                f"- said: {_line(part['text'])}" for part in parts if part["type"] == "text" and part["text"].strip()
            ]
            return said + [
                f"- called {part['name']}({_line(str(part['arguments']))})" for part in parts if part["type"] == "call"
            ]
        case TurnKind.TOOL_RESULT:
            verdict = "failed" if turn.content["is_error"] else "returned"
            return [f"- {turn.content['name']} {verdict}: {_line(turn.content['text'])}"]
        case TurnKind.COMPACTION:
            return [f"- summary so far: {_line(turn.content['text'], 4_000)}"]
    return []


def _line(text: str, length: int = 300) -> str:
    return cut(" ".join(text.split()), length).replace("\n", " ")


def _characters(part: TextPart | ThinkingPart | CallPart | ResultPart) -> int:
    match part:
        case CallPart():
            return len(part.name) + len(str(part.arguments))
        case _:
            return len(part.text)
