"""The names of the NOTIFY channels, and what is said on them.

A notice takes a lock of the whole server until its transaction has committed, so
each goes only to whom it concerns: one channel for each worker, one for those that
host wanted members, one for those that integrate, one for each team whose log somebody follows.
"""

from __future__ import annotations

from collections.abc import Hashable

from bullpen.stores.bells import SUBMISSIONS_TOPIC, WANTED_TOPIC, events_topic, member_topic
from bullpen.stores.transaction import MemberRing

WANTED = "bullpen_wanted"
SUBMISSIONS = "bullpen_submissions"
TEAM_PREFIX = "bullpen_t"
_WORKER_PREFIX = "bullpen_w"


def of_worker(worker_id: int) -> str:
    return f"{_WORKER_PREFIX}{worker_id}"


def of_team(team_id: int) -> str:
    return f"{TEAM_PREFIX}{team_id}"


def member_payload(ring: MemberRing) -> str:
    return f"{ring.team_id} {ring.name}"


def topic_in(name: str, payload: str, *, process: str) -> Hashable | None:
    """What a notice rings for; None if it makes no sense, or comes from this process, which has rung already."""
    if payload == process:
        return None
    if name == WANTED:
        return WANTED_TOPIC
    if name == SUBMISSIONS:
        return SUBMISSIONS_TOPIC
    if name.startswith(TEAM_PREFIX):
        number = name.removeprefix(TEAM_PREFIX)
        return events_topic(int(number)) if number.isdigit() else None
    number, _, member = payload.partition(" ")
    return member_topic(int(number), member) if number.isdigit() and member else None
