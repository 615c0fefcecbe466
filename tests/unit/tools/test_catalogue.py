"""Who has which tools, and what models read of them: `tools.md` beside this file is reviewed as product text.

Written anew by `python -m tests.unit.tools.test_catalogue`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bullpen.domain.prompt import ToolSpec
from bullpen.errors import ToolError, UsageError
from bullpen.tool import Changes
from bullpen.tools import TOOLBOX_KINDS, toolbox_for
from bullpen.tools.catalogue import CATALOGUE

PAGE = Path(__file__).with_name("tools.md")

BOTH = """bash read_file write_file edit_file glob grep TaskCreate TaskGet TaskUpdate TaskList claim_task SendMessage
list_teammates read_inbox Skill TaskOutput TaskStop compact"""
LISTS = {
    "lead": f"{BOTH} Task TeamCreate TeamDelete",
    "teammate": f"{BOTH} idle submit_plan",
    "explore": "bash read_file glob grep Skill",
    "plan": "bash read_file glob grep Skill",
    "code": "bash read_file write_file edit_file glob grep Skill",
}
ALIASES = {
    "task_create": "TaskCreate",
    "task_get": "TaskGet",
    "task_update": "TaskUpdate",
    "task_list": "TaskList",
    "send_message": "SendMessage",
    "broadcast": "SendMessage",
    "shutdown_request": "SendMessage",
    "shutdown_response": "SendMessage",
    "load_skill": "Skill",
    "background_run": "bash",
    "check_background": "TaskOutput",
}


def page() -> str:
    """Each text once, under the first who reads it."""
    specs: list[tuple[str, ToolSpec]] = []
    for kind in TOOLBOX_KINDS:
        for spec in toolbox_for(kind).specs():
            if all(spec != other for _, other in specs):
                specs.append((kind, spec))
    return "\n".join(["# What models read of the tools\n", *(_entry(kind, spec) for kind, spec in specs)])


def _entry(kind: str, spec: ToolSpec) -> str:
    required = spec.parameters.get("required", [])
    lines = [f"## {spec.name} ({kind})\n", spec.description, ""]
    for name, schema in spec.parameters["properties"].items():
        rest = {key: value for key, value in schema.items() if key not in ("type", "description")}
        extra = f" {json.dumps(rest)}" if rest else ""
        about = f": {schema['description']}" if "description" in schema else ""
        lines.append(f"- `{name}{'' if name in required else '?'}` {schema['type']}{extra}{about}")
    return "\n".join([*lines, ""])


def test_what_models_read_is_what_was_reviewed() -> None:
    assert page() == PAGE.read_text("utf-8")


@pytest.mark.parametrize("kind", TOOLBOX_KINDS)
def test_everybody_has_its_list_and_nothing_else(kind: str) -> None:
    assert {spec.name for spec in toolbox_for(kind).specs()} == set(LISTS[kind].split())


@pytest.mark.parametrize("kind", ["lead", "teammate"])
@pytest.mark.parametrize(("alias", "name"), ALIASES.items())
def test_the_seeds_names_are_understood_in_any_case(kind: str, alias: str, name: str) -> None:
    assert toolbox_for(kind).resolve(alias.upper()).tool.name == name


def test_plan_approval_hands_in_for_a_teammate_and_decides_for_the_lead() -> None:
    assert toolbox_for("teammate").resolve("plan_approval").tool.name == "submit_plan"
    decides = toolbox_for("lead").resolve("plan_approval")
    assert (decides.tool.name, decides.implied) == ("SendMessage", {"type": "plan_approval_response"})


@pytest.mark.parametrize("kind", ["explore", "plan"])
def test_who_only_looks_has_nothing_that_changes_anything(kind: str) -> None:
    assert {tool.changes for tool in CATALOGUE[kind]} == {Changes.NOTHING}


@pytest.mark.parametrize("kind", ["explore", "plan", "code"])
def test_a_subagent_does_not_speak_for_the_team(kind: str) -> None:
    for name in ("Task", "SendMessage", "TaskUpdate", "claim_task", "TeamDelete", "idle", "submit_plan", "compact"):
        with pytest.raises(ToolError, match="there is no tool"):
            toolbox_for(kind).resolve(name)


def test_an_unknown_tool_says_which_there_are() -> None:
    with pytest.raises(ToolError, match="there is no tool 'fly' for you; you have bash, read_file"):
        toolbox_for("code").resolve("fly")


def test_settings_narrow_the_list_by_any_name() -> None:
    box = toolbox_for("teammate", allow=("READ_FILE", "load_skill", "Task", "bash"), deny=("background_run",))
    assert [spec.name for spec in box.specs()] == ["read_file", "Skill"]
    with pytest.raises(ToolError, match="there is no tool"):
        box.resolve("bash")


def test_an_unknown_kind_is_the_callers_mistake() -> None:
    with pytest.raises(UsageError, match="no kind of agent"):
        toolbox_for("wizard")


def test_no_name_means_two_parameters() -> None:
    for tool in (tool for tools in CATALOGUE.values() for tool in tools):
        names = [
            {name.replace("_", "").casefold() for name in (parameter.name, *parameter.aliases)}
            for parameter in tool.parameters
        ]
        assert len(set().union(*names)) == sum(map(len, names)), tool.name


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
