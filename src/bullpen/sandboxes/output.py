"""What commands print: numbered files below the private directory, and the excerpt that a model gets to see."""

from __future__ import annotations

import codecs
import os
from pathlib import Path

LIMIT_BYTES = 50_000_000
"""What is kept of one command's output; enforced by its keeper."""

_NOTE_CHARACTERS = 120


class OutputDirectory:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._next = 0

    def create(self) -> tuple[int, Path]:
        """A new file, open for writing. Its number is higher than any before, also those of earlier workers."""
        self._next = self._next or 1 + max(
            (int(p.stem) for p in self.path.glob("*.txt") if p.stem.isdigit()), default=0
        )
        while True:
            path = self.path / f"{self._next:06d}.txt"
            self._next += 1
            try:
                return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600), path
            except FileExistsError:
                continue  # by another process, between our look and now


def excerpt(path: Path, limit: int) -> str:
    """At most `limit` characters: all of it, or head and tail with a line between that says what is left out."""
    half = max(0, (limit - _NOTE_CHARACTERS - len(str(path))) // 2)
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        # No character is longer than four bytes, so what is longer than this cannot fit.
        if size <= 4 * limit:
            text = file.read().decode(errors="replace")
            if len(text) <= limit:
                return text
            head, tail, left_out = text[:half], text[len(text) - half :], f"{len(text) - 2 * half:,} characters"
        else:
            head = _decode_head(file.read(4 * half))[:half]
            file.seek(size - 4 * half)
            rest = _decode_tail(file.read(4 * half))
            tail = rest[max(0, len(rest) - half) :]
            left_out = f"about {size - len(head.encode()) - len(tail.encode()):,} bytes"
    return f"{head}\n[… {left_out} left out; the whole output is in {path} …]\n{tail}"


def _decode_head(data: bytes) -> str:
    """Without a character that is cut at the end."""
    return codecs.getincrementaldecoder("utf-8")(errors="replace").decode(data)


def _decode_tail(data: bytes) -> str:
    """Without the rest of a character that was cut at the beginning."""
    start = 0
    while start < min(3, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:].decode(errors="replace")
