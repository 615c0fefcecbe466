"""A daemon that removes a test's PostgreSQL server once nobody uses it any more.

Users of a server hold a shared `flock` on the file `users` in its directory; the kernel releases it however
they end, `kill -9` included. The guard waits for the exclusive one, which it gets when the last user is gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import psutil

USERS_FILE = "users"
DATA_FOLDER = "data"


def find_postmaster(data: Path) -> psutil.Process | None:
    """The server running on this data directory; a stale pid file that names a stranger does not count."""
    try:
        pid = int((data / "postmaster.pid").read_text().split("\n", 1)[0])
        process = psutil.Process(pid)
        return process if Path(process.cwd()) == data else None
    except (FileNotFoundError, ValueError, psutil.NoSuchProcess, psutil.ZombieProcess):
        return None


def kill_server(data: Path) -> None:
    """`kill -9` for the server and all its backends at once, as a machine does that loses power."""
    postmaster = find_postmaster(data)
    if postmaster is None:
        return
    postmaster.suspend()  # so that no backend is born between listing and killing
    processes = [*postmaster.children(recursive=True), postmaster]
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    wait_until_dead(processes, timeout_seconds=60)
    # A process 1 that reaps late leaves a zombie, and the next server would take its pid for a live one.
    for lock_file in [data / "postmaster.pid", *data.parent.glob(".s.PGSQL.*.lock")]:
        lock_file.unlink(missing_ok=True)


def wait_until_dead(processes: list[psutil.Process], timeout_seconds: float) -> bool:
    """Zombies count as dead. Polls, because these are not our children and there is nothing to wait on."""
    give_up_at = time.monotonic() + timeout_seconds
    while not all(map(_is_dead, processes)):
        if time.monotonic() > give_up_at:
            return False
        time.sleep(0.01)
    return True


def _is_dead(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def main(directory: Path) -> None:
    if os.fork():
        return  # to whoever started us; the child belongs to nobody and outlives the test session
    os.setsid()
    users = os.open(directory / USERS_FILE, os.O_RDWR)
    fcntl.flock(users, fcntl.LOCK_EX)
    data = directory / DATA_FOLDER
    postmaster = find_postmaster(data)
    if postmaster is not None:
        # Not kill -9: an immediate shutdown also gives back the System V shared memory.
        postmaster.send_signal(signal.SIGQUIT)
        if not wait_until_dead([postmaster], timeout_seconds=10):
            kill_server(data)
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
