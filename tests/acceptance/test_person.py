"""A person with uncommitted work starts a team, stops it in the middle, looks, applies, changes their mind.

Their files, index, stash, branches and settings are compared byte for byte at every step.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.acceptance.command import BOUND_SECONDS, Bullpen
from tests.acceptance.test_cli_isolation import wait_for_half_done
from tests.acceptance.tty import Tty
from tests.support.repository import files_at, fingerprint, git, make_repository, write

TEAM = "crew"
SCRIPT = """
[[members.lead]]
calls = [
    { name = "TaskCreate", arguments = { subject = "Improve" } },
    { name = "TaskCreate", arguments = { subject = "Go on", blockedBy = ["1"] } },
    { name = "Task", arguments = { name = "ana", prompt = "Take what is on the board." } },
]
[[members.lead]]
when = { context = "All tasks are finished" }
say = "All is done."
[[members.lead]]
say = "I wait."
repeat = true
[[members.ana]]
when = { newest = '<task id="1"' }
calls = [{ name = "bash", arguments = { command = "FIRST" } }]
[[members.ana]]
when = { newest_matches = '<task id="2"|outcome unknown' }
repeat = true
calls = [{ name = "bash", arguments = { command = "SECOND" } }]
[[members.ana]]
when = { newest = "[exit code 0]" }
repeat = true
calls = [{ name = "TaskUpdate", arguments = { taskId = "{{task_id}}", status = "completed", result = "made it" } }]
[[members."*"]]
say = "Nothing more."
repeat = true
"""


FIRST = "sed -i s/one/ONE/ notes; echo better >> draft; mkdir n; echo n > n/n"
SECOND = "test -e half || { echo half > half; sleep PAUSE; }; echo whole > half"


class Person:
    """With a project of some history, a branch, a tag, a stash, something staged, something changed on top of it,
    something new and something ignored."""

    def __init__(self, bullpen: Bullpen, directory: Path, *, pause_seconds: int = 600) -> None:
        self.bullpen = bullpen
        self.home = make_repository(
            bullpen.directory, {"notes": "one\ntwo\nthree\n", "src/a.py": "a = 1\n", ".gitignore": "*.log\n"}
        )
        self.model = f"scripted:{directory}/script.toml"
        second = SECOND.replace("PAUSE", str(pause_seconds))
        (directory / "script.toml").write_text(SCRIPT.replace("FIRST", FIRST).replace("SECOND", second))
        write(self.home, {"src/a.py": "a = 2\n"})
        git(self.home, "commit", "-qam", "second")
        git(self.home, "tag", "v1")
        git(self.home, "branch", "other", "HEAD^")
        write(self.home, {"src/a.py": "stashed\n"})
        git(self.home, "stash", "push", "-q")
        write(self.home, {"notes": "one\ntwo\nthree\nfour\n"})
        git(self.home, "add", "notes")
        write(self.home, {"notes": "one\ntwo\nthree\nfour\nfive\n", "draft": "draft\n", "x.log": "log\n"})
        self.before = fingerprint(self.home)

    def is_as_before(self) -> bool:
        return fingerprint(self.home) == self.before

    def stop_in_the_middle(self, *words: str) -> str:
        process = self.bullpen.start("run", "Improve it", "--team", TEAM, "--model", self.model, *words)
        wait_for_half_done(self.bullpen)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=BOUND_SECONDS)
        return err.decode()

    def status(self) -> list[str]:
        return git(self.home, "--no-optional-locks", "status", "--porcelain", "-uall").splitlines()


@pytest.fixture
def person(bullpen: Bullpen, tmp_path_factory: pytest.TempPathFactory) -> Person:
    return Person(bullpen, tmp_path_factory.mktemp("script"))


def test_with_their_unsaved_work_taken_along(person: Person) -> None:
    bullpen = person.bullpen
    said = person.stop_in_the_middle("--include-dirty")
    assert "from main" in said
    assert "with your 2 unsaved files" in said
    assert "`bullpen apply crew` takes it" in said
    assert person.is_as_before()
    shown = bullpen("diff", TEAM).out
    assert "-one\n+ONE" in shown
    assert "+five" not in shown, "what they had themselves is nothing that the team made"
    assert person.is_as_before()
    ran = bullpen("apply", TEAM)
    assert "not finished: #2 Go on" in ran.err
    assert "nothing is committed or staged" in ran.out
    assert (person.home / "notes").read_text() == "ONE\ntwo\nthree\nfour\nfive\n"
    assert (person.home / "draft").read_text() == "draft\nbetter\n"
    assert person.status() == ["MM notes", "?? draft", "?? n/n"]
    assert git(person.home, "show", ":notes") == "one\ntwo\nthree\nfour"
    bullpen("apply", TEAM, "--undo")
    assert person.is_as_before()
    ran = bullpen("resume", TEAM)
    assert "2 commits on bullpen/crew: `bullpen diff crew` shows it, `bullpen apply crew` takes it" in ran.out
    assert person.is_as_before()
    bullpen("apply", TEAM)
    assert (person.home / "half").read_text() == "whole\n"
    bullpen("apply", TEAM, "--undo")
    assert person.is_as_before()


def test_with_their_unsaved_work_left_out(person: Person) -> None:
    bullpen = person.bullpen
    assert "without your 2 unsaved files" in person.stop_in_the_middle()
    assert person.is_as_before()
    assert bullpen.refused("apply", TEAM, code=1) == (
        "not applied, for you have unsaved work in draft, notes: commit it, stash it or move it away, then apply"
    )
    assert person.is_as_before()
    (person.home / "draft").rename(person.home / "my-draft")
    git(person.home, "commit", "-qam", "mine")
    person.before = fingerprint(person.home)
    ran = bullpen("apply", TEAM)
    assert "1 commit of bullpen/crew came to main as a merge" in ran.out
    assert (person.home / "notes").read_text() == "ONE\ntwo\nthree\nfour\nfive\n"
    assert person.status() == ["?? my-draft"]
    bullpen("apply", TEAM, "--undo")
    assert person.is_as_before()
    bullpen("resume", TEAM)
    bullpen("apply", TEAM, "--squash", "-m", "The team's")
    assert git(person.home, "log", "-1", "--format=%an: %s") == "Uma: The team's"
    assert files_at(person.home, "main")["half"] == "whole"
    after = fingerprint(person.home)
    assert "removed" in bullpen("clean").out
    assert fingerprint(person.home) == after
    assert git(person.home, "for-each-ref", "refs/heads/bullpen/", "refs/bullpen/") == ""
    assert len(git(person.home, "worktree", "list").splitlines()) == 1
    assert git(person.home, "stash", "show", "-p").count("+stashed") == 1


def test_on_a_terminal(bullpen: Bullpen, tmp_path_factory: pytest.TempPathFactory) -> None:
    person = Person(bullpen, tmp_path_factory.mktemp("script"), pause_seconds=0)
    with Tty(person.bullpen, "run", "Improve it", "--team", TEAM, "--model", person.model, columns=200) as tty:
        tty.until("notes, draft: not committed. Shall the team begin with these changes, too?")
        tty.enter("y")
        tty.until("`bullpen diff crew` shows it, `bullpen apply crew` takes it")
        assert tty.ended() == 0
    assert person.is_as_before()
    code, seen = person.bullpen.on_terminal("apply", columns=200)
    assert code == 0
    assert "`bullpen apply crew --undo` gives it back" in seen
    code, seen = person.bullpen.on_terminal("apply", "--undo", columns=200)
    assert code == 0
    assert person.is_as_before()
