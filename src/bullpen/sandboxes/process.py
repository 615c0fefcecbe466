"""Processes of this host: telling them apart, finding those that carry a mark, ending them with all they started."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path

from bullpen.errors import SandboxUnavailable
from bullpen.sandbox import ProcessIdentity
from bullpen.sandboxes.supervisor import parents, send_signal, strike

DEATH_SECONDS = 10.0


def identify(pid: int) -> ProcessIdentity | None:
    """None if there is no such process (any more); without /proc the start is 0."""
    if not Path("/proc/self/stat").exists():
        return ProcessIdentity(pid=pid, start_ticks=0) if pid in parents() else None
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    # starttime is field 22 of proc(5), counted from the pid; state is the third.
    return None if state in "ZX" else ProcessIdentity(pid=pid, start_ticks=int(fields[18]))


def is_running(identity: ProcessIdentity) -> bool:
    return identify(identity.pid) == identity


def environments(mark: str) -> Iterator[tuple[int, dict[str, str]]]:
    """The environment with which each process was started that has this in it, as far as we may look."""
    sought = os.fsencode(mark)
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb", buffering=0) as file:
                text = file.readall()
        except OSError:
            continue
        # Of a thousand processes few are ours: only those are taken apart.
        if text and sought in text:
            yield int(name), dict(os.fsdecode(pair).split("=", 1) for pair in text.split(b"\0") if b"=" in pair)


async def kill_trees(roots: Iterable[ProcessIdentity]) -> None:
    """They and everything below them are gone when this returns, or SandboxUnavailable says which is not."""
    living = list(roots)
    try:
        async with asyncio.timeout(DEATH_SECONDS):
            while living := [root for root in living if is_running(root)]:
                await asyncio.to_thread(_strike_all, living)
                await asyncio.sleep(0.005)
    except TimeoutError:
        names = ", ".join(str(root.pid) for root in living)
        raise SandboxUnavailable(f"processes {names} of an earlier worker cannot be killed: look at them") from None


def _strike_all(roots: list[ProcessIdentity]) -> None:
    for root in roots:
        send_signal(root.pid, signal.SIGSTOP)
        strike(root.pid)
        send_signal(root.pid, signal.SIGKILL)
