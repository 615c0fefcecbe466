"""`bullpen worker` on one machine: several processes share a store, and members go from one to another."""

from __future__ import annotations

import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from bullpen.domain.event import EventKind
from bullpen.domain.transcript import INTERRUPTED_TEXT
from bullpen.team import Team
from tests.acceptance.command import BOUND_SECONDS, Bullpen, Elsewhere, read_line
from tests.acceptance.plays import at_work
from tests.acceptance.scripts import WAITS, go, scripted
from tests.acceptance.working import working
from tests.support.removing import remove_in_use
from tests.support.troupe import until

TEAM = "crew"
WORKS = f"""
[[members.lead]]
calls = [
    {{ name = "TaskCreate", arguments = {{ subject = "Analyse" }} }},
    {{ name = "Task", arguments = {{ name = "ana", prompt = "Take what is on the board." }} }},
]

[[members.lead]]
when = {{ context = "All tasks are finished" }}
say = "Migration complete."

[[members.lead]]
say = "I wait."
repeat = true

[[members.ana]]
calls = [{{ name = "bash", arguments = {{ command = "{WAITS}" }} }}]

[[members.ana]]
calls = [{{ name = "TaskUpdate", arguments = {{ taskId = "{{{{task_id}}}}", status = "completed", result = "done" }} }}]

[[members."*"]]
say = "nothing to do"
repeat = true
"""

STALLS = """
[[members.lead]]
calls = [{ name = "TaskCreate", arguments = { subject = "Paint it", role = "painter" } }]

[[members.lead]]
when = { context = "The team has stalled" }
say = "I know of no painter."

[[members.lead]]
say = "I wait."
repeat = true
"""


MARKS = """
[[members.ana]]
calls = [{ name = "write_file", arguments = { path = "mark.txt", content = "here" } }]

[[members.ana]]
calls = [{ name = "TaskUpdate", arguments = { taskId = "1", status = "completed", result = "done" } }]

[[members."*"]]
say = "nothing to do"
repeat = true
"""


def ask_team(bullpen: Bullpen, kind: EventKind, *, team: str = TEAM, **facts: Any) -> None:
    async def wait(team: Team) -> None:
        await until(team, kind, **facts)

    bullpen.prepare(wait, team=team)


def begin(bullpen: Bullpen) -> dict[str, Any]:
    scripted(bullpen, WORKS)
    answer: dict[str, Any] = bullpen.read("run", "Analyse it", "--team", TEAM, "--detach")
    return answer


# -- hosting ---------------------------------------------------------------------------------------


def test_a_detached_run_only_writes_rows_where_a_worker_is_there(bullpen: Bullpen) -> None:
    go(bullpen)
    with working(bullpen) as one:
        answer = begin(bullpen)
        assert answer["log"] is None
        # It waits only a moment for somebody to take it.
        assert {host["worker"] for host in answer["hosts"]} <= {one.id}
        one.hear_all("taken", {"lead", "ana"})
        ask_team(bullpen, EventKind.TASK_COMPLETED, task=1)
        [listed] = bullpen.read("worker", "list")
        assert (listed["id"], listed["state"], listed["used"], listed["free"]) == (one.id, "alive", 1, 15)
        assert {member["name"] for member in listed["members"]} == {"lead", "ana"}
        assert one.end() == 0
    assert bullpen.read("worker", "list") == []


def test_on_a_server_a_detached_run_only_writes_rows_and_says_which_worker_would_host_it(
    tmp_path: Path, postgres_url: str
) -> None:
    operator = Elsewhere(tmp_path, postgres_url)
    go(operator)
    scripted(operator, WORKS)
    ran = operator("run", "Analyse it", "--team", TEAM, "--detach")
    store = ran.lines[-1].removeprefix(f"nobody hosts team {TEAM} yet: `bullpen worker --store ").removesuffix("` does")
    assert store.startswith("postgresql://")
    assert operator.read("worker", "list") == []
    assert not (tmp_path / ".local/state/bullpen").exists(), "nothing of it is to be kept on the operator's machine"
    with working(operator) as one:
        one.hear_all("taken", {"lead", "ana"})
        assert "Migration complete." in operator("watch", TEAM).out


