"""Skills: knowledge that the project brings along, loaded when it is needed.

A skill is a directory with a `SKILL.md` in `skills/`, `.claude/skills` or `.agents/skills` of the workspace. What a
model asks for is looked up among those that were found, never used as a path; a directory that leads out of the
workspace is not found.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bullpen.domain.text import clean
from bullpen.errors import ToolError
from bullpen.sandbox import OUTPUT_CHARACTERS
from bullpen.tool import Kind, Parameter, Tool, ToolContext
from bullpen.tools.front_matter import split_front_matter
from bullpen.tools.project import entries, read_text

PLACES = ("skills", ".claude/skills", ".agents/skills")
MAX_SKILLS = 100
DESCRIPTION_CHARACTERS = 1_000
MAX_FILES = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """`path` is its SKILL.md. The first of a name counts, in the order of the places."""

    name: str
    description: str
    path: Path


def find_skills(workspace: Path) -> list[Skill]:
    """By name; those of the workspace only."""
    found: dict[str, Skill] = {}
    for place in PLACES:
        for directory in entries(workspace, workspace / place):
            skill = _read_skill(workspace, directory)
            if skill is not None:
                found.setdefault(skill.name.casefold(), skill)
    return [found[key] for key in sorted(found)][:MAX_SKILLS]


def _read_skill(workspace: Path, directory: Path) -> Skill | None:
    path = directory / "SKILL.md"
    text = read_text(workspace, path)
    if text is None:
        return None
    values, body = split_front_matter(text)
    first = next((line.strip("# ").strip() for line in body.splitlines() if line.strip("# ").strip()), "")
    description = " ".join((values.get("description") or first).split())
    name = " ".join((values.get("name") or directory.name).split())
    return Skill(name=clean(name[:100]), description=clean(description[:DESCRIPTION_CHARACTERS]), path=path)


def _names(skill: Skill) -> tuple[str, str]:
    return skill.name.casefold(), skill.path.parent.name.casefold()


async def _load(context: ToolContext, arguments: Mapping[str, Any]) -> str:
    return await asyncio.to_thread(_load_now, context.workspace, arguments["skill"])


def _load_now(workspace: Path, wanted: str) -> str:
    skills = find_skills(workspace)
    word = wanted.strip().lstrip("/").casefold()
    skill = next(
        (skill for skill in skills if word in (skill.name.casefold(), skill.path.parent.name.casefold())), None
    )
    if skill is None:
        known = ", ".join(skill.name for skill in skills) or "none in this project"
        raise ToolError(f"there is no skill {wanted[:60]!r}; there are: {known}")
    text = read_text(workspace, skill.path)
    if text is None:
        raise ToolError(f"the skill {skill.name} cannot be read any more")
    directory = skill.path.parent.relative_to(workspace)
    _, body = split_front_matter(text)
    lines = [f"Skill {skill.name}, in {directory}/ (paths in it are relative to that)."]
    others = [path.name for path in entries(workspace, skill.path.parent) if path.name != "SKILL.md"][:MAX_FILES]
    if others:
        lines.append(f"Beside it: {', '.join(others)}")
    if len(body) > OUTPUT_CHARACTERS:
        lines.append(f"It is long; the rest is in {directory}/SKILL.md.")
    return clean("\n".join([*lines, "", body[:OUTPUT_CHARACTERS]]))


SKILL = Tool(
    name="Skill",
    description="""Load a skill of this project: instructions for a kind of work, written by people who know it. \
Your system prompt lists which there are.

Good: before you make a release, Skill(skill="release"). Bad: loading one because its name sounds nice.""",
    parameters=(
        Parameter(
            name="skill",
            kind=Kind.TEXT,
            description="Its name, as listed.",
            is_required=True,
            aliases=("name", "skill_name"),
        ),
    ),
    run=_load,
    is_read_only=True,
    is_repeatable=True,
    aliases={"load_skill": {}},
)

TOOLS = (SKILL,)
