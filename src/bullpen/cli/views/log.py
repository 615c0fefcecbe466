"""A member's transcript for people: what it was told, said, called, and what came back."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from bullpen.cli.page import Page, Painted
from bullpen.cli.views.moment import clock
from bullpen.domain.transcript import Turn, TurnKind

# Of one piece, unless everything is wanted.
SHOWN_LINES = 6
SHOWN_CHARACTERS = 600
_FRAME = re.compile(r"<message (?P<attributes>[^>]*)>(?P<content>.*)</message>", re.DOTALL)
_ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')
_ESCAPES = (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&amp;", "&"))


def draw_turn(page: Page, turn: Turn, *, is_full: bool) -> None:
    """A turn of a kind that is not known here is shown as it is."""
    drawer = _Drawer(page, turn, is_full)
    match turn.kind:
        case TurnKind.USER:
            drawer.piece("told", "dim", str(turn.content["text"]))
        case TurnKind.MAIL:
            for entry in turn.content:
                drawer.message(str(entry["text"]))
        case TurnKind.ASSISTANT:
            for part in turn.content["parts"]:
                drawer.part(part)
        case TurnKind.TOOL_RESULT:
            is_error = bool(turn.content["is_error"])
            title = f"{turn.content['name']} {'failed' if is_error else 'gave'}"
            drawer.piece(title, "red" if is_error else "green", str(turn.content["text"]) or "(no output)")
        case TurnKind.COMPACTION:
            drawer.piece("remembers, instead of all before", "magenta", str(turn.content["text"]))
        case TurnKind.PRUNING:
            drawer.piece(f"sees {len(turn.content['calls'])} old results no longer", "dim", "")
        case _:
            drawer.piece(turn.kind, "dim", json.dumps(turn.content, ensure_ascii=False))


class _Drawer:
    def __init__(self, page: Page, turn: Turn, is_full: bool) -> None:
        self._page = page
        self._turn = turn
        self._is_full = is_full

    def piece(self, title: str, style: str, text: str) -> None:
        page, turn = self._page, self._turn
        page.line(Painted(f"{turn.seq:>4} {clock(turn.created_at, page.terminal.now)} ", "dim"), Painted(title, style))
        if not text.strip():
            return
        shown, left = (text, "") if self._is_full else _shortened(text)
        page.block(shown, indent=6)
        if left:
            page.line(Painted(f"      … {left}; --full shows all", "dim"))

    def message(self, framed: str) -> None:
        found = _FRAME.fullmatch(framed)
        if found is None:
            self.piece("mail", "cyan", framed)
            return
        attributes = {name: _unescaped(value) for name, value in _ATTRIBUTE.findall(found["attributes"])}
        kind = attributes.get("type", "message").replace("_", " ")
        facts = [attributes.get("origin", "")] + [kind] * (kind != "message")
        if "request_id" in attributes:
            facts.append(f"request {attributes['request_id']}")
        title = f"mail {attributes.get('id', '')} from {attributes.get('from', '?')} ({', '.join(filter(None, facts))})"
        self.piece(title, "cyan", _unescaped(found["content"]))

    def part(self, part: Mapping[str, Any]) -> None:
        match part.get("type"):
            case "text" if str(part["text"]).strip():
                self.piece("says", "bold", str(part["text"]))
            case "thinking" if str(part.get("text") or "").strip():
                self.piece("thinks", "dim", str(part["text"]))
            case "call":
                self.piece(f"calls {part['name']}", "yellow", arguments_text(part.get("arguments") or {}))


def arguments_text(arguments: Mapping[str, Any]) -> str:
    """One line for each; a text of several lines below its name."""
    lines = []
    for name, value in arguments.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        between = "\n" if "\n" in text.strip() else " "
        lines.append(f"{name}:{between}{text}")
    return "\n".join(lines)


def _shortened(text: str) -> tuple[str, str]:
    """What is shown of it, and in words what is not."""
    lines = text.rstrip("\n").split("\n")
    kept = "\n".join(lines[:SHOWN_LINES])
    if len(kept) > SHOWN_CHARACTERS:
        return kept[:SHOWN_CHARACTERS], f"{len(text) - SHOWN_CHARACTERS:,} more characters"
    more = len(lines) - SHOWN_LINES
    return kept, "" if more <= 0 else "1 more line" if more == 1 else f"{more:,} more lines"


def _unescaped(text: str) -> str:
    for escaped, character in _ESCAPES:
        text = text.replace(escaped, character)
    return text
