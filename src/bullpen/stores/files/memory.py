"""A member's turns and tool calls.

Turns are lines of a log. Queued and started calls stand in a small file of their
own, which every look for mail reads; a call that is closed moves to a log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bullpen.domain.codec import encode
from bullpen.domain.transcript import OPEN_CALLS, ToolCall, TranscriptEnd, Turn
from bullpen.stores.files.form import file_bytes, line_bytes, parse_object, record, whole
from bullpen.stores.files.layout import Home
from bullpen.stores.files.log import find_line, lines, lines_backwards
from bullpen.stores.files.view import View

Hints = dict[str, tuple[int, int]]
"""How far a transcript was last read: number of the turn, offset behind it."""

_TURN_KEYS = ("seq", "kind", "content", "incarnation", "created_at")


@dataclass(frozen=True, slots=True)
class Memory:
    view: View
    home: Home
    team_id: int
    name: str
    hints: Hints

    # -- turns ---------------------------------------------------------------------------

    def append(self, turn: Turn) -> None:
        data = encode(turn)
        line = {key: data[key] for key in _TURN_KEYS}
        self.view.append(self.home.transcript(self.name), line_bytes(line))

    def end(self) -> TranscriptEnd:
        # What somebody else wrote behind it counts for nothing: a number must not come twice.
        turns = map(_turn_in, lines_backwards(self.view, self.home.transcript(self.name)))
        newest = next((raw["seq"] for raw in turns if raw is not None), 0)
        return TranscriptEnd(newest, has_open_calls=bool(self._open()))

    def turns(self, after_seq: int, limit: int | None) -> list[Turn]:
        path = self.home.transcript(self.name)
        found: list[Turn] = []
        for end, line in lines(self.view, path, self._start(path, after_seq)):
            if limit is not None and len(found) >= limit:
                break
            raw = _turn_in(line)
            if raw is None or raw["seq"] <= after_seq:
                continue
            found.append(record(Turn, {**raw, "team_id": self.team_id, "member": self.name}, path))
            self.hints[self._hint] = (raw["seq"], end)
        return found

    def _start(self, path: str, after_seq: int) -> int:
        """A loop reads its memory again and again, each time only what is new."""
        seq, offset = self.hints.get(self._hint, (0, 0))
        is_usable = 0 < seq <= after_seq and self.view.slice(path, offset - 1, offset) == b"\n"
        return offset if is_usable else 0

    @property
    def _hint(self) -> str:
        """The team's id is in it: a new team of the same name uses the same paths."""
        return f"{self.team_id}/{self.name}"

    # -- calls ---------------------------------------------------------------------------

    def find_call(self, call_id: str) -> ToolCall | None:
        for call in self._open():
            if call["call_id"] == call_id:
                return self._call(call, self.home.open_calls(self.name))
        beginning = line_bytes({"call_id": call_id})[:-2] + b","
        line = find_line(self.view, self.home.calls(self.name), beginning)
        raw = None if line is None else parse_object(line)
        return None if raw is None else self._call(raw, self.home.calls(self.name))

    def calls(self, *, open_only: bool) -> list[ToolCall]:
        ended, is_open = self.home.calls(self.name), self.home.open_calls(self.name)
        raws = [] if open_only else [(parse_object(line), ended) for _, line in lines(self.view, ended)]
        raws += [(raw, is_open) for raw in self._open()]
        found = [(raw.get("position", 0), self._call(raw, path)) for raw, path in raws if raw is not None]
        with whole(is_open):
            found.sort(key=lambda one: (one[1].turn_seq, one[0]))
        return [call for _, call in found]

    def insert_call(self, call: ToolCall) -> None:
        if call.state not in OPEN_CALLS:
            # One that was made elsewhere comes with all that is known of it.
            self.view.append(self.home.calls(self.name), line_bytes(self._raw(call, call.position)))
            return
        others = self._open()
        position = sum(other["turn_seq"] == call.turn_seq for other in others)
        self._save_open([*others, self._raw(call, position)])

    def update_call(self, call: ToolCall) -> None:
        others = self._open()
        index = next(index for index, other in enumerate(others) if other["call_id"] == call.call_id)
        raw = self._raw(call, others[index].get("position", 0))
        if call.state in OPEN_CALLS:
            others[index] = raw
        else:
            del others[index]
            self.view.append(self.home.calls(self.name), line_bytes(raw))
        self._save_open(others)

    def _open(self) -> list[dict[str, Any]]:
        state = self.view.object(self.home.open_calls(self.name))
        with whole(self.home.open_calls(self.name)):
            return [] if state is None else [{"call_id": raw["call_id"], **raw} for raw in state["calls"]]

    def _save_open(self, calls: list[dict[str, Any]]) -> None:
        self.view.write(self.home.open_calls(self.name), file_bytes({"calls": calls}))

    def _raw(self, call: ToolCall, position: int) -> dict[str, Any]:
        data = encode(call)
        del data["team_id"], data["member"]
        return {"call_id": data.pop("call_id"), "position": position, **data}

    def _call(self, raw: dict[str, Any], path: str) -> ToolCall:
        call: ToolCall = record(ToolCall, {**raw, "team_id": self.team_id, "member": self.name}, path)
        return call


def _turn_in(line: bytes) -> dict[str, Any] | None:
    """None for what is no turn: another program's line, or a damaged one."""
    raw = parse_object(line)
    return raw if raw is not None and raw.keys() >= set(_TURN_KEYS) and isinstance(raw["seq"], int) else None
