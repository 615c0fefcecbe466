"""TLS in front of a PostgreSQL server whose build has none: it answers the client's SSLRequest, shows a certificate,
and hands on what it then hears. The client's part, which is what is tested, is libpq's own."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

SSL_REQUEST = b"\x00\x00\x00\x08\x04\xd2\x16\x2f"
SOCKET = ".s.PGSQL.5432"


@asynccontextmanager
async def tls_in_front(directory: Path, certificate: ssl.SSLContext) -> AsyncIterator[int]:
    """The port on loopback behind which the server in this directory is."""
    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        task.add_done_callback(serving.discard)
        # Whoever does not trust the certificate hangs up in the middle of the handshake.
        gone = (OSError, asyncio.IncompleteReadError, asyncio.CancelledError)
        with contextlib.closing(writer), contextlib.suppress(*gone):
            await _serve(reader, writer, directory, certificate)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


async def _serve(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, directory: Path, certificate: ssl.SSLContext
) -> None:
    if await reader.readexactly(len(SSL_REQUEST)) != SSL_REQUEST:
        return
    writer.write(b"S")
    await writer.start_tls(certificate)
    server_reader, server = await asyncio.open_unix_connection(directory / SOCKET)
    with contextlib.closing(server):
        async with asyncio.TaskGroup() as both:
            both.create_task(_copy(reader, server))
            both.create_task(_copy(server_reader, writer))


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(65536):
            target.write(data)
        target.close()
