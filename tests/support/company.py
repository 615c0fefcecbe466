"""A whole team over HTTP: the strict server plays every model of it, all else is real."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bullpen.config import Settings
from bullpen.domain.prompt import CallPart, TextPart, ThinkingPart
from bullpen.provider import ModelRequest
from bullpen.providers import open_provider
from bullpen.providers.scripted import Step
from bullpen.team import Report, Team, open_team
from tests.support.cast import Play
from tests.support.protocol_server import Answer, Heard, ProtocolServer
from tests.support.protocol_server.conversation import Model
from tests.support.troupe import BOUND_SECONDS
from tests.support.troupe import settings as plain_settings

MODELS = {"anthropic": "anthropic:claude-sonnet-5", "openai": "openai:gpt-5.5"}
Said = Step | Answer | str
Act = Callable[[ModelRequest], Said]


@dataclass(frozen=True, slots=True)
class Wire:
    """One of the ways to ask: a format, whole or streamed."""

    format: str
    is_streamed: bool

    @property
    def model(self) -> str:
        return MODELS[self.format]


WIRES = tuple(Wire(name, is_streamed) for name in MODELS for is_streamed in (False, True))


@dataclass(frozen=True, slots=True)
class Company:
    team: Team
    server: ProtocolServer

    async def run(self, goal: str = "Reach the goal.") -> Report:
        """`run`, with a bound."""
        return await self.team.run(goal, max_minutes=BOUND_SECONDS / 60)

    def heard(self, member: str) -> list[Heard]:
        return [heard for heard in self.server.heard if heard.member == member]

    def check_legal(self) -> None:
        """The server refused nothing."""
        assert self.server.ledger.refusals == []


@asynccontextmanager
async def company(
    wire: Wire,
    model: Model,
    workspace: Path,
    *,
    settings: Settings | None = None,
    store: Any = None,
    timeout_seconds: float = BOUND_SECONDS,
    **server: Any,
) -> AsyncIterator[Company]:
    async with (
        ProtocolServer(model, **server) as served,
        open_team(
            "company",
            store=store or f"sqlite:///{workspace}/.bullpen/bullpen.db",
            model=wire.model,
            open_model=partial(open_provider, environ=served.environ, timeout_seconds=timeout_seconds),
            settings=settings if settings is not None else plain_settings(),
            workspace=workspace,
            on_text=(lambda ref, text: None) if wire.is_streamed else None,
        ) as team,
    ):
        yield Company(team, served)


# -- what the server says ------------------------------------------------------------------------------------


def acting(parts: Mapping[str, Act]) -> Model:
    """Each member is played by a function of what it sees; `*` plays whoever has none of its own."""

    def answer(heard: Heard) -> Answer | str:
        act = parts.get(heard.member, parts.get("*"))
        assert act is not None, f"nobody plays {heard.member!r}"
        return answer_of(act(heard.request), heard)

    return answer


def playing(play: Play) -> Model:
    return acting({"lead": play.lead, "*": play.teammate})


def answer_of(said: Said, heard: Heard) -> Answer | str:
    """A step as the server sends it: thinking first, its calls numbered as this conversation has come."""
    if not isinstance(said, Step):
        return said
    thinking = [ThinkingPart(text=said.think, provider=heard.format)] if said.think else []
    texts = [TextPart(said.say)] if said.say else []
    calls = [
        CallPart(call_id=f"toolu_{len(heard.request.messages)}_{place}", name=call.name, arguments=call.arguments)
        for place, call in enumerate(said.calls)
    ]
    return Answer(parts=(*thinking, *texts, *calls))


def in_turn(*replies: Said) -> Act:
    """One after the other, by how often it has spoken already."""

    def act(request: ModelRequest) -> Said:
        spoken = len(request.messages) // 2
        assert spoken < len(replies), f"{request.member} has nothing more to say to {request.messages[-1]}"
        return replies[spoken]

    return act
