"""Moments and durations as people say them."""

from __future__ import annotations

from datetime import datetime


def clock(moment: datetime, now: datetime) -> str:
    """In the reader's own time zone; the date only if it is not today's."""
    here, today = moment.astimezone(), now.astimezone()
    return here.strftime("%H:%M:%S" if here.date() == today.date() else "%Y-%m-%d %H:%M:%S")


def age(moment: datetime, now: datetime) -> str:
    seconds = max(0, int((now - moment).total_seconds()))
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
