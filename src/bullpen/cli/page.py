"""What people read: lines, fields, blocks and tables, made harmless on the way.

Views hand over plain text, or `Painted` text with a style; only here are escape
sequences made, after the text has lost its own. Blocks are indented, so no text
of an agent can pose as a field.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bullpen.cli import text
from bullpen.cli.terminal import Terminal

LABEL_WIDTH = 12
MIN_FLEXIBLE = 20
# Beyond this a column is not padded when nothing is cut: one long subject must not push everything away.
MAX_PADDING = 60


class Painted(NamedTuple):
    text: str
    style: str


Part = str | Painted


@dataclass(frozen=True)
class Column:
    title: str
    is_flexible: bool = False
    """Takes the room that the others leave."""
    min_width: int = 6
    spare: int = 0
    """Above 0: left out where there is no room even for what is cut, the highest number first."""


class Page:
    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal
        self.lines: list[str] = []

    def line(self, *parts: Part, is_cut: bool = False) -> None:
        """One line; cut to the terminal if it is an entry of a list."""
        room = self.terminal.width if is_cut else None
        written = []
        for part in parts:
            content, style = part if isinstance(part, Painted) else (part, "")
            # Blanks between parts are the view's own; only text with other whitespace is folded.
            plain = content if content.isspace() else _keep_ends(content)
            if room is not None:
                whole, plain = plain, text.cut(plain, room)
                # What was cut ends the line, also where a wide character has left a column free.
                room = room - text.width_of(plain) if plain == whole else 0
            written.append(self.terminal.paint(plain, style))
        self.lines.append("".join(written).rstrip())

    def field(self, label: str, *parts: Part) -> None:
        self.line(Painted(label, "dim"), " " * max(1, LABEL_WIDTH - len(label)), *parts)

    def block(self, content: str, *, indent: int = 2) -> None:
        """Text of any length, whole."""
        for line in text.lines(content):
            self.lines.append((" " * indent + line).rstrip())

    def prose(self, content: str, *, indent: int = 2, style: str = "") -> None:
        """Text of any length, whole, broken between words to the width of the terminal."""
        for line in text.lines(content):
            width = self.terminal.width
            pieces = [line] if width is None else text.wrapped(line, width - indent)
            self.lines += [(" " * indent + self.terminal.paint(piece, style)).rstrip() for piece in pieces]

    def gap(self) -> None:
        if self.lines and self.lines[-1]:
            self.lines.append("")

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[Part]]) -> None:
        """Columns that say nothing are left out."""
        cells = [[_cell(part) for part in row] for row in rows]
        used = [index for index in range(len(columns)) if any(row[index].text for row in cells)]
        used = self._without_spare(used, columns, cells)
        shown = [columns[index] for index in used]
        widths = self._widths(shown, [[row[index].text for index in used] for row in cells])
        self._row([Painted(column.title, "dim") for column in shown], widths)
        for row in cells:
            self._row([row[index] for index in used], widths)

    def _without_spare(
        self, used: list[int], columns: Sequence[Column], cells: Sequence[Sequence[Painted]]
    ) -> list[int]:
        least = {
            index: min(columns[index].min_width, max(text.width_of(columns[index].title), *_widths_in(cells, index)))
            for index in used
        }
        room = self.terminal.width
        while room is not None and sum(least[index] + 2 for index in used) - 2 > room:
            spare = max(used, key=lambda index: columns[index].spare)
            if not columns[spare].spare:
                break
            used = [index for index in used if index != spare]
        return used

    def _row(self, cells: Sequence[Painted], widths: Sequence[int]) -> None:
        written = []
        for (content, style), width in zip(cells, widths, strict=True):
            shown = content if self.terminal.width is None else text.cut(content, width)
            written.append(self.terminal.paint(shown, style) + " " * (width - text.width_of(shown)))
        self.lines.append("  ".join(written).rstrip())

    def _widths(self, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[int]:
        widths = [
            max([text.width_of(column.title), *(text.width_of(row[index]) for row in rows)])
            for index, column in enumerate(columns)
        ]
        if self.terminal.width is None:
            return [min(width, MAX_PADDING) for width in widths]
        return _fitted(columns, widths, self.terminal.width)


def _fitted(columns: Sequence[Column], widths: Sequence[int], room: int) -> list[int]:
    """Take from the flexible column first, then from whichever other is widest."""
    fitted = list(widths)
    over = sum(fitted) + 2 * (len(fitted) - 1) - room
    for index, column in enumerate(columns):
        if column.is_flexible and over > 0:
            taken = max(0, min(over, fitted[index] - MIN_FLEXIBLE))
            fitted[index] -= taken
            over -= taken
    while over > 0:
        index = max(range(len(fitted)), key=lambda each: fitted[each] - columns[each].min_width)
        if fitted[index] <= columns[index].min_width:
            break
        fitted[index] -= 1
        over -= 1
    return fitted


def _widths_in(cells: Sequence[Sequence[Painted]], index: int) -> list[int]:
    return [text.width_of(row[index].text) for row in cells]


def _cell(part: Part) -> Painted:
    content, style = part if isinstance(part, Painted) else (part, "")
    return Painted(text.one_line(content), style)


def _keep_ends(content: str) -> str:
    """Harmless and on one line, with the blanks that separate it from its neighbours."""
    inner = text.one_line(content)
    before = " " * (len(content) - len(content.lstrip(" ")))
    after = " " * (len(content) - len(content.rstrip(" ")))
    return f"{before}{inner}{after}"
