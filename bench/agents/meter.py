"""Meters: a provider and a store that do what theirs do and note what it cost.

CPU is that of the whole process with its threads, so what one member costs is seen only while the others rest.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

from bullpen.domain.prompt import Reply
from bullpen.provider import ModelRequest, Provider
from bullpen.store import Store


@dataclass(frozen=True, slots=True)
class Spent:
    """So often, and so many seconds of CPU altogether."""

    times: int = 0
    cpu_seconds: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.times + other.times, self.cpu_seconds + other.cpu_seconds)

    def __sub__(self, other: Spent) -> Spent:
        return Spent(self.times - other.times, self.cpu_seconds - other.cpu_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request and its reply: the process's CPU and the time before and after it, and what verbs had cost by then."""

    member: str
    messages: int
    cpu_before: float
    cpu_after: float
    began: float
    ended: float
    verbs: dict[str, Spent]


class MeteredStore:
    def __init__(self, store: Store) -> None:
        self._store = store
        self.verbs: dict[str, Spent] = {}

    def as_store(self) -> Store:
        return cast(Store, self)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def metered(*args: Any, **kwargs: Any) -> Any:
            before = time.process_time()
            try:
                return await found(*args, **kwargs)
            finally:
                spent = Spent(1, time.process_time() - before)
                self.verbs[name] = self.verbs.get(name, Spent()) + spent

        self.__dict__[name] = metered
        return metered


class MeteredProvider:
    def __init__(self, provider: Provider, store: MeteredStore | None) -> None:
        """Without a store, what verbs had cost is not noted with each request: that takes more memory than an idle
        member."""
        self._provider = provider
        self._store = store
        self.model = provider.model
        self.key_id = provider.key_id
        self.limits = provider.limits
        self.asked: list[Asked] = []

    async def reply(self, request: ModelRequest, *, on_text: Callable[[str], None] | None = None) -> Reply:
        asked = Asked(
            member=request.member,
            messages=len(request.messages),
            cpu_before=time.process_time(),
            cpu_after=0.0,
            began=time.monotonic(),
            ended=0.0,
            verbs={} if self._store is None else dict(self._store.verbs),
        )
        reply = await self._provider.reply(request, on_text=on_text)
        self.asked.append(replace(asked, cpu_after=time.process_time(), ended=time.monotonic()))
        return reply

    async def estimate_cost_usd(self, *, input_tokens: int, output_tokens: int) -> float | None:
        return await self._provider.estimate_cost_usd(input_tokens=input_tokens, output_tokens=output_tokens)

    async def close(self) -> None:
        await self._provider.close()

    def of(self, member: str) -> list[Asked]:
        return [asked for asked in self.asked if asked.member == member]
