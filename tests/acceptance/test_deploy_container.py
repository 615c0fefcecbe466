"""`deploy/container`: no container engine runs in these tests, so what the file says is done without one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.acceptance.command import BOUND_SECONDS, COMMAND, Elsewhere, read_line
from tests.support.deployments import DEPLOY, Containerfile, drain_seconds

ROOT = DEPLOY.parent
# A process id namespace of its own, in which the command is process 1 as in a container.
UNSHARE = [
    "unshare",
    *(() if os.geteuid() == 0 else ("--user", "--map-current-user")),
    *("--pid", "--fork", "--kill-child", "--mount-proc"),
]


def can_unshare() -> bool:
    if not sys.platform.startswith("linux") or shutil.which("unshare") is None:
        return False
    return subprocess.run([*UNSHARE, "true"], check=False, capture_output=True).returncode == 0


def test_what_is_copied_is_there_and_is_all_that_the_package_is_built_from() -> None:
    copied = [word for line in Containerfile.read().all("COPY")[:2] for word in line.split()[:-1]]
    for name in copied:
        assert (ROOT / name).exists(), name
    assert {"pyproject.toml", "constraints.txt", "README.md", "LICENSE", "src"} <= set(copied)


def test_it_runs_as_nobody_who_may_do_anything_with_the_programs_that_members_need() -> None:
    file = Containerfile.read()
    [user] = file.all("USER")
    assert user == "10001:10001"
    [installs] = [line for line in file.all("RUN") if "apt-get install" in line]
    assert {"bubblewrap", "git", "ripgrep", "tini"} <= set(installs.split())


@pytest.mark.skipif(not can_unshare(), reason="no process id namespaces here")
@pytest.mark.parametrize("has_init", [True, False], ids=["with tini", "without"])
def test_the_entrypoint_as_process_1_hosts_and_leaves_at_sigterm(
    tmp_path: Path, postgres_url: str, has_init: bool
) -> None:
    """Without tini, too: whoever runs the image with another entrypoint must not have to wait for SIGKILL."""
    words = Containerfile.read().entrypoint
    assert words[:3] == ["tini", "--", "bullpen"]
    if has_init and shutil.which("tini") is None:
        pytest.skip("tini is not installed")
    bullpen = Elsewhere(tmp_path, postgres_url)
    entrypoint = [*(words[:2] if has_init else ()), *COMMAND, *words[3:], "--json"]
    process = subprocess.Popen(
        [*UNSHARE, *entrypoint], cwd=tmp_path, env=bullpen.environment, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
    )
    with process:
        try:
            assert '"ready"' in read_line(process)
            [first] = psutil.Process(process.pid).children()
            first.send_signal(signal.SIGTERM)
            assert process.wait(BOUND_SECONDS) == 0
        finally:
            process.kill()
    [left] = bullpen.read("worker", "list", "--all")
    assert left["state"] == "left"
    assert drain_seconds(words) > 0
