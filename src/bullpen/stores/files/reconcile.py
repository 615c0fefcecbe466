"""Finding what other programs did to a board, and making it ours.

A file that is new, or whose time or size is not what it was, is read. If its `rev`
is right, one of our processes wrote it; but perhaps it is an older state, brought
back from a backup or by git: then its marker is missing, or what it waits for has
been completed since, and is put right. Else somebody else wrote it: edges are
mirrored, what it waits for is counted, its marker is made, those who wait for it are
counted again, an event tells of it, and whoever may take it is woken. What cannot be
read is told once and left alone.

When: at the first use of a board, when the time of its directory is not the one that
our last write left (`stamp`), and now and then, since a file that is written in
place changes no directory.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from bullpen.domain.event import EventKind
from bullpen.domain.member import SYSTEM
from bullpen.domain.record import replace
from bullpen.domain.task import RELEASES_DEPENDENTS, Task, TaskStatus
from bullpen.stores.files.board import Board, is_canonical
from bullpen.stores.files.foreign import status_of
from bullpen.stores.files.form import file_bytes
from bullpen.stores.files.layout import TASK_FILE, Home
from bullpen.stores.files.task_file import Raw, blockers_in, blocks_in, is_ours, with_blocks, with_waiting
from bullpen.stores.files.team_file import TeamFile
from bullpen.stores.files.view import SETTLED_NS, View
from bullpen.stores.life import boot_id

Signature = tuple[int, int, int]
"""When it was written and how large it is; and when it came there, since a backup brings the first two back as well."""

_WORTH_KEEPING = 200

_TOLD_AS = {
    TaskStatus.IN_PROGRESS: EventKind.TASK_CLAIMED,
    TaskStatus.COMPLETED: EventKind.TASK_COMPLETED,
    TaskStatus.FAILED: EventKind.TASK_FAILED,
    TaskStatus.DELETED: EventKind.TASK_DELETED,
    TaskStatus.PENDING: EventKind.TASK_CHANGED,
}


@dataclass(frozen=True, slots=True)
class Row:
    signature: Signature
    blocked_by: tuple[int, ...]


@dataclass(slots=True)
class Ledger:
    """What this process has seen of one board."""

    home: Home
    rows: dict[int, Row] | None = None
    clean_at: int | None = None
    """The time of its directory up to which everything in it is known."""
    took_seconds: float = 0.0
    is_due: bool = False
    unsaved: int = 0


class Reconciling(Protocol):
    """What a reconcile needs of the transaction that it runs in."""

    view: View

    def board(self, file: TeamFile) -> Board: ...

    def save(self, file: TeamFile) -> TeamFile: ...

    def record(self, team_id: int, kind: EventKind, actor: str, **data: Any) -> None: ...


def needs_reconcile(root: str, ledger: Ledger) -> bool:
    if ledger.rows is None or ledger.is_due:
        return True
    ledger.clean_at = directory_time(root, ledger.home)
    return _stamp(root, ledger.home) != ledger.clean_at


def is_time_to_look(root: str, ledger: Ledger, interval_seconds: float) -> bool:
    """A cheap look without the lock. Of all processes one looks in each interval, which a large board makes longer."""
    changed_at = directory_time(root, ledger.home)
    if changed_at != _stamp(root, ledger.home):
        return True
    if changed_at is None:
        return False
    try:
        looked_at = os.stat(os.path.join(root, ledger.home.index, "looked")).st_mtime
    except FileNotFoundError:
        return True
    return abs(time.time() - looked_at) > max(interval_seconds, 50 * ledger.took_seconds)


def reconcile(tx: Reconciling, file: TeamFile, ledger: Ledger) -> list[Task]:
    """Returns the tasks that may just have become claimable."""
    started = time.monotonic()
    # Markers that were not flushed before the machine went down, or were removed, are all made again.
    is_rebuild = _stamp(tx.view.root, file.home) is None
    known = {} if is_rebuild else _known_rows(tx.view.root, ledger)
    ledger.clean_at = directory_time(tx.view.root, file.home)
    found, odd = _scan(tx.view.root, file.home)
    rows = {number: row for number, row in known.items() if number in found}
    pass_ = _Pass(tx, file, tx.board(file), known, rows)
    for number, signature in found.items():
        if number not in known or known[number].signature != signature:
            pass_.read(number, signature)
    pass_.quarantine(odd)
    freed = pass_.settle()
    file = pass_.file
    beyond = max(found, default=0) + 1
    if beyond > file.team.next_task_id:
        tx.save(replace(file, team=replace(file.team, next_task_id=beyond)))
    ledger.unsaved += len(pass_.was_read)
    ledger.rows = pass_.rows
    ledger.is_due = False
    ledger.took_seconds = time.monotonic() - started
    _note_look(tx.view.root, file.home)
    return freed


@dataclass(slots=True)
class _Pass:
    tx: Reconciling
    file: TeamFile
    board: Board
    known: dict[int, Row]
    rows: dict[int, Row]
    was_read: list[int] = field(default_factory=list)
    held: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """What our own pending tasks say that they wait for."""
    holding: dict[int, bool] = field(default_factory=dict)
    """Who holds its dependents, as far as that has been looked at."""
    foreign: dict[int, Raw] = field(default_factory=dict)
    torn: dict[str, Signature] = field(default_factory=dict)

    def read(self, number: int, signature: Signature) -> None:
        self.was_read.append(number)
        raw = self.board.raw(number)
        young = time.time_ns() - signature[0] < SETTLED_NS
        self.rows[number] = Row((0, 0, 0) if young else signature, () if raw is None else blockers_in(raw, number))
        if raw is None:
            if self.board.has_file(number):
                self.torn[f"task_{number}.json"] = signature
        elif is_ours(raw):
            self._check(number, raw)
        else:
            self.foreign[number] = raw

    def _check(self, number: int, raw: Raw) -> None:
        self.board.ensure_marked(number, raw)
        status = status_of(raw.get("status"))
        self.holding[number] = status not in RELEASES_DEPENDENTS
        if status is TaskStatus.PENDING and self.rows[number].blocked_by:
            self.held[number] = self.board.waiting(number, raw)

    def _miscounted(self, dependents: dict[int, list[int]]) -> set[int]:
        """Our own pending tasks that wait for others than they say."""
        # Those of which only the blocker was brought back, completed, have not been read.
        released = [blocker for blocker, holds in self.holding.items() if not holds]
        for number in {number for blocker in released for number in dependents.get(blocker, ())}.difference(self.held):
            raw = self.board.raw(number)
            if raw is not None and is_ours(raw):
                self._check(number, raw)
        return {
            number
            for number, waiting in self.held.items()
            if waiting != tuple(blocker for blocker in self.rows[number].blocked_by if self._holds(blocker))
        }

    def _holds(self, number: int) -> bool:
        if number not in self.holding:
            self.holding[number] = self.board.holds(number)
        return self.holding[number]

    def quarantine(self, odd: dict[str, Signature]) -> None:
        """Told once for each state of the file."""
        path = f"{self.file.home.index}/quarantine.json"
        told = self.tx.view.object(path) or {}
        for name, signature in {**self.torn, **odd}.items():
            state = list(signature[:2])
            if told.get(name) == state:
                continue
            told[name] = state
            reason = "its name is not task_N.json with a plain number" if name in odd else "it is torn, or no task"
            self.tx.record(self._adopted(), EventKind.TASK_QUARANTINED, SYSTEM, file=name, reason=reason)
            self.tx.view.write(path, file_bytes(told))

    def settle(self) -> list[Task]:
        dependents = self._dependents()
        # A blocker whose file was removed holds nobody any more.
        moved = {*self.foreign, *(blocker for blocker in dependents if blocker not in self.rows)}
        affected = {*self.foreign, *(number for blocker in moved for number in dependents.get(blocker, ()))}
        affected |= self._miscounted(dependents)
        if not affected:
            return []
        # A new edge has to be known at its blocker too.
        blockers = {blocker for number in self.foreign for blocker in self.rows[number].blocked_by}
        for number, raw in self.foreign.items():
            self._tell(number, raw)
        freed = []
        for number in sorted(affected | blockers):
            task = self._normalise(number, dependents.get(number, ()))
            if task is not None and number in affected and not task.open_blockers:
                freed.append(task)
        return freed

    def _dependents(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for number, row in self.rows.items():
            for blocker in row.blocked_by:
                found.setdefault(blocker, []).append(number)
        return found

    def _normalise(self, number: int, dependents: Iterable[int]) -> Task | None:
        before = self.board.raw(number)
        if before is None:
            return None
        raw = with_waiting(before, self.board.count_waiting(number, before))
        blocks = tuple(sorted({*dependents, *(entry for entry in blocks_in(raw) if self.board.has_file(entry))}))
        if blocks or "blocks" in raw:
            raw = with_blocks(raw, blocks)
        if raw == before and is_ours(before):
            return None
        self.board.put(number, raw, before)
        return self.board.find(number)

    def _tell(self, number: int, raw: Raw) -> None:
        # Not read again: whoever writes in place may have emptied it just now.
        task = self.board.task_in(number, raw)
        # One that carries a `rev` was ours before somebody changed it.
        is_new = number not in self.known and "rev" not in raw
        kind = EventKind.TASK_CREATED if is_new else _TOLD_AS[status_of(raw.get("status")) or TaskStatus.PENDING]
        self.tx.record(
            self._adopted(),
            kind,
            task.owner or SYSTEM,
            task=number,
            subject=task.subject,
            owner=task.owner,
            status=task.status,
            foreign=True,
        )

    def _adopted(self) -> int:
        """The team's id; from now on the team has a record of ours."""
        if not self.file.is_ours:
            self.file = self.tx.save(self.file)
        return self.file.team.id


