"""Ground for sandboxes: a place that is not below /tmp (each sandbox has its own), and looks at real processes."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from bullpen.sandbox import Sandbox, SandboxSpec
from bullpen.sandboxes import open_sandbox
from bullpen.sandboxes.bubblewrap import probe

BOUND_SECONDS = 180.0
PYTHON = os.path.realpath(sys.executable)
ROOT = Path(__file__).parents[2]

# What bubblewrap says where a machine does not allow it at all; anything else is a fault of ours.
IMPOSSIBLE = ("not installed", "not permitted", "ermission denied", "No permissions", "not allow", "No space left")


@dataclass(frozen=True)
class Ground:
    root: Path

    @property
    def workspace(self) -> Path:
        return self.root / "workspace"

    @property
    def outside(self) -> Path:
        return self.root / "outside"

    @property
    def store(self) -> Path:
        """Inside the workspace, as `.bullpen` is."""
        return self.workspace / ".bullpen"

    @property
    def home(self) -> Path:
        return self.root / "home"

    def spec(self, *, network: bool = False, workspace: Path | None = None, **environment: str) -> SandboxSpec:
        return SandboxSpec(
            member="ana",
            workspace=workspace or self.workspace,
            private_directory=self.store / "members" / "ana",
            hidden=(self.store,),
            environment=environment,
            network=network,
        )


def _parent() -> Path:
    """Not below /tmp or /var/tmp, which a sandbox has for itself, wherever this repository lies."""
    if ROOT.is_relative_to("/tmp") or ROOT.is_relative_to("/var/tmp"):
        return next(place for place in (Path("/srv"), Path("/opt"), Path.home()) if os.access(place, os.W_OK))
    parent = ROOT / ".pytest_cache"
    parent.mkdir(exist_ok=True)
    return parent


@pytest.fixture
def ground(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    """Workspace with a store in it, something outside, and a home with secrets that is ours for the test."""
    ground = Ground(Path(tempfile.mkdtemp(prefix="sandbox-", dir=_parent())))
    for directory in (ground.workspace, ground.outside, ground.store, ground.home / ".ssh", ground.home / ".config/gh"):
        directory.mkdir(parents=True)
    (ground.outside / "file").write_text("outside")
    (ground.store / "bullpen.db").write_text("STORED")
    for secret in (".ssh/id_rsa", ".netrc", ".config/gh/hosts.yml"):
        (ground.home / secret).write_text("SECRET")
    (ground.home / ".config/tool").mkdir()
    (ground.home / ".config/tool/settings").write_text("harmless")
    (ground.home / ".gitconfig").write_text('[user]\n\tname = "Ada \\"L\\" Byron"\n\temail = ada@example.org\n')
    monkeypatch.setenv("HOME", str(ground.home))
    yield ground
    shutil.rmtree(ground.root, ignore_errors=True)


def require_bubblewrap() -> None:
    """Skip where the machine has none or forbids it; fail where it should work and does not."""
    found = probe()
    if found.works:
        return
    if any(text in found.reason for text in IMPOSSIBLE):
        pytest.skip(found.reason)
    pytest.fail(found.reason)


@pytest.fixture(params=["bubblewrap", "local"])
def sandbox_kind(request: pytest.FixtureRequest) -> str:
    kind = str(request.param)
    if kind == "bubblewrap":
        require_bubblewrap()
    return kind


@pytest.fixture
async def sandbox(sandbox_kind: str, ground: Ground) -> AsyncIterator[Sandbox]:
    async with open_sandbox(ground.spec(), kind=sandbox_kind) as opened:
        yield opened


@pytest.fixture
async def walled(ground: Ground) -> AsyncIterator[Sandbox]:
    """A sandbox with walls."""
    require_bubblewrap()
    async with open_sandbox(ground.spec(), kind="required") as opened:
        yield opened


def is_alive(process: psutil.Process) -> bool:
    """Not if it is only left to be reaped, nor if it ends while it is looked at."""
    try:
        return process.is_running() and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


class Token:
    """A number of seconds that no other process sleeps, by which sleepers are found on the host."""

    def __init__(self) -> None:
        self.seconds = f"{86_400 + secrets.randbelow(10**9)}"

    def __str__(self) -> str:
        return self.seconds

    def processes(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.cmdline() == ["sleep", self.seconds] and is_alive(process):
                    found.append(process)
        return found

    async def until(self, count: int) -> list[psutil.Process]:
        """So many sleepers run."""
        await until(lambda: len(self.processes()) == count)
        return self.processes()


@pytest.fixture
def token() -> Iterator[Token]:
    token = Token()
    yield token
    for process in token.processes():
        with suppress(psutil.Error):
            process.kill()


async def until(condition: Callable[[], bool], bound_seconds: float = BOUND_SECONDS) -> None:
    async with asyncio.timeout(bound_seconds):
        while not condition():  # noqa: ASYNC110 - a process of the host rings no bell
            await asyncio.sleep(0.01)


async def until_true(condition: Callable[[], Awaitable[bool]], bound_seconds: float = BOUND_SECONDS) -> None:
    async with asyncio.timeout(bound_seconds):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


SERVER = """
import socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as server:
    print("listening", flush=True)
    while True:
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"hello from " + sys.argv[2].encode())
"""


def serve(port: int | str, word: str) -> str:
    """A command that serves `hello from WORD`."""
    return f"exec {PYTHON} -I -S -c '{SERVER}' {port} {word}"


def fetch(port: int | str) -> str:
    """A command that prints what a port says, or fails."""
    return f"exec 3<>/dev/tcp/127.0.0.1/{port} && cat <&3"


WORKER = """
import asyncio, json, sys
from pathlib import Path
from bullpen.sandbox import SandboxSpec
from bullpen.sandboxes import open_sandbox

async def main():
    kind, workspace, private, *commands = sys.argv[1:]
    spec = SandboxSpec(member="ana", workspace=Path(workspace), private_directory=Path(private))
    async with open_sandbox(spec, kind=kind) as sandbox:
        running = [await sandbox.start(command) for command in commands]
        print(json.dumps([[r.identity.pid, r.identity.start_ticks] for r in running]), flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


class OtherWorker:
    """Another worker process of the same member, with background commands; to be killed or frozen."""

    def __init__(self, kind: str, spec: SandboxSpec, *commands: str) -> None:
        arguments = (kind, str(spec.workspace), str(spec.private_directory), *commands)
        self.process = subprocess.Popen([sys.executable, "-c", WORKER, *arguments], stdout=subprocess.PIPE, text=True)

    async def __aenter__(self) -> str:
        assert self.process.stdout is not None
        return await asyncio.to_thread(self.process.stdout.readline)

    async def __aexit__(self, *exc_info: object) -> None:
        self.kill()

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        """-9."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
