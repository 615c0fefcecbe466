"""The contract of a sandbox: where everything runs that a model causes to run.

One sandbox for each member, not for each command: a server started in the
background is reachable by the next command, `/tmp`, processes, HOME and caches
persist and are the member's own.

- The workspace is writable, the rest of the machine read-only or invisible as far
  as `guarantees` says. The store's own files, the usual places of secrets and the
  provider's keys are never visible where that can be guaranteed.
- A command that times out, is stopped or whose caller is cancelled dies with
  everything that it started, whatever session or group that went into. When a
  command ends by itself, what it left in the background goes on (`server &`), until
  the sandbox ends. All of it dies with the worker too, `kill -9` included.
- A call whose `network` differs from the spec's, or that is `read_only`, runs in a
  sandbox of its own that ends with it: it sees the same files, but no process and no
  server of the others, and leaves none behind. So the rest stays cut off.
- What a command prints is kept in a file (the first 50 MB and the end); the result
  carries head and tail. Standard input is empty.
- A command begins only within the time for which its worker has leave, told where it begins: a worker that is frozen
  between asking and running, and thawed when others are its members, starts nothing.
- SandboxUnavailable is trouble of the machine, never shown as a command's output;
  the next command tries again from the start. UsageError: the command or its
  directory makes no sense.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, Self

from bullpen.domain.leave import Leave, at_any_time

OUTPUT_CHARACTERS = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """What a member's sandbox is made of. Where paths lie in one another, the deeper one counts."""

    member: str
    workspace: Path
    private_directory: Path
    """The member's own, outside the workspace: HOME, caches, /tmp and the output of commands live below it."""
    hidden: tuple[Path, ...] = ()
    """What it must not see besides the usual secrets: the store. Directories, not files: a file that is replaced by
    a rename outside comes into view."""
    readable: tuple[Path, ...] = ()
    """Seen although it lies in something hidden."""
    writable: tuple[Path, ...] = ()
    worktree: Path | None = None
    """The top of the member's own git worktree, whose HEAD is detached: all of it is writable, and of the repository
    behind it only what commits need. Branches, tags and the stash stay as they are."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Passed on beside PATH, locale and the places of toolchains. A provider's key is refused."""
    network: bool = False
    leave: Leave = at_any_time
    """Asked just before each command, and again if it was too late when that was about to begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantees:
    """What holds in this sandbox, said to the human where it does not."""

    files_confined: bool
    secrets_hidden: bool
    network_cut: bool
    processes_contained: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """A process of this host and boot, told by its start from a later one with the same number."""

    pid: int
    start_ticks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    exit_code: int
    """128 + signal if it was killed, as a shell says it."""
    output: str
    """Standard output and error, at most 30,000 characters: head, a line that says what is left out, tail."""
    output_path: Path
    """The whole of it; readable from inside the sandbox too."""
    seconds: float
    timed_out: bool = False


class Command(Protocol):
    """A command that runs in the background."""

    identity: ProcessIdentity
    """Outside the sandbox: the process above everything that the command started, alive as long as any of it is."""
    output_path: Path

    def poll(self) -> int | None:
        """Its exit code, or None while it runs."""
        ...

    async def wait(self, timeout_seconds: float | None = None) -> int | None:
        """Its exit code, or None if it still runs after that time."""
        ...

    def read(self, *, limit: int = OUTPUT_CHARACTERS) -> str:
        """What it has printed so far, head and tail."""
        ...

    async def stop(self, *, grace_seconds: float = 1.0) -> None:
        """It and everything that it started is gone when this returns: asked to end, then killed."""
        ...


class Sandbox(Protocol):
    @property
    def name(self) -> str:
        """`bubblewrap` or `local`."""
        ...

    @property
    def guarantees(self) -> Guarantees: ...

    def describe(self) -> str:
        """For the human at the start of a run: how commands run here, and what is not guaranteed."""
        ...

    async def __aenter__(self) -> Self:
        """Costs nothing: processes are started by the first command."""
        ...

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
        """`bash -c command` in the workspace, or a directory in it. `network` None: as the sandbox's spec says;
        `read_only`: nothing but /tmp can be written (SandboxUnavailable where that cannot be enforced)."""
        ...

    async def start(
        self,
        command: str,
        *,
        network: bool | None = None,
        read_only: bool = False,
        directory: Path | None = None,
    ) -> Command: ...

    async def kill_leftovers(self, known: Sequence[ProcessIdentity] = ()) -> list[ProcessIdentity]:
        """What a dead or frozen predecessor of this member left running on this host is gone when this returns: the
        processes that are known of it, and all that carry the mark of this private directory but were started by
        another worker process. Returns what was found."""
        ...
