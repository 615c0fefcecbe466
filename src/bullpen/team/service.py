"""Workers that serve every team of a store, or one: how such a process is made, and which there are."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bullpen.agent.house import House, Listener, Models, OpenModel
from bullpen.domain.member import Liveness, Member, MemberKind, MemberStatus, Team, team_label
from bullpen.domain.member import Worker as WorkerRecord
from bullpen.providers import default_model, open_provider, preload
from bullpen.store import Store
from bullpen.stores.place import place_of
from bullpen.worker.host import LEASE_SECONDS
from bullpen.worker.worker import Change, Worker, remark

SLOTS = 16


def make_house(
    store: Store,
    *,
    model: str | None = None,
    workspace: Path | None = None,
    open_model: OpenModel = open_provider,
    is_interactive: bool = False,
    on_text: Listener | None = None,
) -> House:
    place = place_of(store.url)
    return House(
        store=store,
        models=Models(open_model),
        workspace=workspace,
        state_directory=place.state_directory,
        model=model,
        hidden=place.hidden,
        is_interactive=is_interactive,
        on_text=on_text,
    )


def make_worker(
    store: Store,
    *,
    slots: int = SLOTS,
    labels: Sequence[str] = (),
    team_id: int | None = None,
    model: str | None = None,
    workspace: Path | None = None,
    lease_seconds: float = LEASE_SECONDS,
    rest_seconds: float = 0.0,
    is_interactive: bool = False,
    on_change: Callable[[Change], None] = lambda change: None,
    on_remark: Callable[[str], None] = remark,
) -> Worker:
    """Enter it to host wanted members, the lead included, of any team or of one. `model` is for whom nothing else says
    which; without a `workspace` each team works where it did before. What runs when it is left is cut off after
    `rest_seconds`; `drain` first hands it on."""
    return Worker(
        make_house(store, model=model, workspace=workspace, is_interactive=is_interactive),
        slots=slots,
        labels=labels,
        team_id=team_id,
        lease_seconds=lease_seconds,
        rest_seconds=rest_seconds,
        on_change=on_change,
        on_remark=on_remark,
    )


async def warm_up(model: str | None) -> None:
    """Who stands by loads what it will need before it is needed: this model, or that of the key that is set."""
    found = default_model(os.environ)
    name = model or (found[0] if found else None)
    if name is not None:
        # In a thread: leases are to be renewed meanwhile.
        await asyncio.to_thread(preload, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosted:
    member: Member
    team: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """A worker as it stands there: whether it lives, and whom it hosts. `labels` are for people: a team in them
    goes by its name."""

    worker: WorkerRecord
    liveness: Liveness
    hosted: tuple[Hosted, ...]
    labels: tuple[str, ...]

    @property
    def used(self) -> int:
        """Slots: a lead takes none."""
        return sum(one.member.kind is MemberKind.TEAMMATE for one in self.hosted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Staff:
    """The workers that there are, oldest first, and who waits for a place with one of them."""

    posts: tuple[Post, ...]
    waiting: tuple[Hosted, ...]


async def look_at_staff(store: Store, *, team: Team | None = None, include_stopped: bool = False) -> Staff:
    """Of all teams, or of one: who may host it or does."""
    teams = {one.id: one for one in await store.list_teams() if team is None or one.id == team.id}
    members = [
        Hosted(member=member, team=one.name) for one in teams.values() for member in await store.list_members(one.id)
    ]
    names = {team_label(one.id): f"team={one.name}" for one in teams.values()}
    posts = []
    for worker in await store.list_workers(include_stopped=include_stopped):
        hosted = tuple(one for one in members if one.member.worker_id == worker.id)
        if team is None or hosted or worker.may_host(team.id):
            labels = tuple(names.get(label, label) for label in worker.labels)
            posts.append(Post(worker=worker, liveness=await _liveness(store, worker), hosted=hosted, labels=labels))
    waiting = tuple(one for one in members if one.member.status is MemberStatus.WANTED)
    return Staff(posts=tuple(posts), waiting=waiting)


async def _liveness(store: Store, worker: WorkerRecord) -> Liveness:
    return Liveness.DEAD if worker.stopped_at is not None else await store.probe_worker(worker)
