"""The conversation that is sent to the model: a pure function of the stored turns.

Nothing in a transcript is ever deleted or changed. Two kinds of turns say how the
ones before them are to be seen:

- a *compaction* replaces everything before `keep_from` by its text (identity,
  summary, open task, …), which it carries itself;
- a *pruning* names tool results that are shown as a one-line stub.

So the same turns always yield the same messages, in any process, and as long as
neither is added, each request begins with exactly the one before it.

What is returned is legal for every provider: it begins with a user message, roles
alternate, each call has its result in the next message and results stand first
there, no text is empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bullpen.domain.prompt import (
    AssistantMessage,
    CallPart,
    ChatMessage,
    ResultPart,
    TextPart,
    ThinkingPart,
    UserMessage,
)
from bullpen.domain.transcript import INTERRUPTED_TEXT, Turn, TurnKind

_ROLES: Mapping[str, str] = {
    TurnKind.USER: "user",
    TurnKind.MAIL: "user",
    TurnKind.TOOL_RESULT: "user",
    TurnKind.ASSISTANT: "assistant",
}
# They say how others are to be seen.
_SHAPING = frozenset({TurnKind.COMPACTION, TurnKind.PRUNING})


def build_context(turns: Sequence[Turn]) -> tuple[ChatMessage, ...]:
    """The messages of a request. Turns of kinds that this version does not know are passed over."""
    opening, shown = _visible(turns)
    pruned = _pruned(turns)
    messages: list[ChatMessage] = []
    pending: list[CallPart] = []
    if opening:
        messages.append(UserMessage((TextPart(opening),)))
    for role, group in _groups(shown):
        if role == "assistant":
            parts = _assistant_parts(group)
            if parts:
                _close_calls(messages, pending)
                _add_assistant(messages, parts)
                pending = [part for part in parts if isinstance(part, CallPart)]
        else:
            _add_user(messages, _user_parts(group, pending, pruned))
            pending = []
    _close_calls(messages, pending)
    return tuple(messages)


class Context:
    """`build_context` of a transcript that grows: what stands before its last reply is made once, and is the same
    objects from request to request."""

    def __init__(self) -> None:
        self._head: tuple[ChatMessage, ...] = ()
        self._made = 0
        self._last: Turn | None = None

    def build(self, turns: Sequence[Turn]) -> tuple[ChatMessage, ...]:
        cut = _last_reply(turns)
        if any(turn.kind in _SHAPING for turn in turns[cut:]):
            return build_context(turns)
        if not self._holds(turns, cut):
            self._head, self._made = (), 0
        head = _joined(self._head, build_context(turns[self._made : cut]))
        whole = None if head is None else _joined(head, build_context(turns[cut:]))
        if head is None or whole is None:
            return build_context(turns)
        self._head, self._made, self._last = head, cut, turns[cut - 1] if cut else None
        return whole

    def _holds(self, turns: Sequence[Turn], cut: int) -> bool:
        """Is what was made still how these turns begin?"""
        if not self._made:
            return True
        is_same = self._made <= cut and turns[self._made - 1] is self._last
        return is_same and not any(turn.kind in _SHAPING for turn in turns[self._made : cut])


def last_compaction(turns: Sequence[Turn]) -> Turn | None:
    return next((turn for turn in reversed(turns) if turn.kind == TurnKind.COMPACTION), None)


def encode_reply(message: AssistantMessage) -> list[dict[str, Any]]:
    """An assistant message as it is kept in a turn; `decode_reply` reads it back."""
    return [_encode_part(part) for part in message.parts]


def decode_reply(content: Iterable[Mapping[str, Any]]) -> tuple[TextPart | ThinkingPart | CallPart, ...]:
    return tuple(part for part in map(_decode_part, content) if part is not None)


# -- which turns are seen --------------------------------------------------------------


def _visible(turns: Sequence[Turn]) -> tuple[str, list[Turn]]:
    compaction = last_compaction(turns)
    if compaction is None:
        return "", [turn for turn in turns if turn.kind in _ROLES]
    keep_from = int(compaction.content["keep_from"])
    kept = [turn for turn in turns if turn.seq >= keep_from and turn.kind in _ROLES]
    return str(compaction.content["text"]), kept


def _pruned(turns: Sequence[Turn]) -> frozenset[str]:
    return frozenset(call_id for turn in turns if turn.kind == TurnKind.PRUNING for call_id in turn.content["calls"])


def _groups(turns: Iterable[Turn]) -> Iterable[tuple[str, list[Turn]]]:
    """Neighbours of one role; replies that follow one another stay apart only if a user turn is between them."""
    group: list[Turn] = []
    for turn in turns:
        if group and _ROLES[turn.kind] != _ROLES[group[0].kind]:
            yield _ROLES[group[0].kind], group
            group = []
        group.append(turn)
    if group:
        yield _ROLES[group[0].kind], group


def _last_reply(turns: Sequence[Turn]) -> int:
    """Where the last reply begins, together with those that follow one another up to it; 0 if there is none."""
    for place in range(len(turns) - 1, -1, -1):
        if turns[place].kind == TurnKind.ASSISTANT:
            while place and _ROLES.get(turns[place - 1].kind) != "user":
                place -= 1
            return place
    return 0


def _joined(head: tuple[ChatMessage, ...], tail: tuple[ChatMessage, ...]) -> tuple[ChatMessage, ...] | None:
    """None where the tail would have to be merged into the head."""
    return None if head and tail and type(head[-1]) is type(tail[0]) else (*head, *tail)


# -- messages -----------------------------------------------------------------------------


def _assistant_parts(turns: Iterable[Turn]) -> tuple[TextPart | ThinkingPart | CallPart, ...]:
    parts = [part for turn in turns for part in decode_reply(turn.content["parts"])]
    return tuple(part for part in parts if not (isinstance(part, TextPart) and not part.text.strip()))


def _user_parts(
    turns: Iterable[Turn], pending: Sequence[CallPart], pruned: frozenset[str]
) -> list[TextPart | ResultPart]:
    """Results of the calls just made, in the order of the calls, then texts in the order in which they came."""
    results: dict[str, ResultPart] = {}
    texts: list[TextPart] = []
    for turn in turns:
        if turn.kind == TurnKind.TOOL_RESULT:
            result = _result(turn.content, pruned)
            results[result.call_id] = result
        elif turn.kind == TurnKind.MAIL:
            texts += [TextPart(str(entry["text"])) for entry in turn.content]
        else:
            texts.append(TextPart(str(turn.content["text"])))
    answered = [results.get(call.call_id) or _missing(call) for call in pending]
    return [*answered, *(text for text in texts if text.text.strip())]


def _result(content: Mapping[str, Any], pruned: frozenset[str]) -> ResultPart:
    call_id, name, text = str(content["call_id"]), str(content["name"]), str(content["text"])
    if call_id in pruned:
        text = f"[{len(text):,} characters of {name} are no longer shown; call it again if you need them]"
    # No provider takes a result without text.
    return ResultPart(
        call_id=call_id, name=name, text=text if text.strip() else "(no output)", is_error=bool(content["is_error"])
    )


def _missing(call: CallPart) -> ResultPart:
    """A call whose result is not there (yet) would make the whole conversation illegal."""
    return ResultPart(call_id=call.call_id, name=call.name, text=INTERRUPTED_TEXT, is_error=True)


def _close_calls(messages: list[ChatMessage], pending: Sequence[CallPart]) -> None:
    if pending:
        messages.append(UserMessage(tuple(_missing(call) for call in pending)))


def _add_assistant(messages: list[ChatMessage], parts: tuple[TextPart | ThinkingPart | CallPart, ...]) -> None:
    """Two replies with nothing to show between them are one."""
    if messages and isinstance(messages[-1], AssistantMessage):
        parts = (*messages.pop().parts, *parts)
    messages.append(AssistantMessage(parts))


def _add_user(messages: list[ChatMessage], parts: list[TextPart | ResultPart]) -> None:
    """Joined to a user message that is already the last, so that roles alternate."""
    if not parts:
        return
    if messages and isinstance(messages[-1], UserMessage):
        messages[-1] = UserMessage((*messages[-1].parts, *parts))
    else:
        messages.append(UserMessage(tuple(parts)))


# -- parts as JSON ------------------------------------------------------------------------


def _encode_part(part: TextPart | ThinkingPart | CallPart) -> dict[str, Any]:
    match part:
        case TextPart(text):
            return {"type": "text", "text": text}
        case ThinkingPart():
            return {
                "type": "thinking",
                "text": part.text,
                "provider": part.provider,
                "signature": part.signature,
                "extra": dict(part.extra),
            }
        case CallPart():
            return {
                "type": "call",
                "call_id": part.call_id,
                "name": part.name,
                "arguments": dict(part.arguments),
                "problem": part.problem,
            }


def _decode_part(content: Mapping[str, Any]) -> TextPart | ThinkingPart | CallPart | None:
    match content.get("type"):
        case "text":
            return TextPart(str(content["text"]))
        case "thinking":
            return ThinkingPart(
                text=content["text"],
                provider=content["provider"],
                signature=content.get("signature"),
                extra=content.get("extra") or {},
            )
        case "call":
            return CallPart(
                call_id=content["call_id"],
                name=content["name"],
                arguments=content.get("arguments") or {},
                problem=content.get("problem"),
            )
    return None
