"""The gate between processes: who may write to the database just now.

SQLite's own busy handler sleeps and tries again, which starves whoever sleeps
longest (one claimer got 1 task while another got 2,032). An `flock` queues in the
kernel instead, and is freed when its holder dies, however it dies.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from bullpen.errors import StoreUnavailable
from bullpen.stores.directory import make_store_directory
from bullpen.stores.forks import let_go_in_children

# Enough for a dozen verbs; with eight processes that write all the time, each is inside again after 30 ms.
STAY_SECONDS = 0.004

_TICK_NS = 50_000_000


class Gate:
    stay_seconds = STAY_SECONDS

    def __init__(self, path: Path, *, check: Callable[[], None]) -> None:
        """`check` is called before directory and lock file are made: it raises if they were there and were removed."""
        self._path = path
        self._check = check
        self._descriptor: int | None = None
        self._name = b"%-10d\n" % os.getpid()
        self._signed_at = -1
        """When the lock file changed last, if what it says since then is our name."""
        self._opening = threading.RLock()
        """A fork waits for it: a child lets go only of what is known to be open."""
        let_go_in_children(self, self._opening)

    def enter(self) -> None:
        """Blocks until it is free; the caller's caller decides how long it is willing to wait."""
        self._lock(fcntl.LOCK_EX)

    def try_enter(self) -> bool:
        return self._lock(fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _lock(self, how: int) -> bool:
        descriptor = self._open() if self._descriptor is None else self._descriptor
        try:
            fcntl.flock(descriptor, how)
        except BlockingIOError:
            return False
        except OSError as error:
            raise StoreUnavailable(f"{self._path} cannot be locked: {error.strerror}") from error
        found = os.fstat(descriptor)
        if not found.st_nlink:
            # It was removed, and perhaps made anew: this lock excludes nobody.
            self.close()
            return self._lock(how)
        if found.st_mtime_ns != self._signed_at:
            self._sign(descriptor, found.st_mtime_ns)
        return True

    def _sign(self, descriptor: int, changed_at: int) -> None:
        """For whoever waits and wants to know for whom. A full disk must not keep the gate shut.

        Two who sign within one tick of the file system's clock leave the same time: one this young is not trusted.
        """
        try:
            if os.pread(descriptor, len(self._name), 0) != self._name:
                os.pwrite(descriptor, self._name, 0)
            elif time.time_ns() - changed_at > _TICK_NS:
                self._signed_at = changed_at
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                self.leave()
                raise StoreUnavailable(f"{self._path} cannot be written: {error.strerror}") from error

    def leave(self) -> None:
        if self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def holder(self) -> str:
        try:
            with self._path.open("rb") as file:
                pid = file.read(len(self._name)).decode("ascii").strip()
        except (OSError, ValueError):
            pid = ""
        return f"process {pid}" if pid else "another process"

    def close(self) -> None:
        # First it is forgotten: a child that is forked just then must not close what has got its number meanwhile.
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def let_go(self) -> None:
        self.close()

    def _open(self) -> int:
        self._check()
        make_store_directory(self._path.parent)
        try:
            with self._opening:
                self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreUnavailable(f"cannot write in {self._path.parent}: {error.strerror}") from error
        return self._descriptor


class NoGate:
    """For a database that no other process can see."""

    stay_seconds = 0.0

    def enter(self) -> None:
        return None

    def try_enter(self) -> bool:
        return True

    def leave(self) -> None:
        return None

    def holder(self) -> str:
        return "this process"

    def close(self) -> None:
        return None
