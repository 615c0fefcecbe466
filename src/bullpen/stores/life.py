"""Proof of life on one machine: a lock file for each worker, held as long as its process lives.

The kernel frees an `flock` when its holder dies, however it dies, so a free one
proves death at once, and `resume` right after `kill -9` need not wait for a lease.
`LifeLocks` lie beside a store that only one machine has: what is not there is dead.
`LocalLives` serve a store that many machines share: they prove deaths of this one,
and know nothing of any other.
"""

from __future__ import annotations

import fcntl
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from bullpen.domain.member import Liveness, Worker
from bullpen.errors import StoreUnavailable
from bullpen.stores.directory import make_runtime_directory, make_store_directory, runtime_path
from bullpen.stores.forks import let_go_in_children


@cache
def boot_id() -> str:
    """Tells this run of the machine from the one before its last restart."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return "unknown"


class LifeLocks:
    def __init__(self, directory: Path | None) -> None:
        """`None`: nobody else can see the store, whoever asks is alive."""
        self._directory = directory
        self._held: dict[str, int] = {}
        self._locking = threading.RLock()
        """Held while a lock is open that nobody knows of yet, or any more: a child would keep its copy."""
        let_go_in_children(self, self._locking)

    def hold(self, token: str) -> None:
        if self._directory is None:
            self._held[token] = -1
            return
        make_store_directory(self._directory.parent)
        make_store_directory(self._directory)
        with self._locking:
            self._held[token] = self._lock(token)
        self._clear_up()

    def _lock(self, token: str) -> int:
        try:
            descriptor = os.open(self._path(token), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreUnavailable(f"cannot write in {self._directory}: {error.strerror}") from error
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if not os.fstat(descriptor).st_nlink:
            # Taken for one that a dead process has left, before it was locked.
            os.close(descriptor)
            return self._lock(token)
        return descriptor

    def _clear_up(self) -> None:
        """Who is killed leaves its lock behind, and it says nothing more than none would."""
        assert self._directory is not None
        with suppress(OSError):
            for name in os.listdir(self._directory):
                token = name.removesuffix(".lock")
                if token != name and token not in self._held:
                    with self._looked_at(token) as found:
                        if found is Liveness.DEAD:
                            self._path(token).unlink(missing_ok=True)

    def drop(self, token: str) -> None:
        with self._locking:
            descriptor = self._held.pop(token, -1)
            if descriptor >= 0:
                # Where it cannot be removed it is left behind like that of one who was killed: it is free.
                with suppress(OSError):
                    self._path(token).unlink()
                os.close(descriptor)

    def probe(self, worker: Worker) -> Liveness:
        if worker.token in self._held:
            return Liveness.ALIVE
        if self._directory is None:
            return Liveness.DEAD
        if worker.host != socket.gethostname():
            return Liveness.UNKNOWN
        return self._look(worker.token) or Liveness.DEAD

    def _look(self, token: str) -> Liveness | None:
        """None: there is no such file."""
        with self._looked_at(token) as found:
            return found

    @contextmanager
    def _looked_at(self, token: str) -> Iterator[Liveness | None]:
        """While inside, nobody can begin to live by a lock that was found to be free: whoever has just made it, and not
        locked it yet, waits."""
        with self._locking:
            try:
                descriptor = os.open(self._path(token), os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                yield None
                return
            except OSError:
                yield Liveness.UNKNOWN
                return
            try:
                yield Liveness.DEAD if _is_free(descriptor) else Liveness.ALIVE
            finally:
                os.close(descriptor)

    def close(self) -> None:
        for token in list(self._held):
            self.drop(token)

    def let_go(self) -> None:
        held, self._held = self._held, {}
        for descriptor in held.values():
            if descriptor >= 0:
                os.close(descriptor)

    def _path(self, token: str) -> Path:
        assert self._directory is not None
        return self._directory / f"{token}.lock"


def _is_free(descriptor: int) -> bool:
    try:
        # Shared: two who probe at once do not take each other for the owner.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class LocalLives(LifeLocks):
    """In the user's own directory of this machine. Whoever cannot write there goes without this proof."""

    def _clear_up(self) -> None:
        """Here none says less: a lock that is free is the proof, whoever needs it."""

    def __init__(self) -> None:
        super().__init__(runtime_path() / "lives")

    def hold(self, token: str) -> None:
        with suppress(StoreUnavailable):
            make_runtime_directory()
            super().hold(token)

    def probe(self, worker: Worker) -> Liveness:
        """No file: another container or user of this machine, or one who could not write it."""
        if worker.boot_id != boot_id():
            return Liveness.UNKNOWN
        return self._look(worker.token) or Liveness.UNKNOWN
