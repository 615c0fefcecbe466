"""A courier: one POST and its whole answer, over connections that are kept.

What the clients do for that (httpx, its pool, its event stack) takes twenty times the CPU of what is needed for a
request whose body is there as bytes and an answer that is wanted whole: 1.3 ms of each model turn, measured. So
whatever is streamed, redirected, goes through a proxy or to an address with a password is theirs, and the rest goes
this way.

Invariant: a connection is kept only when its answer was read to the last byte, and used again only if nothing has come
since, so nobody reads another's answer.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.request import getproxies, proxy_bypass

import httpx2

from bullpen.domain.leave import Leave, at_any_time

Header = tuple[bytes, bytes]

KEEP_SECONDS = 5.0
"""A connection that rested longer may just be closed by the server: a request that meets that is lost."""
KEEP_AT_MOST = 100
MAX_HEAD_BYTES = 256 * 1024
# The second address of a name is tried when the first has not answered for so long.
NEXT_ADDRESS_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Delivered:
    """The answer to a request, whatever its status."""

    status: int
    headers: list[Header]
    body: bytes

    def header(self, name: bytes) -> bytes:
        return next((value for key, value in self.headers if key == name), b"")


class Courier:
    """To one address. OSError or `httpx2.HTTPError` when there is no answer, or only a part of one."""

    def __init__(self, url: httpx2.URL, *, connect_seconds: float, answer_seconds: float) -> None:
        self._host = url.host
        self._port = url.port or (443 if url.scheme == "https" else 80)
        self._is_secure = url.scheme == "https"
        self._connect_seconds = connect_seconds
        self._answer_seconds = answer_seconds
        self._security: ssl.SSLContext | None = None
        self._resting: list[tuple[float, _Connection]] = []

    async def post(
        self, target: bytes, headers: Iterable[Header], body: bytes, *, leave: Leave = at_any_time
    ) -> Delivered:
        connection = self._rested() or await self._connect()
        is_whole = False
        try:
            await leave()
            async with asyncio.timeout(self._answer_seconds):
                delivered = await connection.post(target, headers, body)
            is_whole = True
        except TimeoutError:
            raise httpx2.ReadTimeout(f"no answer within {self._answer_seconds:g} s") from None
        finally:
            if is_whole and connection.may_stay and len(self._resting) < KEEP_AT_MOST:
                self._resting.append((time.monotonic(), connection))
            else:
                connection.close()
        return delivered

    async def close(self) -> None:
        while self._resting:
            self._resting.pop()[1].close()
        # They close in the loop's next turn, which may be its last.
        await asyncio.sleep(0)

    def _rested(self) -> _Connection | None:
        """The one that was used last; all that rested for too long are closed."""
        found = None
        while self._resting and found is None:
            since, connection = self._resting.pop()
            if time.monotonic() - since < KEEP_SECONDS and connection.is_open:
                found = connection
            else:
                connection.close()
        while self._resting and time.monotonic() - self._resting[0][0] >= KEEP_SECONDS:
            self._resting.pop(0)[1].close()
        return found

    async def _connect(self) -> _Connection:
        if self._is_secure and self._security is None:
            # As the clients have it: the machine's certificates, SSL_CERT_FILE and SSL_CERT_DIR.
            self._security = httpx2.create_ssl_context()
        try:
            async with asyncio.timeout(self._connect_seconds):
                try:
                    return await self._dial(happy_eyeballs_delay=NEXT_ADDRESS_SECONDS)
                except TypeError:
                    # Other loops than asyncio's own, as uvloop, know one address after the other only.
                    return await self._dial()
        except TimeoutError:
            raise httpx2.ConnectTimeout(f"no connection within {self._connect_seconds:g} s") from None

    async def _dial(self, **options: Any) -> _Connection:
        where = (self._host, self._port)
        return _Connection(*await asyncio.open_connection(*where, ssl=self._security, limit=MAX_HEAD_BYTES, **options))


class _Connection:
    """HTTP/1.1 as far as a POST without surprises needs it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.may_stay = True

    @property
    def is_open(self) -> bool:
        """And nothing has come that nobody asked for: some servers say why before they hang up (408), and that is no
        answer to the next request. The reader knows of no end while it holds such bytes."""
        reader: Any = self._reader
        is_silent = not reader._buffer and not reader.at_eof() and reader.exception() is None
        return is_silent and not self._writer.is_closing()

    def close(self) -> None:
        # There is nothing more to be said, so nobody waits for the other side, as TLS would.
        self._writer.transport.abort()

    async def post(self, target: bytes, headers: Iterable[Header], body: bytes) -> Delivered:
        lines = [b"POST " + target + b" HTTP/1.1", *(name + b": " + value for name, value in headers)]
        lines.append(b"content-length: %d\r\n\r\n" % len(body))
        # In one piece: a head of its own would be a segment of its own.
        self._writer.write(b"\r\n".join(lines) + body)
        try:
            # A server may refuse what it has not read to the end: its answer says more than the broken pipe.
            with suppress(ConnectionError):
                await self._writer.drain()
            status, answered = await self._head()
            while 100 <= status < 200:
                status, answered = await self._head()
            return Delivered(status, answered, await self._body(status, answered))
        except asyncio.IncompleteReadError:
            raise httpx2.RemoteProtocolError("the server hung up before the end of its answer") from None
        except (asyncio.LimitOverrunError, ValueError) as error:
            raise httpx2.RemoteProtocolError(f"this is no answer of HTTP: {error}") from None

    async def _head(self) -> tuple[int, list[Header]]:
        first, *lines = await self._lines()
        version, _, rest = first.partition(b" ")
        if not version.startswith(b"HTTP/1."):
            raise ValueError(first[:60])
        headers = [(name.strip().lower(), value.strip()) for name, _, value in (line.partition(b":") for line in lines)]
        wishes = b",".join(value.lower() for name, value in headers if name == b"connection")
        self.may_stay = b"close" not in wishes and (version != b"HTTP/1.0" or b"keep-alive" in wishes)
        return int(rest[:3]), headers

    async def _lines(self) -> list[bytes]:
        """Up to the empty one."""
        lines: list[bytes] = []
        left = MAX_HEAD_BYTES
        while line := await self._line():
            lines.append(line)
            left -= len(line)
            if left < 0:
                raise ValueError("its head has no end")
        return lines

    async def _line(self) -> bytes:
        # Some servers end it without the carriage return; who waited for that would wait for ever.
        return (await self._reader.readuntil(b"\n")).rstrip(b"\r\n")

    async def _body(self, status: int, headers: list[Header]) -> bytes:
        if status in (204, 304):
            return b""
        known = dict(headers)
        if b"chunked" in known.get(b"transfer-encoding", b"").lower():
            return b"".join([chunk async for chunk in self._chunks()])
        if (length := known.get(b"content-length")) is not None:
            return await self._reader.readexactly(int(length))
        self.may_stay = False
        return await self._reader.read()

    async def _chunks(self) -> AsyncIterator[bytes]:
        while size := int((await self._line()).partition(b";")[0], 16):
            yield await self._reader.readexactly(size)
            if await self._line():
                raise ValueError("a chunk is longer than it says")
        # Trailers, which nobody wants, and the empty line.
        await self._lines()


def is_proxied(url: httpx2.URL) -> bool:
    """Does the environment say that requests to this address go through a proxy?"""
    proxies = getproxies()
    return bool(proxies.get(url.scheme) or proxies.get("all")) and not proxy_bypass(url.host)
