"""Bells: how a change wakes whoever it concerns, inside a process and between processes of one machine.

`BellBoard` is the part inside a process: topics and the waiters on them. A
`Doorbell` carries rings to the boards of other processes; `DatagramDoorbell` does
it with UNIX datagram sockets in a directory that all users of one store share.

- A ring for a member goes only to the process of its worker: its socket's name
  begins with the worker's id. Followers of a log have sockets of their own, so an
  idle worker is not woken by events.
- Socket names are random, the directory is short and the user's own: a socket path
  may have 104 bytes at most. Sends never block; a socket that refuses is a dead
  process's and is unlinked, by whoever rings there or comes later. A full one already has something to wake up for.
- A ring that finds the socket full is lost (Linux keeps ten letters). Whoever then
  finds its socket full says so on its board, and the safety net looks at once.
- A lost ring costs no more than one interval of that net, which asks the
  store once a process (never once a member) whether somebody has work.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import json
import os
import secrets
import socket
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from bullpen.domain.text import name_key
from bullpen.errors import StoreUnavailable
from bullpen.stores.directory import make_runtime_directory
from bullpen.stores.transaction import EventRing, MemberRing, Ring, SubmissionRing, WantedRing

_MAX_DATAGRAM = 60_000
_RECEIVE_BUFFER = 1 << 20
_SETTLED_SECONDS = 60.0


class EventBell:
    """An `asyncio.Event` that another thread may ring."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._listener: Callable[[], None] | None = None

    def clear(self) -> None:
        self._event.clear()

    def ring(self) -> None:
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self._loop:
            self._ring_here()
        else:
            # The loop may have been closed by now; then nobody waits.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._ring_here)

    def _ring_here(self) -> None:
        self._event.set()
        if self._listener is not None:
            self._listener()

    async def wait(self, timeout_seconds: float | None = None) -> bool:
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._event.wait()
        except TimeoutError:
            return False
        return True

    @contextmanager
    def call(self, listener: Callable[[], None]) -> Iterator[None]:
        assert self._listener is None
        self._listener = listener
        try:
            if self._event.is_set():
                listener()
            yield
        finally:
            self._listener = None


def topic_of(ring: Ring) -> Hashable:
    match ring:
        case MemberRing():
            return member_topic(ring.team_id, ring.name)
        case EventRing():
            return events_topic(ring.team_id)
        case WantedRing():
            return WANTED_TOPIC
        case SubmissionRing():
            return SUBMISSIONS_TOPIC


def member_topic(team_id: int, name: str) -> Hashable:
    return ("member", team_id, name_key(name))


def events_topic(team_id: int) -> Hashable:
    return ("events", team_id)


def is_member_topic(topic: Hashable) -> bool:
    return isinstance(topic, tuple) and topic[0] == "member"


def is_events_topic(topic: Hashable) -> bool:
    return isinstance(topic, tuple) and topic[0] == "events"


WANTED_TOPIC: Hashable = ("wanted",)
SUBMISSIONS_TOPIC: Hashable = ("submissions",)
OVERFLOW_TOPIC: Hashable = ("overflow",)
"""Rings when rings may have been lost."""


class BellBoard:
    """Who waits for what in this process."""

    def __init__(self) -> None:
        self._bells: dict[Hashable, set[EventBell]] = {}

    @contextmanager
    def subscribe(self, topic: Hashable) -> Iterator[EventBell]:
        bell = EventBell()
        self._bells.setdefault(topic, set()).add(bell)
        try:
            yield bell
        finally:
            bells = self._bells[topic]
            bells.discard(bell)
            if not bells:
                del self._bells[topic]

    def ring(self, topic: Hashable) -> None:
        for bell in list(self._bells.get(topic, ())):
            bell.ring()

    def ring_all(self) -> None:
        """After a lost connection: everyone looks once."""
        for topic in list(self._bells):
            self.ring(topic)

    def topics(self) -> list[Hashable]:
        return list(self._bells)


class Doorbell(Protocol):
    """Carries rings to other processes. Sending never waits and never fails the verb that rang."""

    def send(self, rings: Iterable[Ring]) -> None: ...

    @contextmanager
    def receive(self, prefix: str) -> Iterator[None]:
        """While inside, rings for this prefix reach the board."""
        ...


class NoDoorbell:
    """For a store that no other process can see."""

    def send(self, rings: Iterable[Ring]) -> None:
        return None

    @contextmanager
    def receive(self, prefix: str) -> Iterator[None]:
        yield


def worker_prefix(worker_id: int) -> str:
    return f"w{worker_id}-"


EVENTS_PREFIX = "e-"


