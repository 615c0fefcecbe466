"""A team on a store, with short words for what most conformance tests begin with, and waits that have a bound."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any, cast

from bullpen.clock import FakeClock
from bullpen.domain.event import Event, EventKind
from bullpen.domain.member import LEAD, USER, Autonomy, Member, MemberRef, MemberStatus, Team, Worker
from bullpen.domain.message import Message
from bullpen.domain.task import Task
from bullpen.domain.transcript import NewCall
from bullpen.store import BEGINNING, Bell, Store

BOUND_SECONDS = 60.0
"""Far above what anything here takes: only a lost ring or a hang is as slow."""

ROOM = {"max_teammates": 1000}


class Board:
    """One team. Whatever changes time needs its own clock, so the clock moves a millisecond with each new member."""

    def __init__(self, store: Store, team: Team, worker: Worker, clock: FakeClock) -> None:
        self.store = store
        self.team = team
        self.worker = worker
        self.clock = clock
        self.user = MemberRef(team.id, USER, 0)
        self.lead = MemberRef(team.id, LEAD, 0)

    @property
    def id(self) -> int:
        return self.team.id

    # -- members -------------------------------------------------------------------------

    async def teammate(self, name: str, *, worker: Worker | None = None, **how: Any) -> MemberRef:
        """Spawned, and hosted by the worker of this board (or another): status `working`."""
        self.clock.advance(0.001)
        await self.store.spawn_member(self.user, name, **how)
        return await self.host(name, worker=worker)

    async def host(self, name: str, *, worker: Worker | None = None) -> MemberRef:
        hosted = await self.store.host_member((worker or self.worker).id, team_id=self.id)
        assert hosted is not None, "no member is wanted, or no slot is free"
        assert hosted.name == name
        return hosted.ref

    async def idle_teammate(self, name: str, *, worker: Worker | None = None, **how: Any) -> MemberRef:
        ref = await self.teammate(name, worker=worker, **how)
        await self.store.set_member_status(ref, MemberStatus.IDLE)
        return ref

    async def timed_out_teammate(self, name: str, **how: Any) -> MemberRef:
        ref = await self.idle_teammate(name, **how)
        assert await self.store.leave_if_nothing(ref) is None
        return ref

    async def sentinel(self, *, worker: Worker | None = None) -> MemberRef:
        """Whom no task wakes: a ring for it shows that earlier rings have arrived."""
        return await self.idle_teammate("sentinel", autonomy=Autonomy.ASSIGNED, worker=worker)

    async def external(self, name: str, *, role: str | None = None, worker: Worker | None = None) -> MemberRef:
        self.clock.advance(0.001)
        member = await self.store.join_member((worker or self.worker).id, self.id, name, role=role)
        return member.ref

    async def member(self, name: str) -> Member:
        return await self.store.get_member(self.id, name)

    # -- the board -----------------------------------------------------------------------

    async def task(self, subject: str = "a task", *, by: MemberRef | None = None, **details: Any) -> Task:
        return await self.store.create_task(by or self.user, subject, **details)

    async def tasks(self, count: int) -> list[Task]:
        return [await self.task(f"task {number}") for number in range(1, count + 1)]

    async def get(self, task_id: int) -> Task:
        return await self.store.get_task(self.id, task_id)

    async def claimed(self, by: MemberRef, subject: str = "a task", **details: Any) -> Task:
        task = await self.task(subject, **details)
        return await self.store.claim_task(by, task.id)

    # -- mail and memory -----------------------------------------------------------------

    async def inbox(self, name: str, *, undelivered_only: bool = False) -> list[Message]:
        return await self.store.list_mail(self.id, name, undelivered_only=undelivered_only)

    async def open_call(self, by: MemberRef, call_id: str = "call-1") -> None:
        """A reply with one tool call, started."""
        await self.store.record_turn(by, "assistant", "…", calls=[NewCall(call_id=call_id, name="bash")])
        await self.store.start_call(by, call_id)

    # -- the log -------------------------------------------------------------------------

    async def events(self, *, after: str = BEGINNING) -> list[Event]:
        found: list[Event] = []
        while page := await self.store.list_events(self.id, after=found[-1].position if found else after):
            found += page
        return found

    async def kinds(self, *, after: str = BEGINNING) -> list[str]:
        return [event.kind for event in await self.events(after=after)]

    @asynccontextmanager
    async def recording(self) -> AsyncIterator[list[Event]]:
        """What happens inside is in the list when the block is left."""
        seen: list[Event] = []
        start = await self.store.last_position(self.id)
        yield seen
        seen += await self.events(after=start)

    async def wait_for(self, kind: EventKind, *, after: str = BEGINNING, **facts: Any) -> Event:
        """The first event of that kind with these facts, within the bound."""
        return await wait_for_event(self.store, self.id, kind, after=after, **facts)

    # -- bells ---------------------------------------------------------------------------

    @asynccontextmanager
    async def listening(self, refs: Iterable[MemberRef], *, store: Store | None = None) -> AsyncIterator[Ears]:
        """One bell for each; leave it to `Ears` to say who was rung."""
        async with AsyncExitStack() as stack:
            bells = {}
            for ref in refs:
                bells[ref.name] = await stack.enter_async_context((store or self.store).listen_member(ref))
            yield Ears(self, bells)


class Ears:
    """Bells of several members, and a way to know that all rings so far have arrived.

    Rings travel in order, so once a ring that was made later has arrived, those before it have too: `rung`
    sends mail to every listener in turn and counts who was rung before that.
    """

    def __init__(self, board: Board, bells: dict[str, Bell]) -> None:
        self._board = board
        self._bells = bells

    async def settle(self) -> None:
        """Silence: what was rung until now has arrived, and is forgotten."""
        await self.rung()
        for bell in self._bells.values():
            bell.clear()

    async def heard(self, name: str) -> bool:
        return await self._bells[name].wait(BOUND_SECONDS)

    async def rung(self, sentinel: str = "sentinel") -> set[str]:
        """Who has been rung, after a ring for the sentinel (which must be among the listeners) has come through."""
        self._bells[sentinel].clear()
        await self._board.store.send(self._board.user, sentinel, "are we there?")
        assert await self.heard(sentinel), "the sentinel was not rung"
        names = set()
        for name, bell in self._bells.items():
            if name != sentinel and await bell.wait(0):
                names.add(name)
        return names


async def wait_for_event(store: Store, team_id: int, kind: EventKind, *, after: str = BEGINNING, **facts: Any) -> Event:
    return await first_event(
        store,
        team_id,
        lambda event: event.kind == kind and all(event.data.get(name) == value for name, value in facts.items()),
        after=after,
    )


async def first_event(
    store: Store, team_id: int, condition: Callable[[Event], bool], *, after: str = BEGINNING
) -> Event:
    # The iterator is closed here and not by the garbage collector: its listener must end with the wait.
    async with asyncio.timeout(BOUND_SECONDS), aclosing(cast(Any, store.follow_events(team_id, after=after))) as log:
        async for event in log:
            if condition(event):
                return cast(Event, event)
    raise AssertionError("the log ended")
