"""The courier against a server whose every byte the test decides."""

from __future__ import annotations

import asyncio
import base64
import gzip
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trustme

from bullpen.errors import BadRequest, LeaseLost, Overloaded
from bullpen.providers import open_provider
from bullpen.providers.wire import carried
from bullpen.providers.wire import courier as module
from bullpen.providers.wire.courier import Courier, Delivered, is_proxied
from tests.support.leave import LONG, TAKEN_OVER, Leave
from tests.support.protocol_server import ProtocolServer
from tests.support.protocol_server.server import KEY
from tests.support.requests import ask

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
HEADERS = [(b"host", b"here"), (b"x-key", b"secret")]


@dataclass
class Counter:
    """Answers each request with the next of `answers`; None hangs up."""

    answers: list[bytes | None]
    port: int = 0
    connections: int = 0
    heard: list[bytes] = field(default_factory=list)
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)
    serving: list[asyncio.Task[None] | None] = field(default_factory=list)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.serving.append(asyncio.current_task())
        self.writers.append(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].split()[0])
                self.heard.append(head + await reader.readexactly(length))
                answer = self.answers.pop(0)
                if answer is None:
                    break
                writer.write(answer)
                if b"connection: close" in answer or answer.startswith(b"HTTP/1.0"):
                    break
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            self.hung_up.set()
            with suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()


@asynccontextmanager
async def counter(*answers: bytes | None, security: ssl.SSLContext | None = None) -> AsyncIterator[Counter]:
    it = Counter(list(answers))
    server = await asyncio.start_server(it.serve, "127.0.0.1", 0, ssl=security)
    it.port = server.sockets[0].getsockname()[1]
    try:
        yield it
    finally:
        server.close()
        for task in it.serving:
            if task is not None:
                task.cancel()
                await asyncio.wait({task})


@asynccontextmanager
async def courier_to(it: Counter, *, scheme: str = "http", seconds: float = 30.0) -> AsyncIterator[Courier]:
    courier = Courier(httpx2.URL(f"{scheme}://127.0.0.1:{it.port}"), connect_seconds=seconds, answer_seconds=seconds)
    try:
        yield courier
    finally:
        await courier.close()


async def fetch(*answers: bytes | None) -> Delivered:
    async with counter(*answers) as it, courier_to(it) as courier:
        return await courier.post(b"/v1/x?beta=true", HEADERS, b"{}")


async def test_a_request_is_sent_as_given_and_its_length_counted() -> None:
    async with counter(OK) as it, courier_to(it) as courier:
        assert (await courier.post(b"/v1/x?beta=true", HEADERS, b'{"a":1}')).body == b"ok"
    [sent] = it.heard
    assert sent == b'POST /v1/x?beta=true HTTP/1.1\r\nhost: here\r\nx-key: secret\r\ncontent-length: 7\r\n\r\n{"a":1}'


async def test_leave_is_asked_when_all_is_ready_to_be_sent() -> None:
    """Who was frozen while it connected sends nothing for members that are somebody else's by now."""
    async with counter(OK) as it, courier_to(it) as courier:
        with pytest.raises(LeaseLost):
            await courier.post(b"/", HEADERS, b"", leave=Leave(TAKEN_OVER))
        assert it.heard == []
        assert (await courier.post(b"/", HEADERS, b"", leave=Leave(LONG))).body == b"ok"


@pytest.mark.parametrize("model", ["anthropic:claude-sonnet-5", "openai:gpt-5"])
@pytest.mark.parametrize("is_watched", [False, True])
async def test_who_loses_its_leave_while_the_request_is_made_sends_nothing(model: str, is_watched: bool) -> None:
    async with ProtocolServer(lambda heard: "hello") as server:
        provider = open_provider(model, environ=server.environ)
        leave = Leave(LONG, TAKEN_OVER)
        with pytest.raises(LeaseLost):
            await provider.reply(ask("hi", leave=leave), on_text=(lambda text: None) if is_watched else None)
        await provider.close()
    assert leave.left == []
    assert server.heard == []


