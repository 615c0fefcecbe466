"""Verified done: the check of a task, run in a real sandbox, judged by a real store."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bullpen.domain.task import Task, TaskStatus
from bullpen.errors import SandboxUnavailable, ToolError
from bullpen.sandbox import Sandbox
from bullpen.tools import check
from bullpen.tools.board import CLAIM_TASK, TASK_UPDATE
from bullpen.tools.check import find_commit
from tests.support.sandboxes import Ground, Token, until
from tests.unit.tools.conftest import MakeHands
from tests.unit.tools.hands import Hands

pytestmark = pytest.mark.anyio


async def with_task(hands: MakeHands, ground: Ground, sandbox: Any, command: str) -> Hands:
    """ana, who holds task 1 with this check."""
    lead = hands("lead")
    await lead.store.create_task(lead.ref, "build", check=command)
    ana = hands("ana", workspace=ground.workspace, sandbox=sandbox)
    await ana.call(CLAIM_TASK)
    return ana


async def task_of(member: Hands) -> Task:
    return await member.store.get_task(member.team.id, 1)


async def test_a_check_that_passes_completes_the_task_with_evidence(
    hands: MakeHands, ground: Ground, sandbox: Sandbox
) -> None:
    ana = await with_task(hands, ground, sandbox, "test -e built && echo looks good")
    (ground.workspace / "built").touch()
    output = await ana.call(TASK_UPDATE, taskId="#1", status="Completed", result="built it")
    assert output.text.startswith("#1 [completed, owner ana]")
    task = await task_of(ana)
    assert task.result == "built it"
    assert task.evidence is not None
    assert (task.evidence.command, task.evidence.exit_code, task.evidence.tail) == (
        "test -e built && echo looks good",
        0,
        "looks good\n",
    )
    assert task.evidence.checked_at is not None


async def test_a_check_that_fails_leaves_the_task_to_its_owner_and_shows_its_output(
    hands: MakeHands, ground: Ground, sandbox: Sandbox
) -> None:
    ana = await with_task(hands, ground, sandbox, "echo 2 failed; exit 1")
    with pytest.raises(ToolError, match=r"failed with exit code 1: it is not completed and stays yours.*\n2 failed"):
        await ana.call(TASK_UPDATE, taskId=1, status="completed", result="done, I say")
    task = await task_of(ana)
    assert (task.status, task.owner, task.verifying) == (TaskStatus.IN_PROGRESS, "ana", False)
    assert task.evidence is not None
    assert task.evidence.exit_code == 1


async def test_a_check_that_does_not_end_is_killed_and_has_failed(
    hands: MakeHands, ground: Ground, walled: Sandbox, token: Token, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "CHECK_SECONDS", 0.5)
    ana = await with_task(hands, ground, walled, f"trap 'exit 0' TERM; sleep {token} & wait")
    with pytest.raises(ToolError, match=r"timed out after 0\.5 s"):
        await ana.call(TASK_UPDATE, taskId=1, status="completed", result="x")
    assert token.processes() == []
    task = await task_of(ana)
    assert task.status is TaskStatus.IN_PROGRESS
    assert task.evidence is not None
    assert not task.evidence.passed


class Broken:
    """A machine on which no command can be run."""

    async def run(self, command: str, **_: Any) -> None:
        raise SandboxUnavailable("no space left for a process")


async def test_a_check_that_cannot_be_run_is_no_verdict_and_leaves_no_mark(hands: MakeHands, ground: Ground) -> None:
    ana = await with_task(hands, ground, Broken(), "true")
    with pytest.raises(ToolError, match=r"could not be run \(no space left for a process\): the task is not completed"):
        await ana.call(TASK_UPDATE, taskId=1, status="completed", result="x")
    task = await task_of(ana)
    assert (task.status, task.verifying) == (TaskStatus.IN_PROGRESS, False)


async def test_an_interrupted_check_leaves_no_mark_and_no_process(
    hands: MakeHands, ground: Ground, walled: Sandbox, token: Token
) -> None:
    ana = await with_task(hands, ground, walled, f"sleep {token}")
    call = asyncio.create_task(ana.call(TASK_UPDATE, taskId=1, status="completed", result="x"))
    await token.until(1)
    assert (await task_of(ana)).verifying
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await until(lambda: token.processes() == [])
    task = await task_of(ana)
    assert (task.status, task.verifying) == (TaskStatus.IN_PROGRESS, False)


async def test_a_repeated_call_returns_the_first_outcome(hands: MakeHands, ground: Ground, walled: Sandbox) -> None:
    ana = await with_task(hands, ground, walled, "echo once >> runs")
    first = await ana.call(TASK_UPDATE, taskId=1, status="completed", result="x")
    again = await ana.repeat(TASK_UPDATE, taskId=1, status="completed", result="x")
    assert again.text == first.text
    assert (ground.workspace / "runs").read_text() == "once\n"


async def test_the_lead_may_have_anothers_task_checked(hands: MakeHands, ground: Ground, walled: Sandbox) -> None:
    await with_task(hands, ground, walled, "exit 9")
    lead = hands("lead", workspace=ground.workspace, sandbox=walled)
    with pytest.raises(ToolError, match="stays ana's"):
        await lead.call(TASK_UPDATE, taskId=1, status="completed", result="x")


async def test_a_task_without_a_check_is_completed_at_once(hands: MakeHands) -> None:
    ana = hands()
    await ana.store.create_task(ana.ref, "talk")
    await ana.call(CLAIM_TASK, taskId=1)
    output = await ana.call(TASK_UPDATE, taskId=1, status="completed")
    assert "completed" in output.text
    assert "no result was given" in output.remarks[0]


# -- the commit


def git(directory: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    done = subprocess.run(
        ["git", "-C", str(directory), *identity, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


async def test_the_evidence_names_the_commit(hands: MakeHands, ground: Ground, walled: Sandbox) -> None:
    git(ground.workspace, "init", "-q")
    git(ground.workspace, "commit", "-q", "--allow-empty", "-m", "x")
    ana = await with_task(hands, ground, walled, "true")
    await ana.call(TASK_UPDATE, taskId=1, status="completed", result="x")
    evidence = (await task_of(ana)).evidence
    assert evidence is not None
    assert evidence.commit == git(ground.workspace, "rev-parse", "HEAD")


async def test_there_is_no_commit_without_a_repository_or_before_the_first(tmp_path: Path) -> None:
    assert await find_commit(tmp_path) is None
    assert await find_commit(tmp_path / "gone") is None
    git(tmp_path, "init", "-q")
    assert await find_commit(tmp_path) is None


async def test_asking_for_the_commit_runs_nothing_of_the_repository(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "x")
    trap = tmp_path / "trap.sh"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\n")
    trap.chmod(0o755)
    for key in ("core.fsmonitor", "core.pager", "core.editor", "alias.rev-parse"):
        git(tmp_path, "config", key, str(trap) if not key.startswith("alias") else f"!{trap}")
    assert await find_commit(tmp_path) is not None
    assert not (tmp_path / "sprung").exists()
