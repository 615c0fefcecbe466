"""`--workspace git+URL`: a team whose members work in clones of their own, on one machine and on several."""

from __future__ import annotations

import json
import os
import re
import signal
from collections import Counter
from pathlib import Path

import pytest

from bullpen.domain.event import EventKind
from bullpen.team import Team
from tests.acceptance.command import BOUND_SECONDS, Bullpen, Elsewhere
from tests.acceptance.scripts import scripted
from tests.acceptance.stuck import stuck_git, wait_for
from tests.acceptance.test_cli_worker import TEAM, ask_team
from tests.acceptance.working import working
from tests.support.builders import CHECK, PROJECT
from tests.support.git_server import git_server
from tests.support.repository import files_at, git, make_repository, write
from tests.support.troupe import events_of, until, until_event

SECRET = "s3cret-t0ken"

LEAD = """
[[members.lead]]
calls = [CALLS]

[[members.lead]]
when = { context = "All tasks are finished" }
say = "All is done."

[[members.lead]]
say = "I wait."
repeat = true
"""
# ana does something, then hands it in; after a restart she looks at what she has.
ONE = """
[[members.ana]]
when = { newest_matches = "interrupted|You were restarted" }
repeat = true
calls = [{ name = "bash", arguments = { command = "AGAIN" } }]

[[members.ana]]
when = { newest = "[exit code 0]" }
repeat = true
calls = [{ name = "TaskUpdate", arguments = { taskId = "1", status = "completed", result = "made it" } }]

[[members.ana]]
when = { newest = "<task id=" }
repeat = true
calls = [{ name = "bash", arguments = { command = "COMMAND" } }]

[[members."*"]]
say = "Nothing more."
repeat = true
"""
# Each adds an item to the same files, and again after a conflict.
MANY = """
[[members."*"]]
when = { newest = "[exit code 0]" }
repeat = true
calls = [{ name = "TaskUpdate", arguments = { taskId = "{{task_id}}", status = "completed", result = "added" } }]

[[members."*"]]
when = { newest_matches = "<task id=|conflict|interrupted|You were restarted|not integrated" }
repeat = true
calls = [{ name = "bash", arguments = { command = "python3 build.py {{task_id}}" } }]

[[members."*"]]
say = "Nothing more."
repeat = true
"""


def plays_one(bullpen: Bullpen, command: str, *, again: str = "true") -> None:
    calls = (
        '{ name = "TaskCreate", arguments = { subject = "Write it down" } },'
        '{ name = "Task", arguments = { name = "ana", prompt = "Take what is on the board." } }'
    )
    scripted(bullpen, LEAD.replace("CALLS", calls) + ONE.replace("COMMAND", command).replace("AGAIN", again))


def plays_many(bullpen: Bullpen, members: int, tasks: int) -> None:
    created = ['{ name = "TaskCreate", arguments = { subject = "Add an item", check = "CHECK" } }'] * tasks
    spawned = [
        f'{{ name = "Task", arguments = {{ name = "m{number}", prompt = "Take what is on the board." }} }}'
        for number in range(members)
    ]
    scripted(bullpen, LEAD.replace("CALLS", ", ".join(created + spawned)).replace("CHECK", CHECK) + MANY)