async def test_one_connection_serves_request_after_request() -> None:
    async with counter(OK, OK, OK) as it, courier_to(it) as courier:
        for _ in range(3):
            await courier.post(b"/", HEADERS, b"")
    assert it.connections == 1


async def test_requests_at_once_have_a_connection_each() -> None:
    async with counter(*[OK] * 5) as it, courier_to(it) as courier:
        found = await asyncio.gather(*(courier.post(b"/", HEADERS, b"") for _ in range(5)))
    assert [one.body for one in found] == [b"ok"] * 5
    assert it.connections == 5


async def test_an_answer_in_chunks_is_put_together_and_the_connection_stays() -> None:
    chunked = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"5;name=value\r\nhello\r\n6\r\n world\r\n0\r\nx-trailer: 1\r\n\r\n"
    )
    async with counter(chunked, OK) as it, courier_to(it) as courier:
        assert (await courier.post(b"/", HEADERS, b"")).body == b"hello world"
        assert (await courier.post(b"/", HEADERS, b"")).body == b"ok"
    assert it.connections == 1


@pytest.mark.parametrize("frame", [b"content-length: 2\n\nok", b"transfer-encoding: chunked\n\n2\nok\n0\nx: 1\n\n"])
async def test_lines_may_end_without_a_carriage_return(frame: bytes) -> None:
    """As a server written by hand ends them, and the clients read them."""
    async with counter(b"HTTP/1.1 200 OK\nX-Why: none\n" + frame, OK) as it, courier_to(it, seconds=5) as courier:
        delivered = await courier.post(b"/", HEADERS, b"")
        assert (delivered.body, delivered.header(b"x-why")) == (b"ok", b"none")
        assert (await courier.post(b"/", HEADERS, b"")).body == b"ok"
    assert it.connections == 1


async def test_an_answer_of_unknown_length_ends_with_the_connection() -> None:
    assert (await fetch(b"HTTP/1.0 200 OK\r\n\r\nuntil the end")).body == b"until the end"


async def test_a_word_in_advance_is_passed_over() -> None:
    assert (await fetch(b"HTTP/1.1 100 Continue\r\n\r\n" + OK)).body == b"ok"


