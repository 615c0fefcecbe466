"""A model behind HTTP, without anything of its library until it is called."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from bullpen.domain.prompt import Reply
from bullpen.provider import ModelLimits, ModelRequest
from bullpen.providers.account import Account
from bullpen.providers.wire.importing import import_libraries, importing

if TYPE_CHECKING:
    from bullpen.providers.wire.line import Line


class WireProvider:
    """One attempt for each reply, over connections that are kept. Streams when somebody watches."""

    def __init__(
        self, model: str, account: Account, limits: ModelLimits, *, thinking: str | None, timeout_seconds: float
    ) -> None:
        self.model = model
        self.key_id = account.key_id
        self.limits = limits
        self._account = account
        self._thinking = thinking
        self._timeout_seconds = timeout_seconds
        self._line: Line | None = None
        self._opening = asyncio.Lock()

    async def reply(self, request: ModelRequest, *, on_text: Callable[[str], None] | None = None) -> Reply:
        line = self._line or await self._open()
        return await line.reply(request, on_text=on_text)

    async def estimate_cost_usd(self, *, input_tokens: int, output_tokens: int) -> float | None:
        line = self._line or await self._open()
        return line.estimate_cost_usd(input_tokens=input_tokens, output_tokens=output_tokens)

    async def close(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            await line.close()

    async def _open(self) -> Line:
        async with self._opening:
            if self._line is None:
                # In a thread: the imports take seconds, and meanwhile leases are to be renewed.
                self._line = await asyncio.to_thread(self._open_line)
            return self._line

    def _open_line(self) -> Line:
        with importing():
            import_libraries(self._account.provider)
            from bullpen.providers.wire.line import Line

            return Line.open(self.model, self._account, thinking=self._thinking, timeout_seconds=self._timeout_seconds)
