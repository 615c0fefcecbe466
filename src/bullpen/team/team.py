"""A team, as the human or a program of theirs acts on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self

from bullpen.clock import Clock
from bullpen.domain.budget import Account
from bullpen.domain.event import Event
from bullpen.domain.member import (
    BEGAN_IN,
    USER,
    Autonomy,
    Member,
    MemberKind,
    MemberRef,
    MemberStatus,
    Spawned,
)
from bullpen.domain.member import Team as TeamRecord
from bullpen.domain.message import Message, MessageType, Receipt
from bullpen.domain.request import PermissionScope, Request, RequestKind, RequestStatus
from bullpen.domain.task import FINISHED, Task, TaskChanges, TaskStatus, parse_task_status
from bullpen.domain.transcript import Turn
from bullpen.domain.trunk import TRUNK, Trunk
from bullpen.errors import Conflict, LeaseLost, NotFound, StoreUnavailable, TeamDeleted
from bullpen.maintenance import LapseWatch, Maintenance
from bullpen.store import BEGINNING, Store
from bullpen.stores import open_store
from bullpen.team.beginning import STOPPED, wake_lead
from bullpen.team.deed import deed_of
from bullpen.team.departures import Departures
from bullpen.team.report import Report, Seat
from bullpen.team.session import Session
from bullpen.tools.handover import list_blockers
from bullpen.tools.patience import seen_through
from bullpen.worker.host import LEASE_SECONDS, Host

if TYPE_CHECKING:
    from bullpen.config import Settings
    from bullpen.team.progress import Progress
    from bullpen.team.run import Hosting, Listener, OpenModel, Runner

DEFAULT_STORE = "sqlite:///.bullpen/bullpen.db"
DEFAULT_TEAM = "default"


@asynccontextmanager
async def open_team(
    name: str = DEFAULT_TEAM,
    *,
    store: str | Store = DEFAULT_STORE,
    goal: str = "",
    model: str | None = None,
    settings: Settings | None = None,
    workspace: str | Path | None = None,
    create: bool = True,
    lease_seconds: float = LEASE_SECONDS,
    clock: Clock | None = None,
    open_model: OpenModel | None = None,
    on_text: Listener | None = None,
    is_interactive: bool = False,
    runner: Runner | None = None,
) -> AsyncIterator[Team]:
    """The live team of that name, created if there is none (`create=False`: NotFound).

    With a `model` this process hosts the team's lead and teammates while it waits for
    them (`run`, `wait_until_done`), with commands in `workspace`: a directory, or
    `git+URL[#REF]`, of which each member gets a clone. That directory and `settings` are
    stored with a new team, for workers that host it. `open_model` makes models from their
    names, `on_text` hears what they say, and `is_interactive` says that somebody is there
    to be asked for permission. With a `runner` workers elsewhere host it instead.
    """
    async with AsyncExitStack() as stack:
        opened = store
        if isinstance(opened, str):
            opened = await stack.enter_async_context(open_store(opened, clock=clock))
        is_elsewhere = str(workspace).startswith("git+")
        stored = _what_is_stored(settings, model, None if is_elsewhere else workspace)
        record = await _find_or_create(opened, name, goal, stored, create)
        team = Team(opened, record, lease_seconds=lease_seconds)
        if is_elsewhere and Trunk.of(record.settings) is None:
            await team.work_apart(str(workspace))
        if model is not None or open_model is not None or runner is not None:
            from bullpen.team.run import Hosting

            team.hosting = Hosting(
                model=model,
                open_model=open_model,
                workspace=Path.cwd() if workspace is None or is_elsewhere else Path(workspace).absolute(),
                lease_seconds=lease_seconds,
                on_text=on_text,
                is_interactive=is_interactive,
                runner=runner,
            )
        yield await stack.enter_async_context(team)


def _what_is_stored(settings: Settings | None, model: str | None, workspace: str | Path | None) -> dict[str, Any]:
    """What a new team carries, so that it is the same wherever it is hosted."""
    stored = {} if settings is None else settings.to_mapping()
    if model is not None:
        stored["model"] = model
    if workspace is not None:
        stored[BEGAN_IN] = str(Path(workspace).absolute())
    return stored


async def _find_or_create(store: Store, name: str, goal: str, settings: Mapping[str, Any], create: bool) -> TeamRecord:
    record = await store.find_team(name)
    if record is not None:
        return record
    if not create:
        raise NotFound(f"there is no team {name!r}; `bullpen team list` shows which there are")
    try:
        return await store.create_team(name, goal=goal, settings=settings)
    except Conflict:
        # Somebody else created it a moment ago.
        record = await store.find_team(name)
        if record is None:
            raise
        return record


class Team:
    def __init__(self, store: Store, record: TeamRecord, *, lease_seconds: float = LEASE_SECONDS) -> None:
        self.store = store
        self.record = record
        self._lease_seconds = lease_seconds
        self._me = MemberRef(record.id, USER, 0)
        self._background = AsyncExitStack()
        self._departures = Departures()
        self._host: Host | None = None
        self._is_maintained = False
        self._entering = asyncio.Lock()
        self.hosting: Hosting | None = None

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
        files: Sequence[str] = (),
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
            files=files,
            operation_id=self._deed(operation_id),
        )

    async def get_task(self, task_id: int) -> Task:
        return await self.store.get_task(self.id, task_id)

    async def list_blockers(self, task: Task) -> list[Task]:
        """What it waits for or waited for, with what that left behind."""
        return await list_blockers(self.store, task)

    async def list_tasks(
        self,
        *,
        status: TaskStatus | str | None = None,
        owner: str | None = None,
        after_id: int = 0,
        limit: int | None = None,
    ) -> list[Task]:
        wanted = None if status is None else parse_task_status(status)
        return await self.store.list_tasks(self.id, status=wanted, owner=owner, after_id=after_id, limit=limit)

    async def update_task(self, task_id: int, *, operation_id: str | None = None, **changes: Any) -> Task:
        """Fields of `TaskChanges`: subject, description, owner, role, check, add_blocked_by, …"""
        return await self.store.update_task(
            self._me, task_id, TaskChanges(**changes), operation_id=self._deed(operation_id)
        )

    async def set_task_status(self, task_id: int, status: TaskStatus | str, *, note: str = "") -> Task:
        """The verb that leads to this status, whichever it is."""
        return await set_task_status(self.store, self._me, task_id, parse_task_status(status), note=note)

    async def claim_task(self, task_id: int | None = None, *, operation_id: str | None = None) -> Task | None:
        """For the human: `user` becomes its owner. Without a number, the next claimable one."""
        if task_id is None:
            return await self.store.claim_next_task(self._me, operation_id=self._deed(operation_id))
        return await self.store.claim_task(self._me, task_id, operation_id=self._deed(operation_id))

    async def complete_task(
        self, task_id: int, *, result: str = "", unverified: bool = False, operation_id: str | None = None
    ) -> Task:
        return await self.store.complete_task(
            self._me, task_id, result=result, unverified=unverified, operation_id=self._deed(operation_id)
        )

    async def fail_task(self, task_id: int, *, reason: str = "", operation_id: str | None = None) -> Task:
        return await self.store.fail_task(self._me, task_id, reason=reason, operation_id=self._deed(operation_id))

    async def release_task(self, task_id: int, *, note: str = "", operation_id: str | None = None) -> Task:
        return await self.store.release_task(self._me, task_id, note=note, operation_id=self._deed(operation_id))

    async def retry_task(self, task_id: int, *, note: str = "", operation_id: str | None = None) -> Task:
        return await self.store.retry_task(self._me, task_id, note=note, operation_id=self._deed(operation_id))

    async def delete_task(self, task_id: int, *, operation_id: str | None = None) -> Task:
        return await self.store.delete_task(self._me, task_id, operation_id=self._deed(operation_id))

    # -- members -------------------------------------------------------------------------

    async def spawn(
        self,
        name: str,
        *,
        role: str | None = None,
        prompt: str = "",
        model: str | None = None,
        autonomy: Autonomy = Autonomy.AUTO,
        labels: Sequence[str] = (),
        require_plan: bool = False,
        task_id: int | None = None,
        operation_id: str | None = None,
    ) -> Spawned:
        """Only a worker that has all the labels hosts it."""
        return await self.store.spawn_member(
            self._me,
            name,
            role=role,
            prompt=prompt,
            model=model,
            autonomy=autonomy,
            labels=labels,
            plan_required=require_plan,
            task_id=task_id,
            operation_id=self._deed(operation_id),
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

    async def list_turns(self, name: str, *, after_seq: int = 0) -> list[Turn]:
        """A member's transcript."""
        return await self.store.list_turns(self.id, name, after_seq=after_seq)

    async def shut_down(
        self, name: str, *, reason: str = "", timeout_seconds: float = 30.0, operation_id: str | None = None
    ) -> Request:
        """Ask a member to stop; after the deadline it is forced."""
        # One who died without a word answers nothing: declared dead, it is shut down at once.
        await LapseWatch(self.store).look()
        return await self.store.open_request(
            self._me,
            RequestKind.SHUTDOWN,
            name,
            content=reason,
            timeout_seconds=timeout_seconds,
            operation_id=self._deed(operation_id),
        )

    async def interrupt(self, name: str, text: str = "", *, operation_id: str | None = None) -> Member:
        """Cut off what it does just now; a text reaches it at once."""
        return await self.store.interrupt_member(self._me, name, text, operation_id=self._deed(operation_id))

    async def compact(self, name: str, focus: str = "", *, operation_id: str | None = None) -> Member:
        """Its memory is compressed before its next request; what concerns `focus` is kept above all."""
        return await self.store.want_compaction(self._me, name, focus, operation_id=self._deed(operation_id))

    @asynccontextmanager
    async def join(self, name: str, *, role: str | None = None) -> AsyncIterator[Session]:
        """Be a member: claim, send and take mail under this name until the block is left."""
        session = await self._enter(name, role)
        try:
            yield session
        except BaseException:
            with suppress(StoreUnavailable):
                await self._departures.leave(session, is_clean=False)
            raise
        await self._departures.leave(session, is_clean=True)

    async def _enter(self, name: str, role: str | None) -> Session:
        try:
            return await self._join(name, role)
        except LeaseLost:
            # This process was taken for dead since its last member: it enters again as another worker.
            self._host = None
            return await self._join(name, role)

    async def _join(self, name: str, role: str | None) -> Session:
        host = await self._get_host()
        await self._departures.catch_up(name)
        joining = self.store.join_member(host.worker.id, self.id, name, role=role)
        # A verb that has begun happens: who is entered by it, and whom nobody plays, must not keep the name.
        return Session(self.store, await seen_through(joining, self._turn_back))

    async def _turn_back(self, member: Member) -> None:
        await self._departures.leave(Session(self.store, member), is_clean=False)

    async def _get_host(self) -> Host:
        """This process as a worker, entered with its first member."""
        async with self._entering:
            if not self._is_maintained:
                # First of all: whoever died here before gives its name and its task free.
                await self._background.enter_async_context(Maintenance(self.store))
                await self._background.enter_async_context(self._departures)
                self._is_maintained = True
            if self._host is None:
                self._host = await self._background.enter_async_context(Host(self.store, self._lease_seconds))
            return self._host

    # -- mail and requests -----------------------------------------------------------------

    async def send(
        self, to: str, content: str, *, reply_to: int | None = None, operation_id: str | None = None
    ) -> Receipt:
        [receipt] = await self.store.send(
            self._me, to, content, reply_to=reply_to, operation_id=self._deed(operation_id)
        )
        return receipt

    async def broadcast(self, content: str, *, operation_id: str | None = None) -> list[Receipt]:
        return await self.store.send(
            self._me, None, content, type=MessageType.BROADCAST, operation_id=self._deed(operation_id)
        )

    async def talk(self, content: str) -> None:
        """The human's word to the lead, who is brought back for it if it was shut down."""
        await wake_lead(self.store, self.id, content)

    async def acknowledge_mail(self, message_ids: Sequence[int]) -> None:
        """The human has read these."""
        await self.store.acknowledge_mail(self._me, message_ids)

    async def list_mail(self, name: str = USER, *, undelivered_only: bool = False, limit: int = 100) -> list[Message]:
        return await self.store.list_mail(self.id, name, undelivered_only=undelivered_only, limit=limit)

    async def list_requests(self, *, status: RequestStatus | None = RequestStatus.OPEN) -> list[Request]:
        return await self.store.list_requests(self.id, status=status)

    async def approve(
        self,
        request_id: int,
        *,
        reason: str = "",
        scope: PermissionScope | None = None,
        operation_id: str | None = None,
    ) -> Request:
        return await self.store.answer_request(
            self._me, request_id, approve=True, reason=reason, scope=scope, operation_id=self._deed(operation_id)
        )

    async def reject(self, request_id: int, *, reason: str = "", operation_id: str | None = None) -> Request:
        return await self.store.answer_request(
            self._me, request_id, approve=False, reason=reason, operation_id=self._deed(operation_id)
        )

    # -- the whole -------------------------------------------------------------------------

    async def list_events(self, *, after: str = BEGINNING, limit: int = 1000) -> list[Event]:
        return await self.store.list_events(self.id, after=after, limit=limit)

    def follow_events(self, *, after: str = BEGINNING) -> AsyncIterator[Event]:
        return self.store.follow_events(self.id, after=after)

    async def get_progress(self) -> Progress:
        """What is going on, and what it took so far: the log so far, folded."""
        from bullpen.team.progress import Progress

        progress = Progress()
        while events := await self.list_events(after=progress.position):
            for event in events:
                progress.follow(event)
        return progress

    async def run(self, goal: str = "", *, max_minutes: float | None = None, check: str | None = None) -> Report:
        """Give the lead a goal (or go on with what there is) and host the team until it is reached, or it cannot go on.

        `check` is a command that decides whether it is reached. Leaving, by return or by
        cancellation, lets the team rest: the next `run` goes on.
        """
        await wake_lead(self.store, self.id, goal)
        return await self._hosting().run(self, max_minutes=max_minutes, check=check)

    async def stand_by(self) -> NoReturn:
        """Host the team as long as nobody else does, and look on while somebody does. Ends only when cancelled, and
        lets it rest then."""
        from bullpen.team.standby import stand_by

        await stand_by(self, self._hosting())

    async def wake_up(self) -> None:
        """Bring the lead back, and who was stopped with it; nothing happens to who is up."""
        await wake_lead(self.store, self.id, "")

    async def wait_until_done(self, *, timeout_seconds: float | None = None) -> Report:
        """Until every task is completed, failed or deleted; TimeoutError. A team that this process hosts may also
        stall: then the report says so. TeamDeleted once nobody can finish what is left."""
        # Before the clock begins: who gives it no time asks whether they are.
        if self.hosting is None and (report := await self._find_report()) is not None:
            return report
        async with asyncio.timeout(timeout_seconds):
            if self.hosting is not None:
                return await self.hosting.run(self)
            async with self.store.listen_events(self.id) as bell:
                while True:
                    bell.clear()
                    report = await self._find_report()
                    if report is not None:
                        return report
                    await bell.wait()

    async def _find_report(self) -> Report | None:
        """None while a task is unfinished."""
        tasks = await self.list_tasks()
        if all(task.status in FINISHED for task in tasks):
            return Report(team=self.name, tasks=tuple(tasks))
        if (await self.store.get_team(self.id)).deleted_at is not None:
            raise TeamDeleted(f"team {self.name!r} has been deleted before all of its tasks were finished")
        return None

    def _hosting(self) -> Hosting:
        if self.hosting is None:
            from bullpen.team.run import Hosting

            self.hosting = Hosting(lease_seconds=self._lease_seconds)
        return self.hosting

    async def pause(self) -> TeamRecord:
        """Nobody asks a model until `unpause`; what runs is finished."""
        return await self.store.change_team(self._me, settings={"paused": True})

    async def unpause(self) -> TeamRecord:
        return await self.store.change_team(self._me, settings={"paused": False})

    async def set_budget(self, **limits: float | None) -> TeamRecord:
        """Raise or lower it in place: `max_cost_usd`, `max_tokens`, `max_calls`; None: no limit. UsageError for what
        the settings do not allow either: whoever goes on with the team reads it with them."""
        from bullpen.config import Settings

        budget = {**self.record.settings.get("budget", {}), **limits}
        Settings.from_mapping({"budget": budget})
        self.record = await self.store.change_team(self._me, settings={"budget": budget})
        return self.record

    async def remember(self, **facts: Any) -> TeamRecord:
        """Beside its settings, for the next run; see `beginning`."""
        self.record = await self.store.change_team(self._me, settings=facts)
        return self.record

    async def work_apart(self, place: Path | str, *, include_unsaved: bool = False) -> Trunk | None:
        """From here on each member works in a git worktree of its own, and what they make comes together on a branch.
        None, and all work in the one directory, if there is no repository that allows it. `git+URL[#REF]`: in a clone
        of its own, on whichever machine; UsageError if that cannot be."""
        from bullpen.team.beginning import begin_trunk_in

        trunk = await begin_trunk_in(self.store, place, self.name, include_unsaved=include_unsaved)
        if trunk is not None:
            await self.remember(**{TRUNK: trunk.to_mapping()})
        return trunk

    async def stop(self, *, timeout_seconds: float = 30.0) -> list[Request]:
        """Ask everyone to shut down, the lead too; after the deadline they are forced. Nothing is lost: `run` goes
        on with them."""
        up = [
            member.name
            for member in await self.list_members()
            if (member.is_up or member.status is MemberStatus.WANTED)
            and member.kind in (MemberKind.LEAD, MemberKind.TEAMMATE)
        ]
        if up:
            await self.store.change_team(self._me, settings={STOPPED: up})
        return [
            await self.shut_down(name, reason="the human stops the team", timeout_seconds=timeout_seconds)
            for name in up
        ]

    async def list_accounts(self) -> list[Account]:
        """What was spent: the team's account first, then each member's."""
        return await self.store.list_accounts(self.id)

    async def delete(self, *, deadline_seconds: float = 30.0, operation_id: str | None = None) -> TeamRecord:
        return await self.store.delete_team(
            self._me, deadline_seconds=deadline_seconds, operation_id=self._deed(operation_id)
        )

    def _deed(self, operation_id: str | None) -> str | None:
        return deed_of(self.id, operation_id)


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
