"""Numbered SQL files: `schema/DIALECT/MAJOR.MINOR_name.sql`, applied in order.

A minor step only adds; older code goes on working beside it. A major step changes
what older code relies on, so it is refused while a worker of an older version lives.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

Version = tuple[int, int]


@cache
def _files(dialect: str) -> dict[Version, str]:
    folder = files("bullpen.stores.sql").joinpath("schema").joinpath(dialect)
    found: dict[Version, str] = {}
    for entry in folder.iterdir():
        if entry.name.endswith(".sql"):
            major, minor = entry.name.partition("_")[0].split(".")
            found[int(major), int(minor)] = entry.name
    return dict(sorted(found.items()))


def known_versions(dialect: str) -> list[Version]:
    return list(_files(dialect))


def statements_of(dialect: str, version: Version) -> str:
    folder = files("bullpen.stores.sql").joinpath("schema").joinpath(dialect)
    return folder.joinpath(_files(dialect)[version]).read_text(encoding="utf-8")
