"""`FilesStore`: a directory that people can read, `cat`, `jq` and put into git.

Invariant: files change only while this process holds the store's lock, in groups of
verbs, each group through the journal. A verb is answered after its group is in the
journal and flushed. Reads hold the lock shared, so they never see half a verb.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, TypeVar, cast

from bullpen.clock import Clock
from bullpen.domain.member import Liveness, Worker
from bullpen.errors import StoreUnavailable
from bullpen.stores.bells import DatagramDoorbell, Doorbell, topic_of
from bullpen.stores.ending import run_to_the_end
from bullpen.stores.files.catalogue import Catalogue
from bullpen.stores.files.gate import Footing, Gate, translated, unavailable
from bullpen.stores.files.inbox import inboxes_mark
from bullpen.stores.files.journal import Changes, Journal
from bullpen.stores.files.layout import TEAMS, WORKERS, Home
from bullpen.stores.files.reconcile import (
    Ledger,
    directory_time,
    is_time_to_look,
    keep_rows,
    keep_stamp,
    needs_reconcile,
    reconcile,
)
from bullpen.stores.files.task_file import foreign_file_state
from bullpen.stores.files.team_file import TeamFile
from bullpen.stores.files.transaction import BoardIsDue, FilesTransaction, Session
from bullpen.stores.files.view import View
from bullpen.stores.job import Job
from bullpen.stores.life import LifeLocks
from bullpen.stores.transaction import Ring, drive
from bullpen.stores.verbs.store import VerbStore
from bullpen.stores.verbs.verb import Body
from bullpen.stores.verbs.wake import offer
from bullpen.stores.writer import Writer

T = TypeVar("T")

PATIENCE_SECONDS = 30.0
LOOK_AGAIN_SECONDS = 5.0

_log = logging.getLogger(__name__)


class FilesStore(VerbStore):
    def __init__(
        self, url: str, directory: Path, clock: Clock, *, patience_seconds: float = PATIENCE_SECONDS, **settings: Any
    ) -> None:
        super().__init__(url, clock, **settings)
        self._directory = directory.absolute()
        self._root = str(self._directory)
        self._patience_seconds = patience_seconds
        self._bell = DatagramDoorbell(self._board, os.path.realpath(self._directory))
        self._lives = LifeLocks(self._directory / WORKERS)
        self._journal = Journal(self._root, foreign_file_state)
        self._footing = Footing(self._root)
        self._write_gate = Gate(self._root, self._journal, self._footing, is_shared=False)
        self._read_gate = Gate(self._root, self._journal, self._footing, is_shared=True)
        self._writing = _Group(self._root, self._write_gate, self._journal, self.clock, self._ring)
        self._reading = _session(self._root)
        self._commits_read = -1
        self._mark: tuple[int, int] | None = None
        """What the last look of the safety net found: our commits, and the inboxes that others append to."""

    @property
    def _doorbell(self) -> Doorbell:
        return self._bell

    async def _open(self) -> None:
        self._footing.begin()
        self._writer = Writer("bullpen-files-writer", self._write_gate, self._writing.run, self._ring)
        self._reader = Writer("bullpen-files-reader", self._read_gate, self._look, self._ring)

    async def _close(self) -> None:
        # A stack: who is cancelled in one of these steps still takes the others.
        async with AsyncExitStack() as stack:
            for part in (self._bell, self._lives, self._read_gate, self._write_gate):
                stack.callback(part.close)
            stack.push_async_callback(run_to_the_end, self._rest)
            stack.push_async_callback(self._reader.close)
            await self._writer.close()

    def _rest(self) -> None:
        with suppress(OSError):
            self._write_gate.rest()

    # -- writing -----------------------------------------------------------------------

    async def _write(self, body: Body[T]) -> T:
        return cast(T, await self._writer.run(body, patience_seconds=self._patience_seconds))

    def _ring(self, rings: list[Ring]) -> None:
        for ring in rings:
            self._board.ring(topic_of(ring))
        self._bell.send(rings)

    # -- reading -----------------------------------------------------------------------

    async def _read(self, body: Body[T]) -> T:
        return cast(T, await self._reader.run(body, patience_seconds=self._patience_seconds))

    def _look(self, jobs: list[Job[Any]]) -> None:
        """In the reader's thread, inside the shared gate."""
        if self._read_gate.commits != self._commits_read:
            self._reading.view.forget()
            self._commits_read = self._read_gate.commits
        for job in jobs:
            self._look_once(job)
        if self._read_gate.has_appeared():
            # The first verb of all came in between; what was seen may be half of it.
            try:
                self._read_gate.enter()
            except BaseException as error:
                for job in jobs:
                    job.fail(error)
                return
            self._look(jobs)

    def _look_once(self, job: Job[Any]) -> None:
        try:
            with translated(self._root):
                job.succeed(drive(job.body(FilesTransaction(self._reading, self.clock.now()))))
        except BaseException as error:
            job.fail(error)

    async def _has_changed(self) -> bool:
        """Also the moment to look for files that another program has written in place."""
        self._footing.check()
        if self._writing.is_time_to_look():
            await self._write(_nothing)
        mark = await asyncio.to_thread(lambda: (self._read_gate.peek_commits(), inboxes_mark(self._root)))
        changed, self._mark = mark != self._mark, mark
        return changed

    # -- life --------------------------------------------------------------------------

    async def _hold_life(self, token: str) -> None:
        self._footing.check()
        with translated(self._root):
            os.makedirs(os.path.join(self._root, TEAMS), exist_ok=True)
            os.makedirs(os.path.join(self._root, WORKERS), exist_ok=True)
        await asyncio.to_thread(self._lives.hold, token)

    async def _drop_life(self, token: str) -> None:
        self._lives.drop(token)

    async def probe_worker(self, worker: Worker) -> Liveness:
        return Liveness.DEAD if worker.is_lost else self._lives.probe(worker)


