"""The contract of a tool: what a model may call, and what the call may reach.

A tool is a name, a text for the model, parameters and a function. Everything that it
may touch comes in its `ToolContext`. What it returns or raises becomes the result of
the call; a `ToolError` is an error result with a text that says what to do. No tool
ever ends a member.

- `is_read_only`: calls of one reply that only read run together; every other call is
  a barrier, in the order of the reply.
- `changes`: what it changes: nothing, the workspace, or the team's shared state. A
  member whose plan is not approved yet may call only what changes nothing.
- A tool whose effect is one store verb passes `context.operation_id`: repeated after
  a crash, it returns the first outcome and does nothing twice (`is_repeatable`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Protocol, TypeVar

from bullpen.clock import Clock
from bullpen.domain.hook import Hook
from bullpen.domain.member import Member, MemberRef, Team
from bullpen.domain.prompt import ToolSpec
from bullpen.domain.task import Task
from bullpen.sandbox import Sandbox
from bullpen.store import Store
from bullpen.workspace import Worktree

T = TypeVar("T")


class Changes(Enum):
    NOTHING = "nothing"
    WORKSPACE = "workspace"
    TEAM = "team"


class Kind(Enum):
    """What a parameter takes; models are understood generously (see `tools.arguments`)."""

    TEXT = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    TASK_ID = "task id"
    TASK_IDS = "list of task ids"
    TEXTS = "list of strings"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    name: str
    kind: Kind
    description: str = ""
    is_required: bool = False
    choices: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

    def schema(self) -> dict[str, Any]:
        types: dict[Kind, dict[str, Any]] = {
            Kind.TASK_ID: {"type": "string"},
            Kind.TASK_IDS: {"type": "array", "items": {"type": "string"}},
            Kind.TEXTS: {"type": "array", "items": {"type": "string"}},
        }
        schema = dict(types.get(self.kind, {"type": self.kind.value}))
        if self.choices:
            schema["enum"] = list(self.choices)
        if self.description:
            schema["description"] = self.description
        return schema


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutput:
    """What becomes of a call, and what the loop does after it.

    `remarks` are added below the text for the model. `ends_phase` (idle, submit_plan)
    says why the work phase ends with this reply, `waits_for` which request it ends waiting
    for. `compact` (a focus, may be empty) asks for a compaction before the next
    request. `moves_to` is the member as which the loop goes on (a lead in its next team).
    """

    text: str
    is_error: bool = False
    ends_phase: str | None = None
    waits_for: int | None = None
    compact: str | None = None
    moves_to: Member | None = None
    remarks: tuple[str, ...] = ()


class ToolContext(Protocol):
    """Everything a tool may reach."""

    store: Store
    clock: Clock
    team: Team
    member: Member
    call_id: str
    operation_id: str
    workspace: Path
    sandbox: Sandbox
    worktree: Worktree | None
    """Its own; None where all share one directory."""
    settings: Mapping[str, Any]

    @property
    def is_gated(self) -> bool:
        """Its plan is not approved yet: it may only look."""
        ...

    @property
    def ref(self) -> MemberRef: ...

    def resource(self, kind: Callable[[ToolContext], T]) -> T:
        """What a tool family keeps for this member between calls (files read, background commands, skills, …): made
        by `kind(context)` at its first use, the same from then on. If it has an `aclose`, that ends it with the
        member's hosting."""
        ...

    async def pass_hooks(self, hook: Hook, task: Task) -> None:
        """Before this step is made, the human's own commands are asked. ToolError, with what they say, if one refuses:
        then nothing may be done."""
        ...

    async def run_subagent(self, prompt: str, *, kind: str, model: str | None = None) -> str:
        """A one-shot agent with a context of its own; its last text is the answer. `kind`: explore, plan, code."""
        ...


Run = Callable[[ToolContext, Mapping[str, Any]], Awaitable[ToolOutput | str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    name: str
    description: str
    parameters: tuple[Parameter, ...]
    run: Run
    changes: Changes = Changes.NOTHING
    is_read_only: bool = False
    is_repeatable: bool = False
    repeatable_with: str | None = None
    """It is also repeatable when this argument is given (Task with a `name` is one store verb, a subagent is not)."""
    for_lead: bool = True
    for_teammate: bool = True
    runs_last: bool = False
    aliases: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Other names for it, each with arguments that the name implies (`broadcast` is SendMessage with a type)."""

    def may_repeat(self, arguments: Mapping[str, Any]) -> bool:
        """Whether a call that had begun when its process died may simply be made again."""
        return self.is_repeatable or (self.repeatable_with is not None and bool(arguments.get(self.repeatable_with)))

    def spec(self) -> ToolSpec:
        required = [parameter.name for parameter in self.parameters if parameter.is_required]
        properties = {parameter.name: parameter.schema() for parameter in self.parameters}
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        if required:
            schema["required"] = required
        return ToolSpec(name=self.name, description=self.description, parameters=schema)
