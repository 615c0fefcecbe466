"""`bullpen task` as people and programs use it."""

from __future__ import annotations

import asyncio
import re

import pytest
from inline_snapshot import snapshot

from bullpen.domain.task import Evidence
from bullpen.team import Team
from tests.acceptance.command import Bullpen, three_tasks

NO_STATUS = "is not a task status; one of pending, in_progress, completed, failed, deleted"
NO_RESULT = "--result goes with --status completed or failed, --note with --status pending"


# -- add -----------------------------------------------------------------------------------


def test_the_first_task_begins_a_team_and_says_so(bullpen: Bullpen) -> None:
    ran = bullpen("task", "add", "Analyse the endpoints")
    assert ran.out == "#1 Analyse the endpoints\n"
    assert ran.err == f"bullpen: created team 'default' in {bullpen.directory}\n"
    assert (bullpen.directory / ".bullpen" / "bullpen.db").exists()
    again = bullpen("task", "add", "Design the schema")
    assert (again.out, again.err) == ("#2 Design the schema\n", "")


def test_add_takes_every_field(bullpen: Bullpen) -> None:
    bullpen.prepare(three_tasks)
    added = bullpen.read(
        *("task", "add", "Test it", "-d", "All of it", "--active-form", "Testing", "--blocked-by", "1,#2"),
        *("--blocked-by", "3", "--role", "tester", "--check", "make test", "--owner", "lead"),
    )
    assert added["id"] == 4
    assert added["blocked_by"] == [1, 2, 3]
    assert [added[key] for key in ("description", "active_form", "role", "check", "owner", "status")] == [
        "All of it",
        "Testing",
        "tester",
        "make test",
        "lead",
        "pending",
    ]


def test_the_files_of_a_task_are_given_shown_changed_and_taken_away(bullpen: Bullpen) -> None:
    bullpen("task", "add", "One", "--files", "src/*.py,docs", "--files", "./tests/")
    bullpen("task", "add", "Two", "--files", "docs/a.md")
    bullpen("task", "claim", "1")
    assert "files       src/*.py, docs, tests/**" in bullpen("task", "show", "1").out
    assert "files overlap with #1 of user" in bullpen("task", "list").out
    assert "files overlap with #1 of user" in bullpen("task", "list", "--status", "pending").out
    assert "files overlap with #1 of user" in bullpen("task", "show", "2").out
    changed = bullpen.read("task", "update", "1", "--files", "lib")
    assert changed["files"] == ["lib"]
    assert bullpen.read("task", "update", "1", "--files", "")["files"] == []


def test_files_outside_of_the_workspace_are_refused_in_one_line(bullpen: Bullpen) -> None:
    assert "leads out of the workspace" in bullpen.refused("task", "add", "One", "--files", "../other")


def test_add_names_a_new_team_into_being(bullpen: Bullpen) -> None:
    bullpen("task", "add", "One")
    ran = bullpen("task", "add", "Two", "--team", "docs")
    assert "created team 'docs'" in ran.err
    assert bullpen.read("task", "list", "--team", "docs")[0]["subject"] == "Two"


def test_a_subject_that_begins_with_a_dash_stands_after_two_dashes(bullpen: Bullpen) -> None:
    assert bullpen("task", "add", "--", "--json").out == "#1 --json\n"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["add", ""], "a task needs a subject: say in one line what is to be done"),
        (["add", " \t "], "a task needs a subject: say in one line what is to be done"),
        (["add"], "missing argument 'SUBJECT'; see `bullpen task add --help`"),
        (["add", "x", "--blocked-by", "abc"], "'abc' is not a task number; write 3 or #3"),
        (["add", "x", "--blocked-by", "9"], "there is no task #9 to wait for"),
        (["add", "x", "--owner", "nobody"], "there is no member 'nobody' to give the task to"),
        (["show", "abc"], "'abc' is not a task number; write 3 or #3"),
        (["show", "0"], "0 is not a task number; they begin at 1"),
        (["show", "9"], "there is no task #9 in this team"),
        (["show", "1", "2"], "got unexpected extra argument(s) (2); see `bullpen task show --help`"),
        (["list", "--status", "finished"], f"'finished' {NO_STATUS}"),
        (["list", "--owner", "nobody"], "there is no member 'nobody' in this team"),
        (["list", "--stat", "x"], "bullpen task list has no option --stat: did you mean --status?"),
        (["update", "1"], "nothing to change: say what, for example --status failed; see `bullpen task update --help`"),
        (["update", "1", "--status", "x"], f"'x' {NO_STATUS}"),
        (["update", "1", "--subject", ""], "a task needs a subject: say in one line what is to be done"),
        (["update", "1", "--result", "x"], NO_RESULT),
        (["update", "1", "--status", "deleted", "--note", "not ours"], NO_RESULT),
        (["update", "1", "--status", "in_progress", "--result", "x"], NO_RESULT),
        (["update", "1", "--owner", "nobody"], "there is no member 'nobody' to give the task to"),
        (["claim", "x"], "'x' is not a task number; write 3 or #3"),
        (["done", "9"], "there is no task #9 in this team"),
        (["done"], "missing argument 'ID'; see `bullpen task done --help`"),
        (["ls"], "no such command 'ls'. Did you mean 'list'?"),
        (["new"], "no such command 'new': bullpen task has add, list, show, update, claim, done"),
        ([], "task needs one of add, list, show, update, claim, done"),
    ],
)  # fmt: skip
def test_what_people_mistype_gets_one_line_and_exit_2(used: Bullpen, words: list[str], line: str) -> None:
    assert used.refused("task", *words) == line


