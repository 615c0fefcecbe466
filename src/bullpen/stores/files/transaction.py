"""`Transaction` over files: one verb, all of whose changes stay in the view until its group is committed.

One transaction runs at a time, with the store's lock held, so the locks that a verb
asks for are there already.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby, islice
from typing import Any, cast

from bullpen.domain.background import Background
from bullpen.domain.budget import TEAM_ACCOUNT, Account, ProviderGate, Reservation
from bullpen.domain.codec import encode
from bullpen.domain.event import Event, EventKind
from bullpen.domain.member import SYSTEM, Autonomy, Member, MemberKind, MemberRef, MemberStatus, Team, Worker
from bullpen.domain.message import Message, MessageType
from bullpen.domain.record import replace
from bullpen.domain.request import Request, RequestKind, RequestStatus
from bullpen.domain.submission import Submission, SubmissionState
from bullpen.domain.task import Task, TaskStatus
from bullpen.domain.text import name_key
from bullpen.domain.transcript import ToolCall, TranscriptEnd, Turn
from bullpen.errors import SchemaTooNew
from bullpen.stores.files import log, purse
from bullpen.stores.files.backgrounds import Backgrounds
from bullpen.stores.files.board import Board
from bullpen.stores.files.catalogue import Catalogue
from bullpen.stores.files.form import file_bytes, record, whole
from bullpen.stores.files.inbox import Inbox
from bullpen.stores.files.layout import (
    REQUEST_FILE,
    STORE,
    SUBMISSION_FILE,
    Home,
    deleted_home,
    live_home,
    worker_file,
)
from bullpen.stores.files.memory import Hints, Memory
from bullpen.stores.files.purse import Purse
from bullpen.stores.files.roster import LISTED, member_bytes
from bullpen.stores.files.team_file import FIRST_FOREIGN_ID, SCHEMA, TeamFile, team_bytes
from bullpen.stores.files.view import View
from bullpen.stores.files.workers import Workers, lost_worker
from bullpen.stores.transaction import EventRing, Lock, R, Ring

_CLAIMERS = (MemberKind.TEAMMATE, MemberKind.EXTERNAL)


class BoardIsDue(Exception):
    """Somebody else changed this board: it has to be reconciled before a verb relies on its markers."""

    def __init__(self, team_id: int) -> None:
        super().__init__(team_id)
        self.team_id = team_id


@dataclass(slots=True)
class Session:
    """What stays from one transaction of a thread to the next."""

    view: View
    catalogue: Catalogue
    hints: Hints = field(default_factory=dict)
    due_boards: Callable[[TeamFile], bool] | None = None
    """Asked before a board is used: does it have to be reconciled? A reader changes nothing and does not ask."""


class FilesTransaction:
    def __init__(self, session: Session, now: datetime) -> None:
        self.now = now
        self.view = session.view
        self._session = session
        self._catalogue = session.catalogue
        self._catalogue.look_again()
        self._workers = Workers(session.view)
        self._inboxes: dict[tuple[int, str], Inbox] = {}
        self._events: dict[int, list[bytes]] = {}
        self._rings: dict[Ring, None] = {}
        self._moved: set[str] = set()

    # -- teams' files ------------------------------------------------------------------

    def file(self, team_id: int) -> TeamFile | None:
        return self._catalogue.by_id(team_id)

    def _file(self, team_id: int) -> TeamFile:
        found = self.file(team_id)
        assert found is not None, f"team {team_id}"
        return found

    def save(self, file: TeamFile) -> TeamFile:
        """From here on the team has a record of ours, wherever it came from."""
        self.view.write(file.home.config, team_bytes(file))
        return replace(file, is_ours=True)

    def board(self, file: TeamFile) -> Board:
        return Board(self.view, file.home, file.team.id, self.now)

    def _board(self, team_id: int) -> Board | None:
        """The board, after whatever others did to it was taken up."""
        file = self.file(team_id)
        if file is None:
            return None
        is_due = self._session.due_boards
        if is_due is not None and file.home.directory not in self._moved and is_due(file):
            raise BoardIsDue(team_id)
        return self.board(file)

    def _inbox(self, file: TeamFile, key: str) -> Inbox | None:
        member = file.members.get(key)
        if member is None:
            return None
        place = (file.team.id, key)
        if place not in self._inboxes:
            self._inboxes[place] = Inbox(
                self.view, file.home, file.team.id, member.name, self.now, file.next_message_id
            )
        return self._inboxes[place]

    def _memory(self, team_id: int, key: str) -> Memory | None:
        file = self.file(team_id)
        member = None if file is None else file.members.get(key)
        if file is None or member is None:
            return None
        return Memory(self.view, file.home, team_id, member.name, self._session.hints)

    def flush(self) -> list[Ring]:
        """At the end of the verb: its events."""
        for team_id, events in self._events.items():
            file = self._file(team_id)
            if not file.is_ours:
                self.save(file)
            self.view.append(file.home.events, b"".join(events))
        return list(self._rings)

    def foresee(self, *calls: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        return None

    def foresee_claim(self, ref: MemberRef) -> None:
        return None

    # -- any record --------------------------------------------------------------------

    async def find(self, kind: type[R], *key: Any, lock: Lock = Lock.NONE) -> R | None:
        return cast("R | None", getattr(self, f"_find_{kind.__name__.lower()}")(*key))

    async def insert(self, record: R) -> R:
        return cast(R, getattr(self, f"_insert_{type(record).__name__.lower()}")(record))

    async def update(self, record: R) -> None:
        getattr(self, f"_update_{type(record).__name__.lower()}")(record)

    # -- teams -------------------------------------------------------------------------

    def _find_team(self, team_id: int) -> Team | None:
        file = self.file(team_id)
        return None if file is None else file.team

    def _insert_team(self, team: Team) -> Team:
        self._clear_place(team.key)
        team = replace(team, id=self._take_number("next_team_id", self._team_ids))
        self.save(TeamFile(home=live_home(team.name), team=team, listed={}, members={}))
        return team

    def _update_team(self, team: Team) -> None:
        file = self._file(team.id)
        home = file.home
        if team.name != file.team.name and home == live_home(file.team.name):
            if team.key != file.team.key:
                self._clear_place(team.key)
            home = live_home(team.name)
            self._move(file.home, home)
        self.save(replace(file, home=home, team=team))

    def _clear_place(self, key: str) -> None:
        """A deleted team of that name goes where it can still be read by its id."""
        older = self._catalogue.at_name(key)
        if older is not None:
            # Whatever others did to its board is taken up here: where it goes, nothing is on disk yet.
            self._board(older.team.id)
            place = deleted_home(older.team.name, older.team.id)
            self._move(older.home, place)
            self._moved.add(place.directory)

    def _move(self, old: Home, new: Home) -> None:
        if old == new:
            return
        self.view.move(old.directory, new.directory)
        for source, target in ((old.tasks, new.tasks), (old.foreign, new.foreign)):
            # What lies inside the team's directory has moved with it.
            if not source.startswith(f"{old.directory}/") and self.view.is_directory(source):
                self.view.move(source, target)

    async def fence(self, ref: MemberRef, lock: Lock) -> tuple[Team, Member] | None:
        file = self.file(ref.team_id)
        member = None if file is None else file.members.get(name_key(ref.name))
        return None if file is None or member is None else (file.team, member)

    async def find_live_team(self, key: str) -> Team | None:
        file = self._catalogue.at_name(key)
        return None if file is None or file.team.deleted_at is not None else file.team

    async def list_teams(self, include_deleted: bool) -> list[Team]:
        return [file.team for file in self._catalogue.every(include_deleted=include_deleted)]

    async def count_generations(self, key: str) -> int:
        return self._catalogue.count(key)

    def _take_number(self, name: str, taken: Callable[[], Iterable[int]]) -> int:
        counters = self.view.object(STORE) or {"schema": SCHEMA}
        with whole(STORE):
            if counters.get("schema", SCHEMA) > SCHEMA:
                raise SchemaTooNew
        number = max(taken(), default=0) + 1
        counted = counters.get(name)
        # It is none in a copy without the files whose names begin with a dot, or where a merge has left a conflict; and
        # too low where git has brought it back as it was, and knows nothing of what came since.
        if isinstance(counted, int):
            number = max(number, counted)
        self.view.write(STORE, file_bytes({**counters, name: number + 1}))
        return number

    def _team_ids(self) -> Iterator[int]:
        """Those that we gave."""
        ids = (file.team.id for file in self._catalogue.every(include_deleted=True))
        return (number for number in ids if number < FIRST_FOREIGN_ID)

    def _worker_ids(self) -> Iterator[int]:
        """Also of those who are gone, but somebody's host as far as that one knows."""
        yield from self._workers.numbers()
        for file in self._catalogue.every(include_deleted=True):
            yield from (member.worker_id for member in file.members.values() if member.worker_id is not None)

    # -- workers -----------------------------------------------------------------------

    def _find_worker(self, worker_id: int) -> Worker | None:
        worker = self._workers.find(worker_id)
        if worker is not None and worker.stopped_at is None:
            return worker
        return next((lost_worker(worker_id, one.status_at) for one in self._naming(worker_id)), worker)

    def _naming(self, worker_id: int) -> list[Member]:
        """Who says that it is hosted by it. Where there is a record, that one knows."""
        files = self._catalogue.every(include_deleted=True)
        return [member for file in files for member in file.members.values() if member.worker_id == worker_id]

    def _insert_worker(self, worker: Worker) -> Worker:
        worker = replace(worker, id=self._take_number("next_worker_id", self._worker_ids))
        self._workers.save(worker)
        return worker

    def _update_worker(self, worker: Worker) -> None:
        if worker.is_lost:
            # Who its members are is not in the record that there may be.
            self.view.remove(worker_file(worker.id, stopped=True))
            self._workers.save(worker, [(member.team_id, member.key) for member in self._naming(worker.id)])
        else:
            self._workers.save(worker)

    async def list_workers(self, include_stopped: bool) -> list[Worker]:
        listed = self._workers.listed(include_stopped=include_stopped)
        lost = self._lost_workers({worker.id for worker in listed if worker.stopped_at is None})
        return sorted([*(worker for worker in listed if worker.id not in lost), *lost.values()], key=lambda one: one.id)

    def _lost_workers(self, living: set[int]) -> dict[int, Worker]:
        return {
            member.worker_id: lost_worker(member.worker_id, member.status_at)
            for file in self._live_files(None)
            for member in file.members.values()
            if member.worker_id is not None and member.worker_id not in living
        }

    # -- members -----------------------------------------------------------------------

    def _find_member(self, team_id: int, key: str) -> Member | None:
        file = self.file(team_id)
        return None if file is None else file.members.get(key)

    def _insert_member(self, member: Member) -> Member:
        self._save_member(self._file(member.team_id), member)
        self._note_host(member, None)
        return member

    def _update_member(self, member: Member) -> None:
        file = self._file(member.team_id)
        old = file.members[member.key]
        # Its files are named after it, whatever a caller calls it.
        self._save_member(file, replace(member, name=old.name))
        self._note_host(member, old.worker_id)

    def _save_member(self, file: TeamFile, member: Member) -> None:
        own = file.home.member(member.name)
        # A team grows smaller, too: whom only files of others name is no member when they are gone, or the team is.
        if len(file.members.keys() | {member.key}) <= LISTED and not self.view.exists(own):
            self.save(replace(file, listed={**file.listed, member.key: member}))
            return
        if not file.is_ours:
            self.save(file)
        self.view.write(own, member_bytes(member))

    def _note_host(self, member: Member, old: int | None) -> None:
        if member.worker_id == old:
            return
        place = (member.team_id, member.key)
        if old is not None:
            self._workers.set_hosts(old, place, is_hosted=False)
        if member.worker_id is not None:
            self._workers.set_hosts(member.worker_id, place, is_hosted=True)

    async def list_members(self, team_id: int, lock: Lock = Lock.NONE) -> list[Member]:
        file = self.file(team_id)
        # Those of one moment in the order in which they were entered.
        return [] if file is None else sorted(file.members.values(), key=lambda member: member.created_at)

    async def list_members_of(self, worker_id: int, lock: Lock) -> list[Member]:
        return self._members_of(worker_id)

    def _members_of(self, worker_id: int) -> list[Member]:
        found: list[Member] = []
        for team_id, places in groupby(self._workers.hosts(worker_id), key=lambda place: place[0]):
            file = self.file(team_id)
            members = [file.members.get(key) for _, key in places] if file is not None else []
            found.extend(member for member in members if member is not None and member.worker_id == worker_id)
        return found

    async def find_members(self, team_id: int, keys: Sequence[str], lock: Lock) -> list[Member]:
        found = (self._find_member(team_id, key) for key in sorted(set(keys)))
        return [member for member in found if member is not None]

    async def list_wanted(
        self,
        team_id: int | None,
        *,
        except_teams: Sequence[int],
        leads_only: bool,
        labels: Sequence[str],
        limit: int,
    ) -> list[Member]:
        wanted = [
            member
            for member in self._wanted(team_id)
            if member.team_id not in except_teams
            and (member.kind is MemberKind.LEAD or not leads_only)
            and set(member.labels) <= set(labels)
        ]
        return sorted(wanted, key=lambda member: (member.status_at, member.team_id, member.key))[:limit]

    async def has_wanted(self) -> bool:
        return bool(self._wanted(None))

    def _wanted(self, team_id: int | None) -> list[Member]:
        members = (member for file in self._live_files(team_id) for member in file.members.values())
        return [member for member in members if member.status is MemberStatus.WANTED]

    def _live_files(self, team_id: int | None) -> Iterable[TeamFile]:
        """Of that team, or of all."""
        if team_id is None:
            return self._catalogue.every(include_deleted=False)
        file = self.file(team_id)
        return [] if file is None or file.team.deleted_at is not None else [file]

    async def count_hosted(self, worker_id: int) -> int:
        return sum(member.kind is MemberKind.TEAMMATE for member in self._members_of(worker_id))

    async def count_teammates(self, team_id: int) -> int:
        members = await self.list_members(team_id)
        return sum(
            member.kind is MemberKind.TEAMMATE and member.status is not MemberStatus.SHUTDOWN for member in members
        )

    async def list_claimers(
        self,
        team_id: int,
        role_key: str,
        statuses: Sequence[MemberStatus],
        limit: int,
        lock: Lock = Lock.NONE,
    ) -> list[Member]:
        file = self.file(team_id)
        members = [] if file is None else file.members.values()
        fitting = [
            member
            for member in members
            if member.status in statuses
            and member.kind in _CLAIMERS
            and member.autonomy is Autonomy.AUTO
            and member.shutdown_request_id is None
            and role_key in ("", member.role_key)
            and (member.status is not MemberStatus.SHUTDOWN or member.can_be_revived)
        ]
        return list(islice(self._with_free_hands(fitting), limit))

    def _with_free_hands(self, members: list[Member]) -> Iterator[Member]:
        """Longest in their state first; of the idle, only who has no task in progress."""
        for member in sorted(members, key=lambda member: (member.status_at, member.key)):
            if member.status is not MemberStatus.IDLE or self._in_progress(member) is None:
                yield member

    def _in_progress(self, member: Member) -> Task | None:
        return self.board(self._file(member.team_id)).in_progress(member.key)

    async def list_due_members(self, worker_id: int) -> list[Member]:
        members = self._members_of(worker_id)
        due = {(member.team_id, member.key): member for member in members if self._is_due(member)}
        idle: dict[tuple[int, str], list[Member]] = {}
        for member in filter(_looks_for_work, members):
            idle.setdefault((member.team_id, member.role_key), []).append(member)
        for (team_id, role_key), waiting in idle.items():
            count = self._count_claimable(team_id, {"", role_key}, len(waiting))
            for member in islice(self._with_free_hands(waiting), count):
                due[member.team_id, member.key] = member
        return list(due.values())

    def _is_due(self, member: Member) -> bool:
        file = self._file(member.team_id)
        inbox = self._inbox(file, member.key)
        if inbox is not None and inbox.has_waking():
            return True
        if member.status is not MemberStatus.IDLE or not self.board(file).has_assigned(member.key):
            return False
        return self._in_progress(member) is None

    def _count_claimable(self, team_id: int, roles: set[str], limit: int) -> int:
        board = self.board(self._file(team_id))
        count = 0
        for role in roles:
            for _ in board.claimable(role):
                count += 1
                if count >= limit:
                    return count
        return count

    async def has_role(self, team_id: int, role_key: str) -> bool:
        file = self.file(team_id)
        members = [] if file is None else file.members.values()
        return any(member.kind in _CLAIMERS and member.role_key == role_key for member in members)

    # -- tasks -------------------------------------------------------------------------

    async def take_task_id(self, team_id: int) -> int:
        board = self._board(team_id)
        if board is None:
            return 0
        file = self._file(team_id)
        number = file.team.next_task_id
        while board.has_file(number):
            number += 1
        self.save(replace(file, team=replace(file.team, next_task_id=number + 1)))
        return number

    def _find_task(self, team_id: int, number: int) -> Task | None:
        board = self._board(team_id)
        return None if board is None else board.find(number)

    def _insert_task(self, task: Task) -> Task:
        self.board(self._file(task.team_id)).insert(task)
        return task

    def _update_task(self, task: Task) -> None:
        self.board(self._file(task.team_id)).update(task)

    async def list_tasks(
        self, team_id: int, status: TaskStatus | None, owner_key: str | None, after_id: int, limit: int | None
    ) -> list[Task]:
        board = self._board(team_id)
        found: list[Task] = []
        for number in [] if board is None else board.numbers():
            if number <= after_id:
                continue
            if limit is not None and len(found) >= limit:
                break
            task = board.find(number) if board is not None else None
            if task is not None and _is_wanted(task, status, owner_key):
                found.append(task)
        return found

    async def find_tasks(self, team_id: int, ids: Sequence[int], lock: Lock) -> list[Task]:
        found = (self._find_task(team_id, number) for number in sorted(set(ids)))
        return [task for task in found if task is not None]

    async def claim_next(self, member: Member) -> Task | None:
        board = self._board(member.team_id)
        return None if board is None else board.claim_next(member)

    async def list_claimable(self, member: Member, limit: int) -> list[Task]:
        board = self._board(member.team_id)
        return [] if board is None else list(islice(board.claimable_by(member), limit))

    async def claim(self, member: Member, number: int) -> Task | None:
        board = self._board(member.team_id)
        return None if board is None else board.claim(number, member)

    async def list_in_progress(self, team_id: int) -> list[Task]:
        board = self._board(team_id)
        return [] if board is None else sorted(board.every_in_progress(), key=lambda task: task.id)

    async def find_in_progress(self, team_id: int, owner_key: str) -> Task | None:
        board = self._board(team_id)
        return None if board is None else board.in_progress(owner_key)

    async def clear_reservation(self, team_id: int, owner_key: str) -> None:
        task = await self.find_in_progress(team_id, owner_key)
        if task is not None and task.reserved_until is not None:
            await self.update(replace(task, reserved_until=None))

    async def has_claimable(self, team_id: int, role_key: str) -> bool:
        board = self._board(team_id)
        return board is not None and next(board.claimable(role_key), None) is not None

    async def has_open_task_for(self, member: Member) -> bool:
        board = self._board(member.team_id)
        return board is not None and board.has_open_task_for(member)

    async def has_tasks(self, team_id: int) -> bool:
        board = self._board(team_id)
        return board is not None and bool(board.numbers())

    async def list_reserved_before(self, moment: datetime) -> list[Task]:
        return [
            task
            for file in self._catalogue.every(include_deleted=True)
            for task in sorted(self.board(file).every_in_progress(), key=lambda task: task.id)
            if task.reserved_until is not None and task.reserved_until < moment
        ]

    async def lock_graph(self, team_id: int) -> None:
        """One transaction at a time."""

    async def lock_claims(self, team_id: int) -> None:
        """One transaction at a time."""

    async def blockers_of(self, team_id: int, ids: Sequence[int]) -> Mapping[int, Sequence[int]]:
        return {task.id: task.blocked_by for task in await self.find_tasks(team_id, ids, Lock.NONE)}

    async def add_edge(self, team_id: int, task_id: int, blocker_id: int, *, is_open: bool) -> bool:
        return self.board(self._file(team_id)).add_edge(task_id, blocker_id, is_open=is_open)

    async def remove_edge(self, team_id: int, task_id: int, blocker_id: int, *, is_open: bool) -> bool:
        return self.board(self._file(team_id)).remove_edge(task_id, blocker_id)

    async def settle_blocker(self, team_id: int, blocker_id: int, *, is_open: bool) -> list[Task]:
        return self.board(self._file(team_id)).settle(blocker_id, is_open=is_open)

    # -- the queue ---------------------------------------------------------------------

    async def take_submission_id(self, team_id: int) -> int:
        file = self.file(team_id)
        return 1 if file is None else max(self._numbers_in(file.home.submissions, SUBMISSION_FILE), default=0) + 1

    def _stored(self, kind: type[R], path: str, team_id: int) -> R | None:
        raw = self.view.object(path)
        return None if raw is None else cast(R, record(kind, {**raw, "team_id": team_id}, path))

    def _find_submission(self, team_id: int, number: int) -> Submission | None:
        file = self.file(team_id)
        return None if file is None else self._stored(Submission, file.home.submission(number), team_id)

    def _insert_submission(self, submission: Submission) -> Submission:
        self._update_submission(submission)
        return submission

    def _update_submission(self, submission: Submission) -> None:
        file = self._file(submission.team_id)
        raw = encode(submission)
        del raw["team_id"]
        self.view.write(file.home.submission(submission.id), file_bytes(raw))
        others = {number for number in file.open_submissions if number != submission.id}
        still = tuple(sorted(others | {submission.id} if submission.is_open else others))
        if still != file.open_submissions:
            self.save(replace(file, open_submissions=still))

    async def find_queued(self, team_id: int | None, except_teams: Sequence[int] = ()) -> Submission | None:
        files = (file for file in self._live_files(team_id) if file.team.id not in except_teams)
        first = [queue[0] for file in files if (queue := self._queue(file))]
        return min(first, key=lambda one: (one.submitted_at, one.team_id), default=None)

    def _queue(self, file: TeamFile) -> list[Submission]:
        """What may be taken of this team, in order: nothing while one is."""
        submissions = self._open_submissions(file)
        is_busy = any(one.state is SubmissionState.TAKEN for one in submissions)
        return [] if is_busy else submissions

    def _open_submissions(self, file: TeamFile) -> list[Submission]:
        found = (self._find_submission(file.team.id, number) for number in file.open_submissions)
        return [submission for submission in found if submission is not None and submission.is_open]

    async def list_submissions(self, team_id: int, open_only: bool) -> list[Submission]:
        file = self.file(team_id)
        if file is None or open_only:
            return [] if file is None else self._open_submissions(file)
        numbers = sorted(self._numbers_in(file.home.submissions, SUBMISSION_FILE))
        found = (self._find_submission(team_id, number) for number in numbers)
        return [submission for submission in found if submission is not None]

    async def list_submissions_of(self, team_id: int, member_key: str) -> list[Submission]:
        return [one for one in await self.list_submissions(team_id, False) if one.member_key == member_key]

    async def list_taken(self, worker_id: int) -> list[Submission]:
        return [
            submission
            for file in self._catalogue.every(include_deleted=True)
            for submission in self._open_submissions(file)
            if submission.state is SubmissionState.TAKEN and submission.worker_id == worker_id
        ]

    # -- mail --------------------------------------------------------------------------

    def _insert_message(self, message: Message) -> Message:
        file = self._file(message.team_id)
        message = replace(message, id=file.next_message_id)
        file = self.save(replace(file, next_message_id=message.id + 1))
        self._inboxes.pop((file.team.id, message.recipient_key), None)
        inbox = self._inbox(file, message.recipient_key)
        assert inbox is not None, message.recipient
        inbox.append(message)
        return message

    def _find_message(self, team_id: int, message_id: int) -> Message | None:
        file = self.file(team_id)
        for key in () if file is None else file.members:
            inbox = self._inbox(file, key) if file is not None else None
            found = None if inbox is None else inbox.find(message_id)
            if found is not None:
                return found
        return None

    def _update_message(self, message: Message) -> None:
        inbox = self._inbox(self._file(message.team_id), message.recipient_key)
        assert inbox is not None, message.recipient
        inbox.mark_answered(message)

    async def list_undelivered(self, team_id: int, key: str, limit: int) -> list[Message]:
        inbox = self._inbox(self._file(team_id), key)
        if inbox is None:
            return []
        for bad in inbox.take_quarantined(limit):
            self.record(team_id, EventKind.MESSAGE_QUARANTINED, SYSTEM, to=inbox.name, reason=bad.reason, text=bad.text)
        return inbox.undelivered(limit)

    async def list_offered(self, team_id: int, key: str, limit: int) -> list[Message]:
        inbox = self._inbox(self._file(team_id), key)
        return [] if inbox is None else inbox.undelivered(limit)

    async def has_undelivered(self, team_id: int, key: str) -> bool:
        inbox = self._inbox(self._file(team_id), key)
        return inbox is not None and inbox.has_waking()

    async def mark_delivered(self, team_id: int, key: str, ids: Sequence[int], turn_seq: int | None) -> None:
        inbox = self._inbox(self._file(team_id), key)
        assert inbox is not None, key
        inbox.mark_delivered(ids, turn_seq)

    async def list_mail(self, team_id: int, key: str, undelivered_only: bool, limit: int) -> list[Message]:
        inbox = self._inbox(self._file(team_id), key)
        if inbox is None or limit <= 0:
            return []
        return inbox.undelivered(None)[-limit:] if undelivered_only else inbox.newest(limit)

    async def list_mail_keys(self, team_id: int) -> list[str]:
        file = self.file(team_id)
        keys = [] if file is None else sorted(file.members)
        return [key for key in keys if await self.has_undelivered(team_id, key)]

    async def find_last_mail(self, team_id: int, key: str, sender: str, type: MessageType | None) -> Message | None:
        inbox = self._inbox(self._file(team_id), key)
        limit, count = 100, 0
        while inbox is not None and (found := inbox.newest(limit)) and len(found) > count:
            for message in reversed(found):
                if message.sender == sender and type in (None, message.type):
                    return message
            limit, count = limit * 10, len(found)
        return None

    # -- requests ----------------------------------------------------------------------

    async def take_request_id(self, team_id: int) -> int:
        file = self.file(team_id)
        if file is None:
            return 0
        number = file.team.next_request_id
        # Another program may have written its own record over ours, counters and all.
        while self.view.exists(file.home.request(number)):
            number += 1
        self.save(replace(file, team=replace(file.team, next_request_id=number + 1)))
        return number

    def _find_request(self, team_id: int, number: int) -> Request | None:
        file = self.file(team_id)
        return None if file is None else self._stored(Request, file.home.request(number), team_id)

    def _insert_request(self, request: Request) -> Request:
        self._update_request(request)
        return request

    def _update_request(self, request: Request) -> None:
        file = self._file(request.team_id)
        raw = encode(request)
        del raw["team_id"]
        self.view.write(file.home.request(request.id), file_bytes(raw))
        others = [number for number in file.open_requests if number != request.id]
        still = (*others, request.id) if request.status is RequestStatus.OPEN else tuple(others)
        if still != file.open_requests:
            self.save(replace(file, open_requests=still))

    async def list_requests(
        self,
        team_id: int,
        status: RequestStatus | None,
        kind: RequestKind | None,
        asked_key: str | None,
        asker_key: str | None,
        lock: Lock = Lock.NONE,
    ) -> list[Request]:
        file = self.file(team_id)
        if file is None:
            return []
        found = (self._find_request(team_id, number) for number in sorted(self._request_numbers(file, status)))
        return [
            request
            for request in found
            if request is not None
            and status in (None, request.status)
            and kind in (None, request.kind)
            and asked_key in (None, request.asked_key)
            and asker_key in (None, request.asker_key)
        ]

    def _request_numbers(self, file: TeamFile, status: RequestStatus | None) -> Iterable[int]:
        if status is RequestStatus.OPEN:
            return file.open_requests
        return self._numbers_in(file.home.requests, REQUEST_FILE)

    def _numbers_in(self, directory: str, pattern: re.Pattern[str]) -> list[int]:
        names = (pattern.fullmatch(name) for name in self.view.names(directory))
        return [int(match[1]) for match in names if match]

    async def list_requests_due(self, moment: datetime) -> list[Request]:
        files = self._catalogue.every(include_deleted=True)
        still_open = [(file.team.id, number) for file in files for number in sorted(file.open_requests)]
        said_yes = [
            (member.team_id, member.shutdown_request_id)
            for worker in self._workers.listed(include_stopped=False)
            for member in self._members_of(worker.id)
            if member.status is MemberStatus.STOPPING and member.shutdown_request_id is not None
        ]
        return [
            request
            for team_id, number in (*still_open, *said_yes)
            if (request := self._find_request(team_id, number)) is not None
            and request.status in (RequestStatus.OPEN, RequestStatus.ANSWERED)
            and request.open_until is not None
            and request.open_until < moment
        ]

    # -- transcript --------------------------------------------------------------------

    def _insert_turn(self, turn: Turn) -> Turn:
        memory = self._memory(turn.team_id, turn.member_key)
        assert memory is not None, turn.member
        memory.append(turn)
        return turn

    def _find_toolcall(self, team_id: int, key: str, call_id: str) -> ToolCall | None:
        memory = self._memory(team_id, key)
        return None if memory is None else memory.find_call(call_id)

    def _insert_toolcall(self, call: ToolCall) -> ToolCall:
        memory = self._memory(call.team_id, call.member_key)
        assert memory is not None, call.member
        memory.insert_call(call)
        return call

    def _update_toolcall(self, call: ToolCall) -> None:
        memory = self._memory(call.team_id, call.member_key)
        assert memory is not None, call.member
        memory.update_call(call)

    async def find_end(self, team_id: int, key: str) -> TranscriptEnd:
        memory = self._memory(team_id, key)
        return TranscriptEnd(0, has_open_calls=False) if memory is None else memory.end()

    async def list_turns(self, team_id: int, key: str, after_seq: int, limit: int | None) -> list[Turn]:
        memory = self._memory(team_id, key)
        return [] if memory is None else memory.turns(after_seq, limit)

    async def list_calls(self, team_id: int, key: str, open_only: bool) -> list[ToolCall]:
        memory = self._memory(team_id, key)
        return [] if memory is None else memory.calls(open_only=open_only)

    # -- background work, budgets ------------------------------------------------------

    def _backgrounds(self, team_id: int) -> Backgrounds | None:
        file = self.file(team_id)
        return None if file is None else Backgrounds(self.view, file.home, team_id)

    async def take_background_id(self, team_id: int) -> int:
        backgrounds = self._backgrounds(team_id)
        return 0 if backgrounds is None else backgrounds.next_number()

    def _find_background(self, team_id: int, number: int) -> Background | None:
        backgrounds = self._backgrounds(team_id)
        return None if backgrounds is None else backgrounds.find(number)

    def _insert_background(self, background: Background) -> Background:
        self._update_background(background)
        return background

    def _update_background(self, background: Background) -> None:
        Backgrounds(self.view, self._file(background.team_id).home, background.team_id).save(background)

    async def list_backgrounds(self, team_id: int, key: str | None, running_only: bool) -> list[Background]:
        backgrounds = self._backgrounds(team_id)
        found = [] if backgrounds is None else backgrounds.listed(running_only=running_only)
        return [background for background in found if key in (None, background.member_key)]

    def _purse(self, team_id: int) -> Purse | None:
        file = self.file(team_id)
        return None if file is None else Purse(self.view, file.home, team_id)

    def _own_purse(self, team_id: int) -> Purse:
        return Purse(self.view, self._file(team_id).home, team_id)

    def _find_account(self, team_id: int, key: str) -> Account | None:
        found = self._purse(team_id)
        return None if found is None else found.account(key)

    def _update_account(self, account: Account) -> None:
        self._own_purse(account.team_id).save_account(account)

    async def hold_accounts(self, team_id: int, key: str) -> tuple[Account, Account]:
        team, own = (
            self._find_account(team_id, each) or Account(team_id=team_id, member_key=each)
            for each in (TEAM_ACCOUNT, key)
        )
        return team, own

    async def list_accounts(self, team_id: int) -> list[Account]:
        found = self._purse(team_id)
        return [] if found is None else found.accounts()

    def _find_reservation(self, team_id: int, number: int) -> Reservation | None:
        found = self._purse(team_id)
        return None if found is None else found.find(number)

    def _insert_reservation(self, reservation: Reservation) -> Reservation:
        self._own_purse(reservation.team_id).insert(reservation)
        return reservation

    def _update_reservation(self, reservation: Reservation) -> None:
        self._own_purse(reservation.team_id).update(reservation)

    async def list_open_reservations(self, team_id: int) -> list[Reservation]:
        found = self._purse(team_id)
        return [] if found is None else found.open_ones()

    def _find_providergate(self, provider_key: str) -> ProviderGate | None:
        return purse.find_gate(self.view, provider_key)

    def _insert_providergate(self, gate: ProviderGate) -> ProviderGate:
        purse.save_gate(self.view, gate)
        return gate

    def _update_providergate(self, gate: ProviderGate) -> None:
        purse.save_gate(self.view, gate)

    # -- operations, events, rings -----------------------------------------------------

    async def find_operation(self, operation_id: str) -> Mapping[str, Any] | None:
        return log.find_operation(self.view, operation_id)

    async def save_operation(self, operation_id: str, outcome: Mapping[str, Any]) -> None:
        log.save_operation(self.view, operation_id, outcome)

    def record(self, team_id: int, kind: EventKind, actor: str, **data: Any) -> None:
        facts = {name: encode(value) for name, value in data.items() if value is not None}
        line = log.event_bytes(kind.value, self.now.isoformat(), actor, facts)
        self._events.setdefault(team_id, []).append(line)
        self.ring(EventRing(team_id))

    def ring(self, ring: Ring) -> None:
        self._rings[ring] = None

    async def list_events(self, team_id: int, after: str, limit: int) -> list[Event]:
        file = self.file(team_id)
        return [] if file is None else log.read_events(self.view, file.home.events, team_id, after, limit)

    async def last_position(self, team_id: int) -> str:
        file = self.file(team_id)
        return "0" if file is None else log.last_position(self.view, file.home.events)


def _looks_for_work(member: Member) -> bool:
    is_claimer = member.kind in _CLAIMERS and member.autonomy is Autonomy.AUTO
    return is_claimer and member.status is MemberStatus.IDLE and member.shutdown_request_id is None


def _is_wanted(task: Task, status: TaskStatus | None, owner_key: str | None) -> bool:
    """Deleted ones only if asked for."""
    fits = task.status is not TaskStatus.DELETED if status is None else task.status is status
    return fits and (owner_key is None or task.owner_key == owner_key)