def test_a_board_that_was_begun_by_hand_is_worked_on_where_it_began(bullpen: Bullpen, tmp_path: Path) -> None:
    scripted(bullpen, MARKS)
    (there := tmp_path / "project").mkdir()
    bullpen("task", "add", "Mark the place", "--store", bullpen.store, cwd=there)
    bullpen("spawn", "ana")
    with working(bullpen):
        ask_team(bullpen, EventKind.TASK_COMPLETED, team="default", task=1)
    assert (there / "mark.txt").read_text() == "here"
    # From now on members could have written what lies there.
    settings = (bullpen.directory / "bullpen.toml").read_text()
    (there / "bullpen.toml").write_text(f'{settings}[hooks]\ntask_created = ["true"]\n')
    ran = bullpen("resume", cwd=there, code=None)
    assert "members could write that file: not taken" in ran.err


def test_the_list_of_workers_fits_into_a_narrow_terminal(bullpen: Bullpen) -> None:
    bullpen("task", "add", "One")
    with working(bullpen, "--labels", "gpu,linux"):
        for columns in (40, 60, 100):
            _, seen = bullpen.on_terminal("worker", "list", columns=columns, NO_COLOR="1")
            title, row = seen.splitlines()
            assert max(len(title), len(row)) <= columns, seen
            assert title.startswith("WORKER  HOST")
            assert "alive" in row
            # In between it depends on how long the machine's name is.
            assert columns == 60 or ("LEASE" in title) == (columns == 100)


def test_a_worker_whose_store_is_removed_ends_with_3_and_one_line(bullpen: Bullpen) -> None:
    bullpen("task", "add", "One")
    with working(bullpen) as one:
        remove_in_use(bullpen.directory / ".bullpen")
        _, err = one.process.communicate(timeout=BOUND_SECONDS)
        assert one.process.returncode == 3
        [line] = err.decode().splitlines()
        assert "bullpen.db was removed or replaced while it was in use" in line


def test_a_worker_that_is_told_to_leave_hands_its_members_on(bullpen: Bullpen) -> None:
    with working(bullpen) as one:
        begin(bullpen)
        one.hear_all("taken", {"lead", "ana"})
        with working(bullpen) as other:
            one.process.send_signal(signal.SIGTERM)
            other.hear_all("taken", {"lead", "ana"})
            assert one.process.wait(BOUND_SECONDS) == 0
            go(bullpen)
            ask_team(bullpen, EventKind.TASK_COMPLETED, task=1)
            assert other.end(signal.SIGINT) == 130


def test_calls_under_way_may_end_and_a_second_signal_cuts_them_off(bullpen: Bullpen) -> None:
    with working(bullpen, "--drain", "3600") as one:
        begin(bullpen)
        ask_team(bullpen, EventKind.TOOL_CALL_STARTED, tool="bash")
        one.process.send_signal(signal.SIGTERM)
        assert one.hear("left")["member"] == "lead", "who does nothing leaves at once"
        one.process.send_signal(signal.SIGTERM)
        assert one.hear("left")["member"] == "ana"
        assert one.process.wait(BOUND_SECONDS) == 0
    with working(bullpen, "--drain", "3600") as other:
        ask_team(bullpen, EventKind.MEMBER_HOSTED, member="ana", worker=other.id)
        go(bullpen)
        ask_team(bullpen, EventKind.TASK_COMPLETED, task=1)
    assert INTERRUPTED_TEXT in bullpen("log", "ana", "--team", TEAM).out


