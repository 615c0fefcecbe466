"""A member with hands: calls tools as the loop does, on a real store, a real workspace and, where given, a sandbox."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from bullpen.clock import Clock
from bullpen.domain.hook import Hook
from bullpen.domain.member import Member, MemberRef, Team
from bullpen.domain.task import Task
from bullpen.sandbox import Sandbox
from bullpen.store import Store
from bullpen.tool import Tool, ToolContext, ToolOutput
from bullpen.tools.arguments import read_arguments
from bullpen.tools.registry import Toolbox
from bullpen.workspace import Worktree

T = TypeVar("T")
Subagent = Callable[[str, str, str | None], Awaitable[str]]


async def no_subagent(prompt: str, kind: str, model: str | None) -> str:
    raise AssertionError("nobody asked for one")


@dataclass
class Hands:
    store: Store
    team: Team
    member: Member
    workspace: Path
    sandbox: Sandbox = None  # type: ignore[assignment]
    worktree: Worktree | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    is_gated: bool = False
    subagent: Subagent = no_subagent
    call_id: str = "call-0"
    calls: int = 0
    resources: dict[Any, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.clock: Clock = self.store.clock
        self.operation_id = ""
        self._begin()

    def _begin(self) -> None:
        self.calls += 1
        self.call_id = f"call-{self.calls}"
        self.operation_id = f"{self.member.name}:{self.call_id}"

    @property
    def ref(self) -> MemberRef:
        return self.member.ref

    def resource(self, kind: Callable[[ToolContext], T]) -> T:
        if kind not in self.resources:
            self.resources[kind] = kind(self)
        made: T = self.resources[kind]
        return made

    async def pass_hooks(self, hook: Hook, task: Task) -> None:
        """The human has none."""

    async def run_subagent(self, prompt: str, *, kind: str, model: str | None = None) -> str:
        return await self.subagent(prompt, kind, model)

    async def call(self, tool: Tool, /, **given: Any) -> ToolOutput:
        """A new call of this tool."""
        self._begin()
        return await self.repeat(tool, **given)

    async def repeat(self, tool: Tool, /, **given: Any) -> ToolOutput:
        """The same call again, as after a crash."""
        return await self._run(tool, given, {})

    async def say(self, toolbox: Toolbox, name: str, /, **given: Any) -> ToolOutput:
        """By whatever name the model uses."""
        self._begin()
        resolved = toolbox.resolve(name)
        return await self._run(resolved.tool, given, resolved.implied)

    async def _run(self, tool: Tool, given: Mapping[str, Any], implied: Mapping[str, Any]) -> ToolOutput:
        arguments, remarks = read_arguments(tool, given, implied)
        output = await tool.run(self, arguments)
        if isinstance(output, str):
            output = ToolOutput(text=output)
        return ToolOutput(
            text=output.text,
            is_error=output.is_error,
            ends_phase=output.ends_phase,
            waits_for=output.waits_for,
            compact=output.compact,
            moves_to=output.moves_to,
            remarks=(*output.remarks, *remarks),
        )

    async def text(self, tool: Tool, /, **given: Any) -> str:
        return (await self.call(tool, **given)).text
