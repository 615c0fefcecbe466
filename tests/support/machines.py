"""Machines for tests: several on this one, with a network between them that can be cut.

    hub      PostgreSQL, and a bridge          a namespace of its own
     ├── a   its own address, its own loopback  another one
     └── b   …

`cut` takes the link of a machine down at the hub, as if its cable were pulled: nothing is refused, nothing arrives any
more. Where namespaces may not be made, a machine is a relay on loopback that keeps silent when it is cut.

Namespaces have no names and belong to nobody but a process that ends when its input does. So nothing is left behind
however a test ends, two runs never collide, and nothing of the real network is touched.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import shutil
import socket
import subprocess
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.support.postgres import PrivateServer, create_database, unprivileged_account

PROGRAMS = ("ip", "nsenter", "unshare", "setpriv")
SOCKET = ".s.PGSQL.5432"
NETWORK = "10.77.0"
_CLONE_NEWNET = 0x40000000


class Machine(ABC):
    """`entering` is put before a command to run it there. What is kept in a home is not seen by the others."""

    def __init__(self, name: str, url: str, directory: Path, entering: Sequence[str] = ()) -> None:
        self.name = name
        self.url = url
        self.entering = tuple(entering)
        self.environment = {
            "MACHINE": name,
            "HOME": str(directory),
            # Else they would know of each other's deaths from the one kernel that they share.
            "XDG_RUNTIME_DIR": str(directory),
            "XDG_STATE_HOME": str(directory / "state"),
        }

    @abstractmethod
    def cut(self) -> None:
        """From here on it and the database hear nothing of each other, and are not told so."""

    @abstractmethod
    def mend(self) -> None: ...

    @abstractmethod
    def listen(self) -> socket.socket:
        """A socket on its loopback, which is reached from it even while it is cut off."""


class Hub(ABC):
    """Where the database is. `machine` adds one that reaches it."""

    server: PrivateServer

    @abstractmethod
    @asynccontextmanager
    def machine(self, name: str, database: str) -> AsyncIterator[Machine]:
        """`database` is the URL by which this process reaches it."""

    @asynccontextmanager
    async def machines(self, names: Sequence[str]) -> AsyncIterator[tuple[dict[str, Machine], str]]:
        """They share a database of their own; also the URL by which this process reaches it, cut or not."""
        database = create_database(self.server.url)
        async with AsyncExitStack() as stack:
            yield {name: await stack.enter_async_context(self.machine(name, database)) for name in names}, database


# -- in namespaces -----------------------------------------------------------------------------------------------


@cache
def why_no_namespaces() -> str | None:
    """For a person; None where they can be made."""
    if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
        return f"no {', '.join(missing)}: install the packages iproute2 and util-linux"
    if os.geteuid() != 0:
        return "network namespaces are made by root"
    try:
        with _namespace() as pid:
            _ip(pid, "link", "add", "pen0", "type", "bridge")
            _ip(pid, "link", "add", "v1", "type", "veth", "peer", "name", "eth0")
    except (OSError, RuntimeError) as error:
        return f"network namespaces cannot be made here: {error}"
    return None


@contextmanager
def _namespace() -> Iterator[int]:
    """The process that holds it."""
    holder = subprocess.Popen(
        ["unshare", "--net", "sh", "-c", "echo up; exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    with holder.stdin, holder.stdout:
        try:
            if holder.stdout.readline() != b"up\n":
                raise RuntimeError("unshare --net is refused")
            yield holder.pid
        finally:
            holder.kill()
            holder.wait()


def _entering(pid: int) -> list[str]:
    return ["nsenter", f"--net=/proc/{pid}/ns/net"]


def _ip(pid: int, *words: str) -> None:
    done = subprocess.run([*_entering(pid), "ip", *words], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")


class NamespaceHub(Hub):
    def __init__(self, pid: int, server: PrivateServer) -> None:
        self._pid = pid
        self._count = 0
        self.server = server

    @asynccontextmanager
    async def machine(self, name: str, database: str) -> AsyncIterator[Machine]:
        self._count += 1
        link, address = f"v{self._count}", f"{NETWORK}.{self._count + 1}/24"
        with _namespace() as pid, _home() as directory:
            _ip(self._pid, "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
            _ip(self._pid, "link", "set", link, "master", "pen0", "up")
            for words in (f"addr add {address} dev eth0", "link set eth0 up", "link set lo up"):
                _ip(pid, *words.split())
            url = _url(database, f"{NETWORK}.1", name)
            yield NamespaceMachine(name, url, directory, hub=self._pid, link=link, pid=pid)


class NamespaceMachine(Machine):
    def __init__(self, name: str, url: str, directory: Path, *, hub: int, link: str, pid: int) -> None:
        # What runs there ends with whoever has started it.
        super().__init__(name, url, directory, ["setpriv", "--pdeathsig", "KILL", *_entering(pid)])
        self._hub = hub
        self._link = link
        self._pid = pid

    def cut(self) -> None:
        _ip(self._hub, "link", "set", self._link, "down")

    def mend(self) -> None:
        _ip(self._hub, "link", "set", self._link, "up")

    def listen(self) -> socket.socket:
        made: list[socket.socket] = []
        # A thread may be in another namespace than its process, and a socket stays in that in which it was made.
        thread = threading.Thread(target=lambda: made.append(_listen_in(self._pid)))
        thread.start()
        thread.join()
        [listener] = made
        return listener


def _listen_in(pid: int) -> socket.socket:
    with open(f"/proc/{pid}/ns/net") as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    return socket.create_server(("127.0.0.1", 0))


def _url(database: str, address: str, name: str) -> str:
    """The server knows its connections by the name."""
    return urlsplit(database)._replace(netloc=f"postgres@{address}", query=f"application_name={name}").geturl()


@contextmanager
def _home() -> Iterator[Path]:
    # Short: sockets lie below it.
    directory = Path(tempfile.mkdtemp(prefix="bullpen-m-", dir="/tmp"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def namespace_hub(**settings: str) -> Iterator[Hub]:
    account: dict[str, Any] = unprivileged_account()
    with ExitStack() as stack:
        pid = stack.enter_context(_namespace())
        _ip(pid, "link", "add", "pen0", "type", "bridge")
        for words in (f"addr add {NETWORK}.1/24 dev pen0", "link set pen0 up", "link set lo up"):
            _ip(pid, *words.split())
        entering = [*_entering(pid), "--setuid", str(account["user"]), "--setgid", str(account["group"]), "--"]
        server = PrivateServer(settings={**settings, "listen_addresses": f"{NETWORK}.1"}, entering=entering)
        with (server.data / "pg_hba.conf").open("a") as rules:
            rules.write(f"host all all {NETWORK}.0/24 trust\n")
        yield NamespaceHub(pid, stack.enter_context(server))


# -- behind relays -----------------------------------------------------------------------------------------------


class RelayHub(Hub):
    def __init__(self, server: PrivateServer) -> None:
        self.server = server

    @asynccontextmanager
    async def machine(self, name: str, database: str) -> AsyncIterator[Machine]:
        relay = _Relay(self.server.directory / SOCKET)
        with _home() as directory:
            async with relay.serving() as port:
                url = _url(database, f"127.0.0.1:{port}", name)
                yield RelayMachine(name, url, directory, relay)


class RelayMachine(Machine):
    def __init__(self, name: str, url: str, directory: Path, relay: _Relay) -> None:
        super().__init__(name, url, directory)
        self._relay = relay

    def cut(self) -> None:
        self._relay.flows.clear()

    def mend(self) -> None:
        self._relay.flows.set()

    def listen(self) -> socket.socket:
        return socket.create_server(("127.0.0.1", 0))


class _Relay:
    """Hands on what both sides say while it `flows`; that one of them has hung up, too."""

    def __init__(self, server: Path) -> None:
        self._server = server
        self.flows = asyncio.Event()
        self.flows.set()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[int]:
        tasks: set[asyncio.Task[None]] = set()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            with suppress(OSError, asyncio.CancelledError):
                await self._relay(reader, writer)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self.flows.wait()
        server_reader, server = await asyncio.open_unix_connection(self._server)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._copy(reader, server))
                both.create_task(self._copy(server_reader, writer))
        finally:
            server.close()

    async def _copy(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(65536):
                await self.flows.wait()
                target.write(data)
                await target.drain()
        await self.flows.wait()
        target.close()


@contextmanager
def relay_hub(**settings: str) -> Iterator[Hub]:
    with PrivateServer(settings=settings) as server:
        yield RelayHub(server)


def open_hub(**settings: str) -> AbstractContextManager[Hub]:
    """The best that there is."""
    return relay_hub(**settings) if why_no_namespaces() else namespace_hub(**settings)
