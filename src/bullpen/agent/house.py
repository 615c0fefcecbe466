"""What a worker gives to every member that it hosts."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from bullpen.agent.governor import Governor
from bullpen.agent.prospects import Prospects
from bullpen.config import Settings
from bullpen.domain.leave import Leave, at_any_time
from bullpen.domain.member import LEAD, Member, MemberKind, MemberRef, Team
from bullpen.domain.trunk import Trunk
from bullpen.errors import BullpenError, UsageError
from bullpen.provider import Provider
from bullpen.providers import default_model, open_provider
from bullpen.store import Bell, Store
from bullpen.workspaces.mirror import Mirror

Listener = Callable[[MemberRef, str], None]


class Resting(BullpenError):
    """Its worker leaves in good order: another one goes on with it."""


class OpenModel(Protocol):
    def __call__(
        self,
        model: str,
        *,
        window_tokens: int | None = None,
        max_output_tokens: int | None = None,
        thinking: str | None = None,
    ) -> Provider: ...


class Models:
    """Each model is opened once for a process, and each key has one governor."""

    def __init__(self, open_model: OpenModel = open_provider) -> None:
        self._open = open_model
        self._providers: dict[tuple[Any, ...], Provider] = {}
        self._governors: dict[str, Governor] = {}

    def get(self, name: str, settings: Settings) -> Provider:
        wishes = (settings.compaction.window_tokens, settings.max_output_tokens, settings.thinking)
        key = (name, *wishes)
        if key not in self._providers:
            window, output, thinking = wishes
            self._providers[key] = self._open(name, window_tokens=window, max_output_tokens=output, thinking=thinking)
        return self._providers[key]

    def governor(self, provider: Provider) -> Governor:
        return self._governors.setdefault(provider.key_id, Governor())

    async def aclose(self) -> None:
        for provider in self._providers.values():
            await provider.close()
        self._providers.clear()


@dataclass(frozen=True, kw_only=True)
class House:
    """`workspace` None: each team works where it did before; `hidden` are the store's own places; `ledger` says who of
    this process wrote which file last; `mirrors` are the repositories elsewhere with which it works, by their URL;
    `on_text` hears what models say while they say it; `model` is for whom nothing else says which; `successors` are
    the teams in which leads of this process went on, by the team that they left; `told` is what the human was told once
    already; `confirm` is asked just before each call of a model or tool and each command: it says how many seconds are
    left to begin it, and raises LeaseLost where others may be these members by now."""

    store: Store
    models: Models
    workspace: Path | None
    state_directory: Path
    model: str | None = None
    hidden: tuple[Path, ...] = ()
    is_interactive: bool = True
    on_text: Listener | None = None
    ledger: dict[str, tuple[str, float]] = field(default_factory=dict)
    mirrors: dict[str, Mirror] = field(default_factory=dict)
    successors: dict[int, int] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)
    prospects: Prospects = field(default_factory=Prospects)
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    confirm: Leave = at_any_time
    _settings: dict[int, tuple[Mapping[str, Any], Settings]] = field(default_factory=dict)

    def settings_of(self, team: Team) -> Settings:
        """Read once for all its members here."""
        known = self._settings.get(team.id)
        if known is None or known[0] != team.settings:
            known = self._settings[team.id] = (team.settings, Settings.from_mapping(team.settings))
        return known[1]

    def check_open(self) -> None:
        """Between two turns: Resting when this process hosts nobody any more."""
        if self.closing.is_set():
            raise Resting

    async def wait_open(self, bell: Bell, timeout_seconds: float) -> None:
        """Sleep until it rings, the time is over, or this process hosts nobody any more: then Resting."""
        ringing = asyncio.ensure_future(bell.wait(timeout_seconds))
        closing = asyncio.ensure_future(self.closing.wait())
        try:
            await asyncio.wait({ringing, closing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in (ringing, closing):
                wait.cancel()
            await asyncio.wait({ringing, closing})
        self.check_open()

    def mirror_of(self, url: str) -> Mirror:
        return self.mirrors.setdefault(url, Mirror(url, self.state_directory))

    def workspace_of(self, team: Team) -> Path:
        """Where members of this team work on this machine; where this process was started, if each has a clone of its
        own. UsageError where that is not known, or not there."""
        if self.workspace is not None:
            return self.workspace
        if (trunk := Trunk.of(team.settings)) is not None and trunk.is_remote:
            return Path.cwd()
        if team.workspace is None or not Path(team.workspace).is_dir():
            where = (
                f"{team.workspace}, where team {team.name} works, is not there" if team.workspace else "no workspace"
            )
            raise UsageError(f"{where} on {socket.gethostname()}: start its worker with --workspace DIR")
        return Path(team.workspace)

    def open_model(self, member: Member, settings: Settings) -> Provider:
        """The member's own, its role's, the team's, this worker's, or what the keys that are set decide."""
        role = LEAD if member.kind is MemberKind.LEAD else member.role
        name = member.model or settings.model_for(role) or self.model or get_default_model(os.environ)
        return self.models.get(name, settings)


def get_default_model(environ: Mapping[str, str]) -> str:
    found = default_model(environ)
    if found is None:
        raise UsageError(
            "no model: set ANTHROPIC_API_KEY or OPENAI_API_KEY, name one with --model, "
            "or see how it works without any: bullpen demo"
        )
    return found[0]