# -- list ----------------------------------------------------------------------------------


def test_the_board_shows_who_waits_for_whom(bullpen: Bullpen) -> None:
    async def work(team: Team) -> None:
        await three_tasks(team)
        await team.claim_task(1)
        await team.create_task("Publish", blocked_by=[2, 3])
        await team.fail_task(3, reason="no network")

    bullpen.prepare(work)
    assert bullpen("task", "list").out == snapshot("""\
#   STATUS         OWNER  ROLE     SUBJECT                BLOCKERS
#1  ● in progress  user            Analyse the endpoints
#2  ⊘ blocked             backend  Design the schema      #1
#3  ✗ failed       user            Write the resolvers
#4  ⊘ blocked                      Publish                #2, #3 failed
""")


def test_a_list_can_be_narrowed_and_still_names_the_blockers(bullpen: Bullpen) -> None:
    bullpen.prepare(three_tasks)
    bullpen("task", "claim", "1")
    assert bullpen("task", "list", "--status", "Pending").out == snapshot("""\
#   STATUS     ROLE     SUBJECT              BLOCKERS
#2  ⊘ blocked  backend  Design the schema    #1
#3  ○ pending           Write the resolvers
""")
    assert [task["id"] for task in bullpen.read("task", "list", "--owner", "user")] == [1]
    assert [task["id"] for task in bullpen.read("task", "list", "--status", "in-progress")] == [1]


def test_deleted_tasks_are_shown_when_asked_for(bullpen: Bullpen) -> None:
    bullpen.prepare(three_tasks)
    bullpen("task", "update", "#1", "--status", "deleted")
    assert [task["id"] for task in bullpen.read("task", "list")] == [2, 3]
    assert [task["id"] for task in bullpen.read("task", "list", "--all")] == [1, 2, 3]
    assert "- deleted" in bullpen("task", "list", "--all").lines[1]


def test_a_task_that_is_being_checked_is_shown_as_verifying(bullpen: Bullpen) -> None:
    async def work(team: Team) -> None:
        await team.create_task("Build", check="make")
        async with team.join("cat") as cat:
            await cat.claim_task(1)
            await team.store.start_check(cat.ref, 1)
            assert "◌ verifying" in (await asyncio.to_thread(bullpen, "task", "list")).out

    bullpen.prepare(work)


def test_an_empty_board_says_so(bullpen: Bullpen) -> None:
    bullpen.prepare(three_tasks)
    assert bullpen("task", "list", "--status", "failed").out == "no tasks\n"
    assert bullpen.read("task", "list", "--status", "failed") == []


# -- show ----------------------------------------------------------------------------------


def test_a_task_of_another_program_is_shown_though_its_blocker_is_gone(bullpen: Bullpen) -> None:
    board = bullpen.directory / ".tasks"
    board.mkdir()
    (board / "task_3.json").write_text('{"id": 3, "subject": "Three", "status": "pending", "blockedBy": [2]}')
    assert bullpen.read("--store", "files:.", "task", "show", "3")["blockers"] == []


