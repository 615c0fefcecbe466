"""Settings: where they come from, what is refused and how that is said, and that nothing drifts from the code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.config import Settings, find_settings_file, load_settings, settings_page, write_example
from bullpen.config.load import environment_name
from bullpen.config.read import Described, choices_of, describe, list_keys
from bullpen.domain.member import Autonomy
from bullpen.errors import UsageError
from tests.unit.domain.strategies import json_values, texts

ROOT = Path(__file__).parents[2]


def load(
    directory: Path,
    toml: str | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Settings:
    if toml is not None:
        (directory / "bullpen.toml").write_text(toml, encoding="utf-8")
    return load_settings(directory, environment=environment or {}, flags=flags)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory above which nothing is looked for."""
    (tmp_path / ".git").mkdir()
    return tmp_path


# -- defaults and order ----------------------------------------------------------------------


def test_without_a_word_the_defaults_of_the_specification_hold(project: Path) -> None:
    settings = load(project)
    assert (settings.idle.poll_interval_seconds, settings.idle.timeout_seconds) == (1.0, 60.0)
    assert settings.idle.on_timeout == "shutdown"
    assert (settings.work.checkpoint_turns, settings.work.max_turns) == (50, 200)
    assert (settings.shutdown.policy, settings.shutdown.deadline_seconds) == ("accept", 30.0)
    assert (settings.team.max_teammates, settings.team.takeover_seconds) == (8, 30.0)
    assert (settings.budget.max_cost_usd, settings.budget.max_tokens) == (5.0, None)
    assert (settings.sandbox.kind, settings.sandbox.network) == ("auto", "ask")
    assert settings.permissions.timeout_seconds == 300.0
    assert settings == Settings()
    assert settings.source_of("idle.timeout_seconds") == "default"


def test_the_environment_wins_over_the_file_and_flags_over_both(project: Path) -> None:
    settings = load(
        project,
        "model = 'a:file'\n[idle]\ntimeout_seconds = 1\n[work]\nmax_turns = 5\n[budget]\nmax_tokens = 7",
        environment={"BULLPEN_MODEL": "a:variable", "BULLPEN_IDLE__TIMEOUT_SECONDS": "2"},
        flags={"model": "a:flag", "team.name": None},
    )
    assert (settings.model, settings.idle.timeout_seconds, settings.work.max_turns) == ("a:flag", 2.0, 5)
    assert settings.source_of("model") == "flag"
    assert settings.source_of("idle.timeout_seconds") == "BULLPEN_IDLE__TIMEOUT_SECONDS"
    assert settings.source_of("work.max_turns") == str(project / "bullpen.toml")
    assert settings.source_of("team.name") == "default"


def test_a_variable_that_ends_with_a_newline_means_what_stands_before_it(project: Path) -> None:
    settings = load(project, environment={"BULLPEN_TEAM": "graphql\n", "BULLPEN_MODEL": "a:variable\r\n"})
    assert (settings.team.name, settings.model) == ("graphql", "a:variable")


def test_every_key_has_a_value_and_a_source(project: Path) -> None:
    settings = load(project, "[models]\ntester = 'a:b'")
    values = dict(settings.values())
    assert values["models.tester"] == "a:b"
    assert values["budget.member.max_calls"] is None
    assert settings.sources.keys() <= values.keys()
    assert settings.source_of("models.tester").endswith("bullpen.toml")


# -- the file --------------------------------------------------------------------------------


def test_the_nearest_file_upwards_counts_and_the_root_of_the_repository_is_the_last_place(project: Path) -> None:
    inner = project / "a" / "b"
    inner.mkdir(parents=True)
    (project / "bullpen.toml").write_text("model = 'a:outer'")
    assert load_settings(inner, environment={}).model == "a:outer"
    (project / "a" / "bullpen.toml").write_text("model = 'a:inner'")
    assert load_settings(inner, environment={}).model == "a:inner"
    (inner / ".git").write_text("gitdir: elsewhere")
    assert load_settings(inner, environment={}).model is None
    assert find_settings_file(inner) is None
    assert find_settings_file(project) == project / "bullpen.toml"


def test_pyproject_counts_where_it_speaks_of_bullpen(project: Path) -> None:
    inner = project / "package"
    inner.mkdir()
    (inner / "pyproject.toml").write_text("[project]\nname = 'bullpen-user'")
    (project / "pyproject.toml").write_text("[tool.bullpen.idle]\non_timeout = 'stay'")
    settings = load_settings(inner, environment={})
    assert settings.idle.on_timeout == "stay"
    assert settings.source_of("idle.on_timeout") == str(project / "pyproject.toml")