# -- what is on disk ---------------------------------------------------------------------


def _scan(root: str, home: Home) -> tuple[dict[int, Signature], dict[str, Signature]]:
    """Every task file by number, and those whose name is not quite one."""
    found: dict[int, Signature] = {}
    odd: dict[str, Signature] = {}
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(os.path.join(root, home.tasks)) as entries:
        for entry in entries:
            match = TASK_FILE.fullmatch(entry.name)
            if match is None:
                continue
            signature = _signature(entry)
            if signature is None:
                continue
            if is_canonical(match[1]):
                found[int(match[1])] = signature
            else:
                odd[entry.name] = signature
    return found, odd


def _signature(entry: os.DirEntry[str]) -> Signature | None:
    """None if there is nothing, or nothing any more."""
    try:
        info = entry.stat()
    except OSError as error:
        # A link holds its dependents, as good as torn, whatever keeps us from following it.
        if entry.is_symlink():
            return (0, 0, 0)
        if not isinstance(error, FileNotFoundError):
            raise
        return None
    return (info.st_mtime_ns, info.st_size, info.st_ctime_ns)


def _known_rows(root: str, ledger: Ledger) -> dict[int, Row]:
    return _load_rows(root, ledger.home) if ledger.rows is None else ledger.rows


def directory_time(root: str, home: Home) -> int | None:
    try:
        return os.stat(os.path.join(root, home.tasks)).st_mtime_ns
    except (FileNotFoundError, NotADirectoryError):
        return None


