"""A team's accounts and reservations, and the gates of providers that all teams share.

Open reservations stand in a small file of their own, which is as large as there are
calls under way; a settled one moves to a log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bullpen.domain.budget import TEAM_ACCOUNT, Account, ProviderGate, Reservation
from bullpen.domain.codec import decode, encode
from bullpen.domain.text import name_key
from bullpen.stores.files.form import file_bytes, line_bytes, parse_object, record, whole
from bullpen.stores.files.layout import PROVIDERS, Home
from bullpen.stores.files.log import find_line
from bullpen.stores.files.view import View


@dataclass(frozen=True, slots=True)
class Purse:
    view: View
    home: Home
    team_id: int

    # -- accounts ------------------------------------------------------------------------

    def account(self, key: str) -> Account | None:
        path = self.home.account(key)
        raw = self.view.object(path)
        return None if raw is None else record(Account, {**raw, "team_id": self.team_id, "member_key": key}, path)

    def save_account(self, account: Account) -> None:
        raw = encode(account)
        del raw["team_id"], raw["member_key"]
        self.view.write(self.home.account(account.member_key), file_bytes(raw))

    def accounts(self) -> list[Account]:
        names = self.view.names(self.home.accounts)
        keys = [TEAM_ACCOUNT, *sorted(name_key(name.removesuffix(".json")) for name in names if name.endswith(".json"))]
        return [account for key in keys if (account := self.account(key)) is not None]

    # -- reservations ----------------------------------------------------------------------

    def find(self, number: int) -> Reservation | None:
        for open_one in self._open():
            if open_one["id"] == number:
                return self._reservation(open_one, self.home.open_reservations)
        line = find_line(self.view, self.home.reservations, f'{{"id": {number},'.encode())
        raw = None if line is None else parse_object(line)
        return None if raw is None else self._reservation(raw, self.home.reservations)

    def insert(self, reservation: Reservation) -> None:
        self._save_open([*self._open(), self._raw(reservation)])

    def update(self, reservation: Reservation) -> None:
        others = [raw for raw in self._open() if raw["id"] != reservation.id]
        if reservation.settled_at is None:
            others.append(self._raw(reservation))
        else:
            self.view.append(self.home.reservations, line_bytes(self._raw(reservation)))
        self._save_open(others)

    def open_ones(self) -> list[Reservation]:
        found = (self._reservation(raw, self.home.open_reservations) for raw in self._open())
        return sorted(found, key=lambda reservation: reservation.id)

    def _open(self) -> list[dict[str, Any]]:
        state = self.view.object(self.home.open_reservations)
        with whole(self.home.open_reservations):
            return [] if state is None else [{"id": raw["id"], **raw} for raw in state["reservations"]]

    def _save_open(self, reservations: list[dict[str, Any]]) -> None:
        self.view.write(self.home.open_reservations, file_bytes({"reservations": reservations}))

    def _raw(self, reservation: Reservation) -> dict[str, Any]:
        data = encode(reservation)
        del data["team_id"]
        return {"id": data.pop("id"), **data}

    def _reservation(self, raw: dict[str, Any], path: str) -> Reservation:
        reservation: Reservation = record(Reservation, {**raw, "team_id": self.team_id}, path)
        return reservation


# -- gates ---------------------------------------------------------------------------------


def find_gate(view: View, provider_key: str) -> ProviderGate | None:
    raw = (view.object(PROVIDERS) or {}).get(provider_key)
    with whole(PROVIDERS):
        return None if raw is None else decode(ProviderGate, {**raw, "provider_key": provider_key})


def save_gate(view: View, gate: ProviderGate) -> None:
    gates = view.object(PROVIDERS) or {}
    gates[gate.provider_key] = {"blocked_until": encode(gate.blocked_until)}
    view.write(PROVIDERS, file_bytes(gates))
