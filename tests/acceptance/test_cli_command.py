"""What holds for every command: places, options, errors, pipes, terminals, start-up."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from bullpen import __version__
from bullpen.cli.root import COMMANDS
from bullpen.cli.text import width_of
from bullpen.team import Team
from tests.acceptance.command import BOUND_SECONDS, COMMAND, Bullpen

READERS = [
    ["task", "list"],
    ["task", "show", "1"],
    ["team", "show"],
    ["team", "list"],
    ["inbox"],
    ["events"],
    ["send", "lead", "x"],
    ["task", "update", "1", "--subject", "x"],
    ["task", "claim"],
    ["task", "done", "1"],
    ["team", "delete", "--yes"],
    ["watch"],
    ["log", "lead"],
    ["cost"],
    ["spawn", "ana"],
    ["approve", "1"],
    ["reject", "1"],
    ["interrupt", "lead"],
    ["pause"],
    ["unpause"],
    ["stop"],
    ["resume"],
    ["diff"],
    ["apply"],
    ["apply", "--undo"],
]


BRANCHES = ("task", "team")
NO_STORE = "is not a store: use sqlite:///PATH, files:DIR or postgresql://HOST/DATABASE"


async def one_task(team: Team) -> None:
    await team.create_task("Analyse")


# -- help, version, unknown words ------------------------------------------------------------


def test_help_fits_on_a_screen_and_names_the_global_options(bullpen: Bullpen) -> None:
    shown = bullpen("--help").out
    assert shown == bullpen("-h").out == bullpen().out
    assert shown == snapshot("""\
Usage: bullpen [OPTIONS] COMMAND [ARGS]...

  Teams of agents on a shared board, with mail, that lose nothing.

Work:
  demo       See a team at work: no key, no network.
  run        Give a new team a goal, and watch it work.
  chat       Talk with the lead while the team works.
  resume     Go on with a team that rests or crashed.
  worker     Host members of a shared store on this machine.

Look:
  watch      Look on while a team works.
  log        What a member said, did and was told.
  cost       What was spent, by whom, against the budget.
  events     The team's log: what happened, in order.

Bring it home:
  diff       What a team made.
  apply      Take what a team made, or give it back.
  clean      Remove what finished teams left in git.

Take part:
  task       The board: add, list, show, update, claim, done.
  send       Write to a member, or to everyone.
  inbox      Look at the mail of a member; looking never drains.
  approve    Say yes to a request.
  reject     Say no to a request.

Steer:
  team       Teams: list, show, delete.
  spawn      Add a teammate, or bring one back.
  interrupt  Cut off what a member does just now.
  pause      No more calls of a model until unpause.
  unpause    Let a paused team go on.
  stop       Ask a member, or everyone, to shut down.

Set up:
  init       Write a commented bullpen.toml.
  config     Which settings are in force, and from where.
  migrate    Bring the tables of the store up to date.

Options:
  --store URL           Where the state is: sqlite:///PATH, files:DIR,
                        postgresql://HOST/DB (or BULLPEN_STORE); without it
                        .bullpen/bullpen.db, here or above.
  --team NAME           Which team (or BULLPEN_TEAM); without it the only live
                        one.
  --json                Print JSON, errors too.
  --version             Print the version.
  --install-completion  Install completion for the current shell.
  --show-completion     Show completion for the current shell, to copy it or
                        customize the installation.
  -h, --help            Show this message and exit.

  The options --store, --team, --json and --version are understood before and
  after a command.