@pytest.fixture
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository as a server has it."""
    directory = tmp_path_factory.mktemp("server")
    make_repository(directory / "seed", {"notes": "committed\n", ".gitignore": "*.pyc\n", **PROJECT})
    git(directory, "clone", "-q", "--bare", "seed", "far.git")
    return directory / "far.git"


@pytest.fixture
def machines(tmp_path: Path, postgres_url: str) -> list[Elsewhere]:
    """Two of them, each with a home and so a state directory of its own."""
    homes = [tmp_path / "one", tmp_path / "two"]
    for home in homes:
        home.mkdir()
    return [Elsewhere(home, postgres_url) for home in homes]


def clones_in(home: Path) -> list[str]:
    return sorted(path.name for path in home.glob("**/clones/*/teams/crew/*.[0-9]*") if path.is_dir())


def refused(bullpen: Bullpen, *words: str) -> str:
    """The last line: before it stands what is not confined."""
    ran = bullpen(*words, code=2)
    assert ran.out == ""
    return ran.err.splitlines()[-1].removeprefix("bullpen: ")


def integrated(bare: Path) -> Counter[str]:
    """How often which task is on the trunk."""
    log = git(bare, "log", "--format=%(trailers:key=Bullpen-Task,valueonly)", f"main..bullpen/{TEAM}")
    return Counter(line.partition("/")[0] for line in log.split())


# -- one machine -------------------------------------------------------------------------------------------------------


def test_a_team_works_in_clones_and_the_report_says_how_to_take_what_it_made(
    bullpen: Bullpen, bare: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    plays_one(bullpen, "cat notes > made")
    ran = bullpen("run", "Go", "--team", TEAM, "--workspace", f"git+file://{bare}", "--check", "test -e made")
    assert f"each member works in a clone of its own of file://{bare}, on bullpen/crew, from main (" in ran.err
    assert f"1 commit on bullpen/crew in file://{bare}" in ran.out
    assert files_at(bare, "bullpen/crew")["made"] == "committed"
    assert not (bullpen.directory / "made").exists()
    assert clones_in(bullpen.directory) == []
    assert "+committed" in bullpen("diff", TEAM).out
    assert "takes what it made into a clone of yours" in refused(bullpen, "apply", TEAM)
    assert f"worked in file://{bare}: remove refs/heads/bullpen/crew" in refused(bullpen, "clean", TEAM)
    # The one command, as it stands there.
    [command] = re.findall(r"`(git fetch [^`]+)` takes it", ran.out)
    mine = tmp_path_factory.mktemp("mine")
    git(mine, "clone", "-q", str(bare), "shop")
    for part in command.split(" && "):
        git(mine / "shop", *part.split()[1:])
    assert (mine / "shop/made").read_text() == "committed\n"


def test_another_branch_is_begun_from_if_it_is_named(bullpen: Bullpen, bare: Path) -> None:
    git(bare, "branch", "old", "main")
    seed = bare.with_name("seed")
    write(seed, {"notes": "newer\n"})
    git(seed, "commit", "-qam", "newer")
    git(seed, "push", "-q", str(bare), "main")
    plays_one(bullpen, "cat notes > made")
    ran = bullpen("run", "Go", "--team", TEAM, "--workspace", f"git+file://{bare}#old", "--json")
    assert files_at(bare, "bullpen/crew")["made"] == "committed"
    report = json.loads(ran.out.splitlines()[-1])["report"]
    assert (report["branch"], report["remote"], report["commits"]) == ("bullpen/crew", f"file://{bare}", 1)


def test_who_is_cut_off_goes_on_with_its_files_in_a_clone_of_its_next_incarnation(bullpen: Bullpen, bare: Path) -> None:
    pipe = bullpen.directory / "pipe"
    os.mkfifo(pipe)
    plays_one(bullpen, f"echo half > made; echo x > {pipe}; sleep 600", again="grep half made && echo whole >> made")
    process = bullpen.start("run", "Go", "--team", TEAM, "--workspace", f"git+file://{bare}")
    assert pipe.read_text() == "x\n"
    process.kill()
    process.communicate(timeout=BOUND_SECONDS)
    assert [name.partition(".")[0] for name in clones_in(bullpen.directory)] == ["ana", "lead"]
    bullpen("resume", TEAM, cwd=bullpen.directory)
    assert files_at(bare, "bullpen/crew")["made"] == "half\nwhole"
    assert clones_in(bullpen.directory) == []


def test_a_team_that_was_cut_off_before_it_had_a_branch_there_begins_in_that_repository(
    bullpen: Bullpen, bare: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    plays_one(bullpen, "echo made > made")
    programs, mark = stuck_git(tmp_path_factory.mktemp("programs"), at="' push '")
    process = bullpen.start(
        "run", "Go", "--team", TEAM, "--workspace", f"git+file://{bare}", PATH=f"{programs}:{os.environ['PATH']}"
    )
    wait_for(mark)
    process.kill()
    process.communicate(timeout=BOUND_SECONDS)
    ran = bullpen("resume", TEAM)
    assert f"a clone of its own of file://{bare}" in ran.err
    assert "All is done." in ran.out
    assert files_at(bare, f"bullpen/{TEAM}")["made"] == "made"


def test_what_is_in_the_way_is_said_in_one_line_and_no_team_is_left(bullpen: Bullpen, bare: Path) -> None:
    plays_one(bullpen, "true")
    url = f"git+file://{bare}"
    run = ("run", "Go", "--team", TEAM, "--workspace")
    assert "does not appear to be a git repository" in refused(bullpen, *run, f"{url}x")
    assert "say with #BRANCH where to begin (main)" in refused(bullpen, *run, f"{url}#nowhere")
    assert "there is no directory to share" in refused(bullpen, *run, url, "--isolation", "shared")
    assert "push it there, or leave it out" in refused(bullpen, *run, url, "--include-dirty")
    assert "git+ssh://" in refused(bullpen, *run, "git+git@example.org:shop.git")
    assert "is a directory: a team that began with git+URL" in bullpen.refused("worker", "--workspace", url)
    hook = bare / "hooks/pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    assert "takes no pushes of bullpen/crew" in refused(bullpen, *run, url)
    assert bullpen.read("team", "list") == []


def test_a_team_stays_with_its_repository(bullpen: Bullpen, bare: Path) -> None:
    plays_one(bullpen, "cat notes > made")
    bullpen("run", "Go", "--team", TEAM, "--workspace", f"git+file://{bare}")
    line = f"team crew works in file://{bare}: leave --workspace out"
    assert refused(bullpen, "resume", TEAM, "--workspace", ".") == line
    assert refused(bullpen, "resume", TEAM, "--workspace", f"git+file://{bare}x") == line


def test_a_password_of_the_address_is_seen_neither_by_people_nor_programs_nor_agents(
    bullpen: Bullpen, bare: Path
) -> None:
    plays_one(bullpen, "env; git config --list; cat $(git rev-parse --git-common-dir)/config; cat notes > made")
    with git_server(bare.parent, password=SECRET) as server:
        address = f"git+{server.with_user(f'uma:{SECRET}')}/far.git"
        ran = bullpen("run", "Go", "--team", TEAM, "--workspace", address, "--json")
        assert "the password of the address stays on this machine" in ran.err
        assert "made" in files_at(bare, "bullpen/crew")
        shown = bullpen("diff", TEAM)
        looks = (("team", "show", TEAM), ("events", TEAM), ("log", "ana"), ("log", "lead"))
        told = [ran.out, ran.err, shown.out, shown.err, *(bullpen(*words, "--json").out for words in looks)]
    assert not [text for text in told if SECRET in text]
    places = [path for path in (bullpen.directory / ".bullpen").rglob("*") if path.is_file()]
    assert [path.name for path in places if SECRET.encode() in path.read_bytes()] == ["credential"]


# -- several machines --------------------------------------------------------------------------------------------------


@pytest.mark.timeout(600)
def test_two_machines_integrate_each_task_once_although_one_of_them_is_killed(
    machines: list[Elsewhere], bare: Path
) -> None:
    one, two = machines
    tasks = 8
    plays_many(one, members=4, tasks=tasks)
    with working(one, "--slots", "2") as first, working(two, "--slots", "4") as second:
        begun = one.read("run", "Go", "--team", TEAM, "--workspace", f"git+file://{bare}", "--detach")
        assert begun["log"] is None
        ask_team(two, EventKind.WORK_INTEGRATED)
        first.end(signal.SIGKILL)

        async def all_done(team: Team) -> list[int]:
            for number in range(1, tasks + 1):
                await until(team, EventKind.TASK_COMPLETED, task=number)
            return [event.data["task"] for event in await events_of(team, EventKind.WORK_INTEGRATED)]

        assert sorted(two.prepare(all_done, team=TEAM)) == list(range(1, tasks + 1))
        assert second.end() == 0
    assert integrated(bare) == {str(number): 1 for number in range(1, tasks + 1)}
    names = git(bare, "show", "bullpen/crew:shop/names.txt").split()
    assert sorted(names) == sorted(f"item{number}" for number in range(1, tasks + 1))
    assert not [ref for ref in git(bare, "for-each-ref", "--format=%(refname)").split() if ".work-" in ref]
    assert "error" not in git(bare, "fsck")
    assert "+" in one("diff", TEAM, "--stat").out


def test_a_worker_that_is_told_to_leave_hands_its_members_on_with_what_they_have_in_work(
    machines: list[Elsewhere], bare: Path
) -> None:
    one, two = machines
    pipe = one.directory / "pipe"
    os.mkfifo(pipe)
    plays_one(one, f"echo half > made; echo x > {pipe}; sleep 600", again="grep half made && echo whole >> made")
    with working(one, "--drain", "0.2") as first:
        one.read("run", "Go", "--team", TEAM, "--workspace", f"git+file://{bare}", "--detach")
        assert pipe.read_text() == "x\n"
        with working(two) as second:
            assert first.end() == 0
            second.hear_all("taken", {"lead", "ana"})
            ask_team(two, EventKind.TASK_COMPLETED, task=1)
            assert second.end() == 0
    assert files_at(bare, "bullpen/crew")["made"] == "half\nwhole"


async def until_told_what_is_kept(team: Team) -> None:
    await until_event(team, lambda event: event.data.get("to") == "user" and ".kept-" in event.data.get("text", ""))


def test_what_a_killed_worker_had_in_work_is_kept_when_its_machine_is_back(
    machines: list[Elsewhere], bare: Path
) -> None:
    one, two = machines
    pipe = one.directory / "pipe"
    os.mkfifo(pipe)
    plays_one(one, f"echo half > made; echo x > {pipe}; sleep 600", again="echo from the beginning > made")
    with working(one) as first:
        one.read("run", "Go", "--team", TEAM, "--workspace", f"git+file://{bare}", "--detach")
        assert pipe.read_text() == "x\n"
        with working(two) as second:
            first.end(signal.SIGKILL)
            second.hear_all("taken", {"lead", "ana"})
            ask_team(two, EventKind.TASK_COMPLETED, task=1)
            with working(one):
                one.prepare(until_told_what_is_kept, team=TEAM)
            assert second.end() == 0
    kept = [ref for ref in git(bare, "for-each-ref", "--format=%(refname)").split() if ".kept-" in ref]
    assert [files_at(bare, ref)["made"] for ref in kept] == ["half"]
    assert files_at(bare, "bullpen/crew")["made"] == "from the beginning"
    assert "ana.1" not in clones_in(one.directory)


def test_a_worker_that_froze_and_thaws_moves_nothing_of_a_member_that_went_on_elsewhere(
    machines: list[Elsewhere], bare: Path
) -> None:
    one, two = machines
    pipe = one.directory / "pipe"
    os.mkfifo(pipe)
    plays_one(one, f"echo frozen > made; echo x > {pipe}; sleep 600", again="echo elsewhere > made")
    # Not shorter: before it is frozen, it must not be taken for dead because the machine is slow.
    with working(one, "--lease", "6") as first:
        one.read("run", "Go", "--team", TEAM, "--workspace", f"git+file://{bare}", "--detach")
        assert pipe.read_text() == "x\n"
        with working(two) as second:
            first.process.send_signal(signal.SIGSTOP)
            second.hear_all("taken", {"lead", "ana"})
            ask_team(two, EventKind.TASK_COMPLETED, task=1)
            first.process.send_signal(signal.SIGCONT)
            first.hear_all("left", {"ana"})
            assert second.end() == 0
    assert files_at(bare, "bullpen/crew")["made"] == "elsewhere"
    assert files_at(bare, "refs/bullpen/crew/ana")["made"] == "elsewhere"
    assert integrated(bare) == {"1": 1}


def test_a_directory_on_a_shared_store_is_said_to_guarantee_less(machines: list[Elsewhere]) -> None:
    one, _ = machines
    plays_one(one, "true")
    line = f"a worker on another machine needs {one.directory} there, too"
    assert line in one("run", "Go", "--team", TEAM).err
    assert line in one("resume", TEAM).err