def test_a_call_that_ends_while_its_worker_leaves_is_not_repeated(bullpen: Bullpen) -> None:
    with working(bullpen, "--drain", "3600") as one:
        begin(bullpen)
        ask_team(bullpen, EventKind.TOOL_CALL_STARTED, tool="bash")
        one.process.send_signal(signal.SIGTERM)
        assert one.hear("left")["member"] == "lead"
        go(bullpen)
        assert one.hear("left")["member"] == "ana"
        assert one.process.wait(BOUND_SECONDS) == 0
    with working(bullpen):
        ask_team(bullpen, EventKind.TASK_COMPLETED, task=1)
    assert INTERRUPTED_TEXT not in bullpen("log", "ana", "--team", TEAM).out


def test_whom_a_killed_worker_hosted_the_next_one_takes(bullpen: Bullpen) -> None:
    with working(bullpen) as one:
        begin(bullpen)
        one.hear_all("taken", {"lead", "ana"})
        one.end(signal.SIGKILL)
        [listed] = bullpen.read("worker", "list")
        assert (listed["id"], listed["state"]) == (one.id, "dead")
    with working(bullpen) as other:
        other.hear_all("taken", {"lead", "ana"})
        go(bullpen)
        ask_team(bullpen, EventKind.TASK_COMPLETED, task=1)
        [first, second] = bullpen.read("worker", "list", "--all")
        assert (first["state"], second["state"]) == ("died", "alive")


# -- when it is over -------------------------------------------------------------------------------


def mail_to_the_user(bullpen: Bullpen) -> list[str]:
    return [mail["content"] for mail in bullpen.read("inbox", "--team", TEAM)]


def test_a_team_that_finishes_on_a_worker_is_at_rest_and_the_user_is_told_once(bullpen: Bullpen) -> None:
    go(bullpen)
    with working(bullpen) as one:
        begin(bullpen)
        watched = bullpen("watch", TEAM)
        assert "\ncrew: done\n" in watched.out
        assert "Migration complete." in watched.out
        finished = "team crew is finished: 1 completed. `bullpen watch crew` tells what it said."
        ask_team(bullpen, EventKind.MESSAGE_SENT, to="user")
        assert mail_to_the_user(bullpen) == [finished]
        # Nothing of it is refused because of a lead that idles.
        assert "\ncrew: done\n" in bullpen("resume", TEAM).out
        assert "exists: `bullpen resume crew`" in bullpen("run", "More", "--team", TEAM, code=1).err
        assert bullpen("clean", TEAM).out == "nothing to clean up\n"
        with working(bullpen) as other:
            assert one.end() == 0
            other.hear_all("taken", {"lead"})
            bullpen("watch", TEAM)
            assert other.end() == 0
    assert mail_to_the_user(bullpen) == [finished]


def test_a_team_that_stalls_on_a_worker_ends_for_who_watches_and_the_user_is_told_who_waits(bullpen: Bullpen) -> None:
    scripted(bullpen, STALLS)
    with working(bullpen):
        bullpen("run", "Paint it", "--team", TEAM, "--detach")
        watched = bullpen("watch", TEAM, code=1)
        assert "\ncrew: stalled: nothing can go on by itself\n" in watched.out
        assert "#1 Paint it: needs the role painter, which nobody has\n" in watched.out
        assert "I know of no painter." in watched.out
        assert watched.err == "bullpen: `bullpen chat --team crew` talks with the lead\n"
        ask_team(bullpen, EventKind.MESSAGE_SENT, to="user")
        assert mail_to_the_user(bullpen) == [
            "team crew is stalled: nothing can go on by itself.\n"
            "- #1 Paint it: needs the role painter, which nobody has\n"
            "`bullpen chat --team crew` talks with the lead."
        ]
        assert "has 1 unfinished task:" in bullpen("run", "More", "--team", TEAM, code=1).err


