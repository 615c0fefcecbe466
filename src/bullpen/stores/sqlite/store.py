"""`SqliteStore`: WAL, flushed at every commit, one grouping writer thread for each process.

Invariant: only the writer writes, inside the gate, and a verb is answered after the
commit that contains it. The file that was opened first is the store: when another lies
in its place, or none, every verb is refused, because the ids of the one mean somebody
else in the other. Reads run on a connection of their own, in one
snapshot, and wait for nobody: in a thread, or, while looks are quick, where they
are called.
"""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import apsw

from bullpen.clock import Clock
from bullpen.domain.member import Liveness, Worker
from bullpen.errors import StoreUnavailable, UsageError
from bullpen.stores.bells import DatagramDoorbell, Doorbell, NoDoorbell, topic_of
from bullpen.stores.directory import removed
from bullpen.stores.forks import let_go_in_children
from bullpen.stores.job import Job
from bullpen.stores.life import LifeLocks
from bullpen.stores.pace import Pace
from bullpen.stores.place import GATE_SUFFIX, LIVES_SUFFIX, real_file
from bullpen.stores.sql.migration import check_version, is_behind
from bullpen.stores.sqlite.connection import (
    NO_FILE,
    connect,
    file_at,
    in_our_words,
    is_there,
    leave_to_parent,
    migrate,
    set_patience,
    stored_version,
    translated,
)
from bullpen.stores.sqlite.gate import Gate, NoGate
from bullpen.stores.sqlite.transaction import SqliteTransaction
from bullpen.stores.transaction import Ring, Transaction, drive
from bullpen.stores.verbs.store import VerbStore
from bullpen.stores.verbs.verb import Body
from bullpen.stores.writer import CLOSED, QUICK_SECONDS, Occupied, Writer

T = TypeVar("T")

PATIENCE_SECONDS = 30.0

# What SQLite refuses because of what one statement says; the transaction is as it was before that statement.
REFUSALS = (apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError)


class _Behind(StoreUnavailable):
    """What was asked for lies in no table yet: when the store was opened, nobody could take the steps that it lacks."""


