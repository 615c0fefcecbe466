"""A team on several machines: real workers, each on its own, one database, and a model that all of them reach."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bullpen.domain.event import Event, EventKind
from bullpen.domain.standing import Verdict, judge
from bullpen.maintenance import StandingWatch
from bullpen.store import Store
from bullpen.stores import open_store
from tests.acceptance.command import BOUND_SECONDS, There
from tests.acceptance.working import Working
from tests.support.cast import SIGNS, Play
from tests.support.company import playing
from tests.support.invariants import Deed, Past, check_deeds, check_invariants
from tests.support.machines import Hub, Machine
from tests.support.protocol_server import ProtocolServer
from tests.support.protocol_server.server import environ_for
from tests.support.stores import all_events

TEAM = "crew"
MODEL = "anthropic:claude-sonnet-5"
# What a killed call may have cost counts as spent.
SETTINGS = f"""
model = "{MODEL}"
isolation = "shared"
[sandbox]
kind = "local"
env = ["MACHINE"]
[permissions]
allow = ["*"]
[budget]
max_cost_usd = 1_000
"""


@dataclass
class Troop:
    """`workers` is whoever runs on each machine now, `machine_of` where each process ran, the dead included."""

    project: Path
    machines: Mapping[str, Machine]
    commands: Mapping[str, There]
    server: ProtocolServer
    store: Store
    words: tuple[str, ...]
    team_id: int = 0
    workers: dict[str, Working] = field(default_factory=dict)
    machine_of: dict[int, str] = field(default_factory=dict)
    _processes: ExitStack = field(default_factory=ExitStack)

    # -- processes -----------------------------------------------------------------------------------

    async def start(self, *names: str) -> None:
        processes = {name: self.commands[name].start("worker", "--json", *self.words) for name in names}
        for name, process in processes.items():
            self._processes.enter_context(process)
            self._processes.callback(process.kill)
            self.machine_of[process.pid] = name
        for name, process in processes.items():
            self.workers[name] = await asyncio.to_thread(Working, process)

    def signal(self, name: str, number: int) -> None:
        self.workers[name].process.send_signal(number)

    async def wait_for_exit(self, name: str) -> int:
        return await asyncio.to_thread(self.workers[name].process.wait, BOUND_SECONDS)

    async def begin(self) -> None:
        """`bullpen run --detach` on one of the machines: it only writes rows."""
        there = next(iter(self.commands.values()))
        await asyncio.to_thread(there, "run", "Reach the goal", "--team", TEAM, "--detach")
        team = await self.store.find_team(TEAM)
        assert team is not None
        self.team_id = team.id

    def close(self) -> None:
        self._processes.close()

    # -- the log --------------------------------------------------------------------------------------

    async def until(self, matches: Callable[[Event], bool], *, count: int = 1, after: str = "") -> Event:
        """The event with which so many of these have happened."""
        async with self._bound():
            async for event in self.store.follow_events(self.team_id, after=after):
                count -= matches(event)
                if not count:
                    return event
        raise AssertionError("the log ended")

    @asynccontextmanager
    async def _bound(self) -> AsyncIterator[None]:
        """What takes longer than anything here does fails, and says how the team stands."""
        try:
            async with asyncio.timeout(2 * BOUND_SECONDS):
                yield
        except TimeoutError:
            standing = judge(await self.store.get_snapshot(self.team_id))
            last = [f"{event.at} {event}" for event in (await all_events(self.store, self.team_id))[-40:]]
            pytest.fail("\n".join(["it took too long", str(standing), *last]))

    async def until_at_work(self, *, completed: int = 2) -> tuple[str, str]:
        """When so many tasks are done and a command has just begun: the member, and the machine on which it did."""
        after = await self.until(lambda event: event.kind == EventKind.TASK_COMPLETED, count=completed)
        begun = await self.until(
            lambda event: event.kind == EventKind.TOOL_CALL_STARTED and event.data["tool"] == "bash",
            after=after.position,
        )
        return begun.actor, await self.place_of(begun.actor)

    async def place_of(self, member: str) -> str:
        """Who goes from one to another just now is waited for."""
        async with self._bound(), self.store.listen_events(self.team_id) as bell:
            while True:
                bell.clear()
                worker = (await self.store.get_member(self.team_id, member)).worker_id
                if worker is not None:
                    return (await self.places())[worker]
                await bell.wait(1.0)

    async def places(self) -> dict[int, str]:
        workers = await self.store.list_workers(include_stopped=True)
        return {worker.id: self.machine_of[worker.pid] for worker in workers}

    async def until_over(self) -> None:
        watch = StandingWatch(self.store, self.team_id)
        async with self._bound(), self.store.listen_events(self.team_id) as bell:
            while True:
                bell.clear()
                if (await watch.look()).verdict is Verdict.DONE:
                    return
                await bell.wait(1.0)

    # -- afterwards -----------------------------------------------------------------------------------

    async def check(self) -> Past:
        """Whoever is still there leaves in good order; then all that must be true is true."""
        for name, worker in self.workers.items():
            if worker.process.poll() is None:
                self.signal(name, signal.SIGTERM)
                assert await self.wait_for_exit(name) == 0
        assert self.server.ledger.refusals == []
        past = await check_invariants(self.store, self.team_id, self.project)
        check_deeds(past, self.deeds(), await self.places())
        return past

    def deeds(self) -> list[Deed]:
        asked = [
            Deed(what="model", member=heard.member, machine=heard.key, at=heard.at)
            for heard in self.server.heard
            if heard.at is not None
        ]
        ran = []
        for line in (self.project / SIGNS).read_text().splitlines():
            machine, member, moment = line.split()
            ran.append(Deed(what="bash", member=member, machine=machine, at=datetime.fromtimestamp(float(moment), UTC)))
        assert asked
        assert ran
        return asked + ran


@asynccontextmanager
async def troop(hub: Hub, names: str, play: Play, project: Path, *words: str) -> AsyncIterator[Troop]:
    """A machine for each letter of `names`; `words` are given to each `bullpen worker`."""
    (project / "bullpen.toml").write_text(SETTINGS)
    async with AsyncExitStack() as stack:
        machines, database = await stack.enter_async_context(hub.machines(names))
        server = await stack.enter_async_context(ProtocolServer(playing(play), keys=names))
        store = await stack.enter_async_context(open_store(database))
        commands = {}
        for name, machine in machines.items():
            listener = machine.listen()
            await stack.enter_async_context(server.listening_on(listener))
            commands[name] = There(project, machine)
            commands[name].environment |= environ_for(listener.getsockname()[1], name)
        made = Troop(project, machines, commands, server, store, words)
        stack.callback(made.close)
        yield made


def freeze(worker: Working) -> None:
    os.kill(worker.process.pid, signal.SIGSTOP)


def thaw(worker: Working) -> None:
    os.kill(worker.process.pid, signal.SIGCONT)