def test_a_question_on_a_worker_ends_it_for_who_watches_and_an_answer_goes_on(bullpen: Bullpen) -> None:
    scripted(bullpen, '[[members.lead]]\nsay = "Which colour?"\n[[members.lead]]\nsay = "Blue it is."\n')
    with working(bullpen):
        bullpen("run", "Paint it", "--team", TEAM, "--detach")
        assert "lead asks: Which colour?" in bullpen("watch", TEAM, code=4).out
        bullpen("send", "lead", "blue", "--team", TEAM)
        assert "Blue it is." in bullpen("watch", TEAM).out


# -- whom it takes ---------------------------------------------------------------------------------


def test_a_worker_of_a_team_takes_nobody_of_another(bullpen: Bullpen) -> None:
    scripted(bullpen, WORKS)
    bullpen("task", "add", "something", "--team", "other")
    bullpen("task", "add", "something", "--team", TEAM)
    with working(bullpen, "--team", TEAM, "--workspace", ".") as one:
        for team in ("other", TEAM):
            bullpen("spawn", "bob", "--team", team)
        assert one.hear("taken")["team"] == TEAM
        states = {member["name"]: member["status"] for member in bullpen.read("team", "show", "other")["members"]}
        assert states["bob"] == "wanted"


def test_who_asks_for_a_label_is_taken_by_a_worker_that_has_it(bullpen: Bullpen) -> None:
    scripted(bullpen, WORKS)
    bullpen("task", "add", "something", "--team", TEAM)
    with working(bullpen):
        ran = bullpen("spawn", "bob", "--label", "gpu", "--label", "linux", "--team", TEAM)
        assert "no worker has what it asks for (gpu,linux): `bullpen worker --labels gpu,linux` does" in ran.out
        with working(bullpen, "--labels", "linux,gpu,fast", "--workspace", ".") as able:
            assert able.hear("taken")["member"] == "bob"


def test_where_a_team_works_must_be_known_to_the_worker(bullpen: Bullpen, tmp_path: Path) -> None:
    """Else its members say so and end, and the worker hosts the others."""
    scripted(bullpen, WORKS)
    begin_elsewhere(bullpen, tmp_path / "elsewhere")
    with working(bullpen) as one:
        bullpen("spawn", "bob", "--team", TEAM)
        left = one.hear("left")
        assert left["member"] == "bob"
        assert "start its worker with --workspace DIR" in left["why"]
    with working(bullpen, "--workspace", str(tmp_path)) as other:
        bullpen("spawn", "bob", "--team", TEAM)
        assert other.hear("taken")["member"] == "bob"


def begin_elsewhere(bullpen: Bullpen, place: Path) -> None:
    """In a directory that this machine does not have any more, as if it had been another one's."""
    place.mkdir()
    bullpen("task", "add", "something", "--team", TEAM, "--store", bullpen.store, cwd=place)
    place.rmdir()


def test_what_one_machine_lacks_another_has_and_its_members_wait_for_that_one(bullpen: Bullpen, tmp_path: Path) -> None:
    scripted(bullpen, WORKS)
    begin_elsewhere(bullpen, place := tmp_path / "elsewhere")
    with working(bullpen, "--slots", "1", "--labels", "gpu", "--workspace", ".") as able, working(bullpen) as lacking:
        bullpen("spawn", "ann", "--label", "gpu", "--team", TEAM)
        assert able.hear("taken")["member"] == "ann", "its only slot"
        bullpen("spawn", "bob", "--team", TEAM)
        left = lacking.hear("left")
        assert (left["member"], left["team"]) == ("bob", TEAM)
        bullpen("stop", "ann", "--team", TEAM)
        assert able.hear("taken")["member"] == "bob"
        cannot = f"{socket.gethostname()} cannot host members of this team, which wait for another worker: {place}, "
        told = [mail["content"] for mail in bullpen.read("inbox", "user", "--team", TEAM)]
        assert [text.startswith(cannot) for text in told].count(True) == 1


# -- what is typed ---------------------------------------------------------------------------------


def test_no_workers_are_said_to_be_none(bullpen: Bullpen) -> None:
    assert bullpen("worker", "list").lines == [
        "no workers: `bullpen worker` hosts members here, `bullpen run` those of its own team"
    ]
    assert not (bullpen.directory / ".bullpen").exists()


