"""The store's one lock: an `flock` on `.teams/.lock`, exclusive to write and shared to read.

The lock file tells who is inside (for those who wait), counts commits (so that a
process knows when what it has read before is old), and bears a mark of its own (so that
a store is not taken for one that was made in its place). Whoever gets in first finishes
what a dead process left in the journal; a reader that finds something goes in as a
writer for that moment.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from bullpen.errors import StoreUnavailable
from bullpen.stores.directory import removed
from bullpen.stores.files.journal import Journal
from bullpen.stores.files.layout import LOCK, TEAMS
from bullpen.stores.forks import let_go_in_children

# `PID COMMITS`, a line, and then what tells this store from another that is made in its place.
_PID_WIDTH = 10
_TOKEN_AT = _PID_WIDTH + 22
_TOKEN_WIDTH = 16


class Footing:
    """Whether the store is still there: its ids would mean others in one that takes its place."""

    def __init__(self, root: str) -> None:
        self._root = root
        self.begin()

    def begin(self) -> None:
        """It is opened: whatever is there is the store."""
        self._is_found = False
        self._token = b""

    def check(self) -> None:
        """It has been here: where nothing is any more, it was removed."""
        if self._is_found and not os.path.lexists(os.path.join(self._root, TEAMS)):
            raise removed(self._root)

    def recognise(self, token: bytes) -> None:
        """What its lock file says of itself. Brought back from a copy it says the same."""
        self._is_found = True
        if token and self._token and token != self._token:
            raise removed(self._root)
        self._token = self._token or token


class Gate:
    """Blocks in `enter`; the caller's caller decides how long it is willing to wait."""

    # What it knows of the files is not lost with the gate, and none of its verbs runs where it is called.
    stay_seconds = 0.0

    def __init__(self, root: str, journal: Journal, footing: Footing, *, is_shared: bool) -> None:
        self._root = root
        self._footing = footing
        self._path = os.path.join(root, LOCK)
        self._is_shared = is_shared
        self._journal = journal
        self._descriptor: int | None = None
        self.commits = 0
        """How many there have been, as of the last `enter`."""
        self.is_inside = False
        """False after `enter` only if there is nothing to lock: nobody has ever written here."""
        self._opening = threading.RLock()
        """A fork waits for it: a child lets go only of what is known to be open."""
        let_go_in_children(self, self._opening)

    def enter(self) -> None:
        with translated(self._root):
            while not self._try_enter():
                pass

    def try_enter(self) -> bool:
        """Never: a verb on files takes longer than a loop should stand still."""
        return False

    def leave(self) -> None:
        if self._descriptor is not None and self.is_inside:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        self.is_inside = False

    def rest(self) -> None:
        """On leaving for good: if nobody is inside, leave the files flushed and the journal empty."""
        if self._descriptor is None or not self._is_current(self._descriptor):
            return
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        try:
            if not self._journal.is_pending():
                self._journal.checkpoint()
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def holder(self) -> str:
        try:
            with open(self._path, encoding="ascii") as file:
                pid = file.read(_PID_WIDTH).strip()
        except (OSError, ValueError):
            pid = ""
        return f"process {pid}" if pid else "another process"

    def peek_commits(self) -> int:
        """How many there have been, without entering; -1 if that cannot be told."""
        try:
            with open(self._path, "rb") as file:
                return self._read_commits(file.fileno())
        except OSError:
            return -1

    def close(self) -> None:
        # First it is forgotten: a child that is forked just then must not close what has got its number meanwhile.
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def let_go(self) -> None:
        self.close()

    def count_commit(self) -> None:
        """Before it is applied: whoever comes after one that died in between finds it counted, or not applied."""
        self.commits += 1
        self._note()

    def has_appeared(self) -> bool:
        """Nobody had ever written when we entered; has somebody by now?"""
        return not self.is_inside and os.path.exists(self._path)

    def _try_enter(self) -> bool:
        descriptor = self._open()
        if descriptor is None:
            return True
        fcntl.flock(descriptor, fcntl.LOCK_SH if self._is_shared else fcntl.LOCK_EX)
        self.is_inside = True
        try:
            return self._look_around(descriptor)
        except BaseException:
            # Whoever could not look (no descriptor is left, a disk that fails) must not keep everybody else out.
            self.leave()
            raise

    def _look_around(self, descriptor: int) -> bool:
        if not self._is_current(descriptor):
            # The directory was removed, and perhaps made anew: this lock excludes nobody.
            self.is_inside = False
            self.close()
            return False
        self.commits = self._read_commits(descriptor)
        if not self._is_shared:
            self._note()
        self._footing.recognise(self._read_token(descriptor))
        if self._journal.is_pending():
            return self._finish_for_the_dead(descriptor)
        return True

    def _finish_for_the_dead(self, descriptor: int) -> bool:
        if self._is_shared:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            self.commits = self._read_commits(descriptor)
        self.count_commit()
        self._journal.recover()
        if self._is_shared:
            # Not atomic: somebody may come in between, so everything is looked at again.
            self.leave()
        return not self._is_shared

    def _open(self) -> int | None:
        if self._descriptor is None:
            self._footing.check()
            with self._opening:
                self._descriptor = self._open_file()
        return self._descriptor

    def _open_file(self) -> int | None:
        try:
            if not self._is_shared:
                os.makedirs(os.path.join(self._root, TEAMS), exist_ok=True)
            flags = os.O_RDWR | os.O_CLOEXEC | (0 if self._is_shared else os.O_CREAT)
            return os.open(self._path, flags, 0o666)
        except (FileNotFoundError, NotADirectoryError):
            if not self._is_shared:
                raise
            return None
        except PermissionError:
            if not self._is_shared:
                raise
            return os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            if error.errno != errno.EROFS or not self._is_shared:
                raise
            return os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)

    def _is_current(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), os.stat(self._path))
        except FileNotFoundError:
            return False

    def _read_commits(self, descriptor: int) -> int:
        text = os.pread(descriptor, _TOKEN_AT, 0)[_PID_WIDTH:].split()
        return int(text[0]) if text and text[0].isdigit() else 0

    def _read_token(self, descriptor: int) -> bytes:
        """The store's own; who is inside to write gives it one."""
        token = os.pread(descriptor, _TOKEN_WIDTH, _TOKEN_AT)
        if len(token) < _TOKEN_WIDTH and not self._is_shared:
            with suppress(OSError):
                os.pwrite(descriptor, secrets.token_hex(_TOKEN_WIDTH // 2).encode(), _TOKEN_AT)
            token = os.pread(descriptor, _TOKEN_WIDTH, _TOKEN_AT)
        return token if len(token) == _TOKEN_WIDTH else b""

    def _note(self) -> None:
        # A full disk must not keep the gate shut; the bytes are there from the first time on.
        if self._descriptor is not None:
            with suppress(OSError):
                os.pwrite(self._descriptor, f"{os.getpid():<{_PID_WIDTH}} {self.commits:<20}\n".encode(), 0)


@contextmanager
def translated(root: str) -> Iterator[None]:
    """What the operating system says, as one line for whoever asked."""
    try:
        yield
    except OSError as error:
        raise unavailable(root, error) from error


def unavailable(root: str, error: OSError) -> StoreUnavailable:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreUnavailable(f"the disk is full: nothing was changed in {root}")
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return StoreUnavailable(f"{root} cannot be written: {error.strerror}")
    return StoreUnavailable(f"{root} cannot be used: {error.strerror or error}")
