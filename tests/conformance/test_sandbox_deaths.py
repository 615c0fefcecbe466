"""Ending things, in every sandbox: whatever a command started dies with it, and all of it with the worker."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import suppress
from dataclasses import replace

import psutil
import pytest

from bullpen.errors import LeaseLost, SandboxUnavailable
from bullpen.sandbox import ProcessIdentity, Sandbox
from bullpen.sandboxes import open_sandbox
from tests.support.leave import FROZEN, LONG, TAKEN_OVER, Leave
from tests.support.sandboxes import BOUND_SECONDS, Ground, OtherWorker, Token, is_alive, until

ESCAPES = """
sleep {token} &
nohup sleep {token} >/dev/null 2>&1 &
setsid sleep {token} &
(setsid sh -c 'sleep {token} & exit 0' &)
(env -i setsid setsid sleep {token} </dev/null >/dev/null 2>&1 &)
sh -c "trap '' TERM INT HUP; sleep {token}; sleep {token}" &
"""
ESCAPED = 6


async def test_a_timeout_kills_everything_that_was_started(sandbox: Sandbox, token: Token) -> None:
    result = await sandbox.run(f"{ESCAPES.format(token=token)} echo begun; wait", timeout_seconds=5)
    assert result.timed_out
    assert result.exit_code in (137, 143)
    assert result.output.startswith("begun\n")
    assert not token.processes()


async def test_stop_kills_everything_although_the_command_itself_has_ended(sandbox: Sandbox, token: Token) -> None:
    running = await sandbox.start(ESCAPES.format(token=token))
    assert await running.wait(timeout_seconds=60) == 0
    await token.until(ESCAPED)
    await running.stop(grace_seconds=0.1)
    assert not token.processes()
    assert running.poll() == 0


async def test_a_command_that_ignores_being_asked_is_killed(sandbox: Sandbox, token: Token) -> None:
    running = await sandbox.start(f"trap '' TERM; echo deaf; while true; do sleep {token}; done")
    await token.until(1)
    await running.stop(grace_seconds=0.1)
    assert running.poll() == 137
    assert not token.processes()


async def test_who_is_asked_to_end_may_clean_up(sandbox: Sandbox) -> None:
    running = await sandbox.start("trap 'echo bye; exit 5' TERM; echo ready; while true; do read -t 1 <> <(:); done")
    await until(lambda: running.read() == "ready\n")
    await running.stop(grace_seconds=30)
    assert (running.poll(), running.read()) == (5, "ready\nbye\n")


async def test_a_cancelled_caller_takes_the_command_with_it(sandbox: Sandbox, token: Token) -> None:
    running = asyncio.create_task(sandbox.run(f"{ESCAPES.format(token=token)} wait"))
    await token.until(ESCAPED)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not token.processes()
    assert (await sandbox.run("echo alive")).output == "alive\n"


async def test_a_storm_of_forks_is_ended(sandbox: Sandbox, token: Token) -> None:
    storm = f"storm() {{ [ $1 = 0 ] || {{ storm $(($1-1)) & storm $(($1-1)) & }}; setsid sleep {token}; }}; storm 5"
    running = asyncio.create_task(sandbox.run(storm, timeout_seconds=4))
    await until(lambda: len(token.processes()) > 8 or running.done())
    assert (await running).timed_out
    assert not token.processes()


async def test_closing_the_sandbox_kills_everything(sandbox_kind: str, ground: Ground, token: Token) -> None:
    async with open_sandbox(ground.spec(), kind=sandbox_kind) as sandbox:
        await sandbox.start(f"{ESCAPES.format(token=token)} wait")
        await sandbox.run(ESCAPES.format(token=token))
        await token.until(2 * ESCAPED)
    assert not token.processes()


async def test_everything_dies_with_a_worker_that_is_killed(sandbox_kind: str, ground: Ground, token: Token) -> None:
    command = f"{ESCAPES.format(token=token)} wait"
    other = OtherWorker(sandbox_kind, ground.spec(), command, ESCAPES.format(token=token))
    async with other:
        await token.until(2 * ESCAPED)
        family = psutil.Process(other.process.pid).children(recursive=True)
        assert family
        other.kill()
        await token.until(0)
        await until(lambda: not [one for one in family if one.is_running()])


async def test_a_successor_kills_what_a_frozen_worker_left(sandbox_kind: str, ground: Ground, token: Token) -> None:
    other = OtherWorker(sandbox_kind, ground.spec(), f"{ESCAPES.format(token=token)} wait")
    async with other as said:
        known = [ProcessIdentity(pid=pid, start_ticks=ticks) for pid, ticks in json.loads(said)]
        await token.until(ESCAPED)
        other.freeze()
        async with open_sandbox(ground.spec(), kind=sandbox_kind) as sandbox:
            mine = await sandbox.start(f"sleep {Token()}")
            assert set(known) <= set(await sandbox.kill_leftovers(known))
            assert not token.processes()
            assert mine.poll() is None
            assert await sandbox.kill_leftovers(known) == []


@pytest.mark.parametrize("read_only", [False, True])
async def test_a_command_that_would_begin_too_late_does_not_until_there_is_leave_again(
    sandbox_kind: str, ground: Ground, read_only: bool
) -> None:
    if read_only and sandbox_kind == "local":
        pytest.skip("nothing is read-only there")
    leave = Leave(LONG, FROZEN, FROZEN, LONG)
    async with open_sandbox(replace(ground.spec(), leave=leave), kind=sandbox_kind) as sandbox:
        assert (await sandbox.run("echo $$ > first; echo ready")).output == "ready\n"
        assert (await sandbox.run("echo ran", read_only=read_only)).output == "ran\n"
    assert leave.left == []


async def test_who_has_lost_its_lease_starts_nothing_and_may_close_in_order(
    sandbox_kind: str, ground: Ground, token: Token
) -> None:
    leave = Leave(LONG, FROZEN, TAKEN_OVER)
    async with open_sandbox(replace(ground.spec(), leave=leave), kind=sandbox_kind) as sandbox:
        await sandbox.start(f"sleep {token}")
        await token.until(1)
        with pytest.raises(LeaseLost):
            await sandbox.run("touch begun")
        assert not (ground.workspace / "begun").exists()
    assert not token.processes()


async def test_a_process_with_a_number_that_was_used_again_is_spared(sandbox: Sandbox) -> None:
    running = await sandbox.start(f"sleep {Token()}")
    another = ProcessIdentity(pid=running.identity.pid, start_ticks=running.identity.start_ticks - 1)
    assert await sandbox.kill_leftovers([another]) == []
    assert running.poll() is None


async def test_a_command_that_kills_its_keeper_gains_nothing(sandbox: Sandbox, token: Token) -> None:
    result = await sandbox.run(f"(setsid sleep {token} &); kill -9 $PPID; sleep {token}", timeout_seconds=60)
    assert result.exit_code == 137
    await token.until(0)
    assert (await sandbox.run("echo alive")).output == "alive\n"


async def test_a_command_that_kills_its_keeper_at_once_has_run(sandbox: Sandbox) -> None:
    """However soon: it is not for the caller to try again."""
    for _ in range(20):
        assert (await sandbox.run("exec kill -9 $PPID", timeout_seconds=60)).exit_code in (0, 137)


async def test_stop_waits_for_what_a_killed_keeper_left(sandbox: Sandbox, token: Token) -> None:
    many = 40
    running = await sandbox.start(f"for i in $(seq {many}); do setsid sleep {token} & done; exec sleep {token}")
    sleepers = await token.until(many + 1)
    os.kill(running.identity.pid, signal.SIGKILL)
    await running.stop()
    assert not [one for one in sleepers if is_alive(one)]
    assert (await sandbox.run("echo alive")).output == "alive\n"


async def test_stop_waits_for_what_a_killed_keeper_left_of_a_command_that_had_ended(
    sandbox: Sandbox, token: Token
) -> None:
    many = 40
    running = await sandbox.start(f"for i in $(seq {many}); do setsid sleep {token} & done")
    sleepers = await token.until(many)
    assert await running.wait(BOUND_SECONDS) == 0
    os.kill(running.identity.pid, signal.SIGKILL)
    await running.stop()
    assert not [one for one in sleepers if is_alive(one)]


async def test_a_command_that_kills_the_supervisor_gains_nothing(sandbox: Sandbox, token: Token) -> None:
    murder = f"setsid sleep {token} & kill -9 $(cut -d' ' -f4 /proc/$PPID/stat); kill -9 $PPID; sleep {token}"
    if sandbox.name == "bubblewrap":
        assert (await sandbox.run(murder)).exit_code == 137
    else:
        with pytest.raises(SandboxUnavailable, match="ended while the command ran"):
            await sandbox.run(murder)
    assert (await sandbox.run("echo alive")).output == "alive\n"
    await token.until(0)


async def test_a_sandbox_that_is_killed_from_outside_is_unavailable_and_then_starts_again(
    sandbox: Sandbox, token: Token
) -> None:
    waiting = asyncio.create_task(sandbox.run(f"sleep {token} & sleep {token}"))
    sleeper = (await token.until(2))[0]
    # sleep, bash, keeper, supervisor; the keepers of a local sandbox live on without it.
    keeper, supervisor = sleeper.parents()[1:3]
    for one in (supervisor, keeper):
        # In bubblewrap the keeper dies with its supervisor.
        with suppress(ProcessLookupError):
            os.kill(one.pid, signal.SIGKILL)
    with pytest.raises(SandboxUnavailable, match="ended while the command ran"):
        await waiting
    assert (await sandbox.run("echo again")).output == "again\n"
    await token.until(0)
