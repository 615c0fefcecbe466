"""Hosting: wanted members are claimed, each runs its loop in a task of its own, and none can spoil another."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Self

from bullpen.agent.agent import Agent
from bullpen.agent.house import House, Resting
from bullpen.agent.loop import live
from bullpen.domain.member import LEAD, USER, Member, MemberStatus, team_label
from bullpen.domain.message import MessageType
from bullpen.errors import LeaseLost, StoreUnavailable, TeamDeleted, UsageError
from bullpen.maintenance import Maintenance, StandingWatch
from bullpen.worker.host import LEASE_SECONDS, Host
from bullpen.worker.opening import open_agent

logger = logging.getLogger(__name__)

MAX_CRASHES = 3
STORE_PAUSE_SECONDS = 1.0
MAX_HOSTED_AT_ONCE = 64
# How long members that are in the middle of a turn may finish it when the worker leaves.
REST_SECONDS = 5.0


class Worker:
    """While entered, it hosts up to `slots` members (of one team, or of all). Leaving lets them rest: they become
    wanted, and whoever comes next goes on with them."""

    def __init__(
        self,
        house: House,
        *,
        slots: int = 100,
        team_id: int | None = None,
        lease_seconds: float = LEASE_SECONDS,
        rest_seconds: float = REST_SECONDS,
    ) -> None:
        self.house = house
        self._store = house.store
        self._slots = slots
        self._team_id = team_id
        self._lease_seconds = lease_seconds
        self._rest_seconds = rest_seconds
        self._agents: dict[asyncio.Task[None], Agent | None] = {}
        self._freed = asyncio.Event()
        self._background = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._host = await self._enter()
        try:
            # Whoever died here before is declared dead, so that its members are wanted. Only now that this worker can
            # host them: so their tasks stay theirs, and they go on where they were.
            await self._background.enter_async_context(Maintenance(self._store))
        except BaseException:
            await self._host.__aexit__()
            raise
        self._hosting = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.house.closing.set()
        await _end(self._hosting)
        await self._rest()
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
        return any(
            agent is None or agent.member.status in (MemberStatus.WORKING, MemberStatus.STOPPING)
            for agent in self._agents.values()
        )

    @property
    def id(self) -> int:
        """As which it is registered now: another one after it was taken for dead."""
        return self._host.worker.id

    # -- taking members -----------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            hosting = asyncio.create_task(self._host_wanted())
            losing = asyncio.create_task(self._host.lost.wait())
            try:
                await asyncio.wait({hosting, losing}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await _end(hosting)
                await _end(losing)
            # Taken for dead: nothing of what runs here may act again. It enters anew, as another worker.
            logger.warning("worker %s has lost its lease: its members stop here", self._host.worker.id)
            await self._stop_all()
            await self._host.__aexit__()
            self._host = await self._enter_again()

    async def _enter(self) -> Host:
        labels = () if self._team_id is None else (team_label(self._team_id),)
        return await Host(self._store, self._lease_seconds, slots=self._slots, labels=labels).__aenter__()

    async def _enter_again(self) -> Host:
        while True:
            with suppress(StoreUnavailable):
                return await self._enter()
            await asyncio.sleep(STORE_PAUSE_SECONDS)

    async def _host_wanted(self) -> None:
        async with self._store.listen_wanted() as bell:
            while True:
                bell.clear()
                self._freed.clear()
                try:
                    await self._host_all()
                except LeaseLost:
                    self._host.lost.set()
                    return
                except StoreUnavailable:
                    await asyncio.sleep(STORE_PAUSE_SECONDS)
                    continue
                await _first(bell.wait(), self._freed.wait())

    async def _host_all(self) -> None:
        """Twice as many at once as before, as long as there are: those who work already would else have the whole
        board done before the last of a crowd is hosted."""
        wish, has_more = 1, True
        while has_more:
            asking = [self._store.host_member(self._host.worker.id, team_id=self.team_id) for _ in range(wish)]
            outcomes = await asyncio.gather(*asking, return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, Member):
                    self._start(outcome)
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome
            has_more = None not in outcomes
            # Not beyond its slots: a store that runs verbs side by side counts them before the others are done.
            wish = max(1, min(2 * wish, MAX_HOSTED_AT_ONCE, self._slots - len(self._agents)))

    def _start(self, member: Member) -> None:
        task = asyncio.create_task(self._run_member(member), name=f"{member.name}@{member.team_id}")
        self._agents[task] = None
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._agents.pop(task, None)
        self._freed.set()

    # -- running one ----------------------------------------------------------------------------------------

    async def _run_member(self, member: Member) -> None:
        """One of the boundaries where a fault must not spread: the others go on."""
        try:
            await self._live(member)
        except (LeaseLost, Resting) as ended:
            logger.info("%s ends here: %s", member.name, ended)
        except UsageError as error:
            # No model, no such sandbox: trying again would not help.
            await self._part_from(self._now(member), partial(self._give_up, why=str(error)))
        except Exception as error:
            logger.exception("the loop of %s crashed", member.name)
            note = f"{type(error).__name__}: {error}"[:500]
            await self._part_from(self._now(member), partial(self._release, note=note))

    def _now(self, member: Member) -> Member:
        """As which it runs here by now: a lead may have gone on in another team."""
        task = asyncio.current_task()
        agent = None if task is None else self._agents.get(task)
        return member if agent is None else agent.member

    async def _part_from(self, member: Member, part: Callable[[Member], Awaitable[None]]) -> None:
        """However long the store is away: a member whose row says that it is hosted here would wait for ever."""
        while True:
            try:
                with suppress(LeaseLost):
                    await part(member)
                return
            except StoreUnavailable:
                await asyncio.sleep(STORE_PAUSE_SECONDS)

    async def _live(self, member: Member) -> None:
        """Until it ends; begun again as often as the store was away."""
        task = asyncio.current_task()
        assert task is not None
        while True:
            try:
                async with open_agent(self.house, self._now(member)) as agent:
                    self._agents[task] = agent
                    while not await self._live_in_its_team(agent):
                        pass
                return
            except StoreUnavailable as error:
                logger.warning("%s waits for the store: %s", member.name, error)
                await asyncio.sleep(STORE_PAUSE_SECONDS)

    async def _live_in_its_team(self, agent: Agent) -> bool:
        """False when it has gone on in another one."""
        watch = StandingWatch(self._store, agent.member.team_id, is_quiet=lambda: not self.is_busy)
        async with watch.watching(agent.is_lead):
            return await live(agent)

    async def _release(self, member: Member, *, note: str) -> None:
        """Like a lapse; again and again without an end of a work phase in between, it is given up."""
        known = (await self._store.attend(member.ref)).member
        crashes = int(known.counters.get("crashes", 0)) + 1
        if crashes >= MAX_CRASHES:
            await self._give_up(member, why=f"its loop crashed {crashes} times; the last time: {note}")
            return
        await self._store.set_member_counters(member.ref, {"crashes": crashes})
        await self._store.release_member(member.ref, note=note)

    async def _give_up(self, member: Member, *, why: str) -> None:
        text = f"{member.name} cannot be run: {why}"
        for to in {LEAD, USER} - {member.key}:
            told = f"given-up/{member.team_id}/{member.key}/{member.incarnation}/{to}"
            # Nobody reads the mail of a team that was deleted meanwhile.
            with suppress(TeamDeleted):
                await self._store.notify(member.team_id, to, text, type=MessageType.ERROR, operation_id=told)
        # Whoever brings it back has changed something: it is tried as often as before.
        await self._store.set_member_counters(member.ref, {"crashes": None})
        await self._store.shut_down_member(member.ref, reason=f"error: {why}"[:200])

    # -- leaving ----------------------------------------------------------------------------------------------

    async def _rest(self) -> None:
        """Those in the middle of a turn finish it; after a while they are cut off, and say so when they resume."""
        busy = [task for task, agent in self._agents.items() if agent and agent.member.status is MemberStatus.WORKING]
        try:
            if busy:
                await asyncio.wait(busy, timeout=self._rest_seconds)
        finally:
            # Also when it is not to wait any longer: nothing of theirs may run on without the store.
            await self._stop_all()

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
