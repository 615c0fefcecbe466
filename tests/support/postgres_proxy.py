"""A proxy in front of a PostgreSQL server that cuts a connection exactly when COMMIT passes.

It reads the messages that the client sends. Commands are prepared statements, so the name under which `COMMIT`
was prepared is remembered, and its use recognised.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

SOCKET = ".s.PGSQL.5432"


class Cut(Enum):
    NEVER = "never"
    BEFORE = "before the server gets the COMMIT"
    AFTER = "after the server has answered it, before the client hears"


class Proxy:
    def __init__(self, directory: Path, server: Path, url: str) -> None:
        self.url = url
        self.next_cut = Cut.NEVER
        self.cuts = 0
        self.refuses = False
        """After a cut, let nobody in any more."""
        self._path = directory / SOCKET
        self._server = server / SOCKET
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> asyncio.Server:
        return await asyncio.start_unix_server(self._serve, self._path)

    async def _serve(self, client_reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if not (self.refuses and self.cuts):
                await self._relay(client_reader, client)
        finally:
            client.close()
            self._tasks.discard(task)

    async def _relay(self, client_reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        server_reader, server = await asyncio.open_unix_connection(self._server)
        answers = asyncio.create_task(_copy(server_reader, client))
        try:
            await self._forward(client_reader, server, server_reader, answers)
        finally:
            answers.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                await answers
            server.close()

    async def _forward(
        self,
        client: asyncio.StreamReader,
        server: asyncio.StreamWriter,
        server_reader: asyncio.StreamReader,
        answers: asyncio.Task[None],
    ) -> None:
        commit_name = b""
        is_first = True
        while message := await _message(client, is_first):
            is_first = False
            if message[:1] == b"P" and message[5:].split(b"\0")[1] == b"COMMIT":
                commit_name = message[5:].split(b"\0")[0]
            is_commit = message[:1] == b"B" and commit_name and message[5:].split(b"\0")[1] == commit_name
            if is_commit and self.next_cut is not Cut.NEVER:
                await self._cut(message, client, server, server_reader, answers)
                return
            server.write(message)

    async def _cut(
        self,
        message: bytes,
        client: asyncio.StreamReader,
        server: asyncio.StreamWriter,
        server_reader: asyncio.StreamReader,
        answers: asyncio.Task[None],
    ) -> None:
        cut, self.next_cut = self.next_cut, Cut.NEVER
        self.cuts += 1
        if cut is Cut.BEFORE:
            return
        answers.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await answers
        while message[:1] != b"S":  # Sync ends the batch
            server.write(message)
            message = await _message(client, False)
        server.write(message)
        while await _message(server_reader, False) != b"Z\0\0\0\5I":  # ready, and in no transaction any more
            continue


async def _message(reader: asyncio.StreamReader, is_first: bool) -> bytes:
    """The first one has no type. Empty at the end."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        head = await reader.readexactly(4 if is_first else 5)
        return head + await reader.readexactly(int.from_bytes(head[-4:], "big") - 4)
    return b""


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await source.read(65536):
            target.write(data)
    target.close()


@asynccontextmanager
async def proxied(url: str) -> AsyncIterator[Proxy]:
    """In front of the server of this URL, which names the directory of its socket."""
    parts = urlsplit(url)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    with tempfile.TemporaryDirectory(prefix="bullpen-proxy-", dir="/tmp") as directory:
        own = urlencode({**query, "host": directory, "sslmode": "disable", "gssencmode": "disable"})
        proxy = Proxy(Path(directory), Path(query["host"]), parts._replace(query=own).geturl())
        server = await proxy.start()
        try:
            yield proxy
        finally:
            server.close()
            for task in list(proxy._tasks):
                task.cancel()
            await asyncio.gather(*proxy._tasks, return_exceptions=True)
            await server.wait_closed()
