"""Hosting: wanted members are claimed, each runs its loop in a task of its own, and none can spoil another."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

from bullpen.agent.agent import Agent
from bullpen.agent.house import House, Resting
from bullpen.agent.loop import live
from bullpen.domain.member import LEAD, USER, Member, MemberRef, MemberStatus, team_label
from bullpen.domain.member import Worker as WorkerRecord
from bullpen.domain.message import MessageType
from bullpen.domain.text import name_key
from bullpen.errors import LeaseLost, NotFound, StoreRemoved, StoreUnavailable, TeamDeleted, UsageError
from bullpen.maintenance import Maintenance, StandingWatch, UnattendedWatch
from bullpen.worker.aside import Aside, list_others
from bullpen.worker.host import LEASE_SECONDS, Host
from bullpen.worker.integrator import Integrator
from bullpen.worker.opening import find_barrier, open_agent
from bullpen.worker.sweeping import sweep
from bullpen.worker.thrift import give_memory_back

logger = logging.getLogger(__name__)

MAX_CRASHES = 3
STORE_PAUSE_SECONDS = 1.0
MAX_HOSTED_AT_ONCE = 64
# So long this worker leaves a team to others whose members it cannot host.
ASIDE_SECONDS = 60.0
# How long members that are in the middle of a turn may finish it when the worker leaves.
REST_SECONDS = 5.0
LOST = "the lease of this worker is lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Somebody was `taken`, or has `left`, and why."""

    what: str
    member: Member
    team: str
    why: str = ""


def remark(text: str) -> None:
    """Where nobody else listens."""
    logger.warning("%s", text)