class DatagramDoorbell:
    def __init__(self, board: BellBoard, identity: str) -> None:
        """`identity` names the store: the same for every process that opened it."""
        self._board = board
        self._directory = make_runtime_directory() / hashlib.sha256(os.fsencode(identity)).hexdigest()[:16]
        self._directory_name = str(self._directory)
        self._own: set[str] = set()
        """Our own sockets: whoever rings here has rung the board already."""
        self._sender: socket.socket | None = None
        self._listing: tuple[int, list[str]] = (-1, [])

    def send(self, rings: Iterable[Ring]) -> None:
        names = self._socket_names()
        if not names:
            return
        letters: dict[str, list[Any]] = {}
        for ring in rings:
            match ring:
                case MemberRing():
                    letters.setdefault(worker_prefix(ring.worker_id), []).append(["m", ring.team_id, ring.name])
                case WantedRing():
                    letters.setdefault("w", []).append(["w"])
                case SubmissionRing():
                    letters.setdefault("w", []).append(["s"])
                case EventRing():
                    letters.setdefault(EVENTS_PREFIX, []).append(["e", ring.team_id])
        for prefix, entries in letters.items():
            for name in names:
                if name.startswith(prefix) and name not in self._own:
                    self._post(name, entries)

    def _socket_names(self) -> list[str]:
        """The directory's content; listed again only when its time has changed.

        The time is read before the list: a socket added in between is in the list and makes it be read once more.
        Two changes within one tick of the file system's clock could hide one; a listing this young is not trusted.
        """
        # Once: the loop and the writer's thread both ring.
        listed_at, names = self._listing
        try:
            changed = os.stat(self._directory_name).st_mtime_ns
            if listed_at == changed:
                return names
            names = os.listdir(self._directory_name)
        except OSError:
            # Not there: nobody listens. Or not ours to read: the verb that rang is committed and must not fail.
            return []
        is_settled = time.time_ns() - changed > 50_000_000
        self._listing = (changed if is_settled else -1, names)
        return names

    def _post(self, name: str, entries: list[Any]) -> None:
        path = os.path.join(self._directory_name, name)
        for start in range(0, len(entries), 500):
            letter = json.dumps(entries[start : start + 500]).encode()
            assert len(letter) < _MAX_DATAGRAM
            try:
                self._socket().sendto(letter, path)
            except (ConnectionRefusedError, FileNotFoundError):
                with suppress(OSError):
                    os.unlink(path)
                return
            except OSError as error:
                # EAGAIN and ENOBUFS: its buffer is full, so it will wake up anyway.
                if error.errno not in (errno.EAGAIN, errno.ENOBUFS, errno.EACCES, errno.EPERM):
                    return

    def _socket(self) -> socket.socket:
        if self._sender is None:
            self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._sender.setblocking(False)
        return self._sender

    def close(self) -> None:
        if self._sender is not None:
            self._sender.close()
            self._sender = None

    @contextmanager
    def receive(self, prefix: str) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = self._directory / f"{prefix}{secrets.token_hex(6)}"
            receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        except OSError as error:
            raise StoreUnavailable(f"no doorbell in {self._directory}: {error.strerror}") from error
        with contextlib.closing(receiver):
            try:
                receiver.setblocking(False)
                receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
                receiver.bind(str(path))
            except OSError as error:
                raise StoreUnavailable(f"no doorbell at {path}: {error.strerror}") from error
            self._clear_up()
            loop.add_reader(receiver, self._drain, receiver)
            self._own.add(path.name)
            try:
                yield
            finally:
                self._own.discard(path.name)
                loop.remove_reader(receiver)
                # What cannot be removed is no reason to stay; others clear it up.
                with suppress(OSError):
                    path.unlink()

    def _clear_up(self) -> None:
        """What the killed have left. Nobody may ever ring there and be refused: no worker's number comes back.

        Who is just binding its socket refuses for an instant, too: only one that has been there for a while is dead.
        """
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as knocking:
            knocking.setblocking(False)
            for name in self._socket_names():
                path = os.path.join(self._directory_name, name)
                with suppress(OSError):
                    try:
                        knocking.connect(path)
                    except ConnectionRefusedError:
                        if time.time() - os.stat(path).st_mtime > _SETTLED_SECONDS:
                            os.unlink(path)

    def _drain(self, receiver: socket.socket) -> None:
        letters = 0
        while True:
            try:
                letter = receiver.recv(_MAX_DATAGRAM)
            except BlockingIOError:
                break
            letters += 1
            for topic in _topics_in(letter):
                self._board.ring(topic)
        if letters >= queue_length():
            self._board.ring(OVERFLOW_TOPIC)


def _topics_in(letter: bytes) -> list[Hashable]:
    """Anyone of this user can write to a socket: what makes no sense is passed over."""
    topics: list[Hashable] = []
    with suppress(ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        for entry in json.loads(letter):
            match entry:
                case ["m", int(team_id), str(name)]:
                    topics.append(member_topic(team_id, name))
                case ["e", int(team_id)]:
                    topics.append(events_topic(team_id))
                case ["w"]:
                    topics.append(WANTED_TOPIC)
                case ["s"]:
                    topics.append(SUBMISSIONS_TOPIC)
    return topics


@cache
def queue_length() -> int:
    """How many letters the system keeps for a socket whose process is busy, at least."""
    with suppress(OSError, ValueError):
        return int(Path("/proc/sys/net/unix/max_dgram_qlen").read_text())
    return 10
