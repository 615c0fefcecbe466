"""`RayRunner`: a team whose workers are actors of a Ray cluster, as many as its members need.

This process hosts nobody. It looks into the store when somebody is wanted, and now and then; it starts workers where
members find no place, and sees off those that nobody needs any more, one by one and drained, so that members move in
good order. It is itself registered with room for everybody as long as it can have workers started: so a wanted member
counts as one that will be hosted, and its task stays its own meanwhile.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from bullpen.agent.house import House
from bullpen.config import Settings
from bullpen.domain.member import RUN_LABEL, Member, MemberKind, Worker, check_labels, runner_label, team_label
from bullpen.domain.member import Team as TeamRecord
from bullpen.errors import RunnerUnavailable, StoreUnavailable, UsageError
from bullpen.maintenance import Maintenance
from bullpen.runners.ray.actor import Recipe
from bullpen.runners.ray.environment import taken_along
from bullpen.runners.ray.line import Line, find_cluster, open_line
from bullpen.runners.ray.size import Labels, Size
from bullpen.store import Bell
from bullpen.stores.place import place_of
from bullpen.team.hosts import find_successor
from bullpen.worker.host import LEASE_SECONDS, Host
from bullpen.worker.worker import REST_SECONDS

LOOK_AGAIN_SECONDS = 5.0
# Members become wanted in bursts.
SETTLING_SECONDS = 0.1
DRAIN_SECONDS = 10.0
# An actor whose worker has died and that Ray has not brought back by then is replaced: Ray takes longer to notice
# that a machine is gone.
LOST_SECONDS = 10.0
# After so long without a worker where one was started, it is said.
PATIENCE_SECONDS = 30.0
RETRY_SECONDS = 5.0
# Of a resource that says what a node has; any number of workers share it.
SHARE = 0.001


@dataclass(frozen=True, kw_only=True)
class RayRunner:
    """`address`: HOST:PORT; without it RAY_ADDRESS, else the cluster that runs on this machine. Each worker hosts up
    to `slots` teammates and takes `num_cpus` of Ray's; a member's labels are custom resources of Ray's nodes. Between
    `min_workers` and `max_workers` there are as many as members need; `idle_seconds` later those too many leave.
    `environment` is added to the keys and settings that workers get anyway. `on_note` hears what the human should
    know."""

    address: str | None = None
    slots: int = 16
    min_workers: int = 1
    max_workers: int = 16
    num_cpus: float = 1.0
    idle_seconds: float = 30.0
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    on_note: Callable[[str], None] = lambda text: None

    async def check(self, store_url: str) -> None:
        """Before anything begins: UsageError or RunnerUnavailable for what could never run, in one line."""
        if not store_url.startswith(("postgresql://", "postgres://")):
            raise UsageError(
                "--runner ray needs a store that machines share: --store postgresql://HOST/DATABASE; "
                "on this machine alone `bullpen run` needs no runner"
            )
        await find_cluster(self.address)

    @asynccontextmanager
    async def host(
        self, team: TeamRecord, house: House, *, lease_seconds: float = LEASE_SECONDS
    ) -> AsyncIterator[RayCrew]:
        """While inside, its members are hosted. UsageError and RunnerUnavailable as of `check`."""
        await self.check(house.store.url)
        log = place_of(house.store.url).state_directory / "runs" / f"ray-{team.id}.log"
        async with open_line(self.address, log) as line, Maintenance(house.store):
            crew = RayCrew(self, team, house, line, lease_seconds)
            # Before anybody judges how the team stands: nobody is there yet.
            await crew.promise_room(True)
            try:
                async with asyncio.TaskGroup() as group:
                    keeping = group.create_task(crew.keep())
                    hearing = group.create_task(crew.hear())
                    try:
                        yield crew
                    finally:
                        keeping.cancel()
                        await asyncio.wait({keeping})
                        await crew.disband()
                        hearing.cancel()
            except BaseExceptionGroup as group_of_one:
                # Ray, or the store, is gone for good.
                raise group_of_one.exceptions[0] from None


@dataclass(kw_only=True)
class _Actor:
    """`team_id` is the team that its worker hosts; `silent_since`: since when no worker of it lives."""

    number: int
    team_id: int
    labels: Labels
    silent_since: float
    was_up: bool = False
    is_leaving: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class RayCrew:
    """The workers of one team, while it is run."""

    is_busy = False
    """Whether anybody is at work is read from the store."""

    def __init__(self, runner: RayRunner, team: TeamRecord, house: House, line: Line, lease_seconds: float) -> None:
        self.house = house
        self.team_id = team.id
        self._runner = runner
        self._store = house.store
        self._line = line
        self._lease_seconds = lease_seconds
        self._size = Size(slots=runner.slots, min_workers=runner.min_workers, max_workers=runner.max_workers)
        wanted = Settings.from_mapping(team.settings).sandbox.env
        self._environment = {**taken_along(os.environ, wanted), **runner.environment}
        # Tells the workers of this crew from all others in the store.
        self._token = secrets.token_hex(4)
        self._actors: dict[int, _Actor] = {}
        self._count = 0
        self._promise: Host | None = None
        self._too_many_since: float | None = None
        self._not_before = 0.0
        self._said: set[str] = set()

    # -- looking -----------------------------------------------------------------------------------------

    async def keep(self) -> None:
        """As many workers as members need, until it is cancelled."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.promise_room, False)
            bell = await stack.enter_async_context(self._store.listen_wanted())
            while True:
                bell.clear()
                # Once it is back, all is looked at again.
                with suppress(StoreUnavailable):
                    await self._look()
                await self._sleep(bell)

    async def _sleep(self, bell: Bell) -> None:
        await bell.wait(LOOK_AGAIN_SECONDS)
        await asyncio.sleep(SETTLING_SECONDS)

    async def _look(self) -> None:
        members = await self._store.list_members(self.team_id)
        await self._follow_lead(members)
        workers = self._workers(await self._store.list_workers())
        self._watch(workers)
        need = self._size.need(members, {worker.id: self._actors[number].labels for number, worker in workers.items()})
        await self.promise_room(sum(need.values()) < self._size.max_workers or not self._has_all(need, workers))
        is_short = not self._start_missing(need)
        self._see_off_surplus(need, workers, members, at_once=is_short)

    async def _follow_lead(self, members: list[Member]) -> None:
        """Where the lead went on in another team, that one is hosted; the workers of the old one leave."""
        lead = next(member for member in members if member.kind is MemberKind.LEAD)
        if lead.status_reason != "finished":
            return
        successor = await find_successor(self._store, self.team_id)
        if successor is None:
            return
        # Before anybody is seen off, and before the run looks at that team: whoever is wanted there will be hosted.
        await self._promise_to(successor.id)
        self.team_id = successor.id
        for actor in self._here():
            self._see_off(actor)

    def _workers(self, living: list[Worker]) -> dict[int, Worker]:
        """Ours, by the number of their actor; of two copies the newer one."""
        ours = {self._label(number): number for number in self._actors}
        return {
            ours[label]: worker
            for worker in sorted(living, key=lambda worker: worker.id)
            for label in worker.labels
            if label in ours
        }

    def _watch(self, workers: Mapping[int, Worker]) -> None:
        now = self._store.clock.monotonic()
        for actor in self._here():
            if actor.number in workers:
                actor.silent_since, actor.was_up = now, True
            elif actor.was_up and now - actor.silent_since > LOST_SECONDS:
                self._line.say(do="drop", number=actor.number)
                self._forget(actor.number)
            elif now - actor.silent_since > PATIENCE_SECONDS:
                self._note(self._why_not(actor))

    def _why_not(self, actor: _Actor) -> str:
        wants = ", ".join([f"{self._runner.num_cpus:g} CPU", *actor.labels])
        return (
            f"Ray has not started a worker for {PATIENCE_SECONDS:g} seconds and is waited for; it needs {wants}: "
            "`ray status` shows what there is"
        )

    def _has_all(self, need: Mapping[Labels, int], workers: Mapping[int, Worker]) -> bool:
        """Is everyone there who is needed, nobody to come, and nobody on the way out in whose place another one
        comes?"""
        there = Counter(actor.labels for actor in self._here() if actor.number in workers)
        return there.total() == len(self._actors) and all(there[labels] >= count for labels, count in need.items())

    def _here(self) -> list[_Actor]:
        """Those who are to stay."""
        return [actor for actor in self._actors.values() if not actor.is_leaving]

    async def promise_room(self, is_given: bool) -> None:
        """Registered as a worker that has room, for the team that is hosted now; it takes nobody."""
        if not is_given:
            await self._take_back()
        elif self._promise is None or self._promise.lost.is_set():
            await self._promise_to(self.team_id)

    async def _promise_to(self, team_id: int) -> None:
        """At no moment there is none: whoever is wanted just then would be taken for one whom nobody hosts."""
        labels = (team_label(team_id), runner_label("ray"), RUN_LABEL)
        slots = self._size.slots * self._size.max_workers
        host = await Host(self._store, self._lease_seconds, slots=slots, labels=labels).__aenter__()
        await self._take_back()
        self._promise = host

    async def _take_back(self) -> None:
        host, self._promise = self._promise, None
        if host is not None:
            await host.__aexit__()

    # -- more, and fewer ---------------------------------------------------------------------------------------

    def _start_missing(self, need: Mapping[Labels, int]) -> bool:
        """False if there are as many as there may be, and somebody is still missing."""
        if self._store.clock.monotonic() < self._not_before:
            return True
        for labels, count in need.items():
            for _ in range(count - sum(actor.labels == labels for actor in self._here())):
                if len(self._actors) >= self._size.max_workers:
                    return False
                self._start(labels)
        return True

    def _start(self, labels: Labels) -> None:
        self._count += 1
        number = self._count
        now = self._store.clock.monotonic()
        self._actors[number] = _Actor(number=number, team_id=self.team_id, labels=labels, silent_since=now)
        recipe = Recipe(
            store=self._store.url,
            team_id=self.team_id,
            slots=self._size.slots,
            labels=(*check_labels(labels), self._label(number), RUN_LABEL),
            lease_seconds=self._lease_seconds,
            rest_seconds=REST_SECONDS,
            model=self.house.model,
            workspace=None if self.house.workspace is None else str(self.house.workspace),
            is_interactive=self.house.is_interactive,
            environment=self._environment,
        )
        resources = dict.fromkeys(labels, SHARE)
        facts = {"recipe": asdict(recipe), "num_cpus": self._runner.num_cpus, "resources": resources}
        self._line.say(do="start", number=number, **facts)

    def _label(self, number: int) -> str:
        return f"ray={self._token}.{number}"

    def _see_off_surplus(
        self, need: Mapping[Labels, int], workers: Mapping[int, Worker], members: list[Member], *, at_once: bool
    ) -> None:
        """Those with the fewest members, once there have been too many for a while, or at once if others with another
        label are to come in their place."""
        surplus = self._surplus(need, workers, members)
        now = self._store.clock.monotonic()
        if not surplus:
            self._too_many_since = None
            return
        if self._too_many_since is None:
            self._too_many_since = now
        if at_once or now - self._too_many_since >= self._runner.idle_seconds:
            for actor in surplus:
                self._see_off(actor)

    def _surplus(
        self, need: Mapping[Labels, int], workers: Mapping[int, Worker], members: list[Member]
    ) -> list[_Actor]:
        def load(actor: _Actor) -> int:
            worker = workers.get(actor.number)
            return 0 if worker is None else sum(member.worker_id == worker.id for member in members)

        surplus: list[_Actor] = []
        for labels in {actor.labels for actor in self._here()}:
            alike = sorted((actor for actor in self._here() if actor.labels == labels), key=load)
            surplus += alike[: max(0, len(alike) - need.get(labels, 0))]
        return surplus

    def _see_off(self, actor: _Actor, drain_seconds: float | None = DRAIN_SECONDS) -> None:
        actor.is_leaving = True
        within = REST_SECONDS + (drain_seconds or 0.0) + LOST_SECONDS
        self._line.say(do="leave", number=actor.number, drain_seconds=drain_seconds, within_seconds=within)

    async def disband(self) -> None:
        """All end: the steps under way are finished, then the team rests."""
        for actor in self._actors.values():
            self._see_off(actor, None)
        with suppress(TimeoutError):
            async with asyncio.timeout(REST_SECONDS + 2 * LOST_SECONDS):
                await asyncio.gather(*(actor.ended.wait() for actor in self._actors.values()))

    # -- what the driver says --------------------------------------------------------------------------------

    async def hear(self) -> None:
        """RunnerUnavailable if there is no use in going on."""
        try:
            while True:
                self._hear(await self._line.hear())
        finally:
            # Nobody will tell of them any more.
            for number in list(self._actors):
                self._forget(number)

    def _hear(self, heard: Mapping[str, Any]) -> None:
        actor = self._actors.get(heard["number"])
        self._forget(heard["number"])
        if actor is None or actor.is_leaving or heard["why"] is None:
            return
        if not heard["may_pass"]:
            raise RunnerUnavailable(f"a worker cannot be started: {heard['why']}")
        self._note(f"a worker of Ray has ended and another one is started: {heard['why']}")
        self._not_before = self._store.clock.monotonic() + RETRY_SECONDS

    def _forget(self, number: int) -> None:
        if (actor := self._actors.pop(number, None)) is not None:
            actor.ended.set()

    def _note(self, text: str) -> None:
        """Each once."""
        if text not in self._said:
            self._said.add(text)
            self._runner.on_note(text)
