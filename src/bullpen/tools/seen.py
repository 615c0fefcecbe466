"""Stale writes: what a member knows of each file, so that nobody writes over what it has not seen.

A file is known by its content: whatever changed it (another member, a command, a person) changes its digest.
The ledger, shared by all members of a process, only tells who it was.
"""

from __future__ import annotations

import hashlib
import os
from datetime import UTC, datetime

from bullpen.errors import ToolError
from bullpen.tool import ToolContext
from bullpen.tools.fence import Place

Ledger = dict[str, tuple[str, float]]
"""By path: which member's file tool wrote it last, and the modification time that this gave the file."""


class FilesSeen:
    """Of one member."""

    def __init__(self, context: ToolContext) -> None:
        self._name = context.member.name
        given: Ledger | None = context.settings.get("file_ledger")
        self._ledger: Ledger = {} if given is None else given
        self._digests: dict[str, bytes] = {}

    @property
    def paths(self) -> tuple[str, ...]:
        """Latest last."""
        return tuple(self._digests)

    def note_read(self, place: Place, data: bytes) -> None:
        path = str(place.path)
        self._digests.pop(path, None)
        self._digests[path] = _digest(data)

    def note_written(self, place: Place, data: bytes, found: os.stat_result) -> None:
        self.note_read(place, data)
        self._ledger[str(place.path)] = (self._name, found.st_mtime)

    def check(self, place: Place, data: bytes, found: os.stat_result) -> None:
        """ToolError unless this member has seen exactly this content."""
        known = self._digests.get(str(place.path))
        if known == _digest(data):
            return
        who = self._who(place, found)
        if known is None:
            raise ToolError(f"{place.shown} exists and you have not read it{who and f' ({who})'}: read_file it first")
        raise ToolError(
            f"{place.shown} has changed since you read it: {who or 'by somebody else, or a command'}. "
            "Nothing was written. read_file it again, then make your change to what it is now"
        )

    def _who(self, place: Place, found: os.stat_result) -> str:
        name, at = self._ledger.get(str(place.path), ("", 0.0))
        if not name or (name == self._name and found.st_mtime != at):
            return ""
        moment = f"{datetime.fromtimestamp(at, UTC):%H:%M:%S} UTC"
        since = "" if found.st_mtime == at else ", and by somebody else or a command since"
        return f"{'you' if name == self._name else name} wrote it at {moment}{since}"


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
