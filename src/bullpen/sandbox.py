"""The contract of a sandbox: where everything runs that a model causes to run.

One sandbox for each member, not for each command: a server started in the
background is reachable by the next command, `/tmp`, processes, HOME and caches
persist and are the member's own.

- The workspace is writable, the rest of the machine read-only or invisible as far
  as `guarantees` says. The store's own files, the usual places of secrets and the
  provider's keys are never visible where that can be guaranteed.
- A command that times out or is stopped dies with everything that it started,
  whatever session or group that went into. All of it dies with the worker too.
- What a command prints is kept whole in a file; the result carries head and tail.
- SandboxUnavailable is trouble of the machine, never shown as a command's output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """What a member's sandbox is made of. `hidden` are paths that it must not see (the store, secrets)."""

    member: str
    workspace: Path
    private_directory: Path
    """The member's own, outside the workspace: HOME, caches, /tmp and the output of commands live below it."""
    hidden: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    network: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantees:
    """What holds in this sandbox, said to the human where it does not."""

    files_confined: bool
    secrets_hidden: bool
    network_cut: bool
    processes_contained: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    exit_code: int | None
    output: str
    """Standard output and error, at most 30,000 characters: head, a line that says what is left out, tail."""
    output_path: Path
    seconds: float
    timed_out: bool = False


class Command(Protocol):
    """A command that runs in the background."""

    pid: int
    """Outside the sandbox: its process group and start time identify it to a successor on this host."""
    output_path: Path

    def poll(self) -> int | None:
        """Its exit code, or None while it runs."""
        ...

    async def wait(self, timeout_seconds: float | None = None) -> int | None: ...

    def read(self, *, limit: int = 30_000) -> str:
        """What it has printed so far, head and tail."""
        ...

    async def stop(self) -> None:
        """It and everything that it started is gone when this returns."""
        ...


class Sandbox(Protocol):
    name: str
    guarantees: Guarantees

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc_info: object) -> None:
        """Everything in it dies."""
        ...

    async def run(
        self,
        command: str,
        *,
        timeout_seconds: float = 120.0,
        network: bool | None = None,
        read_only: bool = False,
        directory: Path | None = None,
    ) -> CommandResult:
        """`bash -c command` in the workspace. `network` None: as the sandbox's spec says; `read_only`: the workspace
        cannot be written (SandboxUnavailable where that cannot be enforced)."""
        ...

    async def start(self, command: str, *, network: bool | None = None) -> Command: ...

    def find_leftovers(self, pids: Sequence[int]) -> list[int]:
        """Of these process groups of a dead predecessor, those that still run; `start` times are compared."""
        ...
