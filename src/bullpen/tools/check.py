"""Verified done: a task's check is run where its owner works, and its verdict is stored with the task.

Invariant: a check that was begun ends, also if the machine fails or the human cuts in: the task never stays
`verifying` because of us.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from functools import partial
from pathlib import Path

from bullpen.domain.submission import Work
from bullpen.domain.task import CheckRun, Evidence, Task
from bullpen.errors import SandboxUnavailable, StoreError, ToolError, UsageError
from bullpen.sandbox import CommandResult
from bullpen.tool import ToolContext
from bullpen.tools.patience import insist, seen_through

CHECK_SECONDS = 600.0
TAIL_CHARACTERS = 4_000
GIT_SECONDS = 5.0

# What a shell says for a command that timed out, could not be run, was interrupted.
TIMED_OUT, NOT_RUN, INTERRUPTED = 124, 126, 130


async def run_check(context: ToolContext, task_id: int, result: str, work: Work | None = None) -> Task:
    """The completed task, or with `work` the one that waits to be integrated. ToolError, with what the check printed,
    if it did not pass: the task stays its owner's."""
    # By incarnation: a check that another incarnation began is void, and is begun again.
    operation_id = f"{context.operation_id}:{context.ref.incarnation}"
    run = await seen_through(
        context.store.start_check(context.ref, task_id, operation_id=f"{operation_id}:check"),
        partial(_give_up, context),
    )
    if run is None:
        return await context.store.complete_task(
            context.ref, task_id, result=result, work=work, operation_id=operation_id
        )
    try:
        outcome = await _run(context, run)
        evidence = await _evidence(context, run, outcome)
        task = await insist(
            lambda: context.store.finish_check(
                context.ref, run, evidence, result=result, work=work, operation_id=f"{operation_id}:verdict"
            )
        )
    except asyncio.CancelledError:
        await asyncio.shield(_give_up(context, run))
        raise
    if not evidence.passed:
        raise ToolError(_failed(context, task, evidence, outcome))
    return task


async def _evidence(context: ToolContext, run: CheckRun, outcome: CommandResult) -> Evidence:
    return Evidence(
        command=run.check,
        exit_code=_exit_code(outcome),
        tail=outcome.output[-TAIL_CHARACTERS:],
        seconds=outcome.seconds,
        commit=await find_commit(context.workspace),
    )


def _exit_code(outcome: CommandResult) -> int:
    """A command that handles its own end may say 0 when it is killed."""
    return (outcome.exit_code or TIMED_OUT) if outcome.timed_out else outcome.exit_code


def _failed(context: ToolContext, task: Task, evidence: Evidence, outcome: CommandResult) -> str:
    whose = "yours" if task.is_owned_by(context.member.name) else f"{task.owner or 'nobody'}'s"
    how = f"timed out after {CHECK_SECONDS:g} s" if outcome.timed_out else f"failed with exit code {evidence.exit_code}"
    where = f" (all of it: {outcome.output_path})" if len(outcome.output) > TAIL_CHARACTERS else ""
    printed = evidence.tail.strip() or "(it printed nothing)"
    return (
        f"the check of #{task.id} {how}: it is not completed and stays {whose}. Repair what is wrong, then complete "
        f"it again. `{evidence.command}` printed{where}\n{printed}"
    )


async def _run(context: ToolContext, run: CheckRun) -> CommandResult:
    try:
        directory = await _owners_workspace(context, run.task_id)
        return await context.sandbox.run(run.check, timeout_seconds=CHECK_SECONDS, directory=directory)
    except (SandboxUnavailable, UsageError) as error:
        await _void(context, run, NOT_RUN, f"the check could not be run: {error}")
        raise ToolError(
            f"the check of #{run.task_id} could not be run ({error}): the task is not completed. Try again later, or "
            "tell the lead"
        ) from error


async def _give_up(context: ToolContext, run: CheckRun | None) -> None:
    if run is not None:
        await _void(context, run, INTERRUPTED, "the check was interrupted")


async def _void(context: ToolContext, run: CheckRun, exit_code: int, why: str) -> None:
    """No verdict: only the mark goes away. If that fails, whoever hosts the member next does it."""
    evidence = Evidence(command=run.check, exit_code=exit_code, tail=why)
    with contextlib.suppress(StoreError):
        await context.store.finish_check(context.ref, run, evidence)


async def _owners_workspace(context: ToolContext, task_id: int) -> Path | None:
    """Where the owner works, if that is elsewhere and the lead has its task checked."""
    task = await context.store.get_task(context.team.id, task_id)
    if task.owner is None or task.is_owned_by(context.member.name):
        return None
    owner = await context.store.get_member(context.team.id, task.owner)
    return Path(owner.workspace) if owner.workspace else None


async def find_commit(workspace: Path) -> str | None:
    """HEAD, if there is one. Nothing that the repository configures is run, and nothing in it is written."""
    safely = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    try:
        git = await asyncio.create_subprocess_exec(
            "git",
            *("-C", str(workspace), *safely, "rev-parse", "--verify", "--quiet", "HEAD"),
            env={**environment, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return None
    try:
        async with asyncio.timeout(GIT_SECONDS):
            output, _ = await git.communicate()
    except TimeoutError:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            git.kill()
        await git.wait()
    found = output.decode(errors="replace").strip()
    return found if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", found) else None
