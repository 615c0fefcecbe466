"""Text on its way to a terminal: made harmless, measured, cut.

Invariant: what `one_line`, `lines` and `json_text` return contains no character
that steers a terminal (escape sequences begin with one) or turns the direction
of writing. Such characters are shown as `\\x1b`, so that one sees who tried.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

# C0 (without tab and newline), DEL, C1; then what is invisible or reorders text: soft hyphen, bidirectional marks and
# overrides, line separators, invisible operators, byte order mark, annotations, tags; and lone surrogates.
_STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\U000e0000-\U000e007f\ud800-\udfff]"
)

_STYLE = re.compile(r"\x1b\[\d+m")


def one_line(text: str) -> str:
    """Harmless, and without line breaks."""
    return _STEERING.sub(_shown, " ".join(text.split()))


def lines(text: str) -> list[str]:
    """Harmless, line by line."""
    plain = text.replace("\r\n", "\n").rstrip("\n")
    return [_STEERING.sub(_shown, line.expandtabs(4)) for line in plain.split("\n")]


def json_text(document: Any, *, indent: int | None = None) -> str:
    """JSON that people can read in their own script and that is harmless on a terminal too."""
    try:
        written = json.dumps(document, ensure_ascii=False, indent=indent, allow_nan=False)
    except ValueError:
        written = json.dumps(_finite(document), ensure_ascii=False, indent=indent)
    # Inside a JSON text these characters can stand only in strings, where an escape means the same.
    return _STEERING.sub(lambda match: json.dumps(match.group())[1:-1], written)


def _finite(value: Any) -> Any:
    """Other programs write NaN and Infinity, which JSON has not: they become null, as in JavaScript."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _shown(match: re.Match[str]) -> str:
    number = ord(match.group())
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def width_of(text: str) -> int:
    """In columns of a terminal."""
    return len(text) if text.isascii() else sum(map(_width, text))


def _width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def cut(text: str, width: int) -> str:
    """At most `width` columns; what was cut off is shown as `…`."""
    if width_of(text) <= width:
        return text
    kept, used = [], 0
    for character in text:
        used += _width(character)
        if used > width - 1:
            break
        kept.append(character)
    return "".join(kept).rstrip() + "…" if width > 0 else ""


def wrapped(line: str, width: int) -> list[str]:
    """Its pieces of at most `width` columns, broken between words where that is possible. Never empty."""
    pieces, rest = [], line.rstrip()
    while width_of(rest) > width:
        fits = _fitting(rest, max(width, 2))
        blank = rest.rfind(" ", 1, fits + 1)
        end = blank if blank > 0 and rest[:blank].strip() else fits
        pieces.append(rest[:end].rstrip())
        rest = rest[end:].lstrip(" ")
    return [*pieces, rest]


def _fitting(text: str, width: int) -> int:
    """How many characters fit."""
    used = 0
    for number, character in enumerate(text):
        used += _width(character)
        if used > width:
            return max(number, 1)
    return len(text)


def rows_of(lines: Sequence[str], columns: int) -> int:
    """How many rows lines take that were painted for a terminal which may have become narrower since."""
    return sum(max(1, -(-width_of(_STYLE.sub("", line)) // columns)) for line in lines)


def pad(text: str, width: int) -> str:
    return text + " " * (width - width_of(text))
