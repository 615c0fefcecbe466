"""Teams played by a script, run by the real command: one that finishes by itself, one that waits for the test."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TextIO, TypeVar

from bullpen.domain.event import EventKind
from bullpen.domain.member import LEAD
from bullpen.team import Team
from tests.acceptance.command import BOUND_SECONDS, Bullpen
from tests.support.troupe import until

T = TypeVar("T")

TEAM = "crew"

FINISHES = """
[model]
usage = { input_tokens = 1000, output_tokens = 100, cache_read_tokens = 600 }
price = { input_usd = 3.0, output_usd = 15.0 }

[[members.lead]]
say = "Two tasks, one teammate."
calls = [
    { name = "TaskCreate", arguments = { subject = "Analyse the endpoints" } },
    { name = "TaskCreate", arguments = { subject = "Write them down", check = "test -s notes.txt", blockedBy = "1" } },
    { name = "Task", arguments = { name = "ana", role = "analyst", prompt = "Take what is on the board." } },
]

[[members.lead]]
when = { context = "All tasks are finished" }
say = "Migration complete."

[[members.lead]]
say = "I wait."
repeat = true

# Long after the lead has said that it waits: so the number of its calls is always the same.
[[members.ana]]
delay_seconds = 0.5
say = "I count."
calls = [{ name = "bash", arguments = { command = "seq 1 9" } }]

[[members.ana]]
calls = [{ name = "TaskUpdate", arguments = { taskId = "1", status = "completed", result = "three endpoints" } }]

[[members.ana]]
say = "The first is done."

[[members.ana]]
calls = [{ name = "TaskUpdate", arguments = { taskId = "2", status = "completed", result = "too early" } }]

[[members.ana]]
calls = [{ name = "write_file", arguments = { path = "notes.txt", content = "a\\nb\\nc\\n" } }]

[[members.ana]]
calls = [{ name = "TaskUpdate", arguments = { taskId = "2", status = "completed", result = "notes.txt, three lines" } }]

[[members.ana]]
say = "Both are done."
"""

# ana's command reads from a pipe that only the test writes to.
WAITS = """
[[members.lead]]
calls = [
    { name = "TaskCreate", arguments = { subject = "Wait for the word" } },
    { name = "Task", arguments = { name = "ana", role = "analyst", prompt = "Take what is on the board." } },
]

[[members.lead]]
when = { context = "All tasks are finished" }
say = "All is done."

[[members.lead]]
say = "I wait."
repeat = true

[[members.ana]]
when = { newest = "heard: " }
repeat = true
calls = [{ name = "TaskUpdate", arguments = { taskId = "1", status = "completed", result = "{{result}}" } }]

[[members.ana]]
when = { newest_matches = "<task id=|You were restarted" }
repeat = true
calls = [{ name = "bash", arguments = { command = "echo heard: $(cat word)" } }]

[[members."*"]]
say = "Nothing to do for {{member}}."
repeat = true
"""

ASKS = """
[[members.lead]]
calls = [{ name = "SendMessage", arguments = { recipient = "user", content = "Which port?" } }]

[[members.lead]]
when = { newest = "8080" }
say = "It is 8080."

[[members.lead]]
say = "I asked."
repeat = true
"""


def write_script(bullpen: Bullpen, script: str) -> str:
    """The name of a model that plays it."""
    (bullpen.directory / "script.toml").write_text(script)
    return "scripted:script.toml"


def play(bullpen: Bullpen, script: str, *words: str, code: int | None = 0) -> str:
    """A run to its end; what it printed."""
    return bullpen("run", "Analyse", "--team", TEAM, "--model", write_script(bullpen, script), *words, code=code).out


def ask_team(bullpen: Bullpen, work: Callable[[Team], Awaitable[T]], team: str = TEAM) -> T:
    return bullpen.prepare(work, team, create=False)


class AtWork:
    def __init__(self, bullpen: Bullpen, process: subprocess.Popen[bytes]) -> None:
        self.bullpen = bullpen
        self.process = process

    def say(self, word: str = "the word") -> None:
        """ana's command ends with this; unless it has been cut off, then nobody is there to hear it."""
        by = time.monotonic() + BOUND_SECONDS
        while (pipe := self._open_pipe()) is None:
            if self.process.poll() is not None:
                return
            assert time.monotonic() < by, "nobody listens"
            threading.Event().wait(0.01)
        with pipe:
            pipe.write(word)

    def _open_pipe(self) -> TextIO | None:
        """None while nobody reads from it: who opens it otherwise would wait for a reader for ever."""
        try:
            return open(os.open(self.bullpen.directory / "word", os.O_WRONLY | os.O_NONBLOCK), "w")
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return None

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=BOUND_SECONDS)
        return self.process.returncode, out.decode(), err.decode()


@contextmanager
def at_work(bullpen: Bullpen, *words: str) -> Iterator[AtWork]:
    """While inside, a process runs a team whose ana waits in the middle of a command, and whose lead idles."""
    os.mkfifo(bullpen.directory / "word")
    model = write_script(bullpen, WAITS)
    process = bullpen.start("run", "Wait", "--team", TEAM, "--model", model, *words)
    try:
        asyncio.run(_until_waiting(bullpen, process))
        yield AtWork(bullpen, process)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.communicate(timeout=BOUND_SECONDS)


async def _until_waiting(bullpen: Bullpen, process: subprocess.Popen[bytes]) -> None:
    from bullpen.stores import open_store

    async with asyncio.timeout(BOUND_SECONDS), open_store(bullpen.store) as store:
        while True:
            record = await store.find_team(TEAM)
            if record is not None:
                break
            assert process.poll() is None, process.communicate()
            await asyncio.sleep(0.02)
        team = Team(store, record)
        await until(team, EventKind.TOOL_CALL_STARTED, tool="bash")
        # In either order: the lead may still be asking its model when ana begins.
        await until(team, EventKind.PHASE_ENDED, member=LEAD, result="I wait.")
