"""A whole team in this process, played by a script: everything but the model is real."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bullpen.config import Settings
from bullpen.domain.event import Event, EventKind
from bullpen.provider import Provider
from bullpen.providers.scripted import Call, ScriptedProvider, Step
from bullpen.team import Team, open_team

BOUND_SECONDS = 180.0
"""For whatever a whole team does until then. Far above what it takes: only a hang is as slow."""


def call(name: str, /, **arguments: Any) -> Step:
    """A reply that calls one tool."""
    return Step(calls=(Call(name=name, arguments=arguments),))


def done(result: str = "done, verified by reading it") -> Step:
    """A reply that completes the task that was seen last."""
    return call("TaskUpdate", taskId="{{task_id}}", status="completed", result=result)


def settings(**sections: Mapping[str, Any] | Any) -> Settings:
    """Settings with these sections changed; the sandbox is the local one, which starts at once, and bash is allowed."""
    mapping: dict[str, Any] = {"sandbox": {"kind": "local"}, "permissions": {"allow": ["*"]}}
    for name, value in sections.items():
        mapping[name] = {**mapping.get(name, {}), **value} if isinstance(value, Mapping) else value
    return Settings.from_mapping(mapping)


@asynccontextmanager
async def troupe(
    script: Provider | Mapping[str, Any],
    workspace: Path,
    *,
    name: str = "troupe",
    store: Any = "sqlite:///:memory:",
    settings: Settings | None = None,
    **options: Any,
) -> AsyncIterator[Team]:
    """`team.run(goal)` and `team.wait_until_done()` host it here. Every model name is the script."""
    provider = ScriptedProvider(script) if isinstance(script, Mapping) else script
    async with open_team(
        name,
        store=store,
        model="scripted:test",
        open_model=lambda model, **wishes: provider,
        settings=settings if settings is not None else globals()["settings"](),
        workspace=workspace,
        **options,
    ) as team:
        yield team


@asynccontextmanager
async def hosted(team: Team) -> AsyncIterator[None]:
    """While inside, this process hosts the team, and the test plays the human."""
    assert team.hosting is not None
    async with team.hosting.worker(team):
        yield


async def until(
    team: Team, kind: EventKind | str, *, bound_seconds: float = BOUND_SECONDS, after: str = "", **data: Any
) -> Event:
    """The first event of this kind with these facts, past or to come."""
    return await until_event(
        team,
        lambda event: event.kind == kind and all(event.data.get(key) == value for key, value in data.items()),
        bound_seconds=bound_seconds,
        after=after,
    )


async def until_event(
    team: Team, matches: Callable[[Event], bool], *, bound_seconds: float = BOUND_SECONDS, after: str = ""
) -> Event:
    async with asyncio.timeout(bound_seconds):
        async for event in team.follow_events(after=after):
            if matches(event):
                return event
    raise AssertionError("the log ended")


async def events_of(team: Team, *kinds: str) -> list[Event]:
    """All events so far, or those of these kinds."""
    events: list[Event] = []
    while more := await team.list_events(after=events[-1].position if events else ""):
        events += more
    return [event for event in events if not kinds or event.kind in kinds]