def test_bullpen_toml_counts_more_than_the_pyproject_beside_it(project: Path) -> None:
    (project / "pyproject.toml").write_text("[tool.bullpen]\nmodel = 'a:project'")
    assert load(project, "model = 'a:own'").model == "a:own"


def test_a_broken_pyproject_of_others_is_none_of_our_business(project: Path) -> None:
    (project / "pyproject.toml").write_text("<<<<<<< HEAD\nname = 'bullpen'")
    assert load(project) == Settings()
    (project / "pyproject.toml").write_text("<<<<<<< HEAD\n[tool.bullpen]")
    with pytest.raises(UsageError, match=r"pyproject\.toml is not TOML: .*line 1"):
        load(project)


@pytest.mark.parametrize(
    "content", [b"model = ", b"\xff\xfe", b"[tool", b"a = " + b"[" * 5000, b"model = 1\nmodel = 2"]
)
def test_a_file_that_cannot_be_parsed_is_told_in_one_line(project: Path, content: bytes) -> None:
    (project / "bullpen.toml").write_bytes(content)
    with pytest.raises(UsageError, match=r"bullpen\.toml") as caught:
        load(project)
    assert "\n" not in str(caught.value)


def test_a_mark_of_the_byte_order_is_no_fault(project: Path) -> None:
    (project / "bullpen.toml").write_bytes(b"\xef\xbb\xbfmodel = 'a:b'")
    assert load(project).model == "a:b"


def test_paths_in_a_file_are_relative_to_the_file(project: Path) -> None:
    inner = project / "deep"
    inner.mkdir()
    load(project, "store = 'sqlite:///.bullpen/b.db'\nmodel = 'scripted:play.toml'\nmodels.lead = 'replay:/abs.jsonl'")
    settings = load_settings(inner, environment={})
    assert settings.store == f"sqlite:///{project}/.bullpen/b.db"
    assert settings.model == f"scripted:{project}/play.toml"
    assert settings.models == {"lead": "replay:/abs.jsonl"}
    assert load(project, "store = 'files:board'").store == f"files:{project}/board"
    for as_it_is in ("sqlite:///:memory:", "sqlite:////abs.db", "files:~/board", "postgresql://h/d"):
        assert load(project, f"store = '{as_it_is}'").store == as_it_is
    by_variable = load(project, "", environment={"BULLPEN_STORE": "files:board"})
    assert by_variable.store == f"files:{Path.cwd()}/board"


# -- what can be written ---------------------------------------------------------------------


def test_models_are_chosen_by_role_however_it_is_spelt(project: Path) -> None:
    settings = load(project, "model = 'a:any'\n[models]\n'Back End' = 'a:back'\nlead = 'a:lead'")
    assert settings.model_for("back-end") == "a:back"
    assert settings.model_for("lead") == "a:lead"
    assert settings.model_for("tester") == "a:any"
    assert settings.model_for(None) == "a:any"


def test_a_section_has_a_short_form(project: Path) -> None:
    settings = load(project, "sandbox = 'required'\nteam = 'crew'")
    assert (settings.sandbox.kind, settings.team.name) == ("required", "crew")


def test_none_stands_for_no_limit(project: Path) -> None:
    assert load(project, "[budget]\nmax_cost_usd = 'none'").budget.max_cost_usd is None
    assert load(project, environment={"BULLPEN_MAX_COST": "none"}).budget.max_cost_usd is None


def test_predefined_teammates_are_read_in_order(project: Path) -> None:
    ana, ben = load(
        project,
        "[[teammates]]\nname = 'ana'\nrole = 'analyst'\nautonomy = 'assigned'\nrequire_plan = true\n"
        "[[teammates]]\nname = 'ben'\nmodel = 'a:b'\nprompt = 'tests first'",
    ).teammates
    assert (ana.name, ana.role, ana.autonomy, ana.require_plan) == ("ana", "analyst", Autonomy.ASSIGNED, True)
    assert (ben.name, ben.model, ben.prompt, ben.autonomy) == ("ben", "a:b", "tests first", Autonomy.AUTO)


def test_tools_are_allowed_by_role(project: Path) -> None:
    settings = load(project, "[tools]\ndeny = ['Skill']\n[tools.allow]\nreviewer = ['read_file', 'grep']")
    assert settings.tools.deny == ("Skill",)
    assert settings.tools.allow == {"reviewer": ("read_file", "grep")}


