"""What a text that was not found probably meant: a word for the model that saves a second wrong guess."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

COMPARED_LINES = 3_000
COMPARED_CHARACTERS = 300
SHOWN_LINES = 12
ALIKE = 0.6

_NUMBERED = re.compile(r"^ *\d+\t", re.MULTILINE)


def hint(text: str, wanted: str) -> str:
    if _NUMBERED.match(wanted) and _NUMBERED.sub("", wanted) in text:
        return "It is there without the line numbers: leave them out."
    if "\ufffd" in wanted:
        return "The file is not UTF-8, and what is shown as \ufffd is another byte: choose text without it."
    lines = text.splitlines()
    start = _same_but_for_space(lines, wanted.splitlines())
    if start is not None:
        count = len(wanted.splitlines())
        return f"Only whitespace differs at line {start + 1}; it stands there as\n{_shown(lines, start, count)}"
    start = _most_alike(lines, wanted)
    if start is not None:
        return f"The most alike is line {start + 1}:\n{_shown(lines, start, min(3, len(wanted.splitlines())))}"
    return "Nothing like it is there: read the file again."


def _same_but_for_space(lines: list[str], wanted: list[str]) -> int | None:
    def squeezed(line: str) -> str:
        return "".join(line.split())

    pattern = [squeezed(line) for line in wanted]
    if not any(pattern):
        return None
    squeezed_lines = [squeezed(line) for line in lines]
    for start in range(len(lines) - len(pattern) + 1):
        if squeezed_lines[start : start + len(pattern)] == pattern:
            return start
    # A piece of one line.
    if len(pattern) == 1:
        return next((number for number, line in enumerate(squeezed_lines) if pattern[0] in line), None)
    return None


def _most_alike(lines: list[str], wanted: str) -> int | None:
    first = next((line.strip() for line in wanted.splitlines() if line.strip()), "")[:COMPARED_CHARACTERS]
    matcher = SequenceMatcher(b=first, autojunk=False)
    best, at = ALIKE, None
    for number, line in enumerate(lines[:COMPARED_LINES]):
        matcher.set_seq1(line.strip()[:COMPARED_CHARACTERS])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and matcher.ratio() > best:
            best, at = matcher.ratio(), number
    return at


def _shown(lines: list[str], start: int, count: int) -> str:
    shown = (line[:COMPARED_CHARACTERS] for line in lines[start : start + min(count, SHOWN_LINES)])
    return "\n".join(shown).encode("utf-8", "replace").decode()