def test_show_tells_everything_with_the_hand_over_of_its_blockers(bullpen: Bullpen) -> None:
    async def work(team: Team) -> None:
        await three_tasks(team)
        await team.complete_task(1, result="12 endpoints,\nsee api.md")
        await team.create_task("Publish", blocked_by=[1, 2], check="make test", description="Where everyone\nfinds it.")
        async with team.join("cat") as cat:
            await team.update_task(2, role=None, owner="cat")
            await cat.claim_task(2)
            await cat.complete_task(2, result="schema.graphql")
            await team.update_task(4, owner="cat")
            await cat.claim_task(4)
            await cat.complete_task(
                4, evidence=Evidence(command="make test", exit_code=2, tail="1 failed", seconds=1.5)
            )
        # It left: the task went back to the board with a note.

    bullpen.prepare(work)
    shown = bullpen("task", "show", "#4").out
    assert _without_times(shown) == snapshot("""\
#4 Publish
status      ○ pending
owner       nobody
check       make test
created     hh:mm:ss by user

description
  Where everyone
  finds it.

blocker     #1 Analyse the endpoints  ✓ completed, user
  12 endpoints,
  see api.md

blocker     #2 Design the schema  ✓ completed, cat
  schema.graphql

evidence    exit code 2 after 1.5 s, hh:mm:ss: make test
  1 failed

hand-over   from cat, hh:mm:ss
  cat shut down (finished)
""")
    document = bullpen.read("task", "show", "4")
    assert [blocker["result"] for blocker in document["blockers"]] == ["12 endpoints,\nsee api.md", "schema.graphql"]
    assert document["evidence"]["exit_code"] == 2
    assert document["handovers"][0]["by"] == "cat"


def _without_times(text: str) -> str:
    return re.sub(r"\d\d:\d\d:\d\d", "hh:mm:ss", text)


# -- update --------------------------------------------------------------------------------


def test_update_changes_fields_owner_and_edges(bullpen: Bullpen) -> None:
    bullpen.prepare(three_tasks)
    changed = bullpen.read(
        *(
            "task",
            "update",
            "3",
            "--subject",
            "Write resolvers",
            "-d",
            "new",
            "--active-form",
            "Writing",
            "--role",
            "x",
        ),
        *("--check", "true", "--owner", "lead", "--blocked-by", "1,2", "--unblock", "1"),
    )
    assert changed["blocked_by"] == [2]
    assert [changed[key] for key in ("subject", "description", "role", "check", "owner")] == [
        "Write resolvers",
        "new",
        "x",
        "true",
        "lead",
    ]
    emptied = bullpen.read("task", "update", "3", "--owner", "", "--role", "", "--check", "")
    assert [emptied[key] for key in ("owner", "role", "check")] == [None, None, None]
    bullpen("task", "update", "1", "--blocks", "3")
    assert bullpen.read("task", "show", "3")["blocked_by"] == [1, 2]


def test_update_walks_through_every_status(bullpen: Bullpen) -> None:
    bullpen.prepare(three_tasks)
    assert (
        bullpen("task", "update", "1", "--status", "in_progress").out
        == "#1 Analyse the endpoints  ● in progress, user\n"
    )
    assert (
        bullpen.read("task", "update", "1", "--status", "pending", "--note", "later")["handovers"][0]["note"] == "later"
    )
    assert bullpen.read("task", "update", "1", "--status", "failed", "--result", "too hard")["result"] == "too hard"
    assert bullpen.read("task", "update", "1", "--status", "open")["status"] == "pending"
    assert bullpen.read("task", "update", "1", "--status", "Done", "--result", "ok")["status"] == "completed"
    assert bullpen.read("task", "update", "1", "--status", "deleted")["status"] == "deleted"


def test_a_task_can_be_taken_back_and_given_away_at_once(bullpen: Bullpen) -> None:
    bullpen.prepare(three_tasks)
    bullpen("task", "claim", "1")
    given = bullpen.read("task", "update", "1", "--status", "pending", "--owner", "lead")
    assert (given["status"], given["owner"]) == ("pending", "lead")


def test_a_check_can_be_dropped_and_the_task_completed_at_once(bullpen: Bullpen) -> None:
    bullpen("task", "add", "Build", "--check", "make")
    assert bullpen.read("task", "update", "1", "--check", "", "--status", "completed")["status"] == "completed"


def test_half_a_change_is_told(bullpen: Bullpen) -> None:
    bullpen.prepare(three_tasks)
    line = bullpen.refused("task", "update", "2", "--subject", "Schema", "--status", "in_progress", code=1)
    assert line == "#2 is blocked by #1, 1 unfinished; take another task (the other change was made)"
    assert bullpen.read("task", "show", "2")["subject"] == "Schema"


