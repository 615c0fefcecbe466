"""What a command works with: the store, the team, and where its output goes."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from bullpen.cli import text
from bullpen.cli.options import Globals
from bullpen.cli.page import Page
from bullpen.cli.place import find_only, find_place, get_named
from bullpen.cli.stream import remark_beside
from bullpen.cli.terminal import terminal_of
from bullpen.domain.codec import encode
from bullpen.domain.member import Team as TeamRecord
from bullpen.errors import NotFound, UsageError
from bullpen.store import Store
from bullpen.stores import open_store
from bullpen.team import DEFAULT_TEAM, Team, open_team

if TYPE_CHECKING:
    from bullpen.config import Settings

T = TypeVar("T")


class Call:
    """One invocation of the command."""

    def __init__(self, chosen: Globals) -> None:
        self.is_json = chosen.json
        self.flags = {"store": chosen.store, "team.name": chosen.team}
        configured = _read_settings()
        self.place = find_place(chosen.store, configured=None if configured is None else configured.store)
        self._option = chosen.team
        # Stripped, as that of the store is: a file or a secret ends with a newline.
        self._environment = os.environ.get("BULLPEN_TEAM", "").strip() or None
        self._configured = None if configured is None else configured.team.name

    @classmethod
    def of(cls, ctx: typer.Context) -> Call:
        return cls(ctx.find_object(Globals) or Globals())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run(work)

    # -- what it works on ------------------------------------------------------------------

    @asynccontextmanager
    async def store(self) -> AsyncIterator[Store]:
        async with open_store(self.place.url) as store:
            yield store

    @asynccontextmanager
    async def team(self, named: str | None = None) -> AsyncIterator[Team]:
        """The team that is meant: as argument, option or variable, else the only live one. Creates nothing."""
        async with self.store() as store:
            name = self._name(named)
            record = await find_only(store) if name is None else await get_named(store, name)
            if record is None:
                raise NotFound(
                    f"there is no live team {self.place.words}: `bullpen run GOAL` or `bullpen task add SUBJECT` "
                    "begins one"
                )
            yield Team(store, record)

    @asynccontextmanager
    async def team_to_begin(self) -> AsyncIterator[Team]:
        """The same, but the live one, created if there is none; that is said."""
        async with self.store() as store:
            record = await self.find_live_team(store)
            if record is not None:
                yield Team(store, record)
                return
            # As `run` does: where it was begun is where a worker finds its files.
            async with open_team(self.name_to_begin, store=store, workspace=os.getcwd()) as team:
                self.note(f"created team {team.name!r} {self.place.words}")
                yield team

    async def find_live_team(self, store: Store) -> TeamRecord | None:
        name = self._name(None)
        return await find_only(store) if name is None else await store.find_team(name)

    @property
    def name_to_begin(self) -> str:
        """Of the team that begins because there is none."""
        return self._name(None) or DEFAULT_TEAM

    @property
    def new_name(self) -> str | None:
        """What a new team is to be called, if somebody said so for this call."""
        return self._option or self._environment

    def _name(self, argument: str | None) -> str | None:
        if argument and self._option and argument != self._option:
            raise UsageError(f"two teams are named, {argument!r} and --team {self._option!r}: say which")
        return argument or self._option or self._environment or self._configured

    # -- where it goes ---------------------------------------------------------------------

    def show(self, document: Any, draw: Callable[[Page], None]) -> None:
        """One JSON document for programs, a page for people."""
        if self.is_json:
            print(text.json_text(encode(document), indent=2))
            return
        page = Page(terminal_of())
        draw(page)
        if page.lines:
            print("\n".join(page.lines))

    def show_entry(self, document: Any, draw: Callable[[Page], None]) -> None:
        """One of many, as it comes: a line that a program behind a pipe sees at once."""
        if self.is_json:
            print(text.json_text(encode(document)), flush=True)
            return
        page = Page(terminal_of())
        draw(page)
        print("\n".join(page.lines), flush=True)

    def show_if(self, draw: Callable[[Page], bool]) -> None:
        """One of many, if there is something to tell of it."""
        page = Page(terminal_of())
        if draw(page):
            print("\n".join(page.lines), flush=True)

    def draw(self, draw: Callable[[Page], object]) -> list[str]:
        """The lines, not shown yet."""
        page = Page(terminal_of())
        draw(page)
        return page.lines

    def note(self, remark: str) -> None:
        """Beside the output: something that the user did not ask for and should know."""
        plain = text.one_line(remark)
        sys.stdout.flush()
        remark_beside(text.json_text({"note": plain}) if self.is_json else f"bullpen: {plain}")


def _read_settings() -> Settings | None:
    """None where there is no file: to look for one costs nothing, to read settings does."""
    from bullpen.config import find_settings_file

    if find_settings_file() is None:
        return None
    from bullpen.config import load_settings

    return load_settings()
