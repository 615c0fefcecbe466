"""Directories as other programs leave them, and the files store on top."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bullpen.clock import Clock, FakeClock
from bullpen.domain.event import Event
from bullpen.domain.member import USER, MemberRef
from bullpen.stores.files import FilesStore

NEVER_SECONDS = 3600.0


@asynccontextmanager
async def files(directory: Path, *, clock: Clock | None = None, **settings: Any) -> AsyncIterator[FilesStore]:
    settings = {"poll_interval_seconds": NEVER_SECONDS, **settings}
    async with FilesStore(f"files:{directory}", directory, clock or FakeClock(), **settings) as store:
        yield store


def user_of(team_id: int) -> MemberRef:
    return MemberRef(team_id, USER, 0)


def put(path: Path, content: Any) -> Path:
    """As another program writes: in place. Text as it is, anything else as JSON, a list of objects as lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".jsonl" and isinstance(content, list):
        content = "".join(json.dumps(entry) + "\n" for entry in content)
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=2))
    return path


def put_task(directory: Path, number: int, /, **fields: Any) -> Path:
    return put(directory / ".tasks" / f"task_{number}.json", {"id": number, "subject": f"task {number}", **fields})


def content_of(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


async def default_team(store: FilesStore) -> int:
    team = await store.find_team("default")
    assert team is not None
    return team.id


async def kinds(store: FilesStore, team_id: int) -> list[str]:
    return [event.kind for event in await store.list_events(team_id)]


async def events_of(store: FilesStore, team_id: int, kind: str) -> list[Event]:
    return [event for event in await store.list_events(team_id) if event.kind == kind]


async def hosted(store: FilesStore, team_id: int, name: str, **how: Any) -> MemberRef:
    """A teammate that a worker of this store hosts."""
    await store.spawn_member(user_of(team_id), name, **how)
    worker = await store.register_worker(slots=10)
    member = await store.host_member(worker.id, team_id=team_id)
    assert member is not None
    assert member.name == name
    return member.ref
