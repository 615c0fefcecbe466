"""Which teams there are, and where each one's files lie.

Invariant: at most one directory in `.teams/` counts for a name, regardless of case.
A deleted team stays there until its name is taken again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bullpen.domain.member import Member
from bullpen.domain.record import replace
from bullpen.domain.text import NAME_PATTERN, name_key
from bullpen.errors import BullpenError
from bullpen.stores.files.layout import DEFAULT, DELETED, TEAMS, Home, deleted_home, live_home
from bullpen.stores.files.roster import Roster
from bullpen.stores.files.team_file import TeamFile, find_newcomers, foreign_signature, load_team
from bullpen.stores.files.view import View


class Catalogue:
    def __init__(self, view: View) -> None:
        self._view = view
        self._places: dict[int, tuple[Home, str]] = {}
        self._rosters: dict[tuple[str, int], Roster] = {}
        self._found: dict[tuple[str, int], tuple[Any, Mapping[str, Member]]] = {}
        self._looked: dict[tuple[str, int], Mapping[str, Member]] = {}

    def at_name(self, key: str) -> TeamFile | None:
        """The team in the place of that name, live or deleted."""
        name = next((name for name in self._names() if name_key(name) == key), None)
        return None if name is None else self._complete(load_team(self._view, live_home(name), name))

    def by_id(self, team_id: int) -> TeamFile | None:
        place = self._places.get(team_id)
        if place is not None:
            file = self._complete(load_team(self._view, *place))
            if file is not None and file.team.id == team_id:
                return file
        for home, name in [*self._live_places(), *self._deleted_places(f"-{team_id}")]:
            file = self._load(home, name)
            if file is not None and file.team.id == team_id:
                self._places[team_id] = (home, name)
                return file
        return None

    def at_home(self, home: Home) -> TeamFile | None:
        places = [*self._live_places(), *self._deleted_places()]
        return next((self._load(*place) for place in places if place[0] == home), None)

    def every(self, *, include_deleted: bool) -> list[TeamFile]:
        """By id. One whose record cannot be read, or is another user's, must not hide the others."""
        places = [*self._live_places(), *(self._deleted_places() if include_deleted else ())]
        files = [file for place in places if (file := self._load(*place)) is not None]
        wanted = [file for file in files if include_deleted or file.team.deleted_at is None]
        return sorted(wanted, key=lambda file: file.team.id)

    def count(self, key: str) -> int:
        archived = sum(name_key(name) == key for _, name in self._deleted_places())
        return archived + (self.at_name(key) is not None)

    def _load(self, home: Home, name: str) -> TeamFile | None:
        try:
            return self._complete(load_team(self._view, home, name))
        except (BullpenError, PermissionError):
            return None

    def look_again(self) -> None:
        """A new transaction: others may have been at our files."""
        self._looked.clear()

    def _complete(self, file: TeamFile | None) -> TeamFile | None:
        """With all its members, wherever they stand: what we have a record of counts more."""
        if file is None:
            return None
        recorded = self._recorded(file)
        members = {**file.listed, **recorded} if recorded else file.listed
        newcomers = self._newcomers(file, members)
        if recorded or newcomers:
            others = {key: member for key, member in newcomers.items() if key not in members}
            file = replace(file, members={**members, **others})
        return file

    def _recorded(self, file: TeamFile) -> Mapping[str, Member]:
        """Those who have files of their own."""
        if not self._view.is_directory(file.home.members):
            return {}
        key = (file.home.directory, file.team.id)
        if key not in self._rosters:
            self._rosters[key] = Roster(self._view, file.home, file.team.id)
        return self._rosters[key].members()

    def _newcomers(self, file: TeamFile, members: Mapping[str, Member]) -> Mapping[str, Member]:
        """Whom other programs have entered; looked for once in a transaction, and only where something was written."""
        if not file.is_ours or file.team.deleted_at is not None:
            return {}
        key = (file.home.directory, file.team.id)
        if key not in self._looked:
            seen = foreign_signature(self._view, file.home)
            known = self._found.get(key)
            if known is None or seen is None or known[0] != seen:
                known = self._found[key] = (seen, find_newcomers(self._view, file, members))
            self._looked[key] = known[1]
        return self._looked[key]

    def _names(self) -> list[str]:
        names: dict[str, str] = {}
        for name in self._view.names(TEAMS):
            if NAME_PATTERN.fullmatch(name) and not self._is_beside(names.get(name_key(name)), name):
                names[name_key(name)] = name
        names.setdefault(DEFAULT, DEFAULT)
        return list(names.values())

    def _is_beside(self, known: str | None, name: str) -> bool:
        """Does another directory count for this name already? Ours does, in whatever case another program writes it."""
        return known is not None and self._rank(known) >= self._rank(name)

    def _rank(self, name: str) -> int:
        home = live_home(name)
        if not self._view.is_directory(home.directory):
            return 0
        config = self._view.object(home.config)
        if config is None:
            # One that cannot be read may be ours: nothing takes its place.
            return 3 if self._view.exists(home.config) else 1
        return 3 if "bullpen" in config else 2

    def _live_places(self) -> Iterator[tuple[Home, str]]:
        for name in self._names():
            yield live_home(name), name

    def _deleted_places(self, suffix: str = "") -> Iterator[tuple[Home, str]]:
        for entry in self._view.names(DELETED):
            name, _, team_id = entry.rpartition("-")
            if entry.endswith(suffix) and NAME_PATTERN.fullmatch(name) and team_id.isdigit():
                yield deleted_home(name, int(team_id)), name
