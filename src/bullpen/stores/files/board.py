"""A team's board: task files, and markers that tell which of them to open.

    .index/ready/BUCKET/SHARD/N      pending, waits for nothing
    .index/blocked/BUCKET/SHARD/N    pending, waits for a blocker
    .index/busy/BUCKET/SHARD/N       in progress
    BUCKET: owner-NAME if it has one, else role-ROLE, else any

The task file is the truth. A marker is only where to look: one that is stale is
passed over and put right, and a claim looks at the task and at its blockers again.
What other programs changed is found by `reconcile`, which makes missing markers.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from datetime import datetime
from heapq import merge
from itertools import chain

from bullpen.domain.member import Autonomy, Member, MemberKind
from bullpen.domain.record import replace
from bullpen.domain.task import RELEASES_DEPENDENTS, Task, TaskStatus
from bullpen.domain.text import name_key, normalise_role
from bullpen.errors import StoreUnavailable
from bullpen.stores.files.foreign import moment_of_ns, status_of
from bullpen.stores.files.layout import TASK_FILE, Home
from bullpen.stores.files.task_file import (
    Raw,
    blockers_in,
    blocks_in,
    foreign_state,
    owner_in,
    parse_task,
    raw_of,
    role_in,
    task_bytes,
    task_of,
    waiting_in,
    with_blockers,
    with_blocks,
    with_waiting,
)
from bullpen.stores.files.view import View

_PLAIN = re.compile(r"[a-z0-9_-]{1,80}")
ANYONE = "any"


class Board:
    def __init__(self, view: View, home: Home, team_id: int, now: datetime) -> None:
        self._view = view
        self._home = home
        self._team_id = team_id
        self._now = now

    # -- files -------------------------------------------------------------------------

    def numbers(self) -> list[int]:
        """Of the files that there are, as numbers: 2 before 10."""
        found = (TASK_FILE.fullmatch(name) for name in self._view.names(self._home.tasks))
        return sorted(int(match[1]) for match in found if match and is_canonical(match[1]))

    def has_file(self, number: int) -> bool:
        return self._view.exists(self._home.task(number))

    def raw(self, number: int) -> Raw | None:
        return self._view.settled(self._home.task(number), parse_task)

    def find(self, number: int) -> Task | None:
        raw = self.raw(number)
        return None if raw is None else self.task_in(number, raw)

    def task_in(self, number: int, raw: Raw) -> Task:
        """What was read of its file, which may be another by now."""
        return self._task(number, raw, self.waiting(number, raw))

    def _task(self, number: int, raw: Raw, waiting: tuple[int, ...]) -> Task:
        written = self._view.stat(self._home.task(number))
        written_at = self._now if written is None else moment_of_ns(written.st_mtime_ns)
        return task_of(raw, self._team_id, number, waiting, written_at)

    def waiting(self, number: int, raw: Raw) -> tuple[int, ...]:
        counted = waiting_in(raw, number)
        return self.count_waiting(number, raw) if counted is None else counted

    def count_waiting(self, number: int, raw: Raw) -> tuple[int, ...]:
        """Looked up now. A blocker that does not exist holds nobody; one that cannot be read does: it may be open."""
        return tuple(blocker for blocker in blockers_in(raw, number) if self.holds(blocker))

    def holds(self, number: int) -> bool:
        raw = self.raw(number)
        if raw is None:
            return self.has_file(number)
        return status_of(raw.get("status")) not in RELEASES_DEPENDENTS

    def put(self, number: int, raw: Raw, before: Raw | None) -> Raw:
        """Write the file and move its marker."""
        replaces = None if before is None else foreign_state(before)
        self._view.write(self._home.task(number), task_bytes(raw), replaces=replaces)
        old = None if before is None else self.place(number, before)
        new = self.place(number, raw)
        if old != new:
            self._mark(old, number, False)
        self._mark(new, number, True)
        return raw

    # -- markers -----------------------------------------------------------------------

    def place(self, number: int, raw: Raw) -> str | None:
        """The bucket in which its marker belongs, if it has one."""
        status, owner = status_of(raw.get("status")), owner_in(raw)
        if status is TaskStatus.IN_PROGRESS:
            return None if owner is None else self._bucket("busy", owner_bucket(name_key(owner)))
        if status is not TaskStatus.PENDING:
            return None
        state = "blocked" if self.waiting(number, raw) else "ready"
        if owner is None:
            return self._bucket(state, role_bucket(normalise_role(role_in(raw))))
        return self._bucket(state, owner_bucket(name_key(owner)))

    def ensure_marked(self, number: int, raw: Raw) -> None:
        bucket = self.place(number, raw)
        if bucket is not None and not self._view.is_marked(bucket, number):
            self._mark(bucket, number, True)

    def _mark(self, bucket: str | None, number: int, is_set: bool) -> None:
        if bucket is not None:
            self._view.mark(bucket, number, is_set)

    def _bucket(self, state: str, name: str) -> str:
        return f"{self._home.index}/{state}/{name}"

    def _marked(self, state: str, bucket: str) -> Iterator[int]:
        return self._view.marked(self._bucket(state, bucket))

    def _marked_tasks(self, state: str, bucket: str) -> Iterator[Task]:
        """Only those whose file still says so."""
        for number in self._marked(state, bucket):
            raw = self.raw(number)
            if raw is not None and self.place(number, raw) == self._bucket(state, bucket):
                yield self._task(number, raw, self.waiting(number, raw))

    # -- looking -----------------------------------------------------------------------

    def in_progress(self, owner_key: str) -> Task | None:
        return next(self._marked_tasks("busy", owner_bucket(owner_key)), None)

    def every_in_progress(self) -> Iterator[Task]:
        for bucket in self._view.names(f"{self._home.index}/busy"):
            yield from self._marked_tasks("busy", bucket)

    def claimable(self, role_key: str) -> Iterator[Task]:
        """Unowned, of exactly this role."""
        return self._marked_tasks("ready", role_bucket(role_key))

    def claimable_by(self, member: Member) -> Iterator[Task]:
        """In the order of a claim: its own, then by number."""
        yield from self._marked_tasks("ready", owner_bucket(member.key))
        buckets = {ANYONE, role_bucket(member.role_key)}
        yield from merge(*(self._marked_tasks("ready", bucket) for bucket in buckets), key=lambda task: task.id)

    def has_assigned(self, owner_key: str) -> bool:
        return next(self._marked_tasks("ready", owner_bucket(owner_key)), None) is not None

    def has_open_task_for(self, member: Member) -> bool:
        buckets = [owner_bucket(member.key)]
        if member.autonomy is Autonomy.AUTO and member.kind in (MemberKind.TEAMMATE, MemberKind.EXTERNAL):
            buckets += {ANYONE, role_bucket(member.role_key)}
        return any(
            next(self._marked_tasks(state, bucket), None) is not None
            for bucket in buckets
            for state in ("ready", "blocked")
        )

    # -- changing ----------------------------------------------------------------------

    def claim_next(self, member: Member) -> Task | None:
        if self.in_progress(member.key) is not None:
            return None
        own = owner_bucket(member.key)
        free = merge(*(self._marked("ready", bucket) for bucket in {ANYONE, role_bucket(member.role_key)}))
        # The lists are taken apart as stale markers are put right.
        for number in chain(list(self._marked("ready", own)), free):
            claimed = self.claim(number, member)
            if claimed is not None:
                return claimed
        return None

    def claim(self, number: int, member: Member) -> Task | None:
        """None if its file says that it cannot be this member's."""
        raw = self.raw(number)
        if raw is None:
            return None
        counted = with_waiting(raw, self.count_waiting(number, raw))
        task = self._task(number, counted, self.waiting(number, counted))
        is_for_member = task.is_owned_by(member.name) or (task.owner is None and task.role_key in ("", member.role_key))
        if task.status is not TaskStatus.PENDING or task.open_blockers or not is_for_member:
            self._put_right(number, counted, member)
            return None
        claimed = replace(
            task,
            status=TaskStatus.IN_PROGRESS,
            owner=member.name,
            claimed_at=self._now,
            updated_at=self._now,
            reserved_until=None,
        )
        self.put(number, raw_of(claimed, counted), raw)
        self._unmark_ready(number, member)
        return claimed

    def _put_right(self, number: int, raw: Raw, member: Member) -> None:
        """Its marker said that the member may have it, and its file says no."""
        self._unmark_ready(number, member)
        self.ensure_marked(number, raw)

    def _unmark_ready(self, number: int, member: Member) -> None:
        for bucket in {owner_bucket(member.key), ANYONE, role_bucket(member.role_key)}:
            self._mark(self._bucket("ready", bucket), number, False)

    def insert(self, task: Task) -> None:
        raw = with_blocks(with_blockers(raw_of(task, {}), task.blocked_by), task.blocks)
        raw = with_waiting(raw, tuple(blocker for blocker in task.blocked_by if self.holds(blocker)))
        self.put(task.id, raw, None)
        for blocker in task.blocked_by:
            self._add_dependent(blocker, task.id)

    def update(self, task: Task) -> None:
        before = self.raw(task.id)
        if before is None:
            # Since it was read in this verb. To pass over it would be to say that it had been changed.
            path = self._home.task(task.id)
            raise StoreUnavailable(f"another program is just writing or removing {path}: nothing was changed")
        self.put(task.id, raw_of(task, before), before)

    def add_edge(self, number: int, blocker: int, *, is_open: bool) -> bool:
        before = self.raw(number)
        if before is None or blocker in (blockers := blockers_in(before, number)):
            return False
        raw = with_blockers(before, tuple(sorted({*blockers, blocker})))
        waiting = self.waiting(number, before)
        self.put(number, with_waiting(raw, (*waiting, blocker) if is_open else waiting), before)
        self._add_dependent(blocker, number)
        return True

    def remove_edge(self, number: int, blocker: int) -> bool:
        before = self.raw(number)
        if before is None or blocker not in (blockers := blockers_in(before, number)):
            return False
        waiting = tuple(other for other in self.waiting(number, before) if other != blocker)
        rest = tuple(other for other in blockers if other != blocker)
        self.put(number, with_waiting(with_blockers(before, rest), waiting), before)
        raw = self.raw(blocker)
        if raw is not None:
            rest = tuple(dependent for dependent in blocks_in(raw) if dependent != number)
            self.put(blocker, with_blocks(raw, rest), raw)
        return True

    def settle(self, blocker: int, *, is_open: bool) -> list[Task]:
        raw = self.raw(blocker)
        freed = []
        for number in () if raw is None else blocks_in(raw):
            before = self.raw(number)
            if before is None or blocker not in blockers_in(before, number):
                continue
            rest = tuple(other for other in self.waiting(number, before) if other != blocker)
            waiting = (*rest, blocker) if is_open else rest
            self.put(number, with_waiting(before, waiting), before)
            task = self.find(number)
            if task is not None and task.status is TaskStatus.PENDING and not task.open_blockers:
                freed.append(task)
        return freed

    def _add_dependent(self, blocker: int, number: int) -> None:
        raw = self.raw(blocker)
        if raw is not None and number not in blocks_in(raw):
            self.put(blocker, with_blocks(raw, (*blocks_in(raw), number)), raw)


def is_canonical(digits: str) -> bool:
    """`task_3.json`, not `task_03.json`, which would be the same task twice; nor one after which no number is left."""
    return str(int(digits)) == digits and 0 < int(digits) < 2**52


def owner_bucket(owner_key: str) -> str:
    return f"owner-{_plain(owner_key)}"


def role_bucket(role_key: str) -> str:
    return f"role-{_plain(role_key)}" if role_key else ANYONE


def _plain(key: str) -> str:
    """Anything as part of a file name; owners and roles of foreign tasks can be any text."""
    return key if _PLAIN.fullmatch(key) else f"={hashlib.sha256(key.encode()).hexdigest()[:24]}"
