"""Our own records, after somebody has edited them into something else: told by name, never a traceback."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from bullpen.domain.background import BackgroundKind
from bullpen.domain.request import RequestKind
from bullpen.domain.transcript import NewCall
from bullpen.errors import StoreUnavailable
from bullpen.stores.files import FilesStore
from tests.unit.stores.files_board import files, hosted, put, user_of

Look = Callable[[FilesStore, int], Awaitable[Any]]

RECORDS: dict[str, tuple[str, Look]] = {
    "a request": ("crew/requests/request_1.json", lambda store, team_id: store.list_requests(team_id)),
    "an account": ("crew/budget/team.json", lambda store, team_id: store.list_accounts(team_id)),
    "background work": ("crew/backgrounds/bg_1.json", lambda store, team_id: store.list_backgrounds(team_id)),
    "what runs": (
        "crew/backgrounds/running.json",
        lambda store, team_id: store.list_backgrounds(team_id, running_only=True),
    ),
    "open calls": ("crew/calls/ana_open.json", lambda store, team_id: store.list_calls(team_id, "ana")),
    "a worker": (".workers/worker_1.json", lambda store, team_id: store.list_workers()),
}


async def a_busy_team(directory: Path) -> int:
    async with files(directory) as store:
        team = await store.create_team("crew")
        ana = await hosted(store, team.id, "ana")
        await store.open_request(ana, RequestKind.PERMISSION, "user", content="may I?")
        await store.reserve(ana, purpose="turn", provider_key="k", model="m", tokens=1, cost_usd=0.1)
        await store.record_turn(ana, "assistant", "x", calls=[NewCall(call_id="c1", name="bash", arguments={})])
        await store.start_background(ana, BackgroundKind.COMMAND, "sleep")
    # Where it was stopped in good order nothing runs; another process is still at work.
    record = directory / ".teams/.workers/stopped/worker_1.json"
    if record.exists():
        record.rename(directory / ".teams/.workers/worker_1.json")
    return team.id


# Not looked at where workers are listed.
_HOSTS = "hosts"


def nonsense_for(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Each field by itself as something that is never written there."""
    return [
        {**record, key: 1.5 if isinstance(value, dict) else {"no": "such"}}
        for key, value in record.items()
        if key != _HOSTS
    ]


@pytest.mark.parametrize("what", RECORDS)
async def test_a_record_that_somebody_has_edited_into_nonsense_is_told_and_not_written_over(
    tmp_path: Path, what: str
) -> None:
    name, look = RECORDS[what]
    team_id = await a_busy_team(tmp_path)
    path = tmp_path / ".teams" / name
    whole = json.loads(path.read_text())
    for damaged in nonsense_for(whole):
        put(path, damaged)
        async with files(tmp_path) as store:
            with pytest.raises(StoreUnavailable, match=r"is damaged .*repair it"):
                await look(store, team_id)
            await store.create_task(user_of(team_id), "goes on")
        assert json.loads(path.read_text()) == damaged
    put(path, whole)
    async with files(tmp_path) as store:
        assert await look(store, team_id)


@pytest.mark.parametrize("field", ["id", "settings", "next_task_id", "next_message_id", "open_requests"])
async def test_a_team_whose_record_was_edited_into_nonsense_is_told_and_not_written_over(
    tmp_path: Path, field: str
) -> None:
    async with files(tmp_path) as store:
        await store.create_team("crew")
        whole = await store.create_team("whole")
    path = tmp_path / ".teams/crew/config.json"
    damaged = {**json.loads(path.read_text()), field: "nonsense"}
    put(path, damaged)
    async with files(tmp_path) as store:
        with pytest.raises(StoreUnavailable, match=r"config.json is damaged .*repair it"):
            await store.find_team("crew")
        await store.create_task(user_of(whole.id), "goes on")
    assert json.loads(path.read_text()) == damaged