async def test_an_answer_without_a_body_is_not_waited_for() -> None:
    delivered = await fetch(b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\nX-Why: none\r\n\r\n")
    assert (delivered.status, delivered.body, delivered.header(b"x-why")) == (204, b"", b"none")


async def test_a_server_that_says_close_is_connected_to_anew() -> None:
    closing = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok"
    async with counter(closing, OK) as it, courier_to(it) as courier:
        await courier.post(b"/", HEADERS, b"")
        await courier.post(b"/", HEADERS, b"")
    assert it.connections == 2


async def test_a_connection_that_the_server_closed_while_it_rested_is_not_used() -> None:
    async with counter(OK, OK) as it, courier_to(it) as courier:
        await courier.post(b"/", HEADERS, b"")
        resting = courier._resting[0][1]
        it.answers.insert(0, None)
        resting._writer.write(b"POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n")
        await it.hung_up.wait()
        await asyncio.wait_for(resting._reader.read(), 30)
        assert (await courier.post(b"/", HEADERS, b"")).body == b"ok"
    assert it.connections == 2


@pytest.mark.parametrize("is_closed", [True, False])
async def test_what_a_server_says_on_a_resting_connection_answers_no_request(is_closed: bool) -> None:
    """Load balancers say why they close a connection that rests; some servers end a body with a line too many."""
    farewell = b"HTTP/1.1 408 Request Time-out\r\ncontent-length: 0\r\n\r\n" if is_closed else b"\r\n"
    async with counter(OK, OK) as it, courier_to(it) as courier:
        await courier.post(b"/", HEADERS, b"")
        resting = courier._resting[0][1]
        it.writers[0].write(farewell)
        if is_closed:
            it.writers[0].write_eof()
        async with asyncio.timeout(10):
            while resting.is_open:  # noqa: ASYNC110 - nothing else says that it has come
                await asyncio.sleep(0)
        assert (await courier.post(b"/", HEADERS, b"")).body == b"ok"
    assert it.connections == 2


async def test_a_connection_that_rested_too_long_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEEP_SECONDS", 0.0)
    async with counter(OK, OK) as it, courier_to(it) as courier:
        await courier.post(b"/", HEADERS, b"")
        await courier.post(b"/", HEADERS, b"")
        assert len(courier._resting) == 1
    assert it.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        None,
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 200\r\n\r\nonly so much",
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\nff\r\nonly so much",
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-le",
        b"SSH-2.0-OpenSSH_9.2\r\nconnection: close\r\n\r\n",
        b"HTTP/1.1 abc connection: close\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"x" * 600_000 + b"connection: close\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100_000 + b"connection: close\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n2\r\nokay\r\n0\r\n\r\n",
    ],
    ids=[
        "hung up",
        "cut",
        "cut chunk",
        "cut head",
        "not HTTP",
        "no status",
        "no length",
        "no size",
        "endless line",
        "endless head",
        "long chunk",
    ],
)
async def test_what_is_no_whole_answer_is_an_error_and_the_connection_is_not_kept(answer: bytes | None) -> None:
    async with counter(answer) as it, courier_to(it) as courier:
        with pytest.raises((httpx2.HTTPError, OSError)):
            await courier.post(b"/", HEADERS, b"")
        assert courier._resting == []


