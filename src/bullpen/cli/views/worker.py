"""Workers: whom they take and let go, and which there are."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from bullpen.cli.page import Column, Page, Painted, Part
from bullpen.cli.views.moment import age, clock
from bullpen.domain.codec import encode
from bullpen.domain.member import Liveness
from bullpen.team.service import Post, Staff
from bullpen.worker.worker import Change

COLUMNS = (
    Column("WORKER"),
    Column("HOST", min_width=8),
    Column("STATE", min_width=8),
    Column("SINCE", min_width=6, spare=3),
    Column("RENEWED", min_width=8, spare=4),
    Column("LEASE", spare=5),
    Column("SLOTS", spare=1),
    Column("LABELS", min_width=6, spare=2),
    Column("MEMBERS", is_flexible=True, min_width=12),
)
_STYLES = {"alive": "green", "left": "dim"}


def draw_change(page: Page, change: Change, now: datetime) -> None:
    style = "cyan" if change.what == "taken" else "dim"
    who = f"{change.member.name}@{change.team}"
    why = f": {change.why}" if change.why else ""
    page.line(Painted(clock(now, now), "dim"), " ", Painted(f"{change.what:<5}", style), f" {who}{why}")


def draw_staff(page: Page, staff: Staff) -> None:
    if staff.posts:
        page.table(COLUMNS, [_row(post, page.terminal.now) for post in staff.posts])
    else:
        page.line("no workers: `bullpen worker` hosts members here, `bullpen run` those of its own team")
    if count := len(staff.waiting):
        who = "1 member waits" if count == 1 else f"{count} members wait"
        page.line(Painted(f"{who} for a place: `bullpen worker`, or more --slots", "yellow"))


def post_document(post: Post, now: datetime) -> dict[str, Any]:
    return {
        **encode(post.worker),
        "state": state_of(post, now),
        "used": post.used,
        "free": max(0, post.worker.slots - post.used),
        "members": [
            {"name": one.member.name, "team": one.team, "status": one.member.status, "role": one.member.role}
            for one in post.hosted
        ],
    }


def state_of(post: Post, now: datetime) -> str:
    """Dead only where that is proved; who cannot be asked and is silent for longer than its lease is only that."""
    worker = post.worker
    if worker.stopped_at is not None:
        return "died" if "died" in worker.stop_reason else "left"
    if post.liveness is Liveness.DEAD:
        return "dead"
    is_late = (now - worker.renewed_at).total_seconds() > worker.lease_seconds
    if is_late:
        return "silent"
    return "alive" if post.liveness is Liveness.ALIVE else "renews"


def _row(post: Post, now: datetime) -> Sequence[Part]:
    worker, state = post.worker, state_of(post, now)
    return (
        str(worker.id),
        f"{worker.host}:{worker.pid}",
        Painted(state, _STYLES.get(state, "red" if state in ("dead", "died", "silent") else "")),
        age(worker.started_at, now),
        f"{age(worker.renewed_at, now)} ago",
        f"{worker.lease_seconds:g} s",
        f"{post.used}/{worker.slots}" if worker.slots else "",
        ",".join(post.labels),
        ", ".join(f"{one.member.name}@{one.team} {one.member.status}" for one in post.hosted),
    )
