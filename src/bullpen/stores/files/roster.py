"""The members of a large team, each in a file of its own.

`config.json` with all members in it is what people want to read, but a team of a
thousand cannot have it written anew for every change of a status. So beyond
`LISTED` members a change goes to `members/NAME.json`, which counts more than what
the config says of that member.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bullpen.domain.codec import decode, encode
from bullpen.domain.member import Member
from bullpen.stores.files.form import file_bytes, parse_object
from bullpen.stores.files.layout import Home
from bullpen.stores.files.view import Signature, View

LISTED = 20


def member_object(member: Member) -> dict[str, Any]:
    """What there is to say of it, its name, role and status first."""
    data = encode(member)
    del data["team_id"]
    first = {"name": member.name, "role": member.role, "status": member.status.value}
    return {**first, **{key: value for key, value in data.items() if key not in first and value not in (None, "", {})}}


def member_bytes(member: Member) -> bytes:
    return file_bytes(member_object(member))


class Roster:
    """The member files of one team, read again only where they changed."""

    def __init__(self, view: View, home: Home, team_id: int) -> None:
        self._view = view
        self._home = home
        self._team_id = team_id
        self._on_disk: dict[str, tuple[Signature, Member]] = {}
        self._disk_version = -1
        self._version = -1
        self._members: dict[str, Member] = {}

    def members(self) -> Mapping[str, Member]:
        """By key, in the order in which they came."""
        if self._version != self._view.version:
            self._read()
            pending = {name: self._decode(data) for name, data in self._view.pending(self._home.members).items()}
            found = {name: member for name, (_, member) in self._on_disk.items()} | pending
            self._members = {member.key: member for member in found.values() if member is not None}
            self._version = self._view.version
        return self._members

    def _read(self) -> None:
        if self._disk_version == self._view.disk_version:
            return
        known, self._on_disk = self._on_disk, {}
        for name, signature in self._view.signatures(self._home.members).items():
            before = known.get(name)
            if before is not None and before[0] == signature:
                self._on_disk[name] = before
                continue
            member = self._decode(self._view.read(f"{self._home.members}/{name}") or b"")
            if member is not None:
                self._on_disk[name] = (signature, member)
        self._disk_version = self._view.disk_version

    def _decode(self, data: bytes) -> Member | None:
        raw = parse_object(data)
        if raw is None or "kind" not in raw:
            return None
        member: Member = decode(Member, {**raw, "team_id": self._team_id})
        return member