# -- environment and flags -------------------------------------------------------------------


def test_a_variable_is_named_after_its_key(project: Path) -> None:
    settings = load(
        project,
        environment={
            "BULLPEN_SANDBOX__ENV": "A, B",
            "BULLPEN_MODELS": "lead=a:x, tester=a:y",
            "BULLPEN_MODELS__BACK_END": "a:z",
            "BULLPEN_TEAM": "#3",
            "BULLPEN_MAX_COST": "2.5",
            "BULLPEN_BUDGET__MEMBER__MAX_CALLS": " 9 ",
            "BULLPEN_NETWORK": "off",
            "BULLPEN_STORE": "",
        },
    )
    assert settings.sandbox.env == ("A", "B")
    assert settings.models == {"lead": "a:x", "tester": "a:y", "back-end": "a:z"}
    assert (settings.team.name, settings.budget.max_cost_usd, settings.sandbox.network) == ("#3", 2.5, "off")
    assert settings.budget.member.max_calls == 9
    assert settings.store is None


def test_a_hook_is_a_command_or_several_and_a_comma_is_part_of_it(project: Path) -> None:
    toml = "[hooks]\ntask_created = 'grep -q a,b'\ntask_completed = ['make lint', 'make test']"
    settings = load(project, toml, environment={"BULLPEN_HOOKS__TEAMMATE_IDLE": "test -e a,b"})
    assert settings.hooks.task_created == ("grep -q a,b",)
    assert settings.hooks.task_completed == ("make lint", "make test")
    assert settings.hooks.teammate_idle == ("test -e a,b",)
    assert settings.hooks.timeout_seconds == 60


def test_the_marks_of_a_sandbox_are_no_settings(project: Path) -> None:
    marks = {
        "BULLPEN_SANDBOX": "/private",
        "BULLPEN_WORKER": "3",
        "BULLPEN_TEST_POSTGRES": "x",
        "_BULLPEN_COMPLETE": "y",
    }
    assert load(project, environment=marks) == Settings()


def test_the_full_name_counts_more_than_the_short_one(project: Path) -> None:
    both = {"BULLPEN_MAX_COST": "1", "BULLPEN_BUDGET__MAX_COST_USD": "2"}
    assert load(project, environment=both).budget.max_cost_usd == 2.0


@pytest.mark.parametrize("path", [path for path in list_keys() if path != ("teammates",)], ids=".".join)
def test_every_key_can_be_set_by_a_variable_and_by_a_flag(project: Path, path: tuple[str, ...]) -> None:
    field = find_field(path)
    value = field.allowed.example or choices_of(field.hint)[-1:] or [field.allowed.minimum]
    value = value[0] if isinstance(value, tuple | list) and get_origin(field.hint) is not tuple else value
    by_flag = load(project, flags={".".join(path): value})
    assert by_flag != Settings()
    if path != ("tools", "allow"):
        assert load(project, environment={environment_name(path): as_text(value)}) == by_flag


def find_field(path: tuple[str, ...]) -> Described:
    section: Any = Settings
    for name in path[:-1]:
        section = describe(section)[name].hint
    return describe(section)[path[-1]]


