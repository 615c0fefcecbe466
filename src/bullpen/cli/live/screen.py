"""A terminal on which news scroll by, and the last lines, which show how things stand, are drawn anew."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence

from bullpen.cli.text import rows_of


class Screen:
    def __init__(self) -> None:
        self._drawn: list[str] = []

    def show(self, news: Sequence[str], picture: Sequence[str]) -> None:
        size = shutil.get_terminal_size()
        # What has scrolled out of sight cannot be drawn anew: a small window shows the last lines only.
        shown = list(picture)[-max(size.lines - 2, 1) :]
        if not news and shown == self._drawn:
            return
        lines = [*news, *shown]
        sys.stdout.write(self._erase(size.columns) + "".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
        self._drawn = shown

    def _erase(self, columns: int) -> str:
        rows = rows_of(self._drawn, columns)
        return f"\x1b[{rows}A\r\x1b[J" if rows else ""
