"""One member's mail: an inbox file that only grows, and a note of how far it was taken.

Everything before `cursor` has been dealt with; behind it, `done` lists ids that
were taken out of order and `passed` the offsets of lines that were quarantined.
So sending is one append, looking changes nothing, and what another program
appends at any moment is found behind the cursor.

- A line that we wrote carries an id. A foreign one gets an id that follows from
  where it stands, the same at every look.
- Other programs empty an inbox when they read it. Then the bytes before the cursor
  are not those that we saw: a new epoch begins at the start of the file, and ids of
  foreign lines of different epochs differ.
- A last line without newline is mail if it is a whole object, else it is still being
  written. A torn line is quarantined; what was appended to it is saved.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from bullpen.domain.codec import decode, encode
from bullpen.domain.message import RUNTIME_TYPES, Message, MessageType, Origin
from bullpen.domain.record import replace
from bullpen.domain.text import name_key
from bullpen.stores.files.foreign import moment_of, number_of, pick, text_of
from bullpen.stores.files.form import file_bytes, line_bytes, parse_foreign, parse_object
from bullpen.stores.files.layout import DEFAULT_FOREIGN, TEAMS, Home
from bullpen.stores.files.view import View

FIRST_FOREIGN_ID = 1 << 40
_HASH_BITS = 20
_MARK_LENGTH = 64
_CHUNK = 1 << 16
_MAX_HEADS = 20
_ORIGINS = frozenset(Origin)
_OWN_KEYS = frozenset(
    {
        "id",
        "type",
        "msg_type",
        "from",
        "sender",
        "to",
        "content",
        "timestamp",
        "origin",
        "request_id",
        "reply_to",
        "wakes",
    }
)


@dataclass(frozen=True, slots=True)
class Cursor:
    offset: int = 0
    mark: int = 0
    """A checksum of the bytes before the offset."""
    epoch: int = 0
    done: tuple[int, ...] = ()
    passed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """One line. `reason` says why a part of it, or all, is no message."""

    offset: int
    end: int
    message: Message | None
    reason: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Source:
    """One file that holds mail of the member."""

    label: str
    path: str


@dataclass(slots=True)
class Inbox:
    view: View
    home: Home
    team_id: int
    name: str
    now: datetime
    next_message_id: int
    _cursors: dict[str, Cursor] = field(default_factory=dict)

    # -- looking -----------------------------------------------------------------------

    def sources(self) -> list[Source]:
        own = Source("inbox", self.home.inbox(self.name))
        foreign = Source("team", self.home.foreign_inbox(self.name))
        found = [own, foreign] if self.view.exists(foreign.path) else [own]
        # One that is another user's stays as it is, with our cursor in it, until it may be read.
        return [source for source in found if self.view.may_read(source.path)]

    def waiting(self) -> Iterator[tuple[Source, Entry]]:
        """What lies behind the cursors and has not been dealt with, quarantined lines included."""
        for source in self.sources():
            cursor = self.cursor(source)
            done = {*cursor.done, *self._delivered_before(cursor)}
            for entry in self._entries(source, cursor, cursor.offset):
                is_done = entry.message is not None and entry.message.id in done
                if not is_done and not (entry.message is None and entry.offset in cursor.passed):
                    yield source, entry

    def undelivered(self, limit: int | None) -> list[Message]:
        found: list[Message] = []
        for _, entry in self.waiting():
            if limit is not None and len(found) >= limit:
                break
            if entry.message is not None:
                found.append(entry.message)
        return found

    def has_waking(self) -> bool:
        return any(entry.message is not None and entry.message.wakes for _, entry in self.waiting())

    def newest(self, limit: int) -> list[Message]:
        """The last ones, taken or not, oldest first."""
        receipts = self._receipts()
        found: list[Message] = []
        sources = self.sources()
        for source in sources:
            cursor = self.cursor(source)
            start = self._start_of_last(source.path, limit)
            messages = [entry.message for entry in self._entries(source, cursor, start) if entry.message is not None]
            found.extend(_with_receipt(message, receipts) for message in messages[-limit:])
        if len(sources) > 1:
            found.sort(key=lambda message: (message.sent_at, message.id))
        return found[-limit:] if limit > 0 else []

    def find(self, message_id: int) -> Message | None:
        for source in self.sources():
            cursor = self.cursor(source)
            offset = self._offset_of(source, cursor, message_id)
            if offset is None:
                continue
            for entry in self._entries(source, cursor, offset, one=True):
                if entry.message is not None and entry.message.id == message_id:
                    return _with_receipt(entry.message, self._receipts())
        return None

    def _offset_of(self, source: Source, cursor: Cursor, message_id: int) -> int | None:
        if message_id >= FIRST_FOREIGN_ID:
            offset = (message_id - FIRST_FOREIGN_ID) >> _HASH_BITS
            return offset if self._foreign_id(source, cursor, offset) == message_id else None
        # Ours begin with the id, and inside JSON text a quote is escaped: this cannot be found in any content.
        return _find_line(self.view.slice(source.path, 0), f'{{"id": {message_id},'.encode())

    # -- taking ------------------------------------------------------------------------

    def take_quarantined(self, limit: int) -> list[Entry]:
        """The bad lines before the `limit`th message; they are passed from now on."""
        bad: list[Entry] = []
        seen = 0
        for source, entry in self.waiting():
            if seen >= limit:
                break
            seen += entry.message is not None
            if entry.reason and entry.offset not in self.cursor(source).passed:
                bad.append(entry)
                cursor = self.cursor(source)
                self._cursors[source.label] = replace(cursor, passed=(*cursor.passed, entry.offset))
        if bad:
            self._save()
        return bad

    def mark_delivered(self, ids: Iterable[int], turn_seq: int | None) -> None:
        taken = set(ids)
        missing = set(taken)
        for source in self.sources():
            cursor = self.cursor(source)
            # What we are about to append may yet land behind a line of another program: the cursor stays before it.
            # Asked first: a line that comes while we read moves what is still to be appended.
            settled = self.view.size_on_disk(source.path)
            before = self._delivered_before(cursor)
            entries = self._entries_with(source, cursor, missing, before)
            here = taken.intersection(entry.message.id for entry in entries if entry.message is not None)
            missing -= here
            if here:
                self._cursors[source.label] = self._advanced(source, cursor, entries, here | before, settled)
        self._save()
        for number in sorted(taken):
            receipt: dict[str, Any] = {"id": number, "delivered_at": self.now.isoformat(), "turn": turn_seq}
            self.view.append(self.home.receipts(self.name), line_bytes(receipt))

    def _entries_with(self, source: Source, cursor: Cursor, ids: set[int], before: set[int]) -> list[Entry]:
        """From the cursor on, as far as these ids and what was dealt with before reach: an inbox may be long. To its
        end, if that is what a new cursor does not know of: once it has moved on, nobody asks any more."""
        missing = set(ids)
        is_new = bool(before) and not cursor.offset
        found: list[Entry] = []
        for entry in self._entries(source, cursor, cursor.offset):
            number = None if entry.message is None else entry.message.id
            if not (missing or is_new or number in cursor.done or entry.offset in cursor.passed):
                break
            found.append(entry)
            if number is not None:
                missing.discard(number)
        return found

    def mark_answered(self, message: Message) -> None:
        receipt = {"id": message.id, "answered_at": encode(message.answered_at)}
        self.view.append(self.home.receipts(self.name), line_bytes(receipt))

    def append(self, message: Message) -> None:
        self.view.append(self.home.inbox(self.name), line_bytes(_line_of(message)))

    def _advanced(
        self, source: Source, cursor: Cursor, entries: list[Entry], delivered: set[int], settled: int
    ) -> Cursor:
        found = (entry.message.id for entry in entries if entry.message is not None)
        done = {*cursor.done, *delivered.intersection(found)}
        passed = set(cursor.passed)
        offset = cursor.offset
        for entry in entries:
            if entry.end > settled or (entry.message is None and entry.offset not in passed):
                break
            if entry.message is not None and entry.message.id not in done:
                break
            offset = entry.end
            passed.discard(entry.offset)
            if entry.message is not None:
                done.discard(entry.message.id)
        return replace(
            cursor,
            offset=offset,
            mark=self._mark_before(source.path, offset),
            done=tuple(sorted(done)),
            passed=tuple(sorted(passed)),
        )

    # -- cursors -----------------------------------------------------------------------

    def cursor(self, source: Source) -> Cursor:
        known = self._cursors.get(source.label)
        if known is None:
            known = self._cursors[source.label] = self._checked(source, self._load(source))
        return known

    def _load(self, source: Source) -> Cursor:
        state = (self.view.object(self.home.mail(self.name)) or {}).get(source.label) or {}
        try:
            cursor: Cursor = decode(Cursor, state)
        except (TypeError, ValueError):
            # Edited into something else: as good as gone.
            return Cursor()
        return cursor

    def _checked(self, source: Source, cursor: Cursor) -> Cursor:
        if not cursor.offset:
            return cursor
        size = self.view.size(source.path)
        if size >= cursor.offset and self._mark_before(source.path, cursor.offset) == cursor.mark:
            return cursor
        return Cursor(epoch=cursor.epoch + 1)

    def _save(self) -> None:
        state = self.view.object(self.home.mail(self.name)) or {}
        for label, cursor in self._cursors.items():
            state[label] = {
                "offset": cursor.offset,
                "mark": cursor.mark,
                "epoch": cursor.epoch,
                "done": list(cursor.done),
                "passed": list(cursor.passed),
            }
        self.view.write(self.home.mail(self.name), file_bytes(state))

    def _mark_before(self, path: str, offset: int) -> int:
        return zlib.crc32(self.view.slice(path, max(0, offset - _MARK_LENGTH), offset))

    # -- lines -------------------------------------------------------------------------

    def _entries(self, source: Source, cursor: Cursor, start: int, *, one: bool = False) -> Iterator[Entry]:
        data = self.view.slice(source.path, start)
        position = 0
        while position < len(data):
            newline = data.find(b"\n", position)
            end = len(data) if newline < 0 else newline + 1
            line = data[position:end]
            if line.strip():
                entry = self._entry(source, cursor, start + position, line, is_whole=newline >= 0)
                if entry is not None:
                    yield entry
                if one:
                    return
            position = end

    def _entry(self, source: Source, cursor: Cursor, offset: int, line: bytes, *, is_whole: bool) -> Entry | None:
        end = offset + len(line)
        text = line[:200].decode(errors="replace").strip()
        raw, begins = _salvage(line)
        if raw is None:
            return Entry(offset, end, None, "it is no JSON object", text) if is_whole else None
        message, reason = self._message(raw, self._foreign_id(source, cursor, offset))
        if begins and not reason:
            reason, text = "a torn line stood before the next one", line[:begins][:200].decode(errors="replace")
        return Entry(offset, end, message, reason, text)

    def _foreign_id(self, source: Source, cursor: Cursor, offset: int) -> int:
        seed = f"{name_key(self.name)}/{source.label}/{cursor.epoch}".encode()
        return FIRST_FOREIGN_ID + (offset << _HASH_BITS) + (zlib.crc32(seed) & ((1 << _HASH_BITS) - 1))

    def _message(self, raw: dict[str, Any], foreign_id: int) -> tuple[Message | None, str]:
        number = raw.get("id")
        is_ours = isinstance(number, int) and 0 < number < self.next_message_id and str(raw.get("origin")) in _ORIGINS
        try:
            kind = MessageType(str(pick(raw, "type", "msg_type") or "message").strip().casefold())
        except ValueError:
            return None, f"mail of type {str(raw.get('type'))[:40]!r} is not known"
        if "content" not in raw and "message" not in raw and "text" not in raw:
            return None, "it has no content"
        if kind in RUNTIME_TYPES and not is_ours:
            return None, f"only the runtime sends {kind}"
        request_id = raw.get("request_id")
        return Message(
            team_id=self.team_id,
            id=number if is_ours and isinstance(number, int) else foreign_id,
            type=kind,
            sender=text_of(pick(raw, "from", "sender")) or "unknown",
            recipient=self.name,
            content=text_of(pick(raw, "content", "message", "text")),
            # Whatever a foreign line says of itself: only our own runtime says who is the human.
            origin=Origin(raw["origin"]) if is_ours else Origin.AGENT,
            request_id=request_id if is_ours and isinstance(request_id, int) else None,
            reply_to=number_of(raw.get("reply_to")),
            wakes=raw.get("wakes") is not False,
            sent_at=moment_of(raw.get("timestamp")) or self.now,
            extra={}
            if is_ours
            else {key: value for key, value in raw.items() if key not in _OWN_KEYS - {"request_id"}},
        ), ""

    def _start_of_last(self, path: str, count: int) -> int:
        """Where the last `count` lines begin; read from the end."""
        start = self.view.size(path)
        newlines = 0
        while start > 0 and newlines <= count:
            begin = max(0, start - _CHUNK)
            piece = self.view.slice(path, begin, start)
            for index in range(len(piece) - 1, -1, -1):
                if piece[index] == 0x0A:
                    newlines += 1
                    if newlines > count:
                        return begin + index + 1
            start = begin
        return 0

    # -- receipts ----------------------------------------------------------------------

    def _receipts(self) -> dict[int, dict[str, Any]]:
        found: dict[int, dict[str, Any]] = {}
        for line in self.view.slice(self.home.receipts(self.name), 0).splitlines():
            receipt = parse_object(line)
            if receipt is not None and isinstance(receipt.get("id"), int):
                found.setdefault(receipt["id"], {}).update(receipt)
        return found

    def _delivered_before(self, cursor: Cursor) -> set[int]:
        """What the cursor does not know of: nobody gets that twice."""
        if cursor.epoch:
            # A line that stood in an earlier epoch may have come back.
            return self._delivered_ids()
        if not cursor.offset:
            # The note of how far mail was taken may be gone or damaged, and with it the epoch from which the ids of
            # foreign lines follow: of those, one that is new could have the id of one that was delivered.
            return {number for number in self._delivered_ids() if number < FIRST_FOREIGN_ID}
        return set()

    def _delivered_ids(self) -> set[int]:
        return {number for number, receipt in self._receipts().items() if "delivered_at" in receipt}


def _with_receipt(message: Message, receipts: dict[int, dict[str, Any]]) -> Message:
    receipt = receipts.get(message.id, {})
    return replace(
        message,
        delivered_at=moment_of(receipt.get("delivered_at")),
        delivered_turn=receipt.get("turn"),
        answered_at=moment_of(receipt.get("answered_at")),
    )


def _line_of(message: Message) -> dict[str, Any]:
    line: dict[str, Any] = {
        "id": message.id,
        "type": message.type.value,
        "from": message.sender,
        "sender": message.sender,
        "to": message.recipient,
        "content": message.content,
        "timestamp": message.sent_at.astimezone(UTC).timestamp(),
        "origin": message.origin.value,
    }
    if message.request_id is not None:
        line["request_id"] = message.request_id
    if message.reply_to is not None:
        line["reply_to"] = message.reply_to
    if not message.wakes:
        line["wakes"] = False
    return line


def _salvage(line: bytes) -> tuple[dict[str, Any] | None, int]:
    """The object in this line and where it begins: a writer that died may have left the head of one before it."""
    raw = parse_foreign(line)
    begins = 0
    for _ in range(_MAX_HEADS):
        if raw is not None:
            break
        begins = line.find(b'{"', begins + 1)
        if begins < 0:
            break
        raw = parse_foreign(line[begins:])
        # An object inside the torn one is not the next message.
        if raw is not None and ("content" not in raw or pick(raw, "from", "sender") is None):
            raw = None
    return (None, 0) if raw is None else (raw, begins)


def _find_line(data: bytes, beginning: bytes) -> int | None:
    if data.startswith(beginning):
        return 0
    found = data.find(b"\n" + beginning)
    return None if found < 0 else found + 1


def inboxes_mark(root: str) -> int:
    """Another number as soon as any program has changed any inbox: a look at file times, for whoever waits for mail."""
    folders = [os.path.join(root, DEFAULT_FOREIGN, "inbox")]
    with suppress(OSError):
        folders += [entry.path for entry in os.scandir(os.path.join(root, TEAMS)) if not entry.name.startswith(".")]
    marks = []
    for folder in folders:
        with suppress(OSError):
            for entry in os.scandir(folder):
                # One that cannot be followed must not hide those behind it.
                with suppress(OSError):
                    if entry.name.endswith(".jsonl"):
                        status = entry.stat()
                        marks.append((entry.path, status.st_mtime_ns, status.st_size))
    return hash(tuple(sorted(marks)))