def as_text(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{key}={item}" for key, item in value.items())
    return ",".join(value) if isinstance(value, list) else str(value)


# -- what is refused -------------------------------------------------------------------------

REFUSED = [
    ("[idle]\ntimeout_seconds = 'soon'", 'idle.timeout_seconds is "soon": a number from 0 to 315,360,000 is allowed'),
    ("[idle]\ntimeout_seconds = true", "idle.timeout_seconds is true: a number from"),
    ("[idle]\ntimeout_seconds = -1", "idle.timeout_seconds is -1: a number from 0"),
    ("[idle]\ntimeout_seconds = nan", "idle.timeout_seconds is nan: a number from 0"),
    ("[idle]\ntimeout_seconds = inf", "idle.timeout_seconds is inf: a number from 0"),
    ("[idle]\non_timeout = 'stop'", 'idle.on_timeout is "stop": one of "shutdown", "stay" is allowed'),
    ("[work]\nmax_turns = 2.5", "work.max_turns is 2.5: a whole number of at least 1 is allowed"),
    ("[budget]\nmax_cost_usd = 0", 'budget.max_cost_usd is 0: a number of at least 0.0001 or "none" is allowed'),
    ("[sandbox]\nenv = 'PATH'", 'sandbox.env is "PATH": a list of names of variables is allowed'),
    ("[sandbox]\nenv = ['TOKEN=hunter2']", 'sandbox.env is ["TOKEN=…"]: a list of names'),
    ("[permissions]\nallow = [1]", 'permissions.allow is [1]: a list of patterns such as "bash:git push" is allowed'),
    ("[permissions]\ndeny = ['Bash(git push:*)']", "permissions.deny is"),
    ("[permissions]\ndeny = ['git push']", "permissions.deny is"),
    ("[permissions]\ndeny = ['write_file:src']", "permissions.deny is"),
    ("[hooks]\ntask_created = 5", "hooks.task_created is 5: a command or a list of commands is allowed"),
    ("[hooks]\ntask_created = ['true', '']", "hooks.task_created is"),
    ("[hooks]\ntask_started = 'x'", "there is no setting hooks.task_started; did you mean hooks.task_created?"),
    *(
        (
            f"[worktree]\ninclude = ['{path}']",
            f'worktree.include is ["{path}"]: a list of paths in the repository such as',
        )
        for path in ("/etc/hostname", "../secret", "conf/../../secret", "~/.netrc", "~", ".", "a**")
    ),
    ("[sandbox]\nwritable = [1]", "sandbox.writable is [1]: a list of texts is allowed"),
    ("model = ''", 'model is "": a text or "none" is allowed'),
    ("model = 3", "model is 3: a text"),
    ("models = 'x'", 'models is "x": a table of roles is allowed'),
    ("models = {lead = 3}", "models.lead is 3: a text is allowed"),
    ("idle = 5", "idle is 5: a table is allowed"),
    ("sandbox = 5", "sandbox is 5: a table is allowed or a text"),
    ("teammates = 5", "teammates is 5: a list of tables is allowed: [[teammates]] in a file"),
    ("[[teammates]]\nrole = 'x'", "teammates[1] has no name"),
    ("[[teammates]]\nname = 'lead'", 'teammates[lead].name is "lead": a name of letters'),
    ("[[teammates]]\nname = '../x'", 'teammates[../x].name is "../x": a name of letters'),
    ("[[teammates]]\nname = 'a'\n[[teammates]]\nname = 'A'", "two teammates are named A"),
    ("[[teammates]]\nname = 'a'\nautonomy = 'full'", 'teammates[a].autonomy is "full": one of "auto", "assigned"'),
    ("[[teammates]]\nname = 'a'\nrol = 'x'", "there is no setting teammates[a].rol; did you mean teammates[a].role?"),
    ("[idle]\ntimeout = 5", "there is no setting idle.timeout; did you mean idle.timeout_seconds?"),
    ("[idel]\ntimeout_seconds = 5", "there is no setting idel; did you mean idle?"),
    ("max_turns = 5", "there is no setting max_turns; did you mean work.max_turns?"),
    ("max-output-tokens = 5", "did you mean max_output_tokens?"),
    ("idle_timeout_seconds = 5", "did you mean idle.timeout_seconds?"),
    ("[shutdown]\nzzz = 5", "there is no setting shutdown.zzz; [shutdown] may have policy, deadline_seconds"),
]


@pytest.mark.parametrize(("toml", "words"), REFUSED, ids=[toml[:50] for toml, _ in REFUSED])
def test_what_is_wrong_is_told_with_file_key_what_is_there_and_what_is_allowed(
    project: Path, toml: str, words: str
) -> None:
    with pytest.raises(UsageError) as caught:
        load(project, toml)
    message = str(caught.value)
    assert message.startswith(f"{project / 'bullpen.toml'}: ")
    assert words in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("BULLPEN_IDLE__TIMEOUT_SECONDS", "soon", 'idle.timeout_seconds is "soon": a number from 0'),
        ("BULLPEN_IDLE__TIMEOUT", "5", "there is no setting idle.timeout; did you mean idle.timeout_seconds?"),
        ("BULLPEN_WORK__MAX_TURNS", "9" * 5000, "work.max_turns is"),
        ("BULLPEN_MODLE", "a:b", "did you mean BULLPEN_MODEL?"),
        ("BULLPEN_TEAMMATES", "ana", "teammates is"),
        ("BULLPEN_MODELS", "ana", "ROLE=VALUE"),
        ("BULLPEN_MODEL__X", "ana", "model is"),
        ("BULLPEN___", "ana", "there is no setting"),
    ],
)
def test_a_variable_that_makes_no_sense_is_named(project: Path, name: str, text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(project, environment={name: text})
    assert str(caught.value).startswith(name)
    assert words in str(caught.value)


def test_a_flag_that_makes_no_sense_is_told_by_its_key(project: Path) -> None:
    with pytest.raises(UsageError, match=r'^budget\.max_cost_usd is "much": a number of at least'):
        load(project, flags={"budget.max_cost_usd": "much"})
    with pytest.raises(UsageError, match=r"^there is no setting budget\.cost"):
        load(project, flags={"budget.cost": 1})


@given(st.dictionaries(st.sampled_from([path[0] for path in list_keys()]) | texts, json_values, max_size=3))
def test_whatever_is_stored_is_read_or_refused_with_a_usage_error(mapping: dict[str, Any]) -> None:
    try:
        settings = Settings.from_mapping(mapping)
    except UsageError:
        return
    assert Settings.from_mapping(settings.to_mapping()) == settings


# -- what a team carries ---------------------------------------------------------------------


def test_a_team_carries_its_settings_as_json_in_the_form_that_the_store_reads(project: Path) -> None:
    settings = load(
        project,
        "model = 'a:b'\nstore = 'postgresql://me:secret@h/d'\nteam = {name = 'crew', max_teammates = 3}\n"
        "models = {lead = 'a:c'}\nbudget = {max_cost_usd = 'none', max_tokens = 9, member = {max_calls = 2}}\n"
        "tools = {allow = {reviewer = ['grep']}}\nteammates = [{name = 'ana', autonomy = 'assigned'}]",
    )
    mapping = settings.to_mapping()
    assert mapping["max_teammates"] == 3
    assert mapping["takeover_seconds"] == 30.0
    assert mapping["model"] == "a:b"
    assert mapping["budget"] == {
        "max_cost_usd": None,
        "max_tokens": 9,
        "max_minutes": None,
        "max_calls": None,
        "input_price_usd": None,
        "output_price_usd": None,
        "member": {"max_cost_usd": None, "max_tokens": None, "max_calls": 2},
    }
    stored = json.dumps(mapping)
    assert "secret" not in stored
    assert "crew" not in stored
    back = Settings.from_mapping(json.loads(stored))
    assert back.to_mapping() == mapping
    assert (back.teammates, back.models, back.tools) == (settings.teammates, settings.models, settings.tools)
    assert back.source_of("model") == "team"


def test_settings_of_another_version_are_read_as_far_as_they_are_known() -> None:
    settings = Settings.from_mapping({"paused": True, "model": "a:b", "idle": {"timeout_seconds": 5, "new": 1}})
    assert (settings.model, settings.idle.timeout_seconds, settings.budget.max_cost_usd) == ("a:b", 5.0, 5.0)
    assert Settings.from_mapping({}) == Settings()


def test_a_stored_value_that_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match=r"the team's settings: team\.max_teammates is \"many\""):
        Settings.from_mapping({"max_teammates": "many"})


