"""From the end of a worker to its members at work elsewhere: killed, told to leave, frozen, cut off.

Each worker is on a machine of its own (a network namespace where that may be made), so that nobody learns of a death
from the kernel that they share. What is measured is read from the log: the first step of each member after it was
hosted elsewhere, from the moment at which the fault was made.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench.figures import Section, Target, median
from bench.ground import Ground, create_tasks
from bench.machines.fleet import Working, begin, write_script
from bench.options import Options
from bullpen.domain.event import Event, EventKind
from bullpen.store import Store
from bullpen.stores import open_store
from bullpen.worker.host import LEASE_SECONDS
from tests.support.machines import Machine, open_hub, why_no_namespaces

MEMBERS = 8
ROOM_SECONDS = 2.0
# More than they do, so that nobody runs out of work.
TASKS_A_SECOND = 10
# What a member does first when it goes on, whatever it was doing.
STEPS = (EventKind.TURN_RECORDED, EventKind.TOOL_CALL_STARTED, EventKind.TOOL_CALL_FINISHED, EventKind.TASK_CLAIMED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    name: str
    make: Callable[[Working, Machine], None]
    mend: Callable[[Working, Machine], None] = lambda worker, machine: None
    ends: bool = False
    """The worker is gone for good."""
    lease_seconds: float = 0.0
    """Part of what it may take."""


def faults(lease_seconds: float) -> tuple[Fault, ...]:
    return (
        Fault(name="killed (`kill -9`)", make=lambda worker, machine: worker.send(signal.SIGKILL), ends=True),
        Fault(name="told to leave (SIGTERM)", make=lambda worker, machine: worker.send(signal.SIGTERM), ends=True),
        Fault(
            name="frozen (SIGSTOP)",
            make=lambda worker, machine: worker.send(signal.SIGSTOP),
            mend=lambda worker, machine: worker.send(signal.SIGCONT),
            lease_seconds=lease_seconds,
        ),
        Fault(
            name="cut off (its link is down)",
            make=lambda worker, machine: machine.cut(),
            mend=lambda worker, machine: machine.mend(),
            lease_seconds=lease_seconds,
        ),
    )


def measure(ground: Ground, options: Options, stores: list[str]) -> Section:
    lease = 3.0 if options.quick else LEASE_SECONDS
    rounds = options.wanted_rounds or (1 if options.quick else 5)
    section = Section("Taking over")
    reason = why_no_namespaces()
    where = f"behind relays on loopback ({reason})" if reason else "in a network namespace of its own"
    section.say(
        f"""Two workers, each {where}, host {MEMBERS} members that work without a pause, each in the middle of a
        command or between two steps. From the fault to the first step of the *last* of the members that the worker
        hosted, on the other worker; {rounds} rounds, a lease of {lease:g} s."""
    )
    rows = []
    for fault in faults(lease):
        print(f"taking over: {fault.name}", flush=True)
        took = [asyncio.run(_round(ground.new_folder(), fault, lease)) for _ in range(rounds)]
        limit = fault.lease_seconds + ROOM_SECONDS
        section.targets.append(
            Target(f"{fault.name}: its members work elsewhere, the slowest of all", max(took), limit, False, " s")
        )
        rows.append([fault.name, f"{median(took):.2f} s", f"{max(took):.2f} s", f"{limit:g} s"])
    section.table(["", "median of rounds", "slowest", "at most"], rows)
    return section


async def _round(folder: Path, fault: Fault, lease_seconds: float) -> float:
    model = write_script(folder / "script.toml", command="sleep 1")
    with open_hub() as hub:
        async with AsyncExitStack() as stack:
            machines, database = await stack.enter_async_context(hub.machines("ab"))
            store = await stack.enter_async_context(open_store(database))
            team_id = await begin(store, folder, model, members=MEMBERS)
            await create_tasks(store, team_id, int(TASKS_A_SECOND * (lease_seconds + 20)))
            started = {name: _start(machine, folder, lease_seconds) for name, machine in machines.items()}
            for one in started.values():
                stack.callback(one.end)
            numbers = {await one.until_ready(): name for name, one in started.items()}
            return await _measure(store, team_id, fault, numbers, started, machines)


def _start(machine: Machine, folder: Path, lease_seconds: float) -> Working:
    words = ["--slots", str(MEMBERS), "--lease", f"{lease_seconds:g}"]
    log = folder / f"{machine.name}.log"
    return Working(machine.url, log, *words, entering=machine.entering, environment=machine.environment)


async def _measure(
    store: Store,
    team_id: int,
    fault: Fault,
    numbers: dict[int, str],
    started: dict[str, Working],
    machines: dict[str, Machine],
) -> float:
    await _until(store, team_id, EventKind.TASK_COMPLETED, 2 * MEMBERS)
    hosted = {member.name: member.worker_id for member in await store.list_members(team_id) if member.worker_id}
    victim = max(numbers, key=lambda number: sum(worker == number for worker in hosted.values()))
    mourned = {name for name, worker in hosted.items() if worker == victim}
    after = await store.last_position(team_id)
    name = numbers[victim]
    began = datetime.now(UTC)
    fault.make(started[name], machines[name])
    last = began
    try:
        async with asyncio.timeout(120):
            elsewhere: set[str] = set()
            async for event in store.follow_events(team_id, after=after):
                if event.kind == EventKind.MEMBER_HOSTED and event.data["worker"] != victim:
                    elsewhere.add(event.data["member"])
                elif event.kind in STEPS and event.actor in elsewhere & mourned:
                    mourned.discard(event.actor)
                    last = event.at
                    if not mourned:
                        break
    finally:
        fault.mend(started[name], machines[name])
    return (last - began).total_seconds()


async def _until(store: Store, team_id: int, kind: EventKind, count: int) -> Event:
    async with asyncio.timeout(120):
        async for event in store.follow_events(team_id):
            count -= event.kind == kind
            if not count:
                return event
    raise AssertionError("the log ended")
