"""`bullpen worker`: this machine hosts members of a store that others share, until it is told to leave.

SIGTERM or Ctrl-C: nobody is taken any more, and whoever is here goes on elsewhere, at once or when its step is done.
What still runs after `--drain` seconds, or at a second signal, is cut off; nothing is lost by it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from bullpen.cli.call import Call
from bullpen.cli.commands.number import parse_amount, parse_count
from bullpen.cli.commands.run import Model
from bullpen.cli.place import get_named
from bullpen.cli.views.worker import draw_change, draw_staff, post_document
from bullpen.cli.workplace import directory_of, say_what_is_shared
from bullpen.domain.codec import encode
from bullpen.domain.member import Liveness, Team, check_labels, is_team_label
from bullpen.errors import Conflict, TeamDeleted, UsageError
from bullpen.store import Store
from bullpen.stores import shown
from bullpen.team.service import SLOTS, look_at_staff, make_worker, warm_up
from bullpen.worker.host import LEASE_SECONDS
from bullpen.worker.worker import Change, Worker
from bullpen.workspaces.address import is_address

DRAIN_SECONDS = 1.0
LEAST_LEASE_SECONDS = 1.0
INTERRUPTED = 130


def worker(
    ctx: typer.Context,
    action: Annotated[
        str | None,
        typer.Argument(
            metavar="[list|check]", help="list: show the workers that there are. check: does one live on this machine?"
        ),
    ] = None,
    slots: Annotated[
        str | None, typer.Option(metavar="N", help=f"How many teammates at once; {SLOTS} by default.")
    ] = None,
    labels: Annotated[
        str, typer.Option(metavar="LABELS", help="What it has, for members who ask for it: gpu,linux.")
    ] = "",
    workspace: Annotated[
        str | None, typer.Option(metavar="DIR", help="Where all work here; without it where each team began.")
    ] = None,
    model: Model = None,
    lease: Annotated[
        str | None,
        typer.Option(
            metavar="SECONDS", help=f"After so long without a sign of life others take over; {LEASE_SECONDS:g}."
        ),
    ] = None,
    drain: Annotated[
        str | None,
        typer.Option(metavar="SECONDS", help=f"So long calls may still run when it leaves; {DRAIN_SECONDS:g}."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="With list: those that left or died, too.")] = False,
) -> None:
    """Host members of a shared store on this machine.

    It takes whoever is wanted, leads included, of every team or of --team NAME. Start as many as you like, on as many
    machines as share the store. `worker check` exits 0 if one of this machine is registered and alive: for probes, at
    the price of a query.
    """
    call = Call.of(ctx)
    if action == "list":
        call.run(_list(call, every))
        return
    if action == "check":
        call.run(_check(call))
        return
    if action is not None:
        raise UsageError(
            f"worker has no {action[:40]!r}: `bullpen worker` hosts, `bullpen worker list` shows which there are, "
            "`bullpen worker check` whether one lives here"
        )
    wishes = {
        "slots": SLOTS if slots is None else parse_count(slots, "--slots"),
        "labels": check_labels([word.strip() for word in labels.split(",") if word.strip()]),
        "workspace": _find_workspace(call, workspace),
        "model": _find_model(model),
        "lease_seconds": LEASE_SECONDS
        if lease is None
        else parse_amount(lease, "--lease", minimum=LEAST_LEASE_SECONDS),
    }
    if not call.place.is_there:
        raise UsageError(
            f"there is no store {call.place.words}, and a new one would have nobody to host: name that of the teams "
            "with --store postgresql://HOST/DATABASE or BULLPEN_STORE"
        )
    drain_seconds = DRAIN_SECONDS if drain is None else parse_amount(drain, "--drain", minimum=0)
    raise typer.Exit(call.run(_host(call, wishes, drain_seconds)))


def _find_workspace(call: Call, workspace: str | None) -> Path | None:
    if workspace is None:
        return None
    if is_address(workspace):
        raise UsageError(
            "--workspace of a worker is a directory: a team that began with git+URL has told it to the store; what "
            "this machine needs is access to that URL of its own (an ssh key, a credential helper)"
        )
    directory = directory_of(workspace)
    say_what_is_shared(call, directory)
    return directory


def _find_model(named: str | None) -> str | None:
    """For members for whom nothing else says which: as it was typed, or as the settings here say."""
    from bullpen.config import load_settings
    from bullpen.providers import check_model

    model = named or load_settings(environment=os.environ).model
    if model:
        check_model(model)
    return model


# -- hosting -----------------------------------------------------------------------------------------------------


async def _host(call: Call, wishes: dict[str, object], drain_seconds: float) -> int:
    """The exit code."""
    with _signals() as signals:
        async with call.store() as store:
            team = await _find_team(call, store)
            made = make_worker(
                store,
                team_id=None if team is None else team.id,
                on_change=lambda change: _tell(call, change),
                on_remark=lambda text: _note(call, text),
                **wishes,  # type: ignore[arg-type]
            )
            async with made:
                _say_ready(call, made, team, shown(store.url))
                warming = asyncio.create_task(warm_up(made.house.model))
                first = await _until_told_to_leave(made, signals)
                warming.cancel()
                call.note("leaving: members go on elsewhere; a second signal cuts off what still runs")
                await _drain(made, signals, drain_seconds)
    return INTERRUPTED if first == signal.SIGINT else 0


async def _until_told_to_leave(made: Worker, signals: asyncio.Queue[int]) -> int:
    """Which signal it was. StoreRemoved when there is nobody left to host."""
    told, removal = asyncio.create_task(signals.get()), asyncio.create_task(made.until_removed())
    try:
        await asyncio.wait({told, removal}, return_when=asyncio.FIRST_COMPLETED)
        if removal.done():
            raise removal.result()
        return told.result()
    finally:
        told.cancel()
        removal.cancel()


async def _find_team(call: Call, store: Store) -> Team | None:
    """The one that was named, if it lives."""
    if call.new_name is None:
        return None
    team = await get_named(store, call.new_name)
    if team.deleted_at is not None:
        raise TeamDeleted(f"team {team.name!r} has been deleted: nobody of it is to be hosted")
    return team


@contextmanager
def _signals() -> Iterator[asyncio.Queue[int]]:
    """SIGINT and SIGTERM, in the order in which they come."""
    loop = asyncio.get_running_loop()
    came: asyncio.Queue[int] = asyncio.Queue()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, came.put_nowait, number)
    try:
        yield came
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


async def _drain(made: Worker, signals: asyncio.Queue[int], seconds: float) -> None:
    draining, hurrying = asyncio.create_task(made.drain()), asyncio.create_task(signals.get())
    try:
        await asyncio.wait({draining, hurrying}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (draining, hurrying):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def _say_ready(call: Call, made: Worker, team: Team | None, store: str) -> None:
    record = made.record
    document = {"what": "ready", "at": datetime.now(UTC), "worker": encode(record), "store": store}
    labels = [label for label in record.labels if not is_team_label(label)]
    having = f", having {', '.join(labels)}" if labels else ""
    whom = "every team" if team is None else f"team {team.name}"
    line = f"worker {record.id} on {record.host} hosts up to {record.slots} teammates of {whom} in {store}{having}"
    call.show_entry(document, lambda page: page.line(line))


def _tell(call: Call, change: Change) -> None:
    now = datetime.now(UTC)
    document = {
        "what": change.what,
        "at": now,
        "member": change.member.name,
        "team": change.team,
        "incarnation": change.member.incarnation,
        "why": change.why,
    }
    # Whoever read the lines has gone: that is no reason to let go of the members.
    with suppress(BrokenPipeError):
        call.show_entry(document, lambda page: draw_change(page, change, now))


def _note(call: Call, remark: str) -> None:
    with suppress(BrokenPipeError):
        call.note(remark)


# -- list --------------------------------------------------------------------------------------------------------


async def _list(call: Call, every: bool) -> None:
    async with call.store() as store:
        team = None if call.new_name is None else await get_named(store, call.new_name)
        staff = await look_at_staff(store, team=team, include_stopped=every)
    now = datetime.now(UTC)
    call.show([post_document(post, now) for post in staff.posts], lambda page: draw_staff(page, staff))


# -- check -------------------------------------------------------------------------------------------------------


async def _check(call: Call) -> None:
    here = socket.gethostname()
    async with call.store() as store:
        # Whoever runs a team on this machine is no worker that others rely on.
        known = [
            worker
            for worker in await store.list_workers()
            if worker.host == here and worker.slots and not worker.is_of_run
        ]
        living = [worker for worker in known if await store.probe_worker(worker) is Liveness.ALIVE]
    if not living:
        raise Conflict(f"no worker on {here} is registered and alive: `bullpen worker list` shows which there are")
    line = f"alive on {here}: worker " + ", ".join(str(worker.id) for worker in living)
    call.show({"host": here, "workers": [worker.id for worker in living]}, lambda page: page.line(line))
