"""The server: HTTP/1.1 on loopback with nothing but asyncio, so that it can break off wherever it is told to."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from types import ModuleType
from typing import Any, Self

from bullpen.domain.prompt import ThinkingPart
from bullpen.provider import ModelRequest
from bullpen.providers.scripted import ScriptedProvider
from tests.support.protocol_server import anthropic_format, openai_format
from tests.support.protocol_server.conversation import Answer, Heard, Model, Refused, tokens
from tests.support.protocol_server.fault import (
    WORDS,
    Cut,
    Fault,
    Garbage,
    Halt,
    HangUp,
    Plan,
    Slow,
    Status,
    StreamError,
)
from tests.support.protocol_server.ledger import Ledger

KEY = "test-key-0123456789"
BACKLOG = 2048
"""Whoever comes while that many wait to be let in is turned away, and tries again only seconds later."""
_FORMATS: Mapping[str, ModuleType] = {
    anthropic_format.PATH: anthropic_format,
    openai_format.PATH: openai_format,
}


class HungUp(Exception):
    """The connection is to be closed now."""


class ProtocolServer:
    """Serves while it is entered. `heard` holds every legal request, `ledger` what was counted."""

    def __init__(
        self,
        model: Model,
        *,
        keys: Iterable[str] = (KEY,),
        models: Iterable[str] | None = None,
        window_tokens: int | None = None,
        port: int = 0,
        latency_seconds: float = 0.0,
    ) -> None:
        """`latency_seconds` pass from a request to its answer, what the server needs for it included."""
        self._model = model
        self._keys = frozenset(keys)
        self._models = None if models is None else frozenset(models)
        self._window_tokens = window_tokens
        self._port = port
        self._latency_seconds = latency_seconds
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self._plan = Plan()
        self.ledger = Ledger()
        self.heard: list[Heard] = []
        self.keep_heard = True

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port, limit=1 << 24, backlog=BACKLOG)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        serving = list(self._serving)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def environ(self) -> dict[str, str]:
        """What a client's environment must say to find this server."""
        return environ_for(self.port, KEY)

    @asynccontextmanager
    async def listening_on(self, listener: socket.socket) -> AsyncIterator[None]:
        """Here too, wherever that is."""
        server = await asyncio.start_server(self._serve, sock=listener, limit=1 << 24, backlog=BACKLOG)
        try:
            yield
        finally:
            server.close()

    def inject(self, fault: Fault, *, times: int = 1, when: Callable[[Heard], bool] = lambda heard: True) -> None:
        self._plan.add(fault, times=times, when=when)

    def follow(self, plan: Plan) -> None:
        self._plan = plan

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        self.ledger.connections += 1
        try:
            while await self._serve_one(reader, writer):
                pass
        except (HungUp, ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._serving.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        line = await reader.readline()
        if not line:
            return False
        method, target, _ = line.decode("latin-1").split(" ", 2)
        headers: dict[str, str] = {}
        while (header := (await reader.readline()).decode("latin-1").strip()) != "":
            name, _, value = header.partition(":")
            headers[name.strip().lower()] = value.strip()
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        path = target.partition("?")[0]
        if method == "GET" and path == "/ledger":
            await _send(writer, 200, self.ledger.facts())
        elif method == "POST" and path in _FORMATS:
            await self._answer(_FORMATS[path], headers, body, writer)
        else:
            await _send(writer, 404, {"error": {"message": f"no such path: {path}", "type": "not_found_error"}})
        return True

    async def _answer(self, format: Any, headers: Mapping[str, str], body: bytes, writer: asyncio.StreamWriter) -> None:
        self.ledger.requests += 1
        due = asyncio.get_running_loop().time() + self._latency_seconds
        try:
            format.authorise(headers, self._keys)
            heard = replace(self._hear(format, body), key=_key_of(headers), at=datetime.now(UTC))
        except Refused as error:
            self.ledger.refusals.append(error.message)
            await _send(writer, error.status, format.refusal(error))
            return
        if self.keep_heard:
            self.heard.append(heard)
        fault = self._plan.take(heard)
        if fault is not None:
            self.ledger.faults[type(fault).__name__] += 1
        if isinstance(fault, Status | Garbage | HangUp):
            await self._fail(format, fault, writer)
            return
        if isinstance(fault, Slow):
            fault.heard.set()
            await fault.until.wait()
        common = self.ledger.count(heard)
        answered = self._model(heard)
        answer = Answer.of(await answered if inspect.isawaitable(answered) else answered)
        usage = self.ledger.bill(heard, answer, common)
        if self._latency_seconds:
            await asyncio.sleep(due - asyncio.get_running_loop().time())
        if heard.stream:
            await self._stream(format, format.events(answer, heard, usage), fault, writer)
        else:
            await _send(writer, 200, format.whole(answer, heard, usage), cut=isinstance(fault, Cut))

    def _hear(self, format: Any, body: bytes) -> Heard:
        try:
            raw = body.decode("utf-8")
            data = json.loads(raw)
        except ValueError as error:
            raise Refused(400, "invalid_request_error", f"The request body is not valid JSON: {error}") from error
        heard: Heard = format.hear(data, raw)
        if self._models is not None and heard.model not in self._models:
            raise Refused(404, "not_found_error", f"model: {heard.model}", code="model_not_found")
        size = tokens(raw)
        if self._window_tokens is not None and size > self._window_tokens:
            said = {
                "anthropic": f"prompt is too long: {size} tokens > {self._window_tokens} maximum",
                "openai": f"This model's maximum context length is {self._window_tokens} tokens. However, your "
                f"messages resulted in {size} tokens. Please reduce the length of the messages.",
            }
            raise Refused(400, "invalid_request_error", said[heard.format], code="context_length_exceeded")
        return heard

    async def _fail(self, format: Any, fault: Status | Garbage | HangUp, writer: asyncio.StreamWriter) -> None:
        match fault:
            case Status():
                if fault.until is not None:
                    await fault.until.wait()
                kind, message = WORDS.get(fault.status, ("invalid_request_error", "Refused"))
                error = Refused(fault.status, fault.kind or kind, fault.message or message, code=fault.code)
                headers = {} if fault.retry_after is None else {"retry-after": fault.retry_after}
                await _send(writer, fault.status, format.refusal(error), headers=headers)
            case Garbage():
                await _send(writer, 200, fault.body, content_type=fault.content_type)
            case HangUp():
                raise HungUp

    async def _stream(
        self, format: Any, events: list[bytes], fault: Fault | None, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        if isinstance(fault, StreamError):
            events = [*events[: fault.events], format.error_event(fault.kind, "Overloaded")]
        if isinstance(fault, Cut):
            events = events[: fault.events]
        for number, event in enumerate(events):
            if isinstance(fault, Halt) and number == fault.events:
                await fault.until.wait()
            writer.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
            await writer.drain()
        if isinstance(fault, Cut) and not fault.clean:
            raise HungUp
        writer.write(b"0\r\n\r\n")
        await writer.drain()


def environ_for(port: int, key: str) -> dict[str, str]:
    address = f"http://127.0.0.1:{port}"
    return {
        "ANTHROPIC_BASE_URL": address,
        "ANTHROPIC_API_KEY": key,
        "OPENAI_BASE_URL": f"{address}/v1",
        "OPENAI_API_KEY": key,
    }


def _key_of(headers: Mapping[str, str]) -> str:
    return headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")


async def _send(
    writer: asyncio.StreamWriter,
    status: int,
    body: Any,
    *,
    headers: Mapping[str, str] | None = None,
    content_type: str = "application/json",
    cut: bool = False,
) -> None:
    data = (body if isinstance(body, str) else json.dumps(body)).encode()
    lines = [f"HTTP/1.1 {status} X", f"content-type: {content_type}", f"content-length: {len(data)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    writer.write("\r\n".join([*lines, "", ""]).encode() + (data[: len(data) // 2] if cut else data))
    await writer.drain()
    if cut:
        raise HungUp


def scripted(provider: ScriptedProvider) -> Model:
    """A script as the server's model. How far it has come travels in the thinking, which clients hand back."""

    async def answer(heard: Heard) -> Answer:
        messages = tuple(
            type(message)(tuple(_unpacked(part) for part in message.parts)) for message in heard.request.messages
        )
        request = ModelRequest(
            system=heard.request.system,
            tools=heard.request.tools,
            messages=messages,
            max_output_tokens=heard.request.max_output_tokens,
            member=heard.member,
        )
        reply = await provider.reply(request)
        return Answer(parts=tuple(_packed(part) for part in reply.message.parts), usage=reply.usage)

    return answer


def _packed(part: Any) -> Any:
    if isinstance(part, ThinkingPart) and "turn" in part.extra:
        return ThinkingPart(text=json.dumps(dict(part.extra)), provider="")
    return part


def _unpacked(part: Any) -> Any:
    if isinstance(part, ThinkingPart) and part.text.startswith('{"turn"'):
        return ThinkingPart(text="", provider="scripted", extra=json.loads(part.text))
    return part
