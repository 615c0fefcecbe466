"""`sslmode=verify-full`: only a server that proves its name with the right authority is spoken to."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from bullpen.errors import StoreUnavailable
from bullpen.stores import open_store
from tests.support.postgres import PrivateServer
from tests.support.postgres_tls import SSL_REQUEST, tls_in_front
from tests.support.stores import create_team, opened, user_of

NAME = "localhost"
BOUND_SECONDS = 60.0


@dataclass(frozen=True)
class Secured:
    port: int
    authority: Path

    def url(self, host: str = NAME, authority: Path | None = None) -> str:
        how = f"sslmode=verify-full&sslrootcert={authority or self.authority}&gssencmode=disable"
        return f"postgresql://postgres@{host}:{self.port}/postgres?{how}"


@asynccontextmanager
async def secured(server: PrivateServer, folder: Path) -> AsyncIterator[Secured]:
    authority = trustme.CA()
    root = folder / "root.crt"
    authority.cert_pem.write_to_path(str(root))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(NAME).configure_cert(context)
    async with tls_in_front(server.directory, context) as port:
        yield Secured(port, root)


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateServer]:
    with PrivateServer() as started:
        yield started


async def test_a_server_that_proves_its_name_is_spoken_to_and_its_notices_come_through(
    server: PrivateServer, tmp_path: Path
) -> None:
    async with secured(server, tmp_path) as place, opened(place.url()) as store, opened(place.url()) as other:
        team, _ = await create_team(store)
        async with store.listen_wanted() as bell:
            bell.clear()
            await other.spawn_member(user_of(team.id), "ana")
            assert await bell.wait(BOUND_SECONDS)


async def test_a_server_with_another_name_or_another_authority_is_refused_in_one_line(
    server: PrivateServer, tmp_path: Path
) -> None:
    stranger = tmp_path / "stranger.crt"
    trustme.CA().cert_pem.write_to_path(str(stranger))
    async with secured(server, tmp_path) as place:
        refused = {
            place.url(authority=stranger): "certificate verify failed",
            place.url(host="127.0.0.1"): "does not match",
            place.url(authority=tmp_path / "missing.crt"): "missing.crt",
        }
        for url, why in refused.items():
            with pytest.raises(StoreUnavailable, match=why) as caught:
                async with open_store(url):
                    pass
            assert "\n" not in str(caught.value)


async def test_a_server_without_tls_is_not_spoken_to_in_the_clear() -> None:
    """The default of libpq, `prefer`, would go on without a word."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(len(SSL_REQUEST))
        writer.write(b"N")
        heard.append(await reader.read())
        writer.close()

    heard: list[bytes] = []
    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        url = f"postgresql://postgres@127.0.0.1:{port}/postgres?sslmode=verify-full&sslrootcert=system"
        with pytest.raises(StoreUnavailable, match="does not support SSL"):
            async with open_store(url):
                pass
    assert set(heard) <= {b""}
