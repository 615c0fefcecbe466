"""Workers that lack what a team needs: its members wait for one that has it, and are given up when nobody has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from bullpen.agent.house import Models
from bullpen.domain.event import EventKind
from bullpen.domain.member import MemberStatus
from bullpen.errors import UsageError
from bullpen.sandboxes import bubblewrap
from bullpen.team import Team
from bullpen.worker.worker import Worker
from bullpen.workspaces.mirror import Mirror
from tests.agents.stage import Recorder, facts, mail_of, member
from tests.support.troupe import hosted, settings, troupe, until
from tests.workspaces.conftest import make_bare

SCRIPT = {"*": lambda request: "I am here."}


def refuse(model: str, **wishes: Any) -> NoReturn:
    raise UsageError("the script is not here")


@asynccontextmanager
async def unfit(team: Team, **lacks: Any) -> AsyncIterator[Worker]:
    """A worker without the model, or what else its house lacks."""
    assert team.hosting is not None
    house = replace(team.hosting.worker(team).house, **(lacks or {"models": Models(refuse)}))
    async with Worker(house, team_id=team.id, rest_seconds=0.0) as worker:
        yield worker


async def test_whom_a_worker_cannot_host_stays_wanted_and_another_one_takes_it(
    tmp_path: Path, shared_store_url: str
) -> None:
    async with troupe(Recorder(SCRIPT), tmp_path, store=shared_store_url) as team:
        await team.store.register_worker(slots=1, lease_seconds=3600)
        async with unfit(team) as worker:
            for name in ("ana", "ben"):
                await team.spawn(name, prompt="Be there.")
                if name == "ana":
                    await until(team, EventKind.MEMBER_LAPSED, member="ana")
            assert [(await member(team, name)).status for name in ("ana", "ben")] == [MemberStatus.WANTED] * 2
            async with hosted(team):
                for name in ("ana", "ben"):
                    await until(team, EventKind.PHASE_ENDED, member=name, result="I am here.")
            assert len(await facts(team, EventKind.MEMBER_HOSTED, worker=worker.id)) == 1, "the team is left to others"
        assert await facts(team, EventKind.MEMBER_SHUT_DOWN) == []
        assert (await member(team, "ana")).counters.get("unfit") is None
        [told] = await mail_of(team, "user")
        assert told.content == (
            f"{worker.record.host} cannot host members of this team, which wait for another worker: "
            "the script is not here"
        )


async def test_one_that_nobody_can_host_is_given_up_after_each_has_tried_once(
    tmp_path: Path, shared_store_url: str
) -> None:
    async with troupe(Recorder(SCRIPT), tmp_path, store=shared_store_url) as team, unfit(team), unfit(team):
        await team.spawn("ana", prompt="Be there.")
        gone = await until(team, EventKind.MEMBER_SHUT_DOWN, member="ana")
        assert gone.data["reason"] == "error: the script is not here"
        hosts = [event.data["worker"] for event in await facts(team, EventKind.MEMBER_HOSTED, member="ana")]
        assert len(hosts) == len(set(hosts)) == 2


async def test_who_is_not_let_into_the_repository_leaves_members_to_another_worker(tmp_path: Path) -> None:
    bare = make_bare(tmp_path)
    store = f"sqlite:///{tmp_path}/.bullpen/bullpen.db"
    async with troupe(Recorder(SCRIPT), tmp_path, store=store, settings=settings()) as team:
        await team.work_apart(f"git+file://{bare}")
        await team.store.register_worker(slots=1, lease_seconds=3600)
        locked = Mirror(f"file://{tmp_path}/locked.git", tmp_path / "state")
        async with unfit(team, mirrors={f"file://{bare}": locked}) as worker:
            await team.spawn("ana", prompt="Be there.")
            await until(team, EventKind.MEMBER_LAPSED, member="ana")
            async with hosted(team):
                await until(team, EventKind.PHASE_ENDED, member="ana", result="I am here.")
        [told] = await mail_of(team, "user")
        assert told.content.startswith(f"{worker.record.host} cannot host members of this team")
        assert "cannot be read" in told.content


async def test_where_commands_cannot_be_confined_as_required_a_member_is_given_up_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bubblewrap, "probe", lambda: bubblewrap.Probe("", False, "bubblewrap is not installed"))
    required = settings(sandbox={"kind": "required"})
    async with troupe(Recorder(SCRIPT), tmp_path, settings=required) as team, hosted(team):
        await team.spawn("ana", prompt="Be there.")
        gone = await until(team, EventKind.MEMBER_SHUT_DOWN, member="ana")
        assert gone.data["reason"].startswith("error: bubblewrap is not installed: install it")
        assert len(await facts(team, EventKind.MEMBER_HOSTED, member="ana")) == 1
