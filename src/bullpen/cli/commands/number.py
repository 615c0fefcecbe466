"""Numbers that people type, other than those of tasks."""

from __future__ import annotations

from bullpen.errors import UsageError


def parse_count(text: str, what: str) -> int:
    number = _parse(text)
    if not number:
        raise UsageError(f"{what} is a number from 1 on, not {text[:40]!r}")
    return number


def parse_message_id(text: str) -> int:
    number = _parse(text.strip().removeprefix("#"))
    if not number:
        raise UsageError(f"{text[:40]!r} is not the number of a message; `bullpen inbox` shows them")
    return number


def _parse(digits: str) -> int | None:
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 15:
        return None
    return int(digits)
