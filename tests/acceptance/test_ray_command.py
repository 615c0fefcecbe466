"""`bullpen run --runner ray`: what is refused, and a run on a real cluster from the first line to the last."""

from __future__ import annotations

import os
import signal
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from bullpen.domain.event import EventKind
from bullpen.domain.member import MemberStatus
from bullpen.team import Team
from tests.acceptance.command import Elsewhere, Ran
from tests.acceptance.plays import TEAM, WAITS, ask_team
from tests.acceptance.scripts import FREE
from tests.support.cast import Job
from tests.support.ray_cluster import RayCluster, ray_cluster
from tests.support.ray_plays import script
from tests.support.troupe import until

BOUND_SECONDS = 150.0
NEXT = """
[[members.lead]]
calls = [{ name = "TeamDelete", arguments = {} }]

[[members.lead]]
calls = [{ name = "TeamCreate", arguments = { name = "latter", goal = "The rest" } }]

[[members.lead]]
calls = [
    { name = "TaskCreate", arguments = { subject = "The work of the second" } },
    { name = "Task", arguments = { name = "ana", prompt = "Take it." } },
]

[[members.lead]]
when = { context = "All tasks are finished" }
say = "Both are done."

[[members."*"]]
when = { newest = "<task id=" }
calls = [{ name = "TaskUpdate", arguments = { taskId = "{{task_id}}", status = "completed", result = "done" } }]

[[members."*"]]
say = "Noted."
repeat = true
"""
SECRET = "sk-only-for-the-workers-0123456789"


# -- what is refused --------------------------------------------------------------------------------


@pytest.fixture
def elsewhere(tmp_path: Path, postgres_url: str) -> Elsewhere:
    bullpen = Elsewhere(tmp_path, postgres_url)
    (tmp_path / "script.toml").write_text(script([Job(subject="one"), Job(subject="two")], ("ana", "ben")))
    (tmp_path / "bullpen.toml").write_text(f'model = "scripted:{tmp_path}/script.toml"\n' + FREE)
    return bullpen


@pytest.mark.parametrize(
    ("words", "environment", "code", "line"),
    [
        (["--runner", "slurm"], {}, 2, "there is no runner 'slurm': --runner ray, or none to host the team here"),
        (["--ray-address", "here:1"], {}, 2, "--ray-address needs --runner ray"),
        (["--runner", "ray", "--ray-address", "here"], {}, 2, "'here' is no address of a Ray cluster: HOST:PORT"),
        (["--runner", "ray", "--ray-address", "127.0.0.1:9"], {}, 3, "no Ray cluster answers at 127.0.0.1:9: `ray"),
        (["--runner", "ray"], {"RAY_ADDRESS": "127.0.0.1:9"}, 3, "no Ray cluster answers at 127.0.0.1:9: `ray"),
        (["--runner", "ray", "--store", "sqlite:///x.db"], {}, 2, "--runner ray needs a store that machines share: "),
    ],
)
def test_what_cannot_run_is_refused_in_one_line_before_a_team_begins(
    elsewhere: Elsewhere, words: list[str], environment: dict[str, Any], code: int, line: str
) -> None:
    assert elsewhere.refused("run", "Do it", *words, code=code, **environment).startswith(line)
    assert elsewhere.read("team", "list") == []


def test_without_ray_the_extra_is_named(elsewhere: Elsewhere, tmp_path: Path) -> None:
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "sitecustomize.py").write_text('import sys\nsys.modules["ray"] = None\n')
    line = elsewhere.refused("run", "Do it", "--runner", "ray", PYTHONPATH=str(tmp_path / "without"))
    assert line == "Ray needs an extra: pip install 'bullpen[ray]'"


# -- a run -------------------------------------------------------------------------------------------


