"""Where the settings come from: a file, then the environment, then flags; the later one wins, key by key.

A variable is named after its key: `BULLPEN_IDLE__TIMEOUT_SECONDS` is `idle.timeout_seconds`. An empty one counts as
absent.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from bullpen.config.file import find_table
from bullpen.config.read import Origin, build, dotted, list_keys, read_table
from bullpen.config.settings import Settings
from bullpen.errors import UsageError

PREFIX = "BULLPEN_"
SHORT_NAMES = {
    "BULLPEN_TEAM": ("team", "name"),
    "BULLPEN_MAX_COST": ("budget", "max_cost_usd"),
    "BULLPEN_MAX_TOKENS": ("budget", "max_tokens"),
    "BULLPEN_MAX_MINUTES": ("budget", "max_minutes"),
    "BULLPEN_NETWORK": ("sandbox", "network"),
}
# Bullpen's own marks on what runs in a sandbox: no settings, although they are named like one.
MARKS = frozenset({"BULLPEN_SANDBOX", "BULLPEN_WORKER"})

Layer = Iterator[tuple[tuple[str, ...], Any, str]]


def load_settings(
    directory: str | os.PathLike[str] = ".",
    *,
    environment: Mapping[str, str] = os.environ,
    flags: Mapping[str, Any] | None = None,
) -> Settings:
    """What is in force in that directory. `flags` are dotted keys; one that is None was not given.

    UsageError, in one line, for whatever cannot be read or is not allowed.
    """
    layers = [*_file_layer(directory), *_environment_layer(environment), *_flag_layer(flags or {})]
    return _lay(layers)


def read_stored(mapping: Mapping[str, Any]) -> Settings:
    """See `Settings.from_mapping`."""
    names = {path[1] for path in list_keys() if path[0] == "team"}
    table = {key: value for key, value in mapping.items() if key not in names and key != "team"}
    table["team"] = {key: value for key, value in mapping.items() if key in names}
    origin = Origin(name="the team's settings", is_stored=True)
    return _lay((path, value, "team") for path, value in read_table(table, origin))


def environment_name(path: tuple[str, ...]) -> str:
    return PREFIX + "__".join(path).upper()


def _lay(layers: Any) -> Settings:
    leaves: dict[tuple[str, ...], Any] = {}
    sources: dict[str, str] = {}
    for path, value, source in layers:
        leaves[path] = value
        sources[dotted(path)] = source
    return build(Settings, leaves, sources=sources)


# -- the file ------------------------------------------------------------------------------


def _file_layer(directory: str | os.PathLike[str]) -> Layer:
    found = find_table(directory)
    if found is None:
        return
    path, table = found
    origin = Origin(name=path, directory=os.path.dirname(path))
    for key, value in read_table(table, origin):
        yield key, value, path


# -- environment and flags -----------------------------------------------------------------


def _environment_layer(environment: Mapping[str, str]) -> Layer:
    # Stripped: what comes from a file or a secret ends with a newline.
    given = {name: text.strip() for name, text in environment.items() if name.startswith(PREFIX) and text.strip()}
    # The full name of a key counts more than the short one.
    for name in sorted(given, key=lambda name: (name not in SHORT_NAMES, name)):
        path = SHORT_NAMES.get(name) or _path_of(name)
        if path is not None:
            origin = _typed(name)
            for key, value in read_table(_nest(path, given[name]), origin):
                yield key, value, name


def _path_of(name: str) -> tuple[str, ...] | None:
    """None for what is no setting and does not look like one."""
    if name in MARKS:
        return None
    path = tuple(name.removeprefix(PREFIX).lower().split("__"))
    if len(path) > 1 or any(key[0] == path[0] for key in list_keys()):
        return path
    from difflib import get_close_matches

    known = [*SHORT_NAMES, *(environment_name(key) for key in list_keys() if len(key) == 1)]
    if near := get_close_matches(name, known, n=1, cutoff=0.9):
        raise UsageError(f"{name} is set, but there is no such setting; did you mean {near[0]}?")
    return None


def _flag_layer(flags: Mapping[str, Any]) -> Layer:
    for key, value in flags.items():
        if value is not None:
            origin = _typed("flag")
            for path, read in read_table(_nest(tuple(key.split(".")), value), origin):
                yield path, read, "flag"


def _typed(name: str) -> Origin:
    """Paths are meant from here, and must mean the same when the team is resumed elsewhere."""
    return Origin(name=name, is_text=True, directory=os.getcwd())


def _nest(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    for key in reversed(path[1:]):
        value = {key: value}
    return {path[0]: value}
