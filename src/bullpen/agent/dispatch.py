"""From what a model wrote to what happens: resolve, read, gate, ask for permission, run. Errors become results.

Nothing that a model writes can end a member. The one blanket `except` for tools is here.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from bullpen.agent.agent import Agent
from bullpen.agent.hooks import pass_hooks
from bullpen.agent.permission import is_allowed_unasked, obtain_permission
from bullpen.domain.hook import Hook
from bullpen.domain.member import MemberRef
from bullpen.domain.task import Task, TaskStatus
from bullpen.errors import BullpenError, LeaseLost, NotFound, SandboxUnavailable, StoreUnavailable, ToolError
from bullpen.tool import Changes, Tool, ToolContext, ToolOutput
from bullpen.tools.arguments import read_arguments
from bullpen.tools.registry import Toolbox

logger = logging.getLogger(__name__)

T = TypeVar("T")

# What a member may do whose plan is not approved yet, beside what changes nothing: ask, take a task, end what it runs.
_ALLOWED_WHILE_GATED = frozenset({"SendMessage", "TaskOutput", "TaskStop", "claim_task"})


class CallContext:
    """What a tool reaches: `ToolContext` for one call of an agent."""

    def __init__(self, agent: Agent, call_id: str, operation_id: str, run_kind: RunSubagent) -> None:
        self.agent = agent
        self.run_kind = run_kind
        self.call_id = call_id
        self.operation_id = operation_id
        self.store = agent.store
        self.clock = agent.clock
        self.team = agent.team
        self.member = agent.member
        self.workspace = agent.workspace
        self.sandbox = agent.sandbox
        self.worktree = agent.worktree
        self.settings = agent.tool_settings
        self.is_gated = agent.is_gated

    @property
    def ref(self) -> MemberRef:
        return self.member.ref

    def resource(self, kind: Callable[[ToolContext], T]) -> T:
        return self.agent.resource(kind, self)

    async def pass_hooks(self, hook: Hook, task: Task) -> None:
        await pass_hooks(self.agent, hook, task, self.operation_id)

    async def run_subagent(self, prompt: str, *, kind: str, model: str | None = None) -> str:
        return await self.run_kind(self, prompt, kind, model)


RunSubagent = Callable[[CallContext, str, str, str | None], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call that may run: its tool, its arguments, and remarks about how they were understood."""

    tool: Tool
    arguments: Mapping[str, Any]
    remarks: tuple[str, ...]


def prepare(toolbox: Toolbox, name: str, arguments: Mapping[str, Any], problem: str | None) -> Prepared:
    """ToolError for a call that makes no sense."""
    resolved = toolbox.resolve(name)
    if problem:
        raise ToolError(f"the arguments of this call could not be read ({problem}); nothing was done: call it again")
    read, remarks = read_arguments(resolved.tool, arguments, resolved.implied)
    return Prepared(resolved.tool, read, tuple(remarks))


async def check_rights(context: CallContext, prepared: Prepared) -> None:
    """ToolError for what this member may not do now; waits for the human where the policy says ask."""
    tool = prepared.tool
    if context.is_gated and not _may_while_gated(context.agent, tool):
        raise ToolError(
            f"{tool.name} changes things and your plan is not approved yet: hand one in with submit_plan and wait"
        )
    await obtain_permission(context.agent, tool.name, prepared.arguments, context.operation_id)
    if (check := await _check_to_be_run(context, prepared)) is not None:
        await obtain_permission(context.agent, "check", {"command": check}, f"{context.operation_id}/check")


def may_begin_unasked(agent: Agent, prepared: Prepared) -> bool:
    """Whether `check_rights` would have nothing to ask, neither the store nor the human, and nothing to refuse."""
    return (
        (not agent.is_gated or _may_while_gated(agent, prepared.tool))
        and is_allowed_unasked(agent, prepared.tool.name, prepared.arguments)
        and not _may_run_a_check(agent, prepared)
    )


def _may_while_gated(agent: Agent, tool: Tool) -> bool:
    if tool.name == "bash":
        # There it runs with the workspace mounted read-only; elsewhere nobody need be asked for it.
        return agent.sandbox.guarantees.files_confined
    return tool.changes is Changes.NOTHING or tool.name in _ALLOWED_WHILE_GATED


async def _check_to_be_run(context: CallContext, prepared: Prepared) -> str | None:
    """Where commands are not confined, the check of a task asks like any other command."""
    if not _may_run_a_check(context.agent, prepared):
        return None
    try:
        task = await context.store.get_task(context.team.id, prepared.arguments["taskId"])
    except NotFound:
        return None
    return task.check


def _may_run_a_check(agent: Agent, prepared: Prepared) -> bool:
    is_confined = agent.sandbox.guarantees.files_confined
    return not is_confined and prepared.arguments.get("status") == TaskStatus.COMPLETED


async def run_tool(context: CallContext, prepared: Prepared) -> ToolOutput:
    """The output, with errors as results."""
    await context.agent.house.confirm()
    try:
        output = await prepared.tool.run(context, prepared.arguments)
    except (LeaseLost, StoreUnavailable):
        # Not the model's affair: the loop ends or tries again.
        raise
    except SandboxUnavailable as error:
        output = ToolOutput(text=f"commands cannot be run on this machine just now: {error}", is_error=True)
    except BullpenError as error:
        output = ToolOutput(text=str(error), is_error=True)
    except Exception as error:
        logger.exception("tool %s of %s failed", prepared.tool.name, context.member.name)
        output = ToolOutput(text=f"{prepared.tool.name} failed: {type(error).__name__}: {error}", is_error=True)
    return output if isinstance(output, ToolOutput) else ToolOutput(text=output)


def text_of(output: ToolOutput, remarks: tuple[str, ...]) -> str:
    """What the model reads."""
    notes = "".join(f"\n({remark})" for remark in (*output.remarks, *remarks))
    return f"{output.text}{notes}"
