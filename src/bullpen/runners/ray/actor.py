"""The actor: one worker in a process that Ray has placed. Restarted by Ray, it registers anew, as any worker does."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from bullpen.errors import BullpenError, UsageError
from bullpen.stores import open_store
from bullpen.team.service import make_worker
from bullpen.worker.worker import Worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How the worker is made. `store` may hold a password, `environment` holds keys: neither is ever shown.
    `rest_seconds`: so long members may finish their turn when all ends."""

    store: str
    team_id: int
    slots: int
    labels: tuple[str, ...]
    lease_seconds: float
    rest_seconds: float
    model: str | None
    workspace: str | None
    is_interactive: bool
    environment: Mapping[str, str]

    def __repr__(self) -> str:
        return f"Recipe(team_id={self.team_id}, slots={self.slots}, labels={self.labels})"

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Self:
        return cls(**{**facts, "labels": tuple(facts["labels"])})


class HostActor:
    def __init__(self, recipe: Recipe) -> None:
        os.environ.update(recipe.environment)
        self._recipe = recipe
        self._leaving = asyncio.Event()
        self._drain_seconds: float | None = None

    async def host(self) -> dict[str, Any] | None:
        """Until it is told to leave. What stands in the way, if it could not even begin: not as an exception, which
        Ray would print with all its surroundings."""
        try:
            self._check_workspace()
            async with open_store(self._recipe.store) as store, self._make(store) as worker:
                await self._leaving.wait()
                if self._drain_seconds is not None:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(self._drain_seconds):
                            await worker.drain()
        except BullpenError as error:
            return {"why": f"{error} (on {socket.gethostname()})", "may_pass": error.retryable}
        return None

    async def leave(self, drain_seconds: float | None) -> None:
        """`None`: the whole team rests. Else others stand by: members are handed on, for so long at most."""
        self._drain_seconds = drain_seconds
        self._leaving.set()

    def _make(self, store: Any) -> Worker:
        recipe = self._recipe
        return make_worker(
            store,
            slots=recipe.slots,
            labels=recipe.labels,
            team_id=recipe.team_id,
            model=recipe.model,
            workspace=None if recipe.workspace is None else Path(recipe.workspace),
            lease_seconds=recipe.lease_seconds,
            rest_seconds=recipe.rest_seconds,
            is_interactive=recipe.is_interactive,
        )

    def _check_workspace(self) -> None:
        where = self._recipe.workspace
        if where is not None and not Path(where).is_dir():
            raise UsageError(
                f"{where} is not there: --runner ray needs a directory that all its machines share, or a team that "
                "began with --workspace git+URL"
            )