async def test_an_answer_that_does_not_come_in_time_is_a_timeout() -> None:
    async with counter(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n") as it, courier_to(it, seconds=0.05) as courier:
        with pytest.raises(httpx2.ReadTimeout, match=r"within 0\.05 s"):
            await courier.post(b"/", HEADERS, b"")
        assert courier._resting == []


async def test_who_is_cancelled_leaves_no_half_read_connection() -> None:
    async with counter(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab", OK) as it, courier_to(it) as courier:
        asking = asyncio.ensure_future(courier.post(b"/", HEADERS, b""))
        while not it.heard:  # noqa: ASYNC110 - the server is ours, and says nothing else
            await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert (await courier.post(b"/", HEADERS, b"")).body == b"ok"


async def test_a_certificate_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = trustme.CA()
    security = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(security)
    async with counter(OK, OK, security=security) as it:
        async with courier_to(it, scheme="https") as courier:
            with pytest.raises(ssl.SSLCertVerificationError):
                await courier.post(b"/", HEADERS, b"")
        authority.cert_pem.write_to_path(tmp_path / "ca.pem")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        async with courier_to(it, scheme="https") as courier:
            assert (await courier.post(b"/", HEADERS, b"")).body == b"ok"


async def test_a_loop_that_tries_one_address_after_the_other_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """As uvloop does, which takes no such option."""
    loop = asyncio.get_running_loop()
    connect = loop.create_connection

    async def create_connection(*args: Any, **options: Any) -> Any:
        if "happy_eyeballs_delay" in options:
            raise TypeError("unexpected keyword argument 'happy_eyeballs_delay'")
        return await connect(*args, **options)

    monkeypatch.setattr(loop, "create_connection", create_connection)
    assert (await fetch(OK)).body == b"ok"


# -- what is left to the clients --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, False),
        ({"HTTPS_PROXY": "http://proxy:3128"}, True),
        ({"ALL_PROXY": "http://proxy:3128"}, True),
        ({"HTTP_PROXY": "http://proxy:3128"}, False),
        ({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "api.anthropic.com"}, False),
    ],
)
def test_a_proxy_of_the_environment_is_seen(
    variables: dict[str, str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert is_proxied(httpx2.URL("https://api.anthropic.com/v1/messages")) is expected


MODELS = {"anthropic": "anthropic:claude-sonnet-5", "openai": "openai:gpt-5.5"}
FORMATS = pytest.mark.parametrize("format", MODELS)


def environ(format: str, port: int) -> dict[str, str]:
    address = f"http://127.0.0.1:{port}" + ("/v1" if format == "openai" else "")
    return {f"{format.upper()}_BASE_URL": address, f"{format.upper()}_API_KEY": KEY}


@FORMATS
async def test_a_request_goes_through_the_proxy_that_the_environment_names(
    format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = b"HTTP/1.1 502 Bad\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    async with counter(refusal) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setenv("NO_PROXY", "")
        monkeypatch.delenv("no_proxy", raising=False)
        provider = open_provider(MODELS[format], environ=environ(format, 1))
        with pytest.raises(Overloaded, match="502"):
            await provider.reply(ask("hi"))
        await provider.close()
    assert proxy.heard[0].startswith(b"POST http://127.0.0.1:1/v1/")


@FORMATS
async def test_an_address_with_a_name_and_a_password_is_asked_with_them(format: str) -> None:
    """As the client does it, streamed or not."""
    async with counter(REFUSAL) as it:
        variables = environ(format, it.port)
        variables[f"{format.upper()}_BASE_URL"] = variables[f"{format.upper()}_BASE_URL"].replace("//", "//me:word@")
        provider = open_provider(MODELS[format], environ=variables)
        with pytest.raises(BadRequest, match="400"):
            await provider.reply(ask("hi"))
        await provider.close()
    assert b"authorization: basic " + base64.b64encode(b"me:word").lower() in it.heard[0].lower()


REFUSAL = b"HTTP/1.1 400 Bad\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


@FORMATS
async def test_a_server_that_has_moved_is_followed(format: str) -> None:
    moved = b"HTTP/1.1 308 Moved\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n"
    async with counter(moved, moved, REFUSAL) as it:
        provider = open_provider(MODELS[format], environ=environ(format, it.port))
        with pytest.raises(BadRequest, match="400"):
            await provider.reply(ask("hi"))
        await provider.close()
    assert it.heard[-1].startswith(b"POST /elsewhere HTTP/1.1")
    assert KEY.encode() in it.heard[-1]


@FORMATS
async def test_what_goes_by_courier_is_what_the_client_would_send(format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Address, keys, versions and body; only that we can read no packed answers is left out."""
    sent = []
    for is_theirs in (False, True):
        monkeypatch.setattr(carried, "is_proxied", lambda url, is_theirs=is_theirs: is_theirs)
        async with counter(REFUSAL) as it:
            provider = open_provider(MODELS[format], environ=environ(format, it.port))
            with pytest.raises(BadRequest, match="400"):
                await provider.reply(ask("hi"))
            await provider.close()
        head, _, body = it.heard[0].replace(b"%d" % it.port, b"PORT").partition(b"\r\n\r\n")
        first, *lines = head.split(b"\r\n")
        named = [line.lower() for line in lines]
        assert (b"accept-encoding: identity" in named) is not is_theirs
        sent.append((first, sorted(line for line in named if not line.startswith(b"accept-encoding")), body))
    assert sent[0] == sent[1]
    assert any(KEY.encode() in line for line in sent[0][1])


@FORMATS
async def test_an_answer_that_is_packed_all_the_same_is_read(format: str) -> None:
    packed = gzip.compress(b'{"error": {"type": "invalid_request_error", "message": "Packed, but told."}}')
    head = b"HTTP/1.1 400 Bad\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n"
    async with counter(head % len(packed) + packed) as it:
        provider = open_provider(MODELS[format], environ=environ(format, it.port))
        with pytest.raises(BadRequest, match="Packed, but told"):
            await provider.reply(ask("hi"))
        await provider.close()