@pytest.mark.timeout(280)
def test_a_run_on_a_cluster_is_told_and_ended_as_any_other(elsewhere: Elsewhere, tmp_path: Path) -> None:
    poison(tmp_path)
    with ray_cluster(nodes=1) as cluster:
        ran = run(elsewhere, cluster, "run", "Do them", "--team", "first")
        assert ran.code == 0, ran.out + ran.err
        assert [task["status"] for task in elsewhere.read("task", "list", "--team", "first")] == ["completed"] * 2
        assert "raylet" not in ran.out + ran.err, "Ray itself says nothing here"
        assert not (tmp_path / "poisoned").exists(), "nothing is imported from where agents write"
        assert elsewhere.read("worker", "list") == []
        check_interrupted(elsewhere, cluster)
        for number in range(3):
            check_next_team(elsewhere, cluster, number)
        assert not any(SECRET in text for text in cluster.texts()), "a key stands in no log of Ray"


def run(bullpen: Elsewhere, cluster: RayCluster, *words: str, **environment: Any) -> Ran:
    process = bullpen.start(*words, *placed(cluster), ANTHROPIC_API_KEY=SECRET, **environment)
    out, err = process.communicate(timeout=BOUND_SECONDS)
    return Ran(process.returncode, out.decode(), err.decode())


def placed(cluster: RayCluster) -> list[str]:
    return ["--runner", "ray", "--ray-address", cluster.address]


def poison(workspace: Path) -> None:
    """What an agent could write: a module of the name of one that each worker imports."""
    (workspace / "psycopg.py").write_text(f"open({str(workspace / 'poisoned')!r}, 'w')\nraise SystemExit\n")


def check_interrupted(bullpen: Elsewhere, cluster: RayCluster) -> None:
    """Ctrl-C lets the team rest, its workers leave, and whoever resumes it goes on with it: here, this time."""
    (bullpen.directory / "script.toml").write_text(WAITS)
    os.mkfifo(bullpen.directory / "word", stat.S_IRWXU)
    process = bullpen.start("run", "Wait", "--team", TEAM, *placed(cluster), ANTHROPIC_API_KEY=SECRET)
    await_waiting(bullpen)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=BOUND_SECONDS)
    assert process.returncode == 130
    again = f"`bullpen resume {TEAM} --runner ray --ray-address {cluster.address}` goes on"
    assert again in err.decode()
    assert bullpen.read("worker", "list") == []
    members = {member["name"]: member["status"] for member in bullpen.read("team", "show", TEAM)["members"]}
    assert (members["lead"], members["ana"]) == (MemberStatus.WANTED, MemberStatus.WANTED)
    (bullpen.directory / "word").unlink()
    (bullpen.directory / "word").write_text("the word")
    bullpen("resume", TEAM)


def check_next_team(bullpen: Elsewhere, cluster: RayCluster, number: int) -> None:
    """Its lead goes on in another team, and the workers with it: also where there may be one alone, so that the next
    comes when the last has gone, and meanwhile nobody is there but the promise that somebody will be."""
    (bullpen.directory / "script.toml").write_text(NEXT.replace("latter", f"latter{number}"))
    alone = {"BULLPEN_RAY__MAX_WORKERS": "1"} if number else {}
    ran = run(bullpen, cluster, "run", "One, then another", "--team", f"former{number}", **alone)
    assert ran.code == 0, ran.out + ran.err
    assert "Both are done." in ran.out, ran.out + ran.err
    [task] = bullpen.read("task", "list", "--team", f"latter{number}")
    assert (task["status"], task["owner"]) == ("completed", "ana")


def await_waiting(bullpen: Elsewhere) -> None:
    """Until ana is in the middle of her command."""
    until_seconds = time.monotonic() + BOUND_SECONDS
    while not any(team["name"] == TEAM for team in bullpen.read("team", "list")):
        assert time.monotonic() < until_seconds

    async def waits(team: Team) -> None:
        await until(team, EventKind.TOOL_CALL_STARTED, tool="bash", bound_seconds=BOUND_SECONDS)

    ask_team(bullpen, waits)