# -- what is made from the code --------------------------------------------------------------


def uncommented(text: str) -> str:
    """The example with every setting in it in force."""
    lines = [re.sub(r"^# (?=\w+ = |\[\[)", "", line) for line in text.splitlines()]
    return "\n".join(lines)


def test_the_example_changes_nothing(project: Path) -> None:
    assert load(project, write_example()) == Settings()


def test_the_example_names_every_key_and_each_of_its_lines_is_allowed(project: Path) -> None:
    settings = load(project, uncommented(write_example()))
    keys = {".".join(path) for path in list_keys()}
    assert keys - settings.sources.keys() == {"models", "tools.allow"}
    assert {"models.lead", "tools.allow.reviewer"} <= settings.sources.keys()
    assert (settings.teammates[0].name, settings.teammates[0].role) == ("ana", "backend")


def test_the_page_of_settings_is_made_from_the_code() -> None:
    assert (ROOT / "docs" / "settings.md").read_text(encoding="utf-8") == settings_page(), "run `make docs`"


def test_looking_for_a_file_imports_no_settings(project: Path) -> None:
    code = (
        "import sys; from bullpen.config import find_settings_file; find_settings_file(sys.argv[1]);"
        "print([name for name in sys.modules if name.startswith('bullpen.config.')])"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(project)], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "['bullpen.config.file']"


def test_reading_the_defaults_imports_nothing_heavy(project: Path) -> None:
    code = (
        "import sys; from bullpen.config import load_settings; load_settings(sys.argv[1], environment={});"
        "print([name for name in ('tomllib', 'pydantic', 'asyncio', 'difflib', 'textwrap') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(project)], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
