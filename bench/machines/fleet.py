"""Workers as processes, a team of scripted members on them, and what the database counted meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import psycopg

from bullpen.config import Settings
from bullpen.domain.member import USER, WORKSPACE, MemberRef
from bullpen.store import Store
from tests.support.postgres import PrivateServer
from tests.support.postgres_guard import find_postmaster

COMMAND = str(Path(sys.executable).with_name("bullpen"))
# A task is one request and two calls; who was restarted with a task goes on with it.
SCRIPT = """
[[members."*"]]
when = {{ newest_matches = '<task id="(?P<number>\\d+)">' }}
delay_seconds = {delay}
repeat = true
calls = [{calls}
    {{ name = "TaskUpdate", arguments = {{ taskId = "{{{{number}}}}", status = "completed", result = "done" }} }},
    {{ name = "idle", arguments = {{ reason = "done" }} }},
]

[[members."*"]]
when = {{ newest_matches = 'Current task: #(?P<number>\\d+)' }}
repeat = true
calls = [
    {{ name = "TaskUpdate", arguments = {{ taskId = "{{{{number}}}}", status = "completed", result = "done" }} }},
    {{ name = "idle", arguments = {{ reason = "done" }} }},
]

[[members."*"]]
say = "nothing to do"
repeat = true
"""
_CONTROL = re.compile(r"^(BEGIN|COMMIT|ROLLBACK|SAVEPOINT)")
# With this the server's log tells whose database a statement was for.
LOG_SETTINGS = {"log_line_prefix": "<%d> "}


def write_script(path: Path, *, delay_seconds: float = 0.0, command: str | None = None) -> str:
    """The name of a model that plays it. `command` is run for each task."""
    calls = "" if command is None else f'\n    {{ name = "bash", arguments = {{ command = "{command}" }} }},'
    path.write_text(SCRIPT.format(delay=delay_seconds, calls=calls))
    return f"scripted:{path}"


async def begin(
    store: Store, workspace: Path, model: str, *, name: str = "crew", members: int = 0, **sections: Any
) -> int:
    """A team without a lead that does anything: its id."""
    settings = Settings.from_mapping(
        {
            "model": model,
            "isolation": "shared",
            "sandbox": {"kind": "local"},
            "permissions": {"allow": ["*"]},
            "budget": {"max_cost_usd": 1e9},
            "max_teammates": 100_000,
            **sections,
        }
    )
    team = await store.create_team(name, settings={**settings.to_mapping(), WORKSPACE: str(workspace)})
    await spawn(store, team.id, 0, members)
    return team.id


async def spawn(store: Store, team_id: int, first: int, last: int) -> None:
    user = MemberRef(team_id, USER, 0)
    # Each holds the team for a moment: few at once.
    for start in range(first, last, 8):
        wave = range(start, min(start + 8, last))
        await asyncio.gather(*(store.spawn_member(user, f"m{number}") for number in wave))


# -- processes ---------------------------------------------------------------------------------------------------


class Working:
    """A `bullpen worker`. What it says goes to a file: nobody need read it."""

    def __init__(
        self,
        url: str,
        log: Path,
        *words: str,
        entering: Sequence[str] = (),
        environment: dict[str, str] | None = None,
    ) -> None:
        self.log = log
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("BULLPEN_")}
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [*entering, COMMAND, "worker", "--json", "--store", url, *words],
                cwd=log.parent,
                env={**inherited, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    async def until_ready(self) -> int:
        """Its number."""
        async with asyncio.timeout(120):
            while True:
                lines = self.log.read_text().splitlines()
                if lines and lines[0].startswith("{"):
                    return int(json.loads(lines[0])["worker"]["id"])
                if self.process.poll() is not None:
                    raise RuntimeError(f"a worker ended: {self.log.read_text()[-2000:]}")
                await asyncio.sleep(0.05)

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


@asynccontextmanager
async def workers(url: str, folder: Path, count: int, *words: str) -> AsyncIterator[list[Working]]:
    """On this machine."""
    started = [Working(url, folder / f"worker{number}.log", *words) for number in range(count)]
    try:
        for one in started:
            await one.until_ready()
        yield started
    finally:
        for one in started:
            one.send(signal.SIGTERM)
        for one in started:
            one.end()


# -- what the database did ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """`cpu_seconds` of all its processes; `wal_bytes`; `transactions` that were committed or rolled back."""

    seconds: float
    cpu_seconds: float
    wal_bytes: int
    commits: int
    rollbacks: int

    def __sub__(self, other: Effort) -> Effort:
        return Effort(
            seconds=self.seconds - other.seconds,
            cpu_seconds=self.cpu_seconds - other.cpu_seconds,
            wal_bytes=self.wal_bytes - other.wal_bytes,
            commits=self.commits - other.commits,
            rollbacks=self.rollbacks - other.rollbacks,
        )


class Observer:
    """Asks the server itself, in a database of its own, so that it does not count what it asks."""

    def __init__(self, server: PrivateServer, database: str) -> None:
        self._server = server
        self._database = database
        self._logged = re.compile(rf"^<{database}> LOG:  (?:execute [^:]*|statement): (.*)$", re.MULTILINE)
        self._control = psycopg.connect(server.url, autocommit=True)

    def close(self) -> None:
        self._control.close()

    def effort(self) -> Effort:
        [(seconds, wal, commits, rollbacks)] = self._control.execute(
            "SELECT extract(epoch FROM clock_timestamp())::float8, pg_current_wal_lsn() - '0/0', xact_commit, "
            "xact_rollback FROM pg_stat_database WHERE datname = %s",
            [self._database],
        ).fetchall()
        return Effort(
            seconds=seconds,
            cpu_seconds=self._cpu_seconds(),
            wal_bytes=int(wal),
            commits=commits,
            rollbacks=rollbacks,
        )

    def _cpu_seconds(self) -> float:
        """Of the processes that are there and of those that have ended, which their parent counts."""
        postmaster = find_postmaster(self._server.data)
        assert postmaster is not None
        times = postmaster.cpu_times()
        spent = float(times.user + times.system + times.children_user + times.children_system)
        for child in postmaster.children():
            try:
                own = child.cpu_times()
            except psutil.NoSuchProcess:
                continue
            spent += own.user + own.system
        return spent

    def connections(self) -> Counter[str]:
        rows = self._control.execute(
            "SELECT state, count(*) FROM pg_stat_activity WHERE datname = %s GROUP BY state", [self._database]
        )
        return Counter({str(state): count for state, count in rows})

    @contextmanager
    def statements(self) -> Iterator[Counter[str]]:
        """Filled at the end: what was executed meanwhile, as the server logged it."""
        found: Counter[str] = Counter()
        self._log_statements("all")
        start = self._server.log.stat().st_size
        try:
            yield found
        finally:
            with self._server.log.open(errors="replace") as log:
                log.seek(start)
                text = log.read()
            # A statement of several lines goes on behind a tab.
            found.update(" ".join(sql.split()) for sql in self._logged.findall(text.replace("\n\t", " ")))
            self._log_statements("none")

    def _log_statements(self, which: str) -> None:
        self._control.execute(f"ALTER SYSTEM SET log_statement = '{which}'".encode())
        self._control.execute("SELECT pg_reload_conf()")
        # Each server process reads it before its next command.
        self._control.execute("SELECT pg_sleep(0.2)")


def is_query(sql: str) -> bool:
    """Not a frame around others."""
    return not _CONTROL.match(sql)