class SqliteStore(VerbStore):
    def __init__(
        self,
        url: str,
        path: Path | None,
        clock: Clock,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
        **settings: Any,
    ) -> None:
        """`path` None: in memory, for this object alone."""
        super().__init__(url, clock, **settings)
        self._patience_seconds = patience_seconds
        self._path = None if path is None else _in_utf8(path.absolute())
        # Asked for with every verb, and a path is made a text anew each time.
        self._path_name = None if self._path is None else str(self._path)
        real = None if self._path is None else real_file(self._path)
        self._gate: Gate | NoGate = (
            NoGate() if real is None else Gate(_beside(real, GATE_SUFFIX), check=self._check_file)
        )
        self._bell: NoDoorbell | DatagramDoorbell = (
            NoDoorbell() if real is None else DatagramDoorbell(self._board, str(real))
        )
        self._lives = LifeLocks(None if real is None else _beside(real, LIVES_SUFFIX))
        self._write_cursor: apsw.Cursor | None = None
        self._waits_for_others = True
        """Does the connection that writes wait while a program that is not Bullpen holds the database?"""
        self._read_cursor: apsw.Cursor | None = None
        self._file = NO_FILE
        """What was opened first. A connection holds it open, so no other file can be taken for it."""
        self._data_version = -1
        self._reading = threading.RLock()
        """Held by whoever is on the connection for reading: the thread, a verb where it is called, who closes it."""
        self._writing_now = threading.RLock()
        """The same of the connection that writes: only who has the turn to write wants it, who closes it, who forks."""
        self._last_look_seconds = float("inf")
        if self._path is not None:
            let_go_in_children(self, self._reading, self._writing_now)

    @property
    def _doorbell(self) -> Doorbell:
        return self._bell

    async def _open(self) -> None:
        self._writer = Writer("bullpen-sqlite-writer", self._gate, self._commit, self._ring)
        self._readers = ThreadPoolExecutor(1, thread_name_prefix="bullpen-sqlite-reader")
        self._pace = Pace()
        if self._path is not None and is_there(self._path):
            await asyncio.get_running_loop().run_in_executor(self._readers, self._read_data_version)
            await self._upgrade()

    async def _upgrade(self) -> None:
        """A store that lacks an additive step gets it. Who may only look goes on with what there is."""
        with self._reading:
            cursor = self._read_cursor
            lacks_steps = cursor is not None and is_behind("sqlite", stored_version(cursor.connection))
        if lacks_steps:
            with suppress(StoreUnavailable):
                await self._write(_nothing)

    async def _close(self) -> None:
        try:
            await self._writer.close()
        finally:
            self._close_all()

    def _close_all(self) -> None:
        self._readers.shutdown()
        # From here on a look goes to the thread that is no more, and is refused.
        self._last_look_seconds = float("inf")
        with self._reading:
            if self._read_cursor is not None:
                self._read_cursor.connection.close()
                self._read_cursor = None
        if self._writer.has_ended:
            with self._writing_now:
                if self._write_cursor is not None:
                    self._write_cursor.connection.close()
                    self._write_cursor = None
            self._gate.close()
        self._lives.close()
        if isinstance(self._bell, DatagramDoorbell):
            self._bell.close()

    def let_go(self) -> None:
        """In the child it is closed, without a word to the database: both threads are the parent's."""
        for cursor in (self._write_cursor, self._read_cursor):
            if cursor is not None:
                leave_to_parent(cursor.connection)
        self._write_cursor = self._read_cursor = None
        # Another one: what is locked of the parent's when it forks stays so here.
        self._readers = ThreadPoolExecutor(1)
        self._readers.shutdown()
        self._last_look_seconds = float("inf")

    # -- writing -------------------------------------------------------------------------

    async def _write(self, body: Body[T]) -> T:
        # The writer drives the body, so what comes back is what it returned.
        result: Any = await self._writer.run(body, patience_seconds=self._patience_seconds)
        return result  # type: ignore[no-any-return]

    def _commit(self, jobs: list[Job[Any]]) -> None:
        """Inside the gate: run the group and commit."""
        with self._writing_now:
            self._commit_group(jobs)

    def _commit_group(self, jobs: list[Job[Any]]) -> None:
        may_wait = self._writer.may_wait
        try:
            cursor = self._writing()
            connection = cursor.connection
            if may_wait != self._waits_for_others:
                set_patience(connection, may_wait=may_wait)
                self._waits_for_others = may_wait
            cursor.execute("BEGIN IMMEDIATE")
            try:
                for job in jobs:
                    self._run(cursor, job, is_alone=len(jobs) == 1)
                if connection.in_transaction:
                    cursor.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    cursor.execute("ROLLBACK")
        except BaseException as error:
            if isinstance(error, apsw.BusyError) and not may_wait:
                raise Occupied from error
            # The whole group is lost with its transaction: nobody is told of a success that is not stored.
            ours = in_our_words(error, self._path)
            for job in jobs:
                job.fail(ours)

    def _run(self, cursor: apsw.Cursor, job: Job[Any], *, is_alone: bool) -> None:
        """One verb, undone alone if it fails; a fault of the database undoes the group."""
        tx = SqliteTransaction(cursor, self.clock.now())
        if not is_alone:
            cursor.execute("SAVEPOINT verb")
        try:
            result = drive(job.body(tx))
            job.rings = tx.flush()
        except BaseException as error:
            if isinstance(error, apsw.Error) and not isinstance(error, REFUSALS):
                raise
            cursor.execute("ROLLBACK" if is_alone else "ROLLBACK TO verb")
            job.fail(in_our_words(error, self._path))
        else:
            job.succeed(result)
        if not is_alone:
            cursor.execute("RELEASE verb")

    def _ring(self, rings: list[Ring]) -> None:
        for ring in rings:
            self._board.ring(topic_of(ring))
        self._bell.send(rings)

    def _writing(self) -> apsw.Cursor:
        # What is written into a file that was removed nobody would ever find.
        self._check_file()
        if self._write_cursor is None:
            connection = connect(self._path)
            migrate(connection)
            self._write_cursor, self._file = connection.cursor(), file_at(self._path)
        return self._write_cursor

    # -- is it still there? ----------------------------------------------------------------

    def _check_file(self) -> None:
        if self._file not in (NO_FILE, file_at(self._path_name)):
            raise removed(self._path)

    # -- reading -------------------------------------------------------------------------

    async def _read(self, body: Body[T]) -> T:
        if self._path is None:
            return await self._write(body)
        if self._pace.is_due():
            await asyncio.sleep(0)
        try:
            return await self._look_somewhere(body)
        except _Behind:
            # Who writes takes the missing steps, or says why they cannot be taken.
            await self._write(_nothing)
            return await self._look_in_thread(body)

    async def _look_somewhere(self, body: Body[T]) -> T:
        if self._last_look_seconds <= QUICK_SECONDS and self._reading.acquire(blocking=False):
            # As with writing: the way to the thread and back costs more than a look.
            try:
                return cast(T, self._look_inside(body))
            finally:
                self._reading.release()
        return await self._look_in_thread(body)

    def _look_in_thread(self, body: Body[T]) -> asyncio.Future[T]:
        try:
            return asyncio.get_running_loop().run_in_executor(self._readers, self._look, body)
        except RuntimeError as error:
            # Not of the look, which has not begun: the thread is no more.
            raise UsageError(CLOSED) from error

    def _look(self, body: Body[Any]) -> Any:
        with self._reading:
            return self._look_inside(body)

    def _look_inside(self, body: Body[Any]) -> Any:
        began = time.monotonic()
        with translated(self._path):
            cursor = self._reader()
            cursor.execute("BEGIN")
            try:
                return drive(body(SqliteTransaction(cursor, self.clock.now())))
            except apsw.SQLError as error:
                if is_behind("sqlite", stored_version(cursor.connection)):
                    raise _Behind(f"{self._path} is of an older Bullpen and not yet brought up to date") from error
                raise
            finally:
                # After an error of the disk SQLite has done so itself; what it would say now hides that error.
                if cursor.connection.in_transaction:
                    cursor.execute("ROLLBACK")
                self._last_look_seconds = time.monotonic() - began

    def _reader(self) -> apsw.Cursor:
        assert self._path is not None
        self._check_file()
        if self._read_cursor is None:
            with translated(self._path):
                connection = connect(self._path, must_exist=True) if is_there(self._path) else None
                current = None if connection is None else stored_version(connection)
                check_version("sqlite", current)
                if connection is None or current is None:
                    # Looking creates nothing: what is not there, or is just being created by somebody, is empty.
                    empty = connect(None)
                    migrate(empty)
                    return empty.cursor()
            self._read_cursor, self._file = connection.cursor(), file_at(self._path)
        return self._read_cursor

    async def _has_changed(self) -> bool:
        self._check_file()
        if self._path is None or self._read_cursor is None:
            return True
        version = await asyncio.get_running_loop().run_in_executor(self._readers, self._read_data_version)
        changed, self._data_version = version != self._data_version, version
        return changed

    def _read_data_version(self) -> int:
        with self._reading, translated(self._path):
            return int(self._reader().connection.pragma("data_version"))

    # -- life ------------------------------------------------------------------------------

    async def _hold_life(self, token: str) -> None:
        self._check_file()
        self._lives.hold(token)

    async def _drop_life(self, token: str) -> None:
        self._lives.drop(token)

    async def probe_worker(self, worker: Worker) -> Liveness:
        return self._lives.probe(worker)


async def _nothing(tx: Transaction) -> None:
    """Who writes has migrated before."""


def _in_utf8(path: Path) -> Path:
    """SQLite takes no other name, though a file system may."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"SQLite opens no path that is not UTF-8, as {str(path)!r}: choose another, or files:DIR"
        ) from None
    return path


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
