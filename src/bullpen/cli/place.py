"""Where the state is, and which team is meant when none is named.

State is `.bullpen/bullpen.db`, found upwards from the working directory, as git
finds its own; a command that writes creates it in the working directory.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from bullpen.domain.member import Team
from bullpen.domain.text import name_key
from bullpen.errors import NotFound, UsageError
from bullpen.store import Store

DIRECTORY = ".bullpen"
FILE = "bullpen.db"


@dataclass(frozen=True)
class Place:
    url: str
    words: str
    """For people. Not the URL: there may be a password in it."""
    is_there: bool = True
    """Did somebody name it, or is it there already?"""


def find_place(store: str | None, environ: Mapping[str, str] = os.environ, *, configured: str | None = None) -> Place:
    """`configured`: what a file with settings says."""
    # Stripped: what comes from a file or a secret ends with a newline, which no URL does.
    for named, words in (
        (store, "in that store"),
        (environ.get("BULLPEN_STORE"), "in the store that BULLPEN_STORE names"),
        (configured, "in the store that the settings name"),
    ):
        if named and named.strip():
            return Place(named.strip(), words)
    try:
        here = os.getcwd()
    except OSError as error:
        raise UsageError("the working directory is gone: change into another one") from error
    directory = here
    while not os.path.isdir(os.path.join(directory, DIRECTORY)):
        above = os.path.dirname(directory)
        if above == directory:
            return Place(_url(here), f"in {here}", is_there=False)
        directory = above
    state = os.path.join(directory, DIRECTORY)
    return Place(_url(directory), f"in {state}", is_there=os.path.exists(os.path.join(state, FILE)))


def _url(directory: str) -> str:
    return f"sqlite:///{os.path.join(directory, DIRECTORY, FILE)}"


async def find_named(store: Store, name: str) -> Team | None:
    """The live team of that name, else the last deleted one; `#3` is the team with that id, whatever its state."""
    if name.startswith("#"):
        every = await store.list_teams(include_deleted=True)
        return next((team for team in every if f"#{team.id}" == name), None)
    live = await store.find_team(name)
    if live is not None:
        return live
    every = await store.list_teams(include_deleted=True)
    return next((team for team in reversed(every) if team.key == name_key(name)), None)


async def get_named(store: Store, name: str) -> Team:
    team = await find_named(store, name)
    if team is None:
        names = ", ".join(other.name for other in await store.list_teams())
        raise NotFound(f"there is no team {name[:80]!r}; " + (f"there are {names}" if names else "there is none yet"))
    return team


async def find_only(store: Store) -> Team | None:
    """The only live team; None if there is none, UsageError if there are several."""
    live = await store.list_teams()
    if len(live) > 1:
        names = ", ".join(team.name for team in live)
        raise UsageError(f"there are several teams, say which with --team NAME: {names}")
    return live[0] if live else None
