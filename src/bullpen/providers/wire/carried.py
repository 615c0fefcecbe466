"""Mixed into a client of Anthropic's or OpenAI's: a request whose answer is wanted whole goes by courier.

Both clients come from one generator, so what is used of them here has the same names in both: they still say what
stands in a request (address, keys, headers) and what an answer means (types, errors); only the way there is ours.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import httpx2
from pydantic import ValidationError

from bullpen.domain.leave import Leave, at_any_time
from bullpen.providers.wire.body import as_bytes
from bullpen.providers.wire.courier import Courier, Delivered, Header, is_proxied

# We want the answer as it is (without a word about that it could be packed anyhow), and count the body ourselves.
_PLAIN: Header = (b"accept-encoding", b"identity")
_OURS = (b"accept-encoding", b"content-length")


LEAVE: ContextVar[Leave] = ContextVar("leave", default=at_any_time)
"""Of the request that is made: between who knows it and who sends it stand two libraries."""


class Carried:
    """`unset`: the types by which the client marks what is not to be sent; `construct`: how it makes its own type of
    whatever was answered."""

    unset: tuple[type, ...]
    construct: Callable[..., Any]

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        client: Any = self
        url, timeout = httpx2.URL(client.base_url), client.timeout
        # A name and a password in the address are the clients' affair, too: they make a header of them on the way.
        is_theirs = bool(url.userinfo) or is_proxied(url)
        self._courier = (
            None if is_theirs else Courier(url, connect_seconds=timeout.connect, answer_seconds=timeout.read)
        )
        self._heads: dict[str, tuple[bytes, list[Header], httpx2.Request]] = {}

    async def request(self, cast_to: Any, options: Any, *, stream: bool = False, stream_cls: Any = None) -> Any:
        client: Any = super()
        leave = LEAVE.get()
        if stream or self._courier is None:
            await leave()
            return await client.request(cast_to, options, stream=stream, stream_cls=stream_cls)
        target, headers, request = self._head(as_bytes(options, self.unset))
        delivered = await self._courier.post(target, headers, options.content, leave=leave)
        if 300 <= delivered.status < 400:
            await leave()
            return await client.request(cast_to, options, stream=stream, stream_cls=stream_cls)
        found = _find_object(delivered)
        if found is not None:
            return self._made(cast_to, self._understood(found))
        return await self._read(cast_to, options, _response(delivered, request))

    async def close(self) -> None:
        if self._courier is not None:
            await self._courier.close()
        client: Any = super()
        await client.close()

    def _head(self, options: Any) -> tuple[bytes, list[Header], httpx2.Request]:
        """What is the same in all such requests: asked of the client once."""
        key = f"{options.url} {options.params} {options.headers}"
        if key not in self._heads:
            client: Any = self
            request: httpx2.Request = client._build_request(options)
            theirs = [(name, value) for name, value in request.headers.raw if name.lower() not in _OURS]
            self._heads[key] = (request.url.raw_path, [*theirs, _PLAIN], request)
        return self._heads[key]

    def _understood(self, answer: dict[str, Any]) -> dict[str, Any]:
        """What some servers say otherwise, as the protocol has it."""
        return answer

    def _made(self, cast_to: Any, answer: dict[str, Any]) -> Any:
        """The client's own way takes whatever comes; what is as it should be is checked in a fifth of the time."""
        try:
            return cast_to.model_validate(answer)
        except ValidationError:
            return self.construct(type_=cast_to, value=answer)

    async def _read(self, cast_to: Any, options: Any, response: httpx2.Response) -> Any:
        """What is not as it should be: the client says what that means."""
        client: Any = self
        if response.is_success:
            return await client._process_response(
                cast_to=cast_to, options=options, response=response, stream=False, stream_cls=None
            )
        raise client._make_status_error_from_response(response) from None


def _find_object(delivered: Delivered) -> dict[str, Any] | None:
    """What was answered, if it is what was asked for."""
    if delivered.status != 200 or not delivered.header(b"content-type").lower().startswith(b"application/json"):
        return None
    try:
        value = json.loads(delivered.body)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _response(delivered: Delivered, request: httpx2.Request) -> httpx2.Response:
    return httpx2.Response(delivered.status, headers=delivered.headers, content=delivered.body, request=request)
