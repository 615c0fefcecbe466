"""What tests of agents look at: every request that was made, replies that wait for the test, transcripts."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bullpen.domain.event import Event, EventKind
from bullpen.domain.member import USER, Member, MemberRef
from bullpen.domain.message import Message
from bullpen.domain.prompt import Reply, ResultPart, TextPart
from bullpen.domain.transcript import Turn, TurnKind
from bullpen.provider import ModelLimits, ModelRequest
from bullpen.providers.scripted import Call, Script, ScriptedProvider, Step, When
from bullpen.team import Report, Team
from tests.support.troupe import BOUND_SECONDS, events_of, until

Steps = Mapping[str, Sequence[Any] | Callable[[ModelRequest], Step | str]]


class Hold:
    """A reply that waits: `reached` when the model has been asked, `release` lets it answer."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self._free = asyncio.Event()

    async def reached(self) -> None:
        async with asyncio.timeout(BOUND_SECONDS):
            await self._asked.wait()

    def release(self) -> None:
        self._free.set()

    async def pass_by(self) -> None:
        self._asked.set()
        await self._free.wait()


class Recorder:
    """A scripted model that keeps every request, in the order in which they came."""

    def __init__(self, script: Steps | Script, **options: Any) -> None:
        self.script = ScriptedProvider(script, **options)
        self.model = self.script.model
        self.key_id = self.script.key_id
        self.limits: ModelLimits = self.script.limits
        self.requests: list[ModelRequest] = []
        self._holds: dict[tuple[str, int], Hold] = {}

    def hold(self, member: str, turn: int) -> Hold:
        """The member's request with this number (from 1) is answered when the test says so."""
        return self._holds.setdefault((member, turn), Hold())

    def of(self, member: str, purpose: str = "turn") -> list[ModelRequest]:
        return [request for request in self.requests if request.member == member and request.purpose == purpose]

    def count(self, member: str) -> int:
        return sum(request.member == member for request in self.requests)

    async def reply(self, request: ModelRequest, *, on_text: Callable[[str], None] | None = None) -> Reply:
        self.requests.append(request)
        hold = self._holds.get((request.member, self.count(request.member)))
        if hold is not None:
            await hold.pass_by()
        return await self.script.reply(request, on_text=on_text)

    async def estimate_cost_usd(self, *, input_tokens: int, output_tokens: int) -> float | None:
        return await self.script.estimate_cost_usd(input_tokens=input_tokens, output_tokens=output_tokens)

    async def close(self) -> None:
        pass


# -- steps ---------------------------------------------------------------------------------------------------


def calls(*made: tuple[str, Mapping[str, Any]] | Call, say: str = "", **rest: Any) -> Step:
    """A reply with several calls: `calls(("bash", {"command": "ls"}), …)`."""
    listed = tuple(one if isinstance(one, Call) else Call(name=one[0], arguments=one[1]) for one in made)
    return Step(say=say, calls=listed, **rest)


def seeing(text: str, step: Step | str, *, repeat: bool = False) -> Step:
    """This step as soon as the newest message holds that text."""
    known = step if isinstance(step, Step) else Step(say=step)
    return Step(
        say=known.say,
        calls=known.calls,
        stop=known.stop,
        faults=known.faults,
        when=When(newest=text),
        repeat=repeat,
    )


# -- what was seen -------------------------------------------------------------------------------------------


def text_of(request: ModelRequest) -> str:
    """All that stands in the conversation."""
    return "\n".join(
        part.text for message in request.messages for part in message.parts if isinstance(part, TextPart | ResultPart)
    )


def newest_of(request: ModelRequest) -> str:
    """What its last message says."""
    return "\n".join(part.text for part in request.messages[-1].parts if isinstance(part, TextPart | ResultPart))


def results_of(request: ModelRequest) -> list[ResultPart]:
    return [part for message in request.messages for part in message.parts if isinstance(part, ResultPart)]


async def turns_of(team: Team, name: str, *kinds: TurnKind) -> list[Turn]:
    turns = await team.store.list_turns(team.id, name)
    return [turn for turn in turns if not kinds or turn.kind in kinds]


async def results(team: Team, name: str) -> list[str]:
    """What the member's calls returned, in the order in which they ended."""
    return [turn.content["text"] for turn in await turns_of(team, name, TurnKind.TOOL_RESULT)]


async def told(team: Team, name: str) -> str:
    """All that the runtime told the member itself."""
    return "\n".join(turn.content["text"] for turn in await turns_of(team, name, TurnKind.USER))


async def member(team: Team, name: str) -> Member:
    return await team.store.get_member(team.id, name)


async def mail_of(team: Team, name: str) -> list[Message]:
    return await team.list_mail(name)


async def facts(team: Team, kind: EventKind, **data: Any) -> list[Event]:
    """The events so far of this kind with these facts."""
    return [
        event
        for event in await events_of(team, kind)
        if all(event.data.get(key) == value for key, value in data.items())
    ]


# -- doing ---------------------------------------------------------------------------------------------------


def human(team: Team) -> MemberRef:
    return MemberRef(team.id, USER, 0)


async def play(team: Team, goal: str = "Reach the goal.") -> Report:
    """`run`, with a bound."""
    return await team.run(goal, max_minutes=BOUND_SECONDS / 60)


async def play_led(team: Team, model: Recorder, *names: str, goal: str = "Reach the goal.") -> Report:
    """`play`, in which these are not answered before the lead has ended its first phase: what they tell it comes after
    that, however busy the machine is."""
    holds = [model.hold(name, 1) for name in names]
    run = asyncio.create_task(play(team, goal))
    await until(team, EventKind.PHASE_ENDED, member="lead")
    for hold in holds:
        hold.release()
    return await run


def counting(requests: defaultdict[str, int]) -> Callable[[ModelRequest], str]:
    """A model that only counts how often it is asked."""

    def answer(request: ModelRequest) -> str:
        requests[request.member] += 1
        return "Noted."

    return answer
