"""A real Ray cluster on loopback: a head and nodes, each a group of processes that can be killed as a machine dies.

`ray stop` would end every Ray of this machine, so nobody calls it. The sessions of the processes tell which node a
worker runs on.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from tests.support.ports import free_port

BOUND_SECONDS = 120.0
ATTEMPTS = 3
RAY = str(Path(sys.executable).with_name("ray"))
# Not 127.0.0.1, for which Ray would take the address of the machine.
LOOPBACK = "127.0.0.2"
SMALL = ("--object-store-memory", "80000000", "--disable-usage-stats")


class Node:
    """`ray start --block` and all that it started: they share a session."""

    def __init__(self, words: list[str], log: Path) -> None:
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [RAY, "start", "--block", "--node-ip-address", LOOPBACK, *SMALL, *words],
                cwd="/",
                env=_environment(log.parent),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.log = log

    def has_started(self) -> bool:
        """False if it gave up: Ray waits for 30 seconds, which a busy machine may exceed."""
        until = time.monotonic() + BOUND_SECONDS
        while "Ray runtime started" not in self.log.read_text():
            if self.process.poll() is not None:
                self.kill()
                return False
            assert time.monotonic() < until, self.log.read_text()
            time.sleep(0.05)
        return True

    def runs(self, pid: int) -> bool:
        with suppress(ProcessLookupError):
            return os.getsid(pid) == self.process.pid
        return False

    def kill(self) -> None:
        """`kill -9` for all of it, as when a machine loses its power."""
        theirs = [process.pid for process in psutil.process_iter() if self.runs(process.pid)]
        for pid in theirs:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(BOUND_SECONDS)


class RayCluster:
    """Nobody is placed on the head; `nodes` have two CPUs each."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.nodes: list[Node] = []
        self.address, self.head = self._start_head()

    def _start_head(self) -> tuple[str, Node]:
        for _ in range(ATTEMPTS):
            port = free_port(LOOPBACK)
            words = ["--head", "--port", str(port), "--num-cpus", "0", "--temp-dir", str(self.directory)]
            head = self._start([*words, "--include-dashboard", "false"], "head")
            if head.has_started():
                return f"{LOOPBACK}:{port}", head
        raise TimeoutError((self.directory / "head.log").read_text())

    def add_nodes(self, count: int, resources: Mapping[str, float]) -> None:
        """They are there when this returns."""
        words = ["--address", self.address, "--num-cpus", "2", "--resources", json.dumps(resources)]
        for number in range(count):
            self.nodes.append(self._add_node(words, f"node-{number}"))

    def _add_node(self, words: list[str], name: str) -> Node:
        for _ in range(ATTEMPTS):
            node = self._start(words, name)
            if node.has_started():
                return node
        raise TimeoutError((self.directory / f"{name}.log").read_text())

    def node_of(self, pid: int) -> Node:
        return next(node for node in self.nodes if node.runs(pid))

    def close(self) -> None:
        for node in (*self.nodes, self.head):
            node.kill()

    def texts(self) -> Iterator[str]:
        """All that the nodes wrote down: their logs, and what the head keeps on disk."""
        for path in self.directory.rglob("*"):
            if path.is_file():
                with suppress(OSError):
                    yield path.read_text("utf-8", "replace")

    def _start(self, words: list[str], name: str) -> Node:
        return Node(words, self.directory / f"{name}.log")


@contextmanager
def ray_cluster(nodes: int, resources: Mapping[str, float] | None = None) -> Iterator[RayCluster]:
    # Not the folder of the test: a socket's path has at most 104 bytes.
    directory = Path(tempfile.mkdtemp(prefix="bullpen-ray-", dir="/tmp"))
    try:
        cluster = RayCluster(directory)
        try:
            cluster.add_nodes(nodes, resources or {})
            yield cluster
        finally:
            cluster.close()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _environment(home: Path) -> dict[str, str]:
    """As on a machine of its own: nothing of Bullpen's settings, and a state directory that is not ours."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("BULLPEN_", "RAY_"))}
    return {**inherited, "RAY_USAGE_STATS_ENABLED": "0", "HOME": str(home), "XDG_STATE_HOME": str(home / "state")}
