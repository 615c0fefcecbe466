"""The log as news: one line for what a person wants to hear of, nothing for the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from zlib import crc32

from bullpen.cli.page import Page, Painted, Part
from bullpen.cli.text import pad
from bullpen.cli.views.moment import clock
from bullpen.domain.event import Event, EventKind
from bullpen.domain.member import LEAD, SYSTEM, USER, MemberStatus
from bullpen.domain.message import MessageType
from bullpen.domain.request import RequestKind
from bullpen.team.progress import LEFT_IN_ORDER, Progress

NAME_WIDTH = 9
TIME_FROM_WIDTH = 60
Parts = list[Part]


def draw_news(page: Page, event: Event, progress: Progress) -> bool:
    """False if there is nothing to tell. `progress` has followed this event already."""
    tell = _NEWS.get(event.kind)
    parts = None if tell is None else tell(event.data, progress, event)
    if not parts:
        return False
    page.line(*head_of(page, event.at, str(event.data.get("member") or event.actor)), *parts, is_cut=True)
    return True


def head_of(page: Page, at: datetime, who: str) -> Parts:
    """When, and who; where there is little room only who."""
    name: Parts = [Painted(pad(who, NAME_WIDTH), style_of(who)), " "]
    if page.terminal.width is not None and page.terminal.width < TIME_FROM_WIDTH:
        return name
    return [Painted(clock(at, page.terminal.now), "dim"), " ", *name]


def style_of(name: str) -> str:
    """Always the same colour for the same name."""
    if name == LEAD:
        return "bold"
    if name == SYSTEM:
        return "dim"
    styles = ("cyan", "magenta", "blue", "yellow", "green")
    return styles[crc32(name.encode()) % len(styles)]


def _subject(data: Mapping[str, Any], progress: Progress) -> str:
    task = progress.tasks.get(int(data["task"]))
    return f"#{data['task']} {task.subject if task is not None else ''}".strip()


# -- what is told ---------------------------------------------------------------------------------------------


def _spawned(data: Mapping[str, Any], progress: Progress, event: Event) -> Parts:
    role = f" as {data['role']}" if data.get("role") else ""
    match data.get("outcome"):
        case None | "created":
            return [f"joins the team{role}"]
        case "revived":
            return [f"is back{role}"]
    # It was there all the time: its prompt is told as the mail that it is.
    return []


def _created(data: Mapping[str, Any], progress: Progress, event: Event) -> Parts:
    waits = data.get("blocked_by") or ()
    after = f" (after {', '.join(f'#{number}' for number in waits)})" if waits else ""
    return [f"adds #{data['task']} {data.get('subject', '')}{after}"]


def _claimed(data: Mapping[str, Any], progress: Progress, event: Event) -> Parts:
    overlaps = ", ".join(f"#{number}" for number in data.get("overlaps", ()))
    remark = f" (files overlap with {overlaps})" if overlaps else ""
    return ["takes ", Painted(_subject(data, progress), "cyan"), Painted(remark, "dim")]


def _passed_over(data: Mapping[str, Any], progress: Progress, event: Event) -> Parts:
    others = ", ".join(f"#{number}" for number in data.get("overlaps", ()))
    return [Painted(f"leaves #{data['task']} aside: its files overlap with {others} of {data.get('owner')}", "dim")]


def _written_outside(data: Mapping[str, Any], progress: Progress, event: Event) -> Parts:
    return [Painted(f"writes {data.get('path')}, which is not among the files of #{data.get('task')}", "yellow")]


def _completed(data: Mapping[str, Any], progress: Progress, event: Event) -> Parts:
    result = f": {data['result']}" if data.get("result") else ""
    return [Painted("✓ ", "green"), Painted(_subject(data, progress), "green"), result]


def _failed(data: Mapping[str, Any], progress: Progress, event: Event) -> Parts:
    reason = f": {data['reason']}" if data.get("reason") else ""
    return [Painted("✗ ", "red"), Painted(_subject(data, progress), "red"), reason]


def _released(data: Mapping[str, Any], progress: Progress, event: Event) -> Parts:
    return [f"{_subject(data, progress)} is free again" + (f": {data['note']}" if data.get("note") else "")]


def _checked(data: Mapping[str, Any], progress: Progress, event: Event) -> Parts:
    code = data.get("exit_code")
    if code == 0:
        return [f"check of #{data['task']} ", Painted("passed", "green")]
    said = f": {data['text']}" if data.get("text") else ""
    return [f"check of #{data['task']} ", Painted(f"failed (exit code {code})", "yellow"), said]


def _refused(data: Mapping[str, Any], progress: Progress, event: Event) -> Parts:
    what = _subject(data, progress) if "task" in data else "its work"
    return [f"{what} is ", Painted("not integrated", "yellow"), f": {data.get('why', '')}"]


def _message(data: Mapping[str, Any], progress: Progress, event: Event) -> Parts:
    if data.get("type") in (MessageType.RESULT, MessageType.NOTICE) and data.get("to") != USER:
        return []
    if data.get("request"):
        return []
    style = "yellow" if data.get("to") == USER or data.get("type") == MessageType.ERROR else ""
    return [Painted(f"→ {data.get('to')}: ", "dim"), Painted(str(data.get("text", "")), style)]


def _asked(data: Mapping[str, Any], progress: Progress, event: Event) -> Parts:
    number, kind = data["request"], data["request_kind"]
    if kind == RequestKind.SHUTDOWN and progress.is_deleted:
        return []
    return [Painted(f"asks {data['asked']} ({kind}, request {number}): ", "yellow"), str(data.get("text", ""))]


def _decided(data: Mapping[str, Any], progress: Progress, event: Event) -> Parts:
    if data.get("approved") is None:
        return [f"request {data['request']} is {data.get('status')}"]
    if data["request_kind"] == RequestKind.SHUTDOWN and data["approved"]:
        # That it shuts down is told by itself.
        return []
    verdict = Painted("approves", "green") if data["approved"] else Painted("rejects", "red")
    reason = f": {data['reason']}" if data.get("reason") else ""
    return [verdict, f" the {data['request_kind']} of {data['asker']} (request {data['request']}){reason}"]


def _ended(data: Mapping[str, Any], progress: Progress, event: Event) -> Parts:
    text = str(data.get("result", ""))
    if not text or (data.get("member") != LEAD and data.get("why") != "error"):
        return []
    return [Painted(text, "red" if data.get("why") == "error" else "bold")]


def _lapsed(data: Mapping[str, Any], progress: Progress, event: Event) -> Parts:
    if data.get("reason") == LEFT_IN_ORDER:
        return []
    then = "waits for a worker" if data.get("status") == MemberStatus.WANTED else f"is {data.get('status')}"
    return [Painted(f"is gone ({data.get('reason', '')}) and {then}", "red")]


def _hosted(data: Mapping[str, Any], progress: Progress, event: Event) -> Parts:
    if int(data.get("incarnation", 1)) <= 2:
        return []
    return [Painted(f"is back on worker {data.get('worker')}, with its memory", "green")]


def _reserved(data: Mapping[str, Any], progress: Progress, event: Event) -> Parts:
    return [f"keeps {_subject(data, progress)} for {data.get('owner')}"]


def _shut_down(data: Mapping[str, Any], progress: Progress, event: Event) -> Parts:
    return [Painted(f"shuts down ({data.get('reason', '')})", "dim")]


def _hook_refused(data: Mapping[str, Any], progress: Progress, event: Event) -> Parts:
    about = f" #{data['task']}" if data.get("task") else ""
    return [Painted(f"{data.get('hook')}{about} is refused: ", "yellow"), str(data.get("text", ""))]


def _background_ended(data: Mapping[str, Any], progress: Progress, event: Event) -> Parts:
    return [f"bg-{data.get('background', '?')} {data.get('state', 'ended')}"]


def _budget(data: Mapping[str, Any], progress: Progress, event: Event) -> Parts:
    return [Painted(str(data.get("why") or "the budget is spent"), "yellow")]


def _budget_warned(data: Mapping[str, Any], progress: Progress, event: Event) -> Parts:
    spent, value = float(data.get("spent", 0)), float(data.get("value", 0))
    return [Painted(f"{spent:.10g} of {data.get('limit')} = {value:.10g} is spent", "yellow")]


def _changed(data: Mapping[str, Any], progress: Progress, event: Event) -> Parts:
    settings = data.get("settings") or {}
    if "paused" in settings:
        return [Painted("pauses the team" if settings["paused"] else "lets the team go on", "yellow")]
    if "budget" in settings:
        return ["changes the budget"]
    return []


def _interrupted(data: Mapping[str, Any], progress: Progress, event: Event) -> Parts:
    return [Painted("is interrupted", "yellow")]


def _deleted(data: Mapping[str, Any], progress: Progress, event: Event) -> Parts:
    return [f"deletes team {progress.team}"]


def _named(data: Mapping[str, Any], progress: Progress, event: Event) -> Parts:
    return [f"calls the team {data.get('name', '')}"]


_NEWS: Mapping[str, Callable[[Mapping[str, Any], Progress, Event], Parts]] = {
    EventKind.TEAM_RENAMED: _named,
    EventKind.TEAM_CHANGED: _changed,
    EventKind.TEAM_DELETED: _deleted,
    EventKind.MEMBER_SPAWNED: _spawned,
    EventKind.MEMBER_JOINED: _spawned,
    EventKind.MEMBER_HOSTED: _hosted,
    EventKind.MEMBER_LAPSED: _lapsed,
    EventKind.MEMBER_SHUT_DOWN: _shut_down,
    EventKind.MEMBER_INTERRUPTED: _interrupted,
    EventKind.TASK_CREATED: _created,
    EventKind.TASK_CLAIMED: _claimed,
    EventKind.TASK_PASSED_OVER: _passed_over,
    EventKind.FILE_WRITTEN_OUTSIDE: _written_outside,
    EventKind.TASK_COMPLETED: _completed,
    EventKind.TASK_FAILED: _failed,
    EventKind.TASK_RELEASED: _released,
    EventKind.TASK_RESERVED: _reserved,
    EventKind.TASK_CHECK_FINISHED: _checked,
    EventKind.WORK_REFUSED: _refused,
    EventKind.MESSAGE_SENT: _message,
    EventKind.REQUEST_OPENED: _asked,
    EventKind.REQUEST_CLOSED: _decided,
    EventKind.PHASE_ENDED: _ended,
    EventKind.HOOK_REFUSED: _hook_refused,
    EventKind.BACKGROUND_ENDED: _background_ended,
    EventKind.BUDGET_WARNED: _budget_warned,
    EventKind.BUDGET_REFUSED: _budget,
}
