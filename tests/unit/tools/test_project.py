"""Skills, roles and instructions of a project."""

from __future__ import annotations

from pathlib import Path

import pytest

from bullpen.errors import ToolError
from bullpen.tools.front_matter import split_front_matter
from bullpen.tools.project import Instructions, find_instructions, find_roles
from bullpen.tools.skill import SKILL, find_skills
from tests.unit.tools.conftest import MakeHands


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


# -- the head of a file


@pytest.mark.parametrize(
    ("head", "value"),
    [
        ("description: Makes releases", "Makes releases"),
        ("description: 'It''s quoted: yes # no comment'", "It's quoted: yes # no comment"),
        ('description: "Line\\nand \\"more\\""', 'Line\nand "more"'),
        ("description: |\n  First line.\n    indented\n\n  Last: line.\n", "First line.\n  indented\n\nLast: line."),
        ("description: |-\n  Only this", "Only this"),
        ("description: >\n  one\n  two\n\n  three", "one two\n\nthree"),
        ("description: goes\n  on here", "goes on here"),
        ("description: plain # a comment", "plain"),
        ("description: with: a colon", "with: a colon"),
        ("description: [Read, 'Write']", "Read, Write"),
        ('description:\n  - Read\n  - "Write"', "Read, Write"),
        ("description:\n- Read\n- Write\nname: x", "Read, Write"),
        ("description:", ""),
        ("Description: any case", "any case"),
    ],
)
def test_values_are_read_as_they_are_written_in_practice(head: str, value: str) -> None:
    values, body = split_front_matter(f"---\n{head}\nother: 1\n---\n\nThe body\n---\nwith a line\n")
    assert values["description"] == value
    assert values["other"] == "1"
    assert body == "The body\n---\nwith a line"


@pytest.mark.parametrize("text", ["", "Just text", "--- \nname: x\nnever closed", "----\nname: x\n---\n"])
def test_a_file_without_a_head_is_all_body(text: str) -> None:
    assert split_front_matter(text) == ({}, text)


# -- skills


def test_skills_are_found_in_all_places_by_name(workspace: Path) -> None:
    write(workspace / "skills/release/SKILL.md", "---\nname: release\ndescription: |\n  How to\n  release.\n---\nDo it")
    write(workspace / ".claude/skills/review/SKILL.md", "# Reviewing\n\nLook closely.")
    write(workspace / ".agents/skills/b/SKILL.md", "---\nname: Alpha\n---\n")
    write(workspace / ".agents/skills/release/SKILL.md", "---\nname: Release\ndescription: another\n---\n")
    write(workspace / "skills/empty/README.md", "no skill")
    write(workspace / "skills/README.md", "no skill")
    assert [(skill.name, skill.description) for skill in find_skills(workspace)] == [
        ("Alpha", ""),
        ("release", "How to release."),
        ("review", "Reviewing"),
    ]


def test_no_skills_are_no_trouble(workspace: Path) -> None:
    assert find_skills(workspace) == []
    assert find_skills(workspace / "gone") == []


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["release", "Release", "/release", "make-release"])
async def test_a_skill_comes_with_its_directory(hands: MakeHands, workspace: Path, name: str) -> None:
    write(workspace / "skills/make-release/SKILL.md", "---\nname: release\n---\n\nRun ./steps.sh")
    write(workspace / "skills/make-release/steps.sh", "")
    assert await hands().text(SKILL, name=name) == (
        "Skill release, in skills/make-release/ (paths in it are relative to that).\n"
        "Beside it: steps.sh\n\nRun ./steps.sh"
    )


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["../secret", "../../secret", "/etc", "skills/../../secret", "..", "", "x\0y"])
async def test_a_hostile_name_is_no_path(hands: MakeHands, workspace: Path, name: str) -> None:
    write(workspace / "skills/release/SKILL.md", "---\nname: release\n---\n")
    write(workspace.parent / "secret/SKILL.md", "SECRET")
    with pytest.raises(ToolError, match=r"there is no skill .*; there are: release"):
        await hands().call(SKILL, skill=name)


def test_a_skill_outside_the_workspace_is_not_found(workspace: Path) -> None:
    write(workspace.parent / "secret/SKILL.md", "SECRET")
    (workspace / "skills").mkdir()
    (workspace / "skills/leak").symlink_to(workspace.parent / "secret")
    (workspace / "skills/inner").mkdir()
    (workspace / "skills/inner/SKILL.md").symlink_to(workspace.parent / "secret/SKILL.md")
    (workspace / ".claude").mkdir()
    (workspace / ".claude/skills").symlink_to(workspace.parent)
    assert find_skills(workspace) == []


# -- roles


def test_agents_of_the_project_are_roles(workspace: Path) -> None:
    write(
        workspace / ".claude/agents/code-reviewer.md",
        "---\nname: reviewer\ndescription: Reviews\ntools: Read, Grep\nmodel: opus\n---\n\nYou review.",
    )
    write(workspace / ".claude/agents/plain.md", "Only a prompt.")
    write(workspace / ".claude/agents/inherit.md", "---\nmodel: inherit\n---\nx")
    write(workspace / ".claude/agents/notes.txt", "no role")
    inherit, plain, reviewer = find_roles(workspace)
    assert (reviewer.name, reviewer.description, reviewer.model) == ("reviewer", "Reviews", "opus")
    assert (reviewer.tools, reviewer.prompt) == (("Read", "Grep"), "You review.")
    assert (plain.name, plain.prompt, plain.model, plain.tools) == ("plain", "Only a prompt.", None, ())
    assert inherit.model is None


# -- instructions


def test_instructions_of_the_root_are_whole_and_nested_ones_are_pointed_to(workspace: Path) -> None:
    write(workspace / "CLAUDE.md", "Use tabs.")
    write(workspace / "AGENTS.md", "Use spaces.")
    write(workspace / "src/api/AGENTS.md", "Only here.")
    write(workspace / "node_modules/x/AGENTS.md", "not ours")
    write(workspace / ".venv/AGENTS.md", "not ours")
    assert find_instructions(workspace) == [
        Instructions(path=Path("AGENTS.md"), text="Use spaces."),
        Instructions(path=Path("CLAUDE.md"), text="Use tabs."),
        Instructions(
            path=Path("src/api/AGENTS.md"),
            text="Holds for everything below src/api/ (10 characters): read it before you work there.",
        ),
    ]


def test_the_same_text_twice_and_an_empty_one_are_left_out(workspace: Path) -> None:
    write(workspace / "AGENTS.md", "Use spaces.\n")
    (workspace / "CLAUDE.md").symlink_to("AGENTS.md")
    write(workspace / "src/CLAUDE.md", " \n")
    assert [item.path for item in find_instructions(workspace)] == [Path("AGENTS.md")]


def test_instructions_are_bounded_and_stay_in_the_workspace(workspace: Path) -> None:
    write(workspace / "AGENTS.md", "x" * 40_000)
    write(workspace / "a/b/c/d/e/AGENTS.md", "too deep")
    write(workspace.parent / "outside/AGENTS.md", "SECRET")
    (workspace / "CLAUDE.md").symlink_to(workspace.parent / "outside/AGENTS.md")
    (workspace / "leak").symlink_to(workspace.parent / "outside")
    (only,) = find_instructions(workspace)
    assert len(only.text) < 30_100
    assert only.text.endswith("[… 10,000 more characters: read AGENTS.md]")