async def _nothing(_: Any) -> None:
    """A verb that changes nothing; the boards are looked at before it."""


def _session(root: str, due_boards: Callable[[TeamFile], bool] | None = None) -> Session:
    view = View(root)
    return Session(view, Catalogue(view), due_boards=due_boards)


class _Group:
    """Runs the verbs that wait, and commits them together."""

    def __init__(
        self, root: str, gate: Gate, journal: Journal, clock: Clock, ring: Callable[[list[Ring]], None]
    ) -> None:
        self._root = root
        self._gate = gate
        self._journal = journal
        self._clock = clock
        self._ring = ring
        self._session = _session(root, self._is_due)
        self._view = self._session.view
        self._ledgers: dict[str, Ledger] = {}
        self._checked: set[str] = set()
        self._commits = -1
        self._open_jobs: list[Job[Any]] = []
        self._rings: dict[Ring, None] = {}
        """Of what reconciling found."""
        self._is_behind = False
        """A committed group could not be applied; it has to be, before anything else is done."""

    def run(self, jobs: list[Job[Any]]) -> None:
        """In the writer's thread, inside the gate. Every job has an outcome afterwards."""
        self._begin()
        for job in jobs:
            self._run(job)
        self._flush()

    def is_time_to_look(self) -> bool:
        """Asked by another thread: at worst a board is looked at a moment early or late."""
        ledgers = list(self._ledgers.values())
        due = [ledger for ledger in ledgers if is_time_to_look(self._root, ledger, LOOK_AGAIN_SECONDS)]
        for ledger in due:
            ledger.is_due = True
        return bool(due)

    def _begin(self) -> None:
        if self._gate.commits != self._commits:
            self._view.forget()
            self._commits = self._gate.commits
        # Inside the gate the journal is empty: whoever entered has seen to that.
        self._is_behind = False
        self._checked.clear()
        self._open_jobs = []
        self._rings = {}

    # -- one verb ------------------------------------------------------------------------

    def _run(self, job: Job[Any]) -> None:
        try:
            with translated(self._root):
                self._catch_up()
                self._reconcile_due()
                result, job.rings = self._attempt(job.body)
                if self._view.has_moves and not self._view.group_is_empty:
                    # A directory moves under files that are not written yet: those first, whatever keeps them from
                    # being written, then this one again.
                    self._view.drop()
                    self._flush()
                    self._catch_up()
                    result, job.rings = self._attempt(job.body)
        except BaseException as error:
            self._view.drop()
            job.rings = []
            job.fail(error)
            # What it was refused for may be what another verb of this group has done: it is told so if that is stored.
            self._open_jobs.append(job)
            return
        has_moves = self._view.has_moves
        self._view.keep()
        job.succeed(result)
        self._open_jobs.append(job)
        if has_moves:
            self._flush()

    def _catch_up(self) -> None:
        if self._is_behind:
            self._gate.count_commit()
            self._journal.recover()
            self._is_behind = False

    def _attempt(self, body: Callable[[Any], Any]) -> tuple[Any, list[Ring]]:
        while True:
            self._view.begin()
            tx = FilesTransaction(self._session, self._clock.now())
            try:
                result = drive(body(tx))
                return result, tx.flush()
            except BoardIsDue as due:
                self._view.drop()
                self._reconcile(due.team_id)

    # -- boards --------------------------------------------------------------------------

    def _is_due(self, file: TeamFile) -> bool:
        """At the first use in a group: has anybody else been at this board?"""
        home = file.home
        if home.directory in self._checked:
            return False
        ledger = self._ledgers.setdefault(home.directory, Ledger(home))
        if needs_reconcile(self._root, ledger):
            return True
        self._checked.add(home.directory)
        return False

    def _reconcile(self, team_id: int) -> None:
        """A transaction of its own, in the same group."""
        self._view.begin()
        tx = FilesTransaction(self._session, self._clock.now())
        file = tx.file(team_id)
        if file is None:
            self._view.drop()
            return
        self._checked.add(file.home.directory)
        ledger = self._ledgers.setdefault(file.home.directory, Ledger(file.home))
        try:
            freed = reconcile(tx, file, ledger)
            drive(offer(tx, freed))
            self._rings.update(dict.fromkeys(tx.flush()))
        except BaseException:
            ledger.rows = None
            self._checked.discard(file.home.directory)
            self._view.drop()
            raise
        self._view.keep()

    def _reconcile_due(self) -> None:
        for ledger in [ledger for ledger in self._ledgers.values() if ledger.is_due]:
            try:
                self._reconcile_home(ledger)
            except StoreUnavailable as error:
                # Whoever uses this board is told; this verb may be about another.
                _log.warning("%s", error)
                ledger.is_due = False

    def _reconcile_home(self, ledger: Ledger) -> None:
        file = self._session.catalogue.at_home(ledger.home)
        if file is None:
            del self._ledgers[ledger.home.directory]
        else:
            self._reconcile(file.team.id)

    # -- the commit ------------------------------------------------------------------------

    def _flush(self) -> None:
        jobs, self._open_jobs = self._open_jobs, []
        rings, self._rings = self._rings, {}
        for job in jobs:
            rings.update(dict.fromkeys(job.rings))
            job.rings = []
        try:
            with translated(self._root):
                self._commit(self._view.take_changes(), list(rings))
        except BaseException as error:
            # Nobody is told of what is not stored.
            for job in jobs:
                job.fail(error)
            self._start_over()

    def _commit(self, changes: Changes, rings: list[Ring]) -> None:
        if not changes.is_empty():
            if changes.moves:
                self._journal.checkpoint()
            self._journal.commit(changes)
        # It has happened. Whoever is woken needs as long to come to the gate as it takes to apply it.
        self._ring(rings)
        if not changes.is_empty():
            clean = [ledger for ledger in self._touched(changes) if self._is_clean(ledger)]
            try:
                self._gate.count_commit()
                self._journal.apply(changes)
                if changes.moves or self._journal.is_full():
                    self._journal.checkpoint()
            except OSError as error:
                # It has happened: it is in the journal, flushed. Whoever comes next applies it.
                _log.warning("%s", unavailable(self._root, error))
                self._is_behind = True
                self._start_over()
                return
            self._commits = self._gate.commits
            self._view.written(changes)
            for ledger in clean:
                ledger.clean_at = directory_time(self._root, ledger.home)
        for directory in self._checked.intersection(self._ledgers):
            keep_stamp(self._root, self._ledgers[directory])
            keep_rows(self._root, self._ledgers[directory])

    def _touched(self, changes: Changes) -> list[Ledger]:
        for source, _ in changes.moves:
            self._ledgers.pop(source, None)
        ledgers = [self._ledgers[directory] for directory in self._checked.intersection(self._ledgers)]
        return [ledger for ledger in ledgers if _touches(changes, ledger.home)]

    def _is_clean(self, ledger: Ledger) -> bool:
        """Just before we change it: has nobody else since we looked?"""
        return directory_time(self._root, ledger.home) == ledger.clean_at

    def _start_over(self) -> None:
        self._view.forget()
        self._ledgers.clear()
        self._checked.clear()
        self._commits = -1


def _touches(changes: Changes, home: Home) -> bool:
    prefix = f"{home.tasks}/"
    return any(path.startswith(prefix) for path in changes.files)
