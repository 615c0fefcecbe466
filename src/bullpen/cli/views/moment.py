"""Moments and durations as people say them."""

from __future__ import annotations

from datetime import datetime


def clock(moment: datetime, now: datetime) -> str:
    """In the reader's own time zone; the date only if it is not today's."""
    here, today = moment.astimezone(), now.astimezone()
    return here.strftime("%H:%M:%S" if here.date() == today.date() else "%Y-%m-%d %H:%M:%S")


def duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d} min" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d} h"


def age(moment: datetime, now: datetime) -> str:
    seconds = max(0, int((now - moment).total_seconds()))
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