class Worker:
    """While entered, it hosts up to `slots` members (of one team, or of all; with `labels`, also those who ask for
    these). Leaving lets them rest: they become wanted, and whoever comes next goes on with them. Where other workers
    stand by, `drain` before that hands them on one by one."""

    def __init__(
        self,
        house: House,
        *,
        slots: int = 100,
        labels: Sequence[str] = (),
        team_id: int | None = None,
        lease_seconds: float = LEASE_SECONDS,
        rest_seconds: float = REST_SECONDS,
        on_change: Callable[[Change], None] = lambda change: None,
        on_remark: Callable[[str], None] = remark,
    ) -> None:
        self.house = replace(house, confirm=self._confirm)
        self._store = house.store
        self._slots = slots
        self._labels = labels
        self._team_id = team_id
        self._lease_seconds = lease_seconds
        self._rest_seconds = rest_seconds
        self._on_change = on_change
        self._on_remark = on_remark
        self._is_cut_off = False
        self._is_draining = False
        self._agents: dict[asyncio.Task[None], Agent | None] = {}
        self._team_names: dict[int, str] = {}
        self._freed = asyncio.Event()
        self._aside = Aside(house.store.clock)
        self._background = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._removal: asyncio.Future[StoreRemoved] = asyncio.get_running_loop().create_future()
        self._host = await self._enter()
        try:
            # Whoever died here before is declared dead, so that its members are wanted. Only now that this worker can
            # host them: so their tasks stay theirs, and they go on where they were.
            await self._background.enter_async_context(Maintenance(self._store))
        except BaseException:
            await self._host.__aexit__()
            raise
        self._hosting = asyncio.create_task(self._run())
        self._integrating = asyncio.create_task(self._integrate())
        self._sweeping = asyncio.create_task(sweep(self.house, self.id, team_id=self._team_id))
        self._saving = asyncio.create_task(give_memory_back(lambda: self.is_busy))
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.house.closing.set()
        await _end(self._hosting)
        await self._rest()
        await _end(self._integrating)
        await _end(self._sweeping)
        await _end(self._saving)
        await self._host.__aexit__()
        await self._background.aclose()
        await self.house.models.aclose()

    @property
    def team_id(self) -> int | None:
        """The team that it hosts, None for all. Where its lead has gone on in another team, that one."""
        team_id = self._team_id
        while team_id in self.house.successors:
            team_id = self.house.successors[team_id]
        return team_id

    @property
    def is_busy(self) -> bool:
        """Is anybody here in the middle of something?"""
        return self._is_busy_in(None)

    def _is_busy_in(self, team_id: int | None) -> bool:
        """In this team, or in any."""
        return any(
            agent is None
            or (
                agent.member.status in (MemberStatus.WORKING, MemberStatus.STOPPING)
                and team_id in (None, agent.member.team_id)
            )
            for agent in self._agents.values()
        )

    @property
    def id(self) -> int:
        """As which it is registered now: another one after it was taken for dead."""
        return self.record.id

    @property
    def record(self) -> WorkerRecord:
        return self._host.worker

    async def until_removed(self) -> StoreRemoved:
        """Returns when its store is no more: there is nobody left to host."""
        return await asyncio.shield(self._removal)

    async def drain(self) -> None:
        """Take nobody any more, and hand on whom it hosts: at once, or as soon as the step under way is done. Ends when
        nobody is left, or nobody can be handed on; cancelled, the rest is up to leaving."""
        self._is_draining = True
        self.house.closing.set()
        await _end(self._hosting)
        for task in set(self._agents) - self._busy():
            task.cancel()
        losing = asyncio.create_task(self._host.lost.wait())
        try:
            while self._agents and not losing.done():
                await asyncio.wait({*self._agents, losing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._is_draining = False
            await _end(losing)

    # -- taking members -----------------------------------------------------------------------------------

    async def _confirm(self) -> float:
        return await self._host.confirm()

    async def _run(self) -> None:
        while True:
            hosting = asyncio.create_task(self._host_wanted())
            losing = asyncio.create_task(self._host.lost.wait())
            try:
                await asyncio.wait({hosting, losing}, return_when=asyncio.FIRST_COMPLETED)
                # Taken for dead: nothing of what runs here may act again, and now, before others go on with them.
                # Whatever else ends may wait for the connection.
                hosting.cancel()
                self._on_remark(f"worker {self.id} has lost its lease: its members stop here")
                await self._stop_all()
            finally:
                await _end(hosting)
                await _end(losing)
            # It enters anew, as another worker.
            await self._stop_all()
            await self._host.__aexit__()
            self._host = await self._enter_again()
            self._is_cut_off = False
            self._on_remark(f"back as worker {self.id}")

    async def _enter(self) -> Host:
        labels = (*self._labels, *(() if self._team_id is None else (team_label(self._team_id),)))
        host = Host(self._store, self._lease_seconds, slots=self._slots, labels=labels, on_renewal=self._note_outage)
        return await host.__aenter__()

    async def _enter_again(self) -> Host:
        while True:
            try:
                return await self._enter()
            except StoreUnavailable as error:
                self._note_outage(error)
            await asyncio.sleep(STORE_PAUSE_SECONDS)

    def _note_outage(self, error: StoreUnavailable | None) -> None:
        """Said once, whatever here notices it first; None when the store has answered."""
        if isinstance(error, StoreRemoved):
            # Not said here: it will not come back, so whoever runs this process ends it with that error.
            if not self._removal.done():
                self._removal.set_result(error)
        elif error is not None and not self._is_cut_off:
            self._on_remark(f"the store cannot be reached: {str(error).removesuffix('.')}; members pause")
        elif error is None and self._is_cut_off:
            self._on_remark("the store is back: members go on")
        self._is_cut_off = error is not None

    async def _host_wanted(self) -> None:
        while True:
            try:
                async with self._store.listen_wanted() as bell:
                    while True:
                        bell.clear()
                        self._freed.clear()
                        await self._host_all()
                        await _first(bell.wait(self._aside.seconds_left), self._freed.wait())
            except LeaseLost:
                self._host.lost.set()
                return
            except StoreUnavailable as error:
                self._note_outage(error)
                await asyncio.sleep(STORE_PAUSE_SECONDS)

    async def _host_all(self) -> None:
        """Twice as many at once as before, as long as there are: those who work already would else have the whole
        board done before the last of a crowd is hosted."""
        wish, is_done = 1, False
        while not is_done:
            hosted = await self._store.host_members(
                self._host.worker.id, team_id=self.team_id, except_teams=self._aside.team_ids, limit=wish
            )
            for member in hosted:
                self._start(member)
            is_done = not hosted
            wish = min(2 * wish, MAX_HOSTED_AT_ONCE)

    def _start(self, member: Member) -> None:
        task = asyncio.create_task(self._run_member(member), name=f"{member.name}@{member.team_id}")
        self._agents[task] = None
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._agents.pop(task, None)
        self._freed.set()

    async def _integrate(self) -> None:
        """What members hand in, as long as this worker is there; begun again with each lease."""
        while True:
            integrator = Integrator(self.house, worker_id=lambda: self.id, team_id=lambda: self.team_id)
            try:
                await integrator.run()
            except LeaseLost:
                self._host.lost.set()
            except StoreUnavailable:
                pass
            await asyncio.sleep(STORE_PAUSE_SECONDS)

    # -- running one ----------------------------------------------------------------------------------------

    async def _run_member(self, member: Member) -> None:
        """One of the boundaries where a fault must not spread: the others go on."""
        with suppress(Resting):
            await self._run_until_left(member)

    async def _run_until_left(self, member: Member) -> None:
        why = "it is elsewhere by now"
        try:
            why = await self._live(member)
        except LeaseLost as ended:
            logger.info("%s ends here: %s", member.name, ended)
            why = LOST if self._host.lost.is_set() else why
        except (Resting, asyncio.CancelledError):
            why = LOST if self._host.lost.is_set() else "this worker leaves"
            if not self._is_draining:
                raise
            await self._part_from(self._now(member), self._store.rest_member)
        except UsageError as error:
            # No model, no such directory: trying again here would not help.
            why = str(error)
            part = self._leave_to_others if self._agent() is None else self._give_up
            await self._part_from(self._now(member), partial(part, why=why))
        except Exception as error:
            logger.exception("the loop of %s crashed", member.name)
            why = f"{type(error).__name__}: {error}"[:500]
            await self._part_from(self._now(member), partial(self._release, note=why))
        finally:
            agent = self._agent()
            known = self._team_names.get(member.team_id, f"#{member.team_id}")
            team = known if agent is None else agent.team.name
            self._on_change(Change(what="left", member=self._now(member), team=team, why=why))

    def _agent(self) -> Agent | None:
        task = asyncio.current_task()
        return None if task is None else self._agents.get(task)

    def _now(self, member: Member) -> Member:
        """As which it runs here by now: a lead may have gone on in another team."""
        agent = self._agent()
        return member if agent is None else agent.member

    async def _part_from(self, member: Member, part: Callable[[MemberRef], Awaitable[object]]) -> None:
        """However long the store is away: a member whose row says that it is hosted here would wait for ever."""
        while True:
            try:
                # Not there at all: its store was removed, and another made in its place.
                with suppress(LeaseLost, NotFound):
                    await part(member.ref)
                return
            except StoreUnavailable:
                await asyncio.sleep(STORE_PAUSE_SECONDS)

    async def _live(self, member: Member) -> str:
        """Until it ends, and why; begun again as often as the store was away."""
        task = asyncio.current_task()
        assert task is not None
        while True:
            try:
                now = self._now(member)
                team = await self._store.get_team(now.team_id)
                self._team_names[team.id] = team.name
                barrier = await find_barrier(self.house, team)
                if barrier is not None and await self._list_untried(now):
                    # Who is alone waits for it instead.
                    raise UsageError(barrier)
                async with open_agent(self.house, team, now) as agent:
                    if self._agents[task] is None:
                        self._on_change(Change(what="taken", member=agent.member, team=team.name))
                    self._agents[task] = agent
                    while not await self._live_in_its_team(agent):
                        pass
                return agent.member.status_reason or str(agent.member.status)
            except StoreUnavailable as error:
                logger.info("%s waits for the store: %s", member.name, error)
                await asyncio.sleep(STORE_PAUSE_SECONDS)

    async def _live_in_its_team(self, agent: Agent) -> bool:
        """False when it has gone on in another one."""
        team_id = agent.member.team_id
        kind = StandingWatch if self.record.is_of_run else UnattendedWatch
        watch = kind(self._store, team_id, is_quiet=lambda: not self._is_busy_in(team_id))
        async with watch.watching(agent.is_lead):
            return await live(agent)

    async def _release(self, by: MemberRef, *, note: str) -> None:
        """Like a lapse; again and again without an end of a work phase in between, it is given up."""
        known = (await self._store.attend(by)).member
        crashes = int(known.counters.get("crashes", 0)) + 1
        if crashes >= MAX_CRASHES:
            await self._give_up(by, why=f"its loop crashed {crashes} times; the last time: {note}")
            return
        await self._store.set_member_counters(by, {"crashes": crashes})
        await self._store.release_member(by, note=note)

    async def _leave_to_others(self, by: MemberRef, *, why: str) -> None:
        """What this machine lacks another one may have: the member stays wanted. Each worker that could not host it is
        noted with it; when nobody is left who could try, it is given up."""
        member = (await self._store.attend(by)).member
        if not await self._list_untried(member):
            await self._give_up(by, why=why)
            return
        # Before it is wanted again: else it would be taken here in the same moment.
        self._aside.put(by.team_id, ASIDE_SECONDS)
        text = f"{self.record.host} cannot host members of this team, which wait for another worker: {why}"
        with suppress(TeamDeleted):
            told = f"unfit/{by.team_id}/{self.id}"
            await self._store.notify(by.team_id, USER, text, operation_id=told)
        await self._store.set_member_counters(by, {"unfit": [*member.counters.get("unfit", ()), self.id]})
        await self._store.rest_member(by)

    async def _list_untried(self, member: Member) -> list[WorkerRecord]:
        """Others that may host it, and are not known to be unable to."""
        others = await list_others(self._store, self.id, member.team_id, member.labels)
        return [other for other in others if other.id not in member.counters.get("unfit", ())]

    async def _give_up(self, by: MemberRef, *, why: str) -> None:
        text = f"{by.name} cannot be run: {why}"
        key = name_key(by.name)
        for to in {LEAD, USER} - {key}:
            told = f"given-up/{by.team_id}/{key}/{by.incarnation}/{to}"
            # Nobody reads the mail of a team that was deleted meanwhile.
            with suppress(TeamDeleted):
                await self._store.notify(by.team_id, to, text, type=MessageType.ERROR, operation_id=told)
        # Whoever brings it back has changed something: it is tried as often as before, and by everyone.
        await self._store.set_member_counters(by, {"crashes": None, "unfit": None})
        await self._store.shut_down_member(by, reason=f"error: {why}"[:200])

    # -- leaving ----------------------------------------------------------------------------------------------

    async def _rest(self) -> None:
        """Those in the middle of a turn finish it; after a while they are cut off, and say so when they resume."""
        try:
            if busy := self._busy():
                await asyncio.wait(busy, timeout=self._rest_seconds)
        finally:
            # Also when it is not to wait any longer: nothing of theirs may run on without the store.
            await self._stop_all()

    def _busy(self) -> set[asyncio.Task[None]]:
        return {task for task, agent in self._agents.items() if agent and agent.member.status is MemberStatus.WORKING}

    async def _stop_all(self) -> None:
        tasks = list(self._agents)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def _first(*waits: object) -> None:
    tasks = [asyncio.ensure_future(wait) for wait in waits]  # type: ignore[call-overload]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            await _end(task)


async def _end(task: asyncio.Task[object]) -> None:
    task.cancel()
    # Not awaited itself: a cancellation of ours must not be taken for its own.
    await asyncio.wait({task})
