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


def parse_request_id(text: str) -> int:
    number = _parse(text.strip().removeprefix("#"))
    if not number:
        raise UsageError(f"{text[:40]!r} is not the number of a request; `bullpen team show` lists the open ones")
    return number


def parse_amount(text: str, what: str, *, minimum: float | None = None) -> float:
    """Money, tokens, minutes, seconds: `5`, `$5`, `1,000`. Above 0, unless a minimum is allowed itself."""
    try:
        number = float(text.strip().removeprefix("$").replace(",", "").replace("_", ""))
    except ValueError:
        number = -1.0
    is_enough = number > 0 if minimum is None else number >= minimum
    if not is_enough or not number < float("inf"):
        least = "above 0" if minimum is None else f"of at least {minimum:g}"
        raise UsageError(f"{what} takes a number {least}, not {text[:40]!r}")
    return number


def _parse(digits: str) -> int | None:
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 15:
        return None
    return int(digits)
