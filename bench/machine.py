"""What a reader needs to know about where the numbers come from; nothing that names the machine."""

from __future__ import annotations

import os
import platform
import sys
from datetime import UTC, datetime

import apsw
import psutil
import psycopg

from bench.ground import Ground


def facts(ground: Ground, *, with_postgres: bool) -> list[str]:
    found = [
        f"{datetime.now(UTC):%Y-%m-%d}",
        f"{os.cpu_count()} cores ({platform.machine()}), {psutil.virtual_memory().total / 2**30:.0f} GiB",
        f"{platform.system()} {platform.release().split('-')[0]}, {_file_system(ground)}",
        f"Python {platform.python_version()} ({sys.implementation.name})",
        f"SQLite {apsw.sqlite_lib_version()} (apsw)",
    ]
    if with_postgres:
        with psycopg.connect(ground.server) as connection:
            version = connection.info.server_version
        found.append(f"PostgreSQL {version // 10000}.{version % 10000} (psycopg {psycopg.__version__}), same machine")
    load = os.getloadavg()[0]
    if load > 0.5:
        found.append(f"a load of {load:.1f} from other work when it began")
    return found


class Theft:
    """What the machine's own host gave to others meanwhile: numbers of such a time say little."""

    def __init__(self) -> None:
        self._before = psutil.cpu_times()

    def facts(self) -> list[str]:
        now, before = psutil.cpu_times(), self._before
        stolen = getattr(now, "steal", 0.0) - getattr(before, "steal", 0.0)
        share = stolen / max(sum(now) - sum(before), 1e-9)
        return [f"{share:.0%} of the processors' time was taken away by the machine's host"] if share > 0.02 else []


def _file_system(ground: Ground) -> str:
    mounts = [part for part in psutil.disk_partitions(all=True) if str(ground.folder).startswith(part.mountpoint)]
    return max(mounts, key=lambda part: len(part.mountpoint)).fstype if mounts else "unknown file system"
