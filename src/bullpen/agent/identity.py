"""Who a member is: the system prompt, and the block that says it again after a compaction or a restart.

The system prompt is constant for an incarnation, so that the prefix of each request
stays. What changes (roster, task, budget) enters as turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

from bullpen.domain.member import Member, MemberKind, Team
from bullpen.domain.message import escape
from bullpen.domain.task import Task
from bullpen.tools.project import Instructions, Role
from bullpen.tools.skill import Skill

# Of a larger team not everybody is named: each would be sent with every request of each.
MAX_NAMED = 50


@cache
def prompt_text(name: str) -> str:
    return files("bullpen.agent").joinpath("prompts", f"{name}.md").read_text("utf-8").strip()


def opening_line(member: Member, team: Team) -> str:
    return f"You are '{member.name}', role: {member.role or member.kind}, team: {team.name}."


def system_prompt(
    member: Member,
    team: Team,
    workspace: Path,
    *,
    instructions: Sequence[Instructions] = (),
    skills: Sequence[Skill] = (),
    role: Role | None = None,
    is_apart: bool = False,
) -> str:
    """Identity first, then how to work, then what the project says of itself."""
    kind = "lead" if member.kind is MemberKind.LEAD else "teammate"
    parts = [opening_line(member, team), prompt_text(kind), prompt_text("both"), f"Working directory: {workspace}"]
    if member.plan_required:
        parts.append(prompt_text("plan"))
    if is_apart:
        parts.append(prompt_text("apart"))
    if role is not None and role.prompt:
        parts.append(f'<role name="{escape(role.name)}">\n{role.prompt.strip()}\n</role>')
    parts += [f'<project path="{escape(str(item.path))}">\n{item.text.strip()}\n</project>' for item in instructions]
    if skills:
        known = "\n".join(f"- {skill.name}: {skill.description}" for skill in skills)
        parts.append(f"Skills that you can load with the Skill tool when one fits:\n{known}")
    return "\n\n".join(parts)


def identity_text(member: Member, team: Team, roster: str, task: Task | None, workspace: Path) -> str:
    """Name, role, team, lead, teammates, working directory, current task."""
    lines = [opening_line(member, team), roster, f"Working directory: {workspace}"]
    lines.append(f"Current task: #{task.id} {escape(task.subject)}" if task is not None else "You hold no task.")
    if team.goal and member.kind is MemberKind.LEAD:
        lines.append(f"Goal: {escape(team.goal)}")
    return "\n".join(lines)


def roster_text(member: Member, members: Iterable[Member]) -> str:
    others = [
        f"{other.name}" + (f" ({escape(other.role)})" if other.role else "")
        for other in members
        if other.key != member.key and other.kind in (MemberKind.TEAMMATE, MemberKind.EXTERNAL)
    ]
    lead = "You are the lead." if member.kind is MemberKind.LEAD else "The lead is `lead`."
    if (more := len(others) - MAX_NAMED) > 0:
        others[MAX_NAMED:] = [f"and {more} more (list_teammates names them)"]
    return f"{lead} Teammates: {', '.join(others) or 'none yet'}. The human is `user`."