def test_without_a_store_to_host_for_it_is_refused_and_says_how_one_is_named(bullpen: Bullpen) -> None:
    line = bullpen.refused("worker")
    assert line == (
        f"there is no store in {bullpen.directory}, and a new one would have nobody to host: name that of the teams "
        "with --store postgresql://HOST/DATABASE or BULLPEN_STORE"
    )
    assert not (bullpen.directory / ".bullpen").exists()


def test_a_newline_after_the_store_is_no_part_of_its_name(bullpen: Bullpen) -> None:
    """As a file has it, or a secret that was made of one."""
    bullpen("task", "add", "something", BULLPEN_STORE=f"{bullpen.store}\n")
    assert [task["subject"] for task in bullpen.read("task", "list")] == ["something"]


def test_who_is_ready_says_for_which_team_and_store(bullpen: Bullpen) -> None:
    bullpen("task", "add", "something", "--team", TEAM)
    with bullpen.start("worker", "--team", TEAM, "--labels", "gpu", "--slots", "2") as process:
        line = read_line(process)
        [row] = bullpen("worker", "list").lines[1:]
        process.kill()
    assert line.endswith(f" hosts up to 2 teammates of team {TEAM} in {bullpen.store}, having gpu\n")
    assert f" gpu,team={TEAM}" in row


def test_who_waits_for_a_place_is_counted(bullpen: Bullpen) -> None:
    scripted(bullpen, WORKS)
    bullpen("task", "add", "something", "--team", TEAM)
    with working(bullpen, "--slots", "1", "--workspace", ".") as one:
        for name in ("bob", "cat", "dan"):
            bullpen("spawn", name, "--team", TEAM)
        one.hear("taken")
        assert bullpen("worker", "list").lines[-1] == "2 members wait for a place: `bullpen worker`, or more --slots"
        bullpen("task", "add", "something", "--team", "other")
        assert len(bullpen("worker", "list", "--team", "other").lines) == 2


def test_the_workers_of_a_team_that_is_not_there_are_not_listed(bullpen: Bullpen) -> None:
    bullpen("task", "add", "something", "--team", TEAM)
    assert bullpen.refused("worker", "list", "--team", "nosuch") == f"there is no team 'nosuch'; there are {TEAM}"


def test_a_probe_does_not_take_a_run_for_a_worker(bullpen: Bullpen) -> None:
    with at_work(bullpen):
        assert len(bullpen.read("worker", "list")) == 1
        assert "no worker on" in bullpen.refused("worker", "check", code=1)


def test_a_probe_tells_whether_a_worker_of_this_machine_lives(bullpen: Bullpen) -> None:
    assert "no worker on" in bullpen.refused("worker", "check", code=1)
    with working(bullpen) as one:
        assert bullpen.read("worker", "check")["workers"] == [one.id]
        one.end(signal.SIGKILL)
        assert "no worker on" in bullpen.refused("worker", "check", code=1)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ["stop"],
            "worker has no 'stop': `bullpen worker` hosts, `bullpen worker list` shows which there are, "
            "`bullpen worker check` whether one lives here",
        ),
        (["--slots", "0"], "--slots is a number from 1 on, not '0'"),
        (["--lease", "0.1"], "--lease takes a number of at least 1, not '0.1'"),
        (["--labels", "a b"], "'a b' is no label: letters, digits, '.', '_' and '-', such as gpu"),
        (["--model", "nobody"], None),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(bullpen: Bullpen, words: list[str], line: str | None) -> None:
    refused = bullpen.refused("worker", *words)
    assert line is None or refused == line


def test_a_worker_of_a_team_that_is_not_there_is_refused(bullpen: Bullpen) -> None:
    bullpen("task", "add", "something", "--team", TEAM)
    assert "there is no team 'nobody'" in bullpen.refused("worker", "--team", "nobody")
