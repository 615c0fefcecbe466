"""The face of a team to programs: what the terminal, the browser, MCP and your own code call.

    async with open_team("graphql", store="sqlite:///work.db") as team:
        task = await team.create_task("Analyse the REST endpoints")
        async with team.join("cat", role="tester") as me:
            while await me.wait_for_work(timeout_seconds=60):
                …

`Team` acts for the human: what it writes comes from `user`. A `Session` acts for
one member that your own code plays, under a lease that is renewed in the background.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Self

from bullpen.clock import Clock
from bullpen.domain.event import Event
from bullpen.domain.member import (
    USER,
    Autonomy,
    Liveness,
    Member,
    MemberRef,
    MemberStatus,
    Spawned,
    Worker,
)
from bullpen.domain.member import Team as TeamRecord
from bullpen.domain.message import Message, MessageType, Receipt
from bullpen.domain.request import PermissionScope, Request, RequestKind, RequestStatus
from bullpen.domain.task import FINISHED, UNSET, Evidence, Task, TaskChanges, TaskStatus
from bullpen.errors import BullpenError, Conflict, LeaseLost, NotFound, ShuttingDown, StoreUnavailable, UsageError
from bullpen.maintenance import Maintenance
from bullpen.store import BEGINNING, Bell, Store
from bullpen.stores import open_store

DEFAULT_STORE = "sqlite:///.bullpen/bullpen.db"
DEFAULT_TEAM = "default"
LEASE_SECONDS = 15.0


@asynccontextmanager
async def open_team(
    name: str = DEFAULT_TEAM,
    *,
    store: str | Store = DEFAULT_STORE,
    goal: str = "",
    model: str | None = None,
    create: bool = True,
    lease_seconds: float = LEASE_SECONDS,
    clock: Clock | None = None,
) -> AsyncIterator[Team]:
    """The live team of that name, created if there is none (`create=False`: NotFound)."""
    async with AsyncExitStack() as stack:
        opened = store
        if isinstance(opened, str):
            opened = await stack.enter_async_context(open_store(opened, clock=clock))
        record = await _find_or_create(opened, name, goal, model, create)
        yield await stack.enter_async_context(Team(opened, record, lease_seconds=lease_seconds))


async def _find_or_create(store: Store, name: str, goal: str, model: str | None, create: bool) -> TeamRecord:
    record = await store.find_team(name)
    if record is not None:
        return record
    if not create:
        raise NotFound(f"there is no team {name!r}; `bullpen team list` shows which there are")
    settings = {} if model is None else {"model": model}
    try:
        return await store.create_team(name, goal=goal, settings=settings)
    except Conflict:
        # Somebody else created it a moment ago.
        record = await store.find_team(name)
        if record is None:
            raise
        return record


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A member, and whether what hosts it lives."""

    member: Member
    worker: Worker | None
    liveness: Liveness | None

    @property
    def is_dead(self) -> bool:
        return self.liveness is Liveness.DEAD


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What became of the board."""

    team: str
    tasks: tuple[Task, ...]

    def with_status(self, status: TaskStatus) -> list[Task]:
        return [task for task in self.tasks if task.status is status]

    @property
    def succeeded(self) -> bool:
        return all(task.status is TaskStatus.COMPLETED for task in self.tasks)


class Team:
    def __init__(self, store: Store, record: TeamRecord, *, lease_seconds: float = LEASE_SECONDS) -> None:
        self.store = store
        self.record = record
        self._lease_seconds = lease_seconds
        self._me = MemberRef(record.id, USER, 0)
        self._background = AsyncExitStack()
        self._host: Host | None = None
        self._is_maintained = False
        self._hosting = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._background.aclose()

    @property
    def id(self) -> int:
        return self.record.id

    @property
    def name(self) -> str:
        return self.record.name

    # -- the board -----------------------------------------------------------------------

    async def create_task(
        self,
        subject: str,
        *,
        description: str = "",
        active_form: str = "",
        blocked_by: Sequence[int] = (),
        role: str | None = None,
        check: str | None = None,
        owner: str | None = None,
        operation_id: str | None = None,
    ) -> Task:
        return await self.store.create_task(
            self._me,
            subject,
            description=description,
            active_form=active_form,
            blocked_by=blocked_by,
            role=role,
            check=check,
            owner=owner,
            operation_id=operation_id,
        )

    async def get_task(self, task_id: int) -> Task:
        return await self.store.get_task(self.id, task_id)

    async def list_tasks(
        self,
        *,
        status: TaskStatus | None = None,
        owner: str | None = None,
        after_id: int = 0,
        limit: int | None = None,
    ) -> list[Task]:
        return await self.store.list_tasks(self.id, status=status, owner=owner, after_id=after_id, limit=limit)

    async def update_task(self, task_id: int, **changes: Any) -> Task:
        """Fields of `TaskChanges`: subject, description, owner, role, check, add_blocked_by, …"""
        return await self.store.update_task(self._me, task_id, TaskChanges(**changes))

    async def set_task_status(self, task_id: int, status: TaskStatus, *, note: str = "") -> Task:
        """The verb that leads to this status, whichever it is."""
        return await set_task_status(self.store, self._me, task_id, status, note=note)

    async def claim_task(self, task_id: int | None = None) -> Task | None:
        """For the human: `user` becomes its owner. Without a number, the next claimable one."""
        if task_id is None:
            return await self.store.claim_next_task(self._me)
        return await self.store.claim_task(self._me, task_id)

    async def complete_task(self, task_id: int, *, result: str = "", unverified: bool = False) -> Task:
        return await self.store.complete_task(self._me, task_id, result=result, unverified=unverified)

    async def fail_task(self, task_id: int, *, reason: str = "") -> Task:
        return await self.store.fail_task(self._me, task_id, reason=reason)

    async def release_task(self, task_id: int, *, note: str = "") -> Task:
        return await self.store.release_task(self._me, task_id, note=note)

    async def retry_task(self, task_id: int, *, note: str = "") -> Task:
        return await self.store.retry_task(self._me, task_id, note=note)

    async def delete_task(self, task_id: int) -> Task:
        return await self.store.delete_task(self._me, task_id)

    # -- members -------------------------------------------------------------------------

    async def spawn(
        self,
        name: str,
        *,
        role: str | None = None,
        prompt: str = "",
        model: str | None = None,
        autonomy: Autonomy = Autonomy.AUTO,
        require_plan: bool = False,
        task_id: int | None = None,
    ) -> Spawned:
        return await self.store.spawn_member(
            self._me,
            name,
            role=role,
            prompt=prompt,
            model=model,
            autonomy=autonomy,
            plan_required=require_plan,
            task_id=task_id,
        )

    async def list_members(self) -> list[Member]:
        return await self.store.list_members(self.id)

    async def list_seats(self) -> list[Seat]:
        """The roster, dead told from idle."""
        workers = {worker.id: worker for worker in await self.store.list_workers(include_stopped=True)}
        seats = []
        for member in await self.list_members():
            worker = None if member.worker_id is None else workers.get(member.worker_id)
            liveness = None if worker is None else await self.store.probe_worker(worker)
            seats.append(Seat(member=member, worker=worker, liveness=liveness))
        return seats

    async def shut_down(self, name: str, *, reason: str = "", timeout_seconds: float = 30.0) -> Request:
        """Ask a member to stop; after the deadline it is forced."""
        return await self.store.open_request(
            self._me, RequestKind.SHUTDOWN, name, content=reason, timeout_seconds=timeout_seconds
        )

    @asynccontextmanager
    async def join(self, name: str, *, role: str | None = None) -> AsyncIterator[Session]:
        """Be a member: claim, send and take mail under this name until the block is left."""
        try:
            member = await self._enter(name, role)
        except LeaseLost:
            # This process was taken for dead since its last member: it enters again as another worker.
            self._host = None
            member = await self._enter(name, role)
        session = Session(self.store, member)
        try:
            yield session
        except BaseException:
            await session.leave(is_clean=False)
            raise
        await session.leave(is_clean=True)

    async def _enter(self, name: str, role: str | None) -> Member:
        host = await self._get_host()
        return await self.store.join_member(host.worker.id, self.id, name, role=role)

    async def _get_host(self) -> Host:
        """This process as a worker, entered with its first member."""
        async with self._hosting:
            if not self._is_maintained:
                # First of all: whoever died here before gives its name and its task free.
                await self._background.enter_async_context(Maintenance(self.store))
                self._is_maintained = True
            if self._host is None:
                self._host = await self._background.enter_async_context(Host(self.store, self._lease_seconds))
            return self._host

    # -- mail and requests -----------------------------------------------------------------

    async def send(self, to: str, content: str, *, reply_to: int | None = None) -> Receipt:
        [receipt] = await self.store.send(self._me, to, content, reply_to=reply_to)
        return receipt

    async def broadcast(self, content: str) -> list[Receipt]:
        return await self.store.send(self._me, None, content, type=MessageType.BROADCAST)

    async def list_mail(self, name: str = USER, *, undelivered_only: bool = False, limit: int = 100) -> list[Message]:
        return await self.store.list_mail(self.id, name, undelivered_only=undelivered_only, limit=limit)

    async def list_requests(self, *, status: RequestStatus | None = RequestStatus.OPEN) -> list[Request]:
        return await self.store.list_requests(self.id, status=status)

    async def approve(self, request_id: int, *, reason: str = "", scope: PermissionScope | None = None) -> Request:
        return await self.store.answer_request(self._me, request_id, approve=True, reason=reason, scope=scope)

    async def reject(self, request_id: int, *, reason: str = "") -> Request:
        return await self.store.answer_request(self._me, request_id, approve=False, reason=reason)

    # -- the whole -------------------------------------------------------------------------

    async def list_events(self, *, after: str = BEGINNING, limit: int = 1000) -> list[Event]:
        return await self.store.list_events(self.id, after=after, limit=limit)

    def follow_events(self, *, after: str = BEGINNING) -> AsyncIterator[Event]:
        return self.store.follow_events(self.id, after=after)

    async def wait_until_done(self, *, timeout_seconds: float | None = None) -> Report:
        """Until every task is completed, failed or deleted; TimeoutError."""
        async with asyncio.timeout(timeout_seconds), self.store.listen_events(self.id) as bell:
            while True:
                bell.clear()
                tasks = await self.list_tasks()
                if all(task.status in FINISHED for task in tasks):
                    return Report(team=self.name, tasks=tuple(tasks))
                await bell.wait()

    async def delete(self, *, deadline_seconds: float = 30.0) -> TeamRecord:
        return await self.store.delete_team(self._me, deadline_seconds=deadline_seconds)


async def set_task_status(store: Store, by: MemberRef, task_id: int, status: TaskStatus, *, note: str = "") -> Task:
    """`TaskUpdate(status=…)`: which verb that is depends on where the task stands."""
    match status:
        case TaskStatus.IN_PROGRESS:
            return await store.claim_task(by, task_id)
        case TaskStatus.COMPLETED:
            return await store.complete_task(by, task_id, result=note)
        case TaskStatus.FAILED:
            return await store.fail_task(by, task_id, reason=note)
        case TaskStatus.DELETED:
            return await store.delete_task(by, task_id)
        case TaskStatus.PENDING:
            task = await store.get_task(by.team_id, task_id)
            if task.status is TaskStatus.FAILED:
                return await store.retry_task(by, task_id, note=note)
            return await store.release_task(by, task_id, note=note)


class Host:
    """This process as a worker: registered, and renewed in the background."""

    def __init__(self, store: Store, lease_seconds: float) -> None:
        self._store = store
        self._lease_seconds = lease_seconds

    async def __aenter__(self) -> Self:
        self.worker = await self._store.register_worker(lease_seconds=self._lease_seconds)
        self._renewing = asyncio.create_task(self._renew())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._renewing.cancel()
        # Not awaited itself: a cancellation of ours must not be taken for its own.
        await asyncio.wait({self._renewing})
        with suppress(BullpenError):
            await self._store.stop_worker(self.worker.id)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._lease_seconds / 3)
            try:
                await self._store.renew_worker(self.worker.id)
            except LeaseLost:
                # Its members learn it from their next verb.
                return
            except StoreUnavailable:
                # The next renewal may get through; if none does in time, the store fences us.
                continue


class Session:
    """One member, played by your own code.

    Mail that `take_mail` returned is acknowledged by the next verb of the session:
    if the process dies before that, it is offered again under the same ids.
    """

    def __init__(self, store: Store, member: Member) -> None:
        self._store = store
        self._member = member
        self._offered: list[int] = []
        self._has_left = False

    @property
    def name(self) -> str:
        return self._member.name

    @property
    def ref(self) -> MemberRef:
        return self._member.ref

    # -- waiting -----------------------------------------------------------------------------

    async def wait_for_work(self, *, timeout_seconds: float | None = 60.0) -> bool:
        """True when there is mail or a claimable task; False when it is time to go.

        False: it was asked to shut down, or nothing came for `timeout_seconds` and a last
        look found nothing, which has ended the membership. The clock runs only while the
        board holds no task that could become this member's. None: wait for ever.
        """
        await self._acknowledge()
        work = await self._store.find_work(self.ref)
        if work is not None:
            return work != "shutdown"
        async with self._store.listen_member(self.ref) as bell:
            # Idle before the next look: from here on a new task may choose this member to be woken.
            await self._store.set_member_status(self.ref, MemberStatus.IDLE)
            while work is None and not self._has_left:
                work = await self._wait(bell, timeout_seconds)
        if work is None or work == "shutdown":
            return False
        await self._store.set_member_status(self.ref, MemberStatus.WORKING)
        return True

    async def _wait(self, bell: Bell, timeout_seconds: float | None) -> str | None:
        """One look and one sleep; None if it must look again."""
        bell.clear()
        work = await self._store.find_work(self.ref)
        if work is not None or await bell.wait(timeout_seconds):
            return work
        found = await self._store.leave_if_nothing(self.ref)
        self._has_left = found is None
        # A task that could become ours later is no work yet: the clock begins again.
        return None if found == "task" else found

    # -- mail ----------------------------------------------------------------------------------

    async def take_mail(self) -> list[Message]:
        await self._acknowledge()
        messages = await self._store.list_mail(self._member.team_id, self.name, undelivered_only=True)
        self._offered = [message.id for message in messages]
        return messages

    async def send(
        self, to: str, content: str, *, reply_to: int | None = None, operation_id: str | None = None
    ) -> Receipt:
        await self._acknowledge()
        [receipt] = await self._store.send(self.ref, to, content, reply_to=reply_to, operation_id=operation_id)
        return receipt

    async def broadcast(self, content: str, *, operation_id: str | None = None) -> list[Receipt]:
        await self._acknowledge()
        return await self._store.send(self.ref, None, content, type=MessageType.BROADCAST, operation_id=operation_id)

    async def answer_request(self, request_id: int, *, approve: bool, reason: str = "") -> Request:
        await self._acknowledge()
        return await self._store.answer_request(self.ref, request_id, approve=approve, reason=reason)

    async def submit_plan(self, plan: str) -> Request:
        await self._acknowledge()
        return await self._store.open_request(self.ref, RequestKind.PLAN, "lead", content=plan)

    # -- tasks -----------------------------------------------------------------------------------

    async def create_task(self, subject: str, **details: Any) -> Task:
        await self._acknowledge()
        return await self._store.create_task(self.ref, subject, **details)

    async def claim_next_task(self, *, operation_id: str | None = None) -> Task | None:
        """None if there is nothing for this member, or it is asked to shut down."""
        await self._acknowledge()
        try:
            return await self._store.claim_next_task(self.ref, operation_id=operation_id)
        except ShuttingDown:
            return None

    async def claim_task(self, task_id: int, *, operation_id: str | None = None) -> Task:
        await self._acknowledge()
        return await self._store.claim_task(self.ref, task_id, operation_id=operation_id)

    async def update_task(self, task_id: int, **changes: Any) -> Task:
        await self._acknowledge()
        return await self._store.update_task(self.ref, task_id, TaskChanges(**changes))

    async def complete_task(
        self, task_id: int, *, result: str = "", evidence: Evidence | None = None, operation_id: str | None = None
    ) -> Task:
        """A task with a check needs the evidence of it: what your code ran, and how it ended."""
        await self._acknowledge()
        if evidence is None:
            return await self._store.complete_task(self.ref, task_id, result=result, operation_id=operation_id)
        run = await self._store.start_check(self.ref, task_id)
        if run is None:
            raise UsageError(f"#{task_id} has no check that evidence could be of")
        return await self._store.finish_check(self.ref, run, evidence, result=result, operation_id=operation_id)

    async def fail_task(self, task_id: int, *, reason: str = "", operation_id: str | None = None) -> Task:
        await self._acknowledge()
        return await self._store.fail_task(self.ref, task_id, reason=reason, operation_id=operation_id)

    async def release_task(self, task_id: int, *, note: str = "", operation_id: str | None = None) -> Task:
        await self._acknowledge()
        return await self._store.release_task(self.ref, task_id, note=note, operation_id=operation_id)

    async def get_task(self, task_id: int) -> Task:
        return await self._store.get_task(self._member.team_id, task_id)

    async def list_tasks(self, *, status: TaskStatus | None = None, owner: str | None = None) -> list[Task]:
        return await self._store.list_tasks(self._member.team_id, status=status, owner=owner)

    # -- the end -----------------------------------------------------------------------------------

    async def leave(self, *, is_clean: bool = True) -> None:
        """Shut down: its task goes back to the board. Unacknowledged mail stays, unless the block ended well."""
        if self._has_left:
            return
        self._has_left = True
        with suppress(LeaseLost):
            if is_clean:
                await self._acknowledge()
            await self._store.shut_down_member(self.ref, reason="finished" if is_clean else "crashed")

    async def _acknowledge(self) -> None:
        offered, self._offered = self._offered, []
        if offered:
            await self._store.acknowledge_mail(self.ref, offered)


__all__ = ["UNSET", "Report", "Seat", "Session", "Team", "open_team", "set_task_status"]
