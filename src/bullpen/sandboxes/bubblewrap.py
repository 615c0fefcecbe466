"""The sandbox with walls: a bubblewrap for each member, with its own processes, network and view of the files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bullpen.sandbox import Guarantees
from bullpen.sandboxes.cell import SCRIPT, Launch
from bullpen.sandboxes.git import git_view, own_worktree_view
from bullpen.sandboxes.paths import home_secrets, homes, moved_secrets, system_secrets
from bullpen.sandboxes.supervised import SupervisedSandbox
from bullpen.sandboxes.view import View

PROBE_SECONDS = 20.0

SCRIPT_INSIDE = Path("/run/bullpen/supervisor.py")

ISOLATION = (
    "--unshare-user-try",
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup-try",
    "--die-with-parent",
    # Without a terminal that commands could type into.
    "--new-session",
    "--as-pid-1",
    # For root: else a remount from inside makes the machine's root writable.
    *("--cap-drop", "ALL"),
)

MACHINE = (
    *("--ro-bind", "/", "/"),
    *("--dev", "/dev"),
    *("--tmpfs", "/dev/shm"),
    *("--remount-ro", "/dev"),
    *("--proc", "/proc"),
    # Root needs no capability to write here, and what core_pattern names the kernel runs outside.
    *("--ro-bind", "/proc/sys", "/proc/sys"),
    *("--ro-bind-try", "/proc/sysrq-trigger", "/proc/sysrq-trigger"),
    # Sockets: of the container daemon, of agents that hold keys, of the desktop. No network namespace stops these.
    *("--tmpfs", "/run"),
    *("--ro-bind-try", "/run/systemd/resolve/stub-resolv.conf", "/run/systemd/resolve/stub-resolv.conf"),
    *("--ro-bind-try", "/run/systemd/resolve/resolv.conf", "/run/systemd/resolve/resolv.conf"),
    *("--ro-bind-try", "/run/current-system", "/run/current-system"),
    *("--ro-bind", str(SCRIPT), str(SCRIPT_INSIDE)),
    *("--remount-ro", "/run"),
)


class BubblewrapSandbox(SupervisedSandbox):
    """Only for who has seen `probe` say yes."""

    @property
    def name(self) -> str:
        return "bubblewrap"

    @property
    def guarantees(self) -> Guarantees:
        cut = not self.spec.network
        return Guarantees(files_confined=True, secrets_hidden=True, network_cut=cut, processes_contained=True)

    def describe(self) -> str:
        network = "with network" if self.spec.network else "without network"
        return (
            f"Commands run in bubblewrap, {network}: they write only in the workspace, and see no secrets and no store."
        )

    async def _sweep(self) -> None:
        """Nothing outlives a namespace of processes."""

    def _needs_own_cell(self, *, network: bool, read_only: bool) -> bool:
        return read_only or network != self.spec.network

    def _launch(self, *, network: bool, read_only: bool) -> Launch:
        view = self._view(read_only=read_only).options(read_only=read_only)
        cut = () if network else ("--unshare-net",)
        wrapper = (probe().path, *ISOLATION, *cut, *MACHINE, *view)
        return Launch(environment=self._environment, wrapper=wrapper, script=SCRIPT_INSIDE)

    def _view(self, *, read_only: bool) -> View:
        spec, view = self.spec, View()
        for place in (Path("/tmp"), Path("/var/tmp")):
            view.replace(place, None if read_only else self.temporary)
        view.read(*spec.readable)
        # The supervisor's interpreter, wherever it is installed.
        view.read(Path(sys.base_prefix))
        view.write(*spec.writable, spec.workspace)
        if spec.worktree is None:
            git = git_view(spec.workspace)
        else:
            view.write(spec.worktree)
            git = own_worktree_view(spec.worktree)
        view.read(*git.readable)
        view.write(*git.writable)
        view.guard(*git.guarded)
        for home in homes():
            view.rebuild(home, frozenset(home_secrets(home)))
        view.hide(*system_secrets(), *moved_secrets(os.environ), *spec.hidden, spec.private_directory)
        view.write(self.home)
        view.read(self.output)
        return view


@dataclass(frozen=True, slots=True)
class Probe:
    """Whether bubblewrap works here, and if not, why."""

    path: str
    works: bool
    reason: str = ""


@cache
def probe() -> Probe:
    """Really run it, with what a sandbox needs of it; once in a process."""
    path = shutil.which("bwrap")
    if path is None:
        return Probe("", works=False, reason="bubblewrap is not installed")
    try:
        done = subprocess.run(
            [path, *ISOLATION, "--unshare-net", *MACHINE, "--", "/bin/sh", "-c", ":"],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=PROBE_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Probe(path, works=False, reason=f"bubblewrap does not run: {error}")
    if done.returncode == 0:
        return Probe(path, works=True)
    last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return Probe(path, works=False, reason=f"bubblewrap does not work here: {last}")
