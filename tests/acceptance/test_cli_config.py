"""`bullpen config`, `bullpen init`, and what every command takes from the settings."""

from __future__ import annotations

import pytest
from inline_snapshot import snapshot

from tests.acceptance.command import Bullpen
from tests.acceptance.test_cli_command import complete


def test_what_is_in_force_and_from_where(bullpen: Bullpen) -> None:
    (bullpen.directory / "bullpen.toml").write_text("[budget]\nmax_cost_usd = 2\nmax_minutes = 30\n")
    shown = bullpen("config", "budget", BULLPEN_MAX_COST="3").out
    assert shown.replace(str(bullpen.directory), "DIR") == snapshot("""\
file        DIR/bullpen.toml

SETTING                     VALUE   FROM
budget.max_cost_usd         3       BULLPEN_MAX_COST
budget.max_tokens           "none"  default
budget.max_minutes          30      file
budget.max_calls            "none"  default
budget.input_price_usd      "none"  default
budget.output_price_usd     "none"  default
budget.member.max_cost_usd  "none"  default
budget.member.max_tokens    "none"  default
budget.member.max_calls     "none"  default
""")
    document = bullpen.read("config")
    assert document["file"] == f"{bullpen.directory}/bullpen.toml"
    assert document["settings"]["budget.max_minutes"] == {
        "value": 30,
        "source": f"{bullpen.directory}/bullpen.toml",
        "variable": "BULLPEN_BUDGET__MAX_MINUTES",
    }
    assert document["settings"]["idle.timeout_seconds"]["source"] == "default"


def test_flags_come_last(bullpen: Bullpen) -> None:
    (bullpen.directory / "bullpen.toml").write_text("store = 'files:here'\n")
    shown = bullpen.read("config", "store", "--store", "files:/there", "--changed")["settings"]
    assert shown["store"]["source"] == "flag"
    assert shown["store"]["value"] == "files:/there"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:secret@host/db", "…@host/db"),
        ("postgresql://me@host/db?password=secret&sslmode=require", "…@host/db?password=…&sslmode=require"),
        ("postgresql://host/db?user=me&password=sec@secret", "postgresql://host/db?user=me&password=…"),
    ],
)
def test_a_password_is_not_shown(bullpen: Bullpen, url: str, shown: str) -> None:
    ran = bullpen("config", "store", BULLPEN_STORE=url)
    assert "secret" not in ran.out + ran.err
    assert f'"{shown}"' in ran.out


def test_without_a_file_everything_is_the_default_and_the_key_decides_the_model(bullpen: Bullpen) -> None:
    lines = bullpen("config", "--changed", ANTHROPIC_API_KEY="k").lines
    assert lines == [
        "file        none here or above; `bullpen init` writes one",
        "model       anthropic:claude-sonnet-5, because ANTHROPIC_API_KEY is set",
        "",
        "everything is at its default",
    ]


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        ("budgets", "did you mean budget?"),
        ("modl", "did you mean model?"),
        ("max-turns", "did you mean work.max_turns?"),
        (
            "timeout_seconds",
            "did you mean idle.timeout_seconds or permissions.timeout_seconds or hooks.timeout_seconds?",
        ),
        ("colour", "`bullpen config` shows all of them"),
    ],
)
def test_an_unknown_key_is_told_with_what_may_be_meant(bullpen: Bullpen, key: str, advice: str) -> None:
    assert bullpen.refused("config", key) == f"there is no setting '{key}': {advice}"


# -- init ------------------------------------------------------------------------------------------


def test_init_writes_a_file_that_changes_nothing_until_something_in_it_is(bullpen: Bullpen) -> None:
    assert bullpen("init").out == "wrote bullpen.toml: everything in it is commented out, so change it\n"
    written = (bullpen.directory / "bullpen.toml").read_text()
    assert "# max_cost_usd = 5" in written
    assert "everything is at its default" in bullpen("config", "--changed").out


def test_init_says_which_file_it_takes_the_place_of(bullpen: Bullpen) -> None:
    above = bullpen.directory / "pyproject.toml"
    above.write_text("[tool.bullpen]\nmodel = 'scripted:mine.toml'\n")
    ran = bullpen("init")
    assert ran.err == f"bullpen: {above} no longer counts here: of several files only the nearest does\n"


def test_the_shell_is_offered_keys(bullpen: Bullpen) -> None:
    assert complete(bullpen, "bullpen config budget.max_c") == ["budget.max_cost_usd", "budget.max_calls"]


def test_init_never_overwrites(bullpen: Bullpen) -> None:
    file = bullpen.directory / "bullpen.toml"
    file.write_text("model = 'scripted:mine.toml'\n")
    assert bullpen.refused("init", code=1) == f"{file} is there already; `bullpen config` shows what is in force"
    assert file.read_text() == "model = 'scripted:mine.toml'\n"


# -- what every command takes from it -----------------------------------------------------------------


def test_store_and_team_of_the_file_are_those_of_every_command(bullpen: Bullpen) -> None:
    (bullpen.directory / "bullpen.toml").write_text("store = 'sqlite:///state.db'\nteam = 'docs'\n")
    below = bullpen.directory / "below"
    below.mkdir()
    assert "created team 'docs' in the store that the settings name" in bullpen("task", "add", "One", cwd=below).err
    assert (bullpen.directory / "state.db").exists()
    bullpen("task", "add", "Two", "--team", "other")
    assert [task["subject"] for task in bullpen.read("task", "list")] == ["One"]
    assert [task["subject"] for task in bullpen.read("task", "list", "--team", "other")] == ["Two"]
    assert bullpen.refused("task", "list", BULLPEN_STORE="files:elsewhere").startswith("there is no team 'docs'")


def test_a_wrong_setting_is_told_with_file_key_and_what_is_allowed(bullpen: Bullpen) -> None:
    file = bullpen.directory / "bullpen.toml"
    file.write_text("[idle]\non_timeout = 'sleep'\n")
    line = f'{file}: idle.on_timeout is "sleep": one of "shutdown", "stay" is allowed'
    for words in (["config"], ["task", "list"], ["run", "x"]):
        assert bullpen.refused(*words) == line
    file.write_text("[idle]\ntimeout = 3\n")
    assert bullpen.refused("config") == (
        f"{file}: there is no setting idle.timeout; did you mean idle.timeout_seconds?"
    )
    file.write_text("idle = [")
    assert bullpen.refused("config").startswith(f"{file} is not TOML: ")
