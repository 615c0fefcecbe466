"""The members of a large team, each in a file of its own.

`config.json` with all members in it is what people want to read, but a team of a
thousand cannot have it written anew for every change of a status. So beyond
`LISTED` members a change goes to `members/NAME.json`, which counts more than what
the config says of that member. Whoever has such a file keeps it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bullpen.domain.codec import encode
from bullpen.domain.member import Member
from bullpen.domain.text import name_key
from bullpen.errors import StoreUnavailable
from bullpen.stores.files.foreign import name_of
from bullpen.stores.files.form import file_bytes, parse_object, record
from bullpen.stores.files.layout import MEMBER_FILE, Home
from bullpen.stores.files.view import Signature, View

LISTED = 20


def member_object(member: Member) -> dict[str, Any]:
    """What there is to say of it, its name, role and status first."""
    data = encode(member)
    del data["team_id"]
    first = {"name": member.name, "role": member.role, "status": member.status.value}
    return {
        **first,
        **{key: value for key, value in data.items() if key not in first and value not in (None, "", {}, [])},
    }


def member_bytes(member: Member) -> bytes:
    return file_bytes(member_object(member))


class Roster:
    """The member files of one team, read again only where they changed."""

    def __init__(self, view: View, home: Home, team_id: int) -> None:
        self._view = view
        self._directory = home.members
        self._team_id = team_id
        self._signatures: dict[str, Signature] = {}
        self._on_disk: dict[str, Member] = {}
        self._disk_version = -1
        self._pending: dict[str, tuple[bytes, Member | None]] = {}
        self._members: dict[str, Member] = {}
        self._version = (-1, -1)

    def members(self) -> Mapping[str, Member]:
        """By key."""
        version = self._view.version_of(self._directory)
        if self._version != version:
            self._members = {**self._read_disk(), **self._read_pending()}
            self._version = version
        return self._members

    def _read_disk(self) -> dict[str, Member]:
        if self._disk_version != self._view.disk_version:
            signatures = self._view.signatures(self._directory)
            found = {name: signature for name, signature in signatures.items() if MEMBER_FILE.fullmatch(name)}
            for name in self._signatures.keys() - found.keys():
                self._on_disk.pop(_key(name), None)
            for name, signature in found.items():
                if self._signatures.get(name) != signature:
                    member = self._decode(name, self._view.read_disk(f"{self._directory}/{name}") or b"")
                    if member is not None:
                        self._on_disk[_key(name)] = member
            self._signatures = found
            self._disk_version = self._view.disk_version
        return self._on_disk

    def _read_pending(self) -> dict[str, Member]:
        known, self._pending = self._pending, {}
        for name, data in self._view.pending(self._directory).items():
            before = known.get(name)
            is_known = before is not None and before[0] is data
            self._pending[name] = before if before is not None and is_known else (data, self._decode(name, data))
        return {_key(name): member for name, (_, member) in self._pending.items() if member is not None}

    def _decode(self, file_name: str, data: bytes) -> Member | None:
        """None if it is nobody's, or tells of another than it is named after: a copy that somebody keeps."""
        raw = parse_object(data)
        path = f"{self._directory}/{file_name}"
        if raw is None:
            raise StoreUnavailable(f"{path} is not readable: repair it, nothing is written over it")
        # A name becomes a path: one that another program wrote must not lead out of the store.
        name = name_of(raw.get("name"))
        if "kind" not in raw or name is None or name_key(name) != _key(file_name):
            return None
        member: Member = record(Member, {**raw, "team_id": self._team_id}, path)
        return member


def _key(file_name: str) -> str:
    return name_key(file_name.removesuffix(".json"))
