"""The provider that plays a script."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bullpen.domain.prompt import (
    AssistantMessage,
    CallPart,
    Reply,
    StopReason,
    TextPart,
    ThinkingPart,
    Usage,
)
from bullpen.errors import BadRequest
from bullpen.provider import ModelLimits, ModelRequest
from bullpen.providers.scripted.script import EVERYBODY, Script, Step
from bullpen.providers.scripted.sight import Sight

PROVIDER = "scripted"
CHARACTERS_PER_TOKEN = 4


@dataclass(slots=True)
class _Place:
    """How far the script has come in a conversation: replies so far, and for each list of steps, what is used.

    `behind` counts the steps in order; under the empty name it is only the number of assistant messages.
    """

    turn: int = 0
    behind: dict[str, int] = field(default_factory=dict)
    used: dict[str, list[int]] = field(default_factory=dict)

    @classmethod
    def in_conversation(cls, request: ModelRequest) -> _Place:
        spoken = [message for message in request.messages if isinstance(message, AssistantMessage)]
        for message in reversed(spoken):
            for part in message.parts:
                if isinstance(part, ThinkingPart) and part.provider == PROVIDER and "turn" in part.extra:
                    extra = part.extra
                    return cls(extra["turn"], dict(extra["behind"]), {k: list(v) for k, v in extra["used"].items()})
        return cls(turn=len(spoken), behind={"": len(spoken)} if spoken else {})

    def after(self, name: str, number: int, step: Step) -> _Place:
        behind = {key: value for key, value in self.behind.items() if key}
        used = {key: list(value) for key, value in self.used.items()}
        if not step.repeat:
            if step.when is None:
                behind[name] = number + 1
            else:
                used.setdefault(name, []).append(number)
        return _Place(self.turn + 1, behind, used)

    def part(self) -> ThinkingPart:
        extra = {"turn": self.turn, "behind": self.behind, "used": self.used}
        return ThinkingPart(text="", provider=PROVIDER, extra=extra)


class ScriptedProvider:
    """Plays a `Script`, or what `Script.of` makes of a mapping (`{"ana": ["Hello.", step, …], "*": function}`)."""

    def __init__(
        self,
        script: Script | Mapping[str, Sequence[Any] | Callable[[ModelRequest], Step | str]],
        *,
        model: str = "scripted:python",
        limits: ModelLimits | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._script = script if isinstance(script, Script) else Script.of(script)
        self.model = model
        self.key_id = model
        self.limits = limits or self._script.limits
        self._sleep = sleep
        self._played: set[str] = set()
        self._faults: Counter[tuple[str, str, int]] = Counter()

    @classmethod
    def from_file(
        cls, path: Path, *, window_tokens: int | None = None, max_output_tokens: int | None = None
    ) -> ScriptedProvider:
        script = Script.from_file(path)
        limits = ModelLimits(
            window_tokens=window_tokens or script.limits.window_tokens,
            max_output_tokens=max_output_tokens or script.limits.max_output_tokens,
        )
        return cls(script, model=f"scripted:{path}", limits=limits)

    async def reply(self, request: ModelRequest, *, on_text: Callable[[str], None] | None = None) -> Reply:
        await request.leave()
        sight = Sight(request)
        place = _Place.in_conversation(request)
        self._remember(place)
        if request.purpose not in ("turn", "subagent"):
            # Its reply becomes no part of a conversation, so nothing could say which of its steps are behind.
            place = _Place(turn=place.turn)
        name, number, step, groups = self._choose(request, place, sight)
        if step.delay_seconds:
            await self._sleep(step.delay_seconds)
        made = step
        if step.make is not None:
            answer = step.make(request)
            made = answer if isinstance(answer, Step) else Step(say=answer)
        self._raise_fault(made, request.member, f"{name}:{number}", on_text)
        try:
            message = self._message(made, request, sight, groups, place.after(name, number, step))
        except LookupError as error:
            raise BadRequest(f"the script of {request.member!r}, step {number + 1}: {error.args[0]}") from error
        self._played.add(f"{name}:{number}")
        reply = self._reply(made, request, message)
        if on_text is not None:
            for piece in re.findall(r"\s*\S+\s*", reply.text):
                on_text(piece)
        return reply

    async def estimate_cost_usd(self, *, input_tokens: int, output_tokens: int) -> float | None:
        return self._price_usd(input_tokens, output_tokens)

    def _price_usd(self, input_tokens: int, output_tokens: int) -> float:
        script = self._script
        return (input_tokens * script.input_usd + output_tokens * script.output_usd) / 1_000_000

    async def close(self) -> None:
        pass

    def unused_steps(self) -> tuple[str, ...]:
        """`ana, step 3: I take #4` for each step that was never played, as far as this process has seen."""
        return tuple(
            f"{name}, step {number + 1}: {_shown(step)}"
            for name, steps in self._script.steps.items()
            for number, step in enumerate(steps)
            if f"{name}:{number}" not in self._played
        )

    def _remember(self, place: _Place) -> None:
        """What another process played counts as played."""
        for name, steps in self._script.steps.items():
            behind = place.behind.get(name, place.behind.get("", 0) if name != EVERYBODY else 0)
            self._played |= {f"{name}:{number}" for number in range(min(behind, len(steps))) if not steps[number].when}
            self._played |= {f"{name}:{number}" for number in place.used.get(name, ())}

    def _choose(self, request: ModelRequest, place: _Place, sight: Sight) -> tuple[str, int, Step, Mapping[str, str]]:
        lists = [name for name in (request.member, EVERYBODY) if name in self._script.steps]
        for name in lists:
            steps = list(enumerate(self._script.steps[name]))
            mine = [(number, step) for number, step in steps if step.purpose == request.purpose]
            for number, step in mine:
                if step.when is None or number in place.used.get(name, ()):
                    continue
                groups = step.when.match(sight.newest, sight.context)
                if groups is not None:
                    return name, number, step, groups
            ordered = [(number, step) for number, step in mine if step.when is None]
            if not place.behind.get(name) and place.behind.get(""):
                # Nothing says which: so many assistant messages, so many steps.
                ordered = ordered[place.behind[""] :] or [item for item in ordered[-1:] if item[1].repeat]
            for number, step in ordered:
                if number >= place.behind.get(name, 0):
                    return name, number, step, {}
        seen = " ".join(sight.newest.split())
        raise BadRequest(
            f"the script has no step {place.turn + 1} for {request.member!r} ({request.purpose}); "
            f"it saw: {seen[:300] or 'nothing'}"
        )

    def _raise_fault(self, step: Step, member: str, key: str, on_text: Callable[[str], None] | None) -> None:
        for number, fault in enumerate(step.faults):
            if self._faults[member, key, number] < fault.times:
                self._faults[member, key, number] += 1
                if fault.kind == "cut" and on_text is not None and step.say:
                    on_text(step.say[: len(step.say) // 2])
                raise fault.error()

    def _message(
        self, step: Step, request: ModelRequest, sight: Sight, groups: Mapping[str, str], place: _Place
    ) -> AssistantMessage:
        parts: list[TextPart | ThinkingPart | CallPart] = [place.part()]
        if step.think:
            parts.append(ThinkingPart(text=sight.fill(step.think, groups), provider=PROVIDER))
        if step.say:
            parts.append(TextPart(sight.fill(step.say, groups)))
        prefix = _id_prefix(request)
        parts.extend(
            CallPart(
                call_id=f"{prefix}_{place.turn}_{number}",
                name=call.name,
                arguments={} if call.problem else sight.fill(call.arguments, groups),
                problem=call.problem,
            )
            for number, call in enumerate(step.calls, 1)
        )
        return AssistantMessage(tuple(parts))

    def _reply(self, step: Step, request: ModelRequest, message: AssistantMessage) -> Reply:
        usage = step.usage or self._script.usage or _counted(request, message)
        cost = self._price_usd(usage.input_tokens, usage.output_tokens)
        return Reply(
            message=message,
            stop_reason=step.stop or (StopReason.TOOL_USE if step.calls else StopReason.END_TURN),
            usage=usage,
            model=self.model,
            cost_usd=cost if step.cost_usd is None else step.cost_usd,
        )


def _id_prefix(request: ModelRequest) -> str:
    """Unique for a member's conversation: one member may have several subagents."""
    if request.purpose == "turn":
        return f"call_{request.member}"
    first = repr(request.messages[:1])
    return f"call_{request.member}_{hashlib.sha256(first.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def _counted(request: ModelRequest, message: AssistantMessage) -> Usage:
    sent = len(request.system) + sum(len(str(item)) for item in request.messages)
    return Usage(
        input_tokens=sent // CHARACTERS_PER_TOKEN + 1,
        output_tokens=len(str(message)) // CHARACTERS_PER_TOKEN + 1,
    )


def _shown(step: Step) -> str:
    calls = ", ".join(call.name for call in step.calls)
    return (step.say or calls or (step.make.__name__ if step.make else "") or "(empty)")[:60]
