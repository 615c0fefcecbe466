"""Tasks, members and mail as a model reads them: escaped, complete, and no longer than needed."""

from __future__ import annotations

from collections.abc import Sequence

from bullpen.domain.member import Member
from bullpen.domain.message import escape
from bullpen.domain.task import Task, TaskStatus, commit_of, format_ids


def task_line(task: Task, *, overlap: str = "") -> str:
    marks = [str(task.status)]
    if task.verifying:
        marks.append("verifying")
    if task.submission is not None:
        marks.append("integrating")
    if task.status is TaskStatus.PENDING and task.open_blockers:
        marks.append(f"blocked by {format_ids(task.blocked_by)}")
    if task.owner:
        marks.append(f"owner {task.owner}")
    if task.role:
        marks.append(f"role {task.role}")
    if overlap:
        marks.append(overlap)
    return f"#{task.id} [{', '.join(marks)}] {task.subject}"


def task_frame(task: Task, blockers: Sequence[Task] = (), *, overlap: str = "") -> str:
    """The task as it is handed over: with what its blockers left behind, and whoever had it before."""
    lines = [f'<task id="{task.id}">', escape(task.subject)]
    if task.description:
        lines += ["", escape(task.description)]
    if task.check:
        lines += ["", f"Check (must exit 0 before this is completed): {escape(task.check)}"]
    if task.files:
        lines += ["", f"Files: {escape(', '.join(task.files))}"]
    if overlap:
        lines += ["", f"Its {escape(overlap)}: change there only what you must, or talk to each other."]
    for blocker in blockers:
        author = escape(blocker.owner or "nobody")
        commit = f' commit="{escape(found)}"' if (found := commit_of(blocker)) else ""
        lines += [
            "",
            f'<result task="{blocker.id}" by="{author}"{commit}>{escape(blocker.result or "(none given)")}</result>',
        ]
    for handover in task.handovers:
        lines += ["", f'<handover by="{escape(handover.by)}">{escape(handover.note)}</handover>']
    return "\n".join([*lines, "</task>"])


def task_details(task: Task, *, overlap: str = "") -> str:
    lines = [task_line(task, overlap=overlap)]
    if task.description:
        lines.append(task.description)
    facts = {
        "blocks": format_ids(task.blocks) if task.blocks else "",
        "check": task.check or "",
        "files": ", ".join(task.files),
        "result": task.result or "",
        "created by": task.created_by,
    }
    lines += [f"{name}: {value}" for name, value in facts.items() if value]
    if task.evidence is not None:
        lines.append(f"evidence: `{task.evidence.command}` exited {task.evidence.exit_code}\n{task.evidence.tail}")
    lines += [f"hand-over by {handover.by}: {handover.note}" for handover in task.handovers]
    return "\n".join(lines)


def member_line(member: Member, task: Task | None) -> str:
    role = f", role {member.role}" if member.role else ""
    doing = f", works on #{task.id} {task.subject}" if task is not None else ""
    why = f" ({member.status_reason})" if member.status_reason else ""
    return f"{member.name}: {member.kind}{role}, {member.status}{why}{doing}"
