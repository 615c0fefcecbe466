"""Recording what a model answered, and answering from the record: a whole team again, without a model.

`record:FILE:MODEL` appends one JSON line for each reply; several processes may append to one file, since each line
is one write at the end. A failed attempt is not recorded: a replay has no weather.

`replay:FILE` finds the reply by member, purpose and *shape* of the conversation: what the assistant said and called,
word by word, and which results it got. Texts of messages and results are not compared, so that times, ids of
processes and mail that came a turn earlier do not matter. Of several records with one shape (two subagents at their
beginning), the one whose texts are also the same is taken, else the first that this process has not given out yet.
A conversation that is in no record is an error that shows the first difference from the nearest one.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bullpen.domain.codec import decode, encode
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
)
from bullpen.domain.text import storable
from bullpen.errors import BadRequest, UsageError
from bullpen.provider import ModelLimits, ModelRequest, Provider

VERSION = 1
_KINDS: Mapping[str, type] = {"text": TextPart, "thinking": ThinkingPart, "call": CallPart}
_KIND_OF = {part: kind for kind, part in _KINDS.items()}


class RecordingProvider:
    """Another provider, whose replies are written down."""

    def __init__(self, inner: Provider, path: Path) -> None:
        self._inner = inner
        self._path = path
        self.model = inner.model
        self.key_id = inner.key_id
        self.limits = inner.limits

    async def reply(self, request: ModelRequest, *, on_text: Callable[[str], None] | None = None) -> Reply:
        reply = await self._inner.reply(request, on_text=on_text)
        line = {
            "version": VERSION,
            "member": request.member,
            "purpose": request.purpose,
            "shape": shape_of(request.messages),
            "texts": _digest_of_texts(request),
            "limits": encode(self.limits),
            "reply": _encoded(reply),
        }
        _append(self._path, json.dumps(storable(line), ensure_ascii=False) + "\n")
        return reply

    async def estimate_cost_usd(self, *, input_tokens: int, output_tokens: int) -> float | None:
        return await self._inner.estimate_cost_usd(input_tokens=input_tokens, output_tokens=output_tokens)

    async def close(self) -> None:
        await self._inner.close()


@dataclass(slots=True)
class _Record:
    shape: list[str]
    texts: str
    reply: Reply
    given: bool = False


class ReplayProvider:
    """Answers from a record, at once and for nothing."""

    def __init__(self, path: Path, *, window_tokens: int | None = None, max_output_tokens: int | None = None) -> None:
        self.model = f"replay:{path}"
        self.key_id = self.model
        self._records: dict[tuple[str, str], list[_Record]] = defaultdict(list)
        limits = None
        for number, line in enumerate(_lines(path), 1):
            try:
                data = json.loads(line)
                limits = limits or decode(ModelLimits, data["limits"])
                record = _Record(data["shape"], data["texts"], _decoded(data["reply"]))
                self._records[data["member"], data["purpose"]].append(record)
            except (ValueError, KeyError, TypeError) as error:
                raise UsageError(f"line {number} of {path} is not a record of ours: {error}") from error
        if limits is None:
            raise UsageError(f"there is nothing recorded in {path}")
        self.limits = ModelLimits(
            window_tokens=window_tokens or limits.window_tokens,
            max_output_tokens=max_output_tokens or limits.max_output_tokens,
        )

    async def reply(self, request: ModelRequest, *, on_text: Callable[[str], None] | None = None) -> Reply:
        await request.leave()
        record = self._find(request)
        record.given = True
        if on_text is not None and record.reply.text:
            on_text(record.reply.text)
        return record.reply

    async def estimate_cost_usd(self, *, input_tokens: int, output_tokens: int) -> float | None:
        return 0.0

    async def close(self) -> None:
        pass

    def unused_records(self) -> int:
        """How many replies were not asked for, by this process."""
        return sum(not record.given for records in self._records.values() for record in records)

    def _find(self, request: ModelRequest) -> _Record:
        records = self._records.get((request.member, request.purpose), [])
        shape = shape_of(request.messages)
        same = [record for record in records if record.shape == shape]
        if not same:
            raise BadRequest(self._difference(request, shape, records))
        texts = _digest_of_texts(request)
        exact = [record for record in same if record.texts == texts]
        fresh = [record for record in exact or same if not record.given]
        return (fresh or exact or same)[0]

    def _difference(self, request: ModelRequest, shape: list[str], records: Sequence[_Record]) -> str:
        who = f"{request.member!r} ({request.purpose})"
        if not records:
            return f"the record has nothing of {who}"
        nearest = max(records, key=lambda record: (_common(record.shape, shape), -abs(len(record.shape) - len(shape))))
        place = _common(nearest.shape, shape)
        recorded = nearest.shape[place] if place < len(nearest.shape) else "the end of the conversation"
        now = shape[place] if place < len(shape) else "the end of the conversation"
        return f"the record has no such conversation of {who}: at step {place + 1} it was {recorded}, now it is {now}"


def shape_of(messages: Sequence[ChatMessage]) -> list[str]:
    """What a replay compares, one entry for each thing the assistant said or called and each result it got."""
    shape: list[str] = []
    for message in messages:
        for part in message.parts:
            match part:
                case CallPart():
                    arguments = json.dumps(storable(dict(part.arguments)), sort_keys=True, ensure_ascii=False)
                    shape.append(f"call {part.name} {_short(arguments)}")
                case ResultPart():
                    shape.append(f"result of {part.name}{' (error)' if part.is_error else ''}")
                case TextPart() if isinstance(message, AssistantMessage):
                    shape.append(f"said {_short(storable(part.text))}")
    return shape


def _short(text: str) -> str:
    """Enough to recognise by eye, and a digest of the rest."""
    return text if len(text) <= 60 else f"{text[:40]}… #{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _common(left: Sequence[str], right: Sequence[str]) -> int:
    return next(
        (number for number, (one, other) in enumerate(zip(left, right, strict=False)) if one != other),
        min(len(left), len(right)),
    )


def _digest_of_texts(request: ModelRequest) -> str:
    digest = hashlib.sha256()
    for message in request.messages:
        for part in message.parts:
            if isinstance(part, TextPart | ResultPart):
                digest.update(storable(part.text).encode() + b"\0")
    return digest.hexdigest()[:16]


def _encoded(reply: Reply) -> dict[str, Any]:
    return {
        "parts": [{"kind": _KIND_OF[type(part)], **encode(part)} for part in reply.message.parts],
        "stop_reason": reply.stop_reason.value,
        "usage": encode(reply.usage),
        "model": reply.model,
        "cost_usd": reply.cost_usd,
    }


def _decoded(data: Mapping[str, Any]) -> Reply:
    return Reply(
        message=AssistantMessage(tuple(decode(_KINDS[part["kind"]], part) for part in data["parts"])),
        stop_reason=StopReason(data["stop_reason"]),
        usage=decode(Usage, data["usage"]),
        model=data["model"],
        cost_usd=data["cost_usd"],
    )


def _append(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the record {path} cannot be read: {error}") from error
    # A process that was killed while it wrote leaves half a line; everything before it is whole.
    return text.split("\n")[:-1]