def test_a_cycle_is_refused_and_shown(bullpen: Bullpen) -> None:
    bullpen.prepare(three_tasks)
    assert bullpen.refused("task", "update", "1", "--blocked-by", "2", code=1) == (
        "#1 cannot wait for #2, that closes a cycle: #1 -> #2 -> #1 (each waits for the next)"
    )
    assert bullpen.refused("task", "update", "1", "--blocked-by", "1", code=1) == "#1 cannot block itself"


# -- claim and done ------------------------------------------------------------------------


def test_claim_takes_the_next_one_and_shows_what_is_to_be_done(bullpen: Bullpen) -> None:
    bullpen.prepare(three_tasks)
    shown = bullpen("task", "claim").out
    assert shown.startswith("#1 Analyse the endpoints\nstatus      ● in progress")
    assert bullpen.refused("task", "claim", code=1) == "user has #1 in progress: complete, fail or release it first"
    bullpen("task", "done", "1")
    assert bullpen.read("task", "claim", "#3")["owner"] == "user"


def test_a_blocked_task_is_not_claimed(bullpen: Bullpen) -> None:
    bullpen.prepare(three_tasks)
    assert bullpen.refused("task", "claim", "2", code=1) == "#2 is blocked by #1, 1 unfinished; take another task"


def test_nothing_to_claim_is_exit_1(bullpen: Bullpen) -> None:
    bullpen("task", "add", "For them", "--role", "backend")
    assert bullpen.refused("task", "claim", code=1) == (
        "there is nothing to claim: every task is finished, taken, blocked or for another role"
    )


def test_done_frees_who_waited(bullpen: Bullpen) -> None:
    bullpen.prepare(three_tasks)
    assert (
        bullpen("task", "done", "1", "--result", "12 endpoints").out == "#1 Analyse the endpoints  ✓ completed, user\n"
    )
    assert bullpen.read("task", "show", "2")["open_blockers"] == 0
    assert bullpen.refused("task", "claim", "1", code=1) == "#1 is completed; take another task"


def test_a_result_that_comes_too_late_to_be_kept_is_refused(bullpen: Bullpen) -> None:
    bullpen.prepare(three_tasks)
    bullpen("task", "done", "1")
    bullpen("task", "done", "3", "--result", "12 resolvers")
    line = "#1 was completed before and has no result, this one is not kept: a new task can tell it"
    assert bullpen.refused("task", "done", "1", "--result", "12 endpoints", code=1) == line
    line = "#3 was completed before and has its result, this one is not kept: a new task can tell it"
    assert bullpen.refused("task", "update", "3", "--status", "done", "--result", "13", code=1) == line
    # To say the same again, or nothing, is no mistake.
    assert bullpen("task", "done", "3", "--result", "12 resolvers").out == bullpen("task", "done", "3").out


def test_the_human_may_complete_anybodys_task_and_its_owner_is_told(bullpen: Bullpen) -> None:
    async def work(team: Team) -> None:
        await three_tasks(team)
        async with team.join("cat") as cat:
            await cat.claim_task(1)
            await asyncio.to_thread(bullpen, "task", "done", "1")
            [message] = await cat.take_mail()
            assert message.content == "#1 was set to completed by user: stop working on it"

    bullpen.prepare(work)


def test_a_check_is_passed_over_only_when_that_is_said(bullpen: Bullpen) -> None:
    bullpen("task", "add", "Build", "--check", "make")
    assert bullpen.refused("task", "done", "1", code=1) == (
        "#1 has the check 'make': it is completed when that has passed; --unverified completes it without"
    )
    assert bullpen.read("task", "done", "1", "--unverified")["status"] == "completed"


def test_errors_are_json_too(bullpen: Bullpen) -> None:
    bullpen.prepare(three_tasks)
    ran = bullpen("--json", "task", "show", "9", code=2)
    assert (ran.out, ran.err) == ("", '{"error": "there is no task #9 in this team", "kind": "NotFound"}\n')
    assert '"kind": "AlreadyClaimed"' in bullpen("task", "claim", "2", "--json", code=1).err
    assert '"kind": "UsageError"' in bullpen("task", "--json", "nonsense", code=2).err
    assert '"kind": "UsageError"' in bullpen("task", "list", "--json", "--team", code=2).err
