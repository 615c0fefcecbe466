"""The head of a Markdown file: `name: value` between two lines of `---`, as skills and roles have it.

Only what is found there in practice, not YAML: plain and quoted values, block texts (`|`, `>`), lists on one line or
one item a line. Whatever else stands there is passed over; a file without a head is all body.
"""

from __future__ import annotations

import json
import re

_KEY = re.compile(r"([A-Za-z0-9_-]+)[ \t]*:(?:[ \t]+(.*)|)")
_BLOCK = re.compile(r"[|>][+-]?\d?[+-]?(?:\s+#.*)?")
_ITEM = re.compile(r"[ \t]*-(?:[ \t]+(.*)|)")


def split_front_matter(text: str) -> tuple[dict[str, str], str]:
    """The values by lower-case name, and the body. A list is one value with commas."""
    lines = text.removeprefix("\ufeff").splitlines()
    if not lines or lines[0].rstrip() != "---":
        return {}, text.removeprefix("\ufeff")
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() in ("---", "...")), None)
    if end is None:
        return {}, text
    return _values(lines[1:end]), "\n".join(lines[end + 1 :]).strip("\n")


def _values(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    at = 0
    while at < len(lines):
        match = _KEY.fullmatch(lines[at].rstrip())
        at += 1
        if match is None:
            continue
        inner: list[str] = []
        while at < len(lines) and (not lines[at].strip() or lines[at][0] in " \t" or _ITEM.fullmatch(lines[at])):
            inner.append(lines[at])
            at += 1
        found[match[1].lower()] = _value((match[2] or "").strip(), inner)
    return found


def _value(text: str, inner: list[str]) -> str:
    if _BLOCK.fullmatch(text):
        return _block(inner, folds=text[0] == ">")
    items = [match[1] or "" for line in inner if (match := _ITEM.fullmatch(line))]
    if not text and items:
        return ", ".join(_plain(item.strip()) for item in items)
    if text.startswith("[") and text.endswith("]"):
        return ", ".join(_plain(item.strip()) for item in text[1:-1].split(",") if item.strip())
    # A plain value may go on in indented lines.
    return _plain(" ".join([text, *(line.strip() for line in inner if line.strip())]).strip())


def _block(lines: list[str], *, folds: bool) -> str:
    margin = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    text = "\n".join(line[margin:].rstrip() for line in lines).strip("\n")
    return re.sub(r"(?<!\n)\n(?!\n)", " ", text) if folds else text


def _plain(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1].replace("''", "'")
    if len(text) > 1 and text[0] == text[-1] == '"':
        try:
            return str(json.loads(text))
        except ValueError:
            return text[1:-1]
    return re.sub(r"\s+#.*$", "", text)