""")


@pytest.mark.parametrize(
    "words",
    [["task", "add"], ["task", "update"], ["team", "delete"], *([name] for name in COMMANDS if name not in BRANCHES)],
    ids=" ".join,
)
def test_help_of_a_command_mentions_the_global_options_in_one_line(bullpen: Bullpen, words: list[str]) -> None:
    shown = bullpen(*words, "--help")
    assert "  Everywhere: --store URL, --team NAME, --json, --version; see `bullpen -h`." in shown.lines
    assert all(len(line) <= 80 for line in shown.lines)


def test_version(bullpen: Bullpen) -> None:
    assert bullpen("--version").out == f"bullpen {__version__}\n"
    assert bullpen("task", "list", "--version").out == f"bullpen {__version__}\n"
    assert bullpen.read("--version") == {"version": __version__}


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["tsk"], "no such command 'tsk'. Did you mean 'task'?"),
        (["zzz"], "no such command 'zzz': `bullpen --help` shows which there are"),
        (["--colour", "task", "list"], "bullpen has no option --colour: `bullpen --help` shows which there are"),
        (["--model", "x", "run"], "bullpen has no option --model: `bullpen --help` shows which there are"),
        (["pause", "--help-me"], "bullpen pause has no option --help-me: `bullpen pause --help` shows which there are"),
        (["task", "list", "--jsn"], "bullpen task list has no option --jsn: did you mean --json?"),
        (["run", "x", "--stor", "y"], "bullpen run has no option --stor: did you mean --network, --store?"),
        (["task", "list", "--team"], "--team needs a value: --team NAME"),
        (["run", "x", "--model"], "--model needs a value: --model MODEL"),
        (["task", "add", "x", "-d"], "-d needs a value: -d TEXT"),
        (["task", "done", "1", "--unverified=yes"], "--unverified takes no value"),
        (["--store", "--json", "task", "list"], None),
        (["--json=yes", "task", "list"], "--json takes no value"),
        (["task", "list", "--store", "work.db"], f"'work.db' {NO_STORE}"),
        (["task", "list", "--store", "mysql://me:secret@host/db"], f"'…@host/db' {NO_STORE}"),
        (["task", "list", "--store", "sqlite:///"], "sqlite:/// needs a path, such as sqlite:///work.db"),
    ],
)  # fmt: skip
def test_unknown_words_get_one_helpful_line(bullpen: Bullpen, words: list[str], line: str | None) -> None:
    if line is None:
        assert "--store needs a value" in bullpen(*words, code=2).err
    else:
        assert bullpen.refused(*words) == line
    assert list(bullpen.directory.iterdir()) == []


# -- where the state is ------------------------------------------------------------------------


@pytest.mark.parametrize("words", READERS, ids=" ".join)
def test_commands_that_do_not_begin_a_team_create_nothing(bullpen: Bullpen, words: list[str]) -> None:
    ran = bullpen(*words, code=None)
    assert list(bullpen.directory.iterdir()) == []
    if words != ["team", "list"]:
        assert ran.code == 2
        assert ran.err == (
            f"bullpen: there is no live team in {bullpen.directory}: `bullpen run GOAL` or "
            "`bullpen task add SUBJECT` begins one\n"
        )


def test_the_state_is_found_from_below(bullpen: Bullpen) -> None:
    below = bullpen.directory / "src" / "deep"
    below.mkdir(parents=True)
    bullpen("task", "add", "One")
    assert bullpen("task", "add", "Two", cwd=below).out == "#2 Two\n"
    assert len(bullpen("task", "list", cwd=below).lines) == 3
    assert list(below.iterdir()) == []


def test_the_state_is_private_and_invisible_to_git(bullpen: Bullpen) -> None:
    bullpen("task", "add", "One")
    directory = bullpen.directory / ".bullpen"
    assert directory.stat().st_mode & 0o777 == 0o700
    assert (directory / ".gitignore").read_text() == "*\n"


def test_option_and_variable_name_the_store(bullpen: Bullpen) -> None:
    bullpen("task", "add", "One", "--store", "sqlite:///work.db")
    assert sorted(path.name for path in bullpen.directory.iterdir() if path.suffix == ".db") == ["work.db"]
    assert bullpen("--store=sqlite:///work.db", "task", "list").lines[1].endswith("One")
    assert bullpen("task", "list", BULLPEN_STORE="sqlite:///work.db").lines[1].endswith("One")
    assert bullpen.refused("task", "list", "--store", "sqlite:///other.db").startswith("there is no live team")
    assert not (bullpen.directory / "other.db").exists()


def test_a_variable_that_ends_with_a_newline_or_holds_only_blanks_does_no_harm(bullpen: Bullpen) -> None:
    bullpen("task", "add", "One", BULLPEN_TEAM="graphql\n")
    assert bullpen.read("team", "show", "graphql")["name"] == "graphql"
    assert bullpen("task", "list", BULLPEN_TEAM=" ").lines[1].endswith("One")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="/proc is where even root may not write")
def test_a_directory_that_cannot_be_written_is_exit_3(bullpen: Bullpen) -> None:
    assert "/proc/.bullpen" in bullpen.refused("task", "add", "x", code=3, cwd=Path("/proc"))
    assert '"kind": "StoreUnavailable"' in bullpen("task", "add", "x", "--json", code=3, cwd=Path("/proc")).err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_directory_is_exit_3(bullpen: Bullpen) -> None:
    bullpen.directory.chmod(0o500)
    bullpen.refused("task", "add", "x", code=3)


def test_a_file_that_is_no_database_is_told(bullpen: Bullpen) -> None:
    (bullpen.directory / "notes.db").write_text("this is a text, and it is long enough to be read as a header" * 20)
    line = bullpen.refused("task", "list", "--store", "sqlite:///notes.db", code=3)
    assert "notes.db is not a SQLite database" in line


@pytest.mark.parametrize(
    ("store", "file"), [("sqlite:///work.db", "work.db"), ("files:work", "work/.teams/crew/config.json")]
)
def test_a_damaged_store_is_exit_3_of_whatever_kind(bullpen: Bullpen, store: str, file: str) -> None:
    bullpen("task", "add", "One", "--store", store, "--team", "crew")
    path = bullpen.directory / file
    path.write_bytes(path.read_bytes()[:100])
    for words in (["task", "list"], ["task", "add", "Two"], ["events"]):
        bullpen.refused(*words, "--store", store, "--team", "crew", code=3)


def started(bullpen: Bullpen, *command: str) -> subprocess.CompletedProcess[str]:
    """Any command, where and as `bullpen` would be."""
    return subprocess.run(
        command, cwd=bullpen.directory, env=bullpen.environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_what_is_closed_is_neither_read_nor_written(bullpen: Bullpen, closed: str) -> None:
    script = f"exec {COMMAND[0]} task add One {closed}"
    ran = started(bullpen, "sh", "-c", script)
    assert (ran.returncode, "Traceback" in ran.stderr) == (0, False)
    assert [task["subject"] for task in bullpen.read("task", "list")] == ["One"]


def test_a_working_directory_that_is_gone_is_told(bullpen: Bullpen) -> None:
    script = f"mkdir gone && cd gone && rmdir ../gone && exec {COMMAND[0]} task list"
    ran = started(bullpen, "sh", "-c", script)
    assert (ran.returncode, ran.stderr) == (2, "bullpen: the working directory is gone: change into another one\n")


def test_python_m_bullpen_is_the_same_command(bullpen: Bullpen) -> None:
    ran = started(bullpen, sys.executable, "-m", "bullpen", "task", "add", "One")
    assert (ran.returncode, ran.stdout) == (0, "#1 One\n")


# -- pipes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["task", "list"], ["task", "list", "--json"], ["events", "--json"], ["--help"]])
def test_a_closed_pipe_is_silent(bullpen: Bullpen, words: list[str]) -> None:
    bullpen.prepare(one_task)
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.Popen(
        [*COMMAND, *words], cwd=bullpen.directory, env=bullpen.environment, stdout=writer, stderr=subprocess.PIPE
    )
    os.close(writer)
    _, err = process.communicate(timeout=BOUND_SECONDS)
    assert (process.returncode, err) == (141, b"")


def test_head_takes_one_line(bullpen: Bullpen) -> None:
    bullpen.prepare(one_task)
    ran = subprocess.run(
        ["sh", "-c", f"{COMMAND[0]} events --json | head -1"],
        cwd=bullpen.directory,
        env=bullpen.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert '"TeamCreated"' in ran.stdout
    assert ran.stderr == ""


@pytest.mark.parametrize("words", [["events", "--follow"], ["events", "-f", "--after", "now"], ["log", "lead", "-f"]])
def test_who_follows_ends_with_its_reader_and_not_with_the_next_line(bullpen: Bullpen, words: list[str]) -> None:
    bullpen.prepare(one_task)
    follower = bullpen.start(*words)
    assert follower.stdout is not None
    follower.stdout.close()
    _, err = follower.communicate(timeout=BOUND_SECONDS)
    assert (follower.returncode, err) == (141, b"")


def test_what_a_follower_writes_into_may_be_read_from_too(bullpen: Bullpen) -> None:
    bullpen.prepare(one_task)
    os.mkfifo(bullpen.directory / "pipe")
    both_ways = os.open(bullpen.directory / "pipe", os.O_RDWR)
    os.write(both_ways, b"there before\n")
    with open(both_ways, "rb", buffering=0) as shown:
        follower = subprocess.Popen(
            [*COMMAND, "events", "--follow", "--limit", "3"],
            cwd=bullpen.directory,
            env=bullpen.environment,
            stdout=both_ways,
        )
        assert shown.readline() == b"there before\n"
        assert [shown.readline().split()[1] for _ in range(2)] == [b"TeamCreated", b"TaskCreated"]
        bullpen("task", "claim")
        assert shown.readline().split()[1] == b"TaskClaimed"
    assert follower.wait(BOUND_SECONDS) == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_told(bullpen: Bullpen) -> None:
    bullpen.prepare(one_task)
    with open("/dev/full", "w") as full:
        ran = subprocess.run(
            [*COMMAND, "task", "list"],
            cwd=bullpen.directory,
            env=bullpen.environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (ran.returncode, ran.stderr) == (1, "bullpen: No space left on device\n")


@pytest.mark.parametrize(("words", "code"), [("task add One", 0), ("task show 7", 2), ("task lsit", 2)])
def test_a_remark_that_nobody_reads_changes_nothing_of_what_is_done(bullpen: Bullpen, words: str, code: int) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.Popen(
        [*COMMAND, *words.split()], cwd=bullpen.directory, env=bullpen.environment, stderr=writer
    )
    os.close(writer)
    assert process.wait(BOUND_SECONDS) == code
    # The first one said that it began the team.
    assert code or [task["subject"] for task in bullpen.read("task", "list")] == ["One"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_remark_that_cannot_be_written_changes_nothing_either(bullpen: Bullpen) -> None:
    assert started(bullpen, "sh", "-c", f"{COMMAND[0]} task add One 2>/dev/full").stdout == "#1 One\n"
    assert started(bullpen, "sh", "-c", f"{COMMAND[0]} task show 7 2>/dev/full").returncode == 2


def test_nothing_is_cut_behind_a_pipe(bullpen: Bullpen) -> None:
    subject = "Analyse " + "every " * 40 + "endpoint"
    bullpen("task", "add", subject)
    assert subject in bullpen("task", "list").out


def test_a_terminal_that_is_not_utf8_gets_words_instead_of_symbols(bullpen: Bullpen) -> None:
    bullpen("task", "add", "Größe ✓")
    shown = bullpen("task", "list", PYTHONIOENCODING="ascii").out
    assert "pending" in shown
    assert "Gr\\xf6\\xdfe \\u2713" in shown


# -- terminals -------------------------------------------------------------------------------


async def long_board(team: Team) -> None:
    await team.create_task("Analyse " + "every " * 40 + "endpoint", role="a-very-long-role-that-nobody-needs")
    await team.create_task("設計" * 60, blocked_by=[1])
    for number in range(3, 12):
        await team.create_task(f"Write resolver {number}", blocked_by=list(range(1, number)))
    await team.complete_task(1)


def test_on_a_terminal_lists_are_coloured_and_fit_into_80_columns(bullpen: Bullpen) -> None:
    bullpen.prepare(long_board)
    code, seen = bullpen.on_terminal("task", "list")
    assert code == 0
    assert "\x1b[32m✓ completed\x1b[0m" in seen
    plain = re.sub(r"\x1b\[\d+m", "", seen)
    assert "\x1b" not in plain
    assert all(width_of(line) <= 80 for line in plain.splitlines())
    assert "…" in plain


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colours_can_be_refused(bullpen: Bullpen, name: str, value: str) -> None:
    bullpen.prepare(long_board)
    bullpen.environment[name] = value
    _, seen = bullpen.on_terminal("task", "list")
    assert "\x1b" not in seen
    assert "✓ completed" in seen


def test_show_cuts_nothing_on_a_terminal(bullpen: Bullpen) -> None:
    bullpen.prepare(long_board)
    _, seen = bullpen.on_terminal("task", "show", "1", NO_COLOR="1")
    assert "every " * 40 + "endpoint" in seen


HOSTILE = "\x1b]0;owned\x07 \x1b[2J\x9b31m red \u202eevil\u202c \x08\x08 \u2066x\u2069 \rback\x7f"


def test_text_of_agents_cannot_steer_the_terminal(bullpen: Bullpen) -> None:
    async def work(team: Team) -> None:
        await team.create_task(
            f"S{HOSTILE}", description=f"D{HOSTILE}\nstatus      completed", role=f"R{HOSTILE}", check=f"C{HOSTILE}"
        )
        await team.create_task("Second", blocked_by=[1])
        async with team.join("cat", role=f"r{HOSTILE}") as cat:
            await cat.send("user", f"M{HOSTILE}\n7 user (human)  12:00:00  new")
            await team.update_task(1, role=None)
            await cat.claim_task(1)
            await cat.fail_task(1, reason=f"F{HOSTILE}")

    bullpen.prepare(work, goal=f"G{HOSTILE}")
    for words in (
        ["task", "list"],
        ["task", "show", "1"],
        ["task", "show", "2"],
        ["inbox"],
        ["events"],
        ["team", "show"],
        ["team", "list"],
        ["watch"],
    ):
        for extra in ([], ["--json"]):
            _, seen = bullpen.on_terminal(*words, *extra, columns=200)
            plain = re.sub(r"\x1b\[\d+m", "", seen)
            steering = re.findall("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]", plain)
            assert steering == [], words
            assert "x1b" in plain or "u001b" in plain
    assert "\n  status      completed\n" in bullpen("task", "show", "1").out
    assert "\n  7 user (human)" in bullpen("inbox").out


def test_errors_cannot_steer_the_terminal(bullpen: Bullpen) -> None:
    bullpen.prepare(one_task)
    _, seen = bullpen.on_terminal("send", f"x{HOSTILE}", "hi")
    assert "\x1b" not in seen
    assert "\u202e" not in seen


# -- completion ------------------------------------------------------------------------------


def complete(bullpen: Bullpen, line: str) -> list[str]:
    words = line.split(" ")
    ran = bullpen(_BULLPEN_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(words) - 1), code=None)
    assert ran.err == ""
    return ran.out.split()


def test_the_shell_is_offered_commands_statuses_teams_and_members(bullpen: Bullpen) -> None:
    bullpen.prepare(one_task, "graphql")
    assert complete(bullpen, "bullpen ta") == ["task"]
    assert complete(bullpen, "bullpen task up") == ["update"]
    assert complete(bullpen, "bullpen task list --st") == ["--status"]
    assert complete(bullpen, "bullpen task list --status p") == ["pending"]
    assert complete(bullpen, "bullpen team show g") == ["graphql"]
    assert complete(bullpen, "bullpen send l") == ["lead"]
    assert complete(bullpen, "bullpen --team graphql inbox u") == ["user"]
    assert complete(bullpen, "bullpen --team g") == ["graphql"]


def test_the_shell_is_offered_the_tasks_that_a_command_can_be_about(bullpen: Bullpen) -> None:
    for subject in ("One", "Two", "Three"):
        bullpen("task", "add", subject)
    bullpen("task", "claim", "1")
    bullpen("task", "done", "1")
    assert complete(bullpen, "bullpen task show ") == ["1", "2", "3"]
    assert complete(bullpen, "bullpen task update 3") == ["3"]
    assert complete(bullpen, "bullpen task claim ") == complete(bullpen, "bullpen task done ") == ["2", "3"]
    assert complete(bullpen, "bullpen task add Design --blocked-by ") == ["2", "3"]


@pytest.mark.parametrize(
    "line", ["bullpen team show ", "bullpen send l", "bullpen task show ", "bullpen --store nonsense: send l"]
)
def test_a_completion_creates_nothing_and_says_nothing(bullpen: Bullpen, line: str) -> None:
    assert complete(bullpen, line) == []
    assert list(bullpen.directory.iterdir()) == []


def test_the_completion_script_can_be_shown(bullpen: Bullpen) -> None:
    bullpen.environment["_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"] = "1"
    assert "_BULLPEN_COMPLETE=complete_bash" in bullpen("--show-completion", "bash").out


# -- start-up and end ------------------------------------------------------------------------

HEAVY = {
    "psycopg",
    "prompt_toolkit",
    "rich",
    "pydantic",
    "matplotlib",
    "numpy",
    "http.client",
    "email",
    "xml",
    "urllib.request",
    "click",
}


def modules_of(bullpen: Bullpen, *words: str) -> set[str]:
    script = (
        "import sys; from bullpen.cli.main import main; code = main(sys.argv[1:]); "
        "print(*sys.modules, file=sys.stderr); sys.exit(code)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, *words],
        cwd=bullpen.directory,
        env=bullpen.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(ran.stderr.split())


def test_looking_at_the_board_imports_nothing_heavy(bullpen: Bullpen) -> None:
    bullpen.prepare(one_task)
    for words in (
        ["task", "list"],
        ["task", "show", "1"],
        ["task", "list", "--json", "--status", "pending"],
        ["events"],
    ):
        assert HEAVY & modules_of(bullpen, *words) == set(), words


def test_looking_at_the_board_imports_neither_settings_nor_agents(bullpen: Bullpen) -> None:
    bullpen.prepare(one_task)
    unused = {"zipfile", "bullpen.config.settings", "bullpen.agent.agent", "bullpen.worker.worker", "bullpen.providers"}
    for words in (["task", "list"], ["team", "show"], ["log", "lead"], ["cost"]):
        assert (HEAVY | unused) & modules_of(bullpen, *words) == set(), words


def test_help_and_version_import_neither_the_team_nor_asyncio(bullpen: Bullpen) -> None:
    light = HEAVY | {"asyncio", "bullpen.team", "bullpen.store", "apsw"}
    assert light & modules_of(bullpen, "--help") == set()
    assert (light | {"typer"}) & modules_of(bullpen, "--version") == set()


def test_ctrl_c_on_a_terminal_ends_with_130_and_without_a_traceback(bullpen: Bullpen) -> None:
    bullpen.prepare(one_task)
    code, seen = bullpen.on_terminal("events", "--follow", types="\x03", when="TaskCreated")
    assert code == 130
    assert "Traceback" not in seen


def test_ctrl_c_at_a_question_deletes_nothing(bullpen: Bullpen) -> None:
    bullpen.prepare(one_task)
    code, seen = bullpen.on_terminal("team", "delete", types="\x03", when="[y/N]")
    assert code == 130
    assert "Traceback" not in seen
    assert len(bullpen.read("team", "list")) == 1