def _stamp(root: str, home: Home) -> int | None:
    """The directory's time after our last write, if that was since the machine started."""
    try:
        with open(os.path.join(root, home.index, "stamp"), encoding="ascii") as file:
            moment, boot = file.read().split()
        return int(moment) if boot == boot_id() else None
    except (OSError, ValueError):
        return None


def _note_look(root: str, home: Home) -> None:
    if directory_time(root, home) is None:
        return
    with suppress(OSError):
        os.makedirs(os.path.join(root, home.index), exist_ok=True)
        with open(os.path.join(root, home.index, "looked"), "w", encoding="ascii") as file:
            file.write(f"{os.getpid()}\n")


def keep_stamp(root: str, ledger: Ledger) -> None:
    """After a commit, with the lock still held. Derived: neither flushed nor in the journal."""
    moment = ledger.clean_at
    if moment is None or moment == _stamp(root, ledger.home):
        return
    with suppress(OSError):
        os.makedirs(os.path.join(root, ledger.home.index), exist_ok=True)
        with open(os.path.join(root, ledger.home.index, "stamp"), "w", encoding="ascii") as file:
            file.write(f"{moment} {boot_id()}\n")


def keep_rows(root: str, ledger: Ledger) -> None:
    """So that the next process need not read every file of a large board."""
    if ledger.rows is None or ledger.unsaved < _WORTH_KEEPING:
        return
    ledger.unsaved = 0
    rows = {str(number): [*row.signature, list(row.blocked_by)] for number, row in ledger.rows.items()}
    path = os.path.join(root, ledger.home.index, "seen.json")
    with suppress(OSError):
        with open(f"{path}.new", "w", encoding="ascii") as file:
            json.dump({"boot": boot_id(), "rows": rows}, file, separators=(",", ":"))
        os.replace(f"{path}.new", path)


def _load_rows(root: str, home: Home) -> dict[int, Row]:
    try:
        with open(os.path.join(root, home.index, "seen.json"), encoding="ascii") as file:
            data = json.load(file)
        if data["boot"] != boot_id():
            return {}
        return {int(number): Row((row[0], row[1], row[2]), tuple(row[3])) for number, row in data["rows"].items()}
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return {}
