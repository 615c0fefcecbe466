"""Numbered SQL files: `schema/DIALECT/MAJOR.MINOR_name.sql`, applied in order.

A minor step only adds; older code goes on working beside it. A major step changes
what older code relies on, so it is refused while a worker of an older version lives.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from bullpen.errors import SchemaTooNew, StoreUnavailable

Version = tuple[int, int]

# Not through importlib.resources, which imports an archiver: every command opens a store.
_SCHEMA = Path(__file__).with_name("schema")


@cache
def _files(dialect: str) -> dict[Version, str]:
    found: dict[Version, str] = {}
    for entry in (_SCHEMA / dialect).iterdir():
        if entry.name.endswith(".sql"):
            major, minor = entry.name.partition("_")[0].split(".")
            found[int(major), int(minor)] = entry.name
    return dict(sorted(found.items()))


def known_versions(dialect: str) -> list[Version]:
    return list(_files(dialect))


def statements_of(dialect: str, version: Version) -> str:
    return (_SCHEMA / dialect / _files(dialect)[version]).read_text(encoding="utf-8")


def pending_versions(dialect: str, current: Version | None) -> list[Version]:
    return [version for version in known_versions(dialect) if current is None or version > current]


def check_version(dialect: str, current: Version | None) -> None:
    """A newer minor version only added things; a newer major one changed what we rely on."""
    latest = known_versions(dialect)[-1]
    if current is not None and current[0] > latest[0]:
        raise SchemaTooNew(
            f"this store has schema {current[0]}.{current[1]}, this Bullpen understands {latest[0]}.x: upgrade Bullpen"
        )


def is_behind(dialect: str, current: Version | None) -> bool:
    """There are tables, and steps that only add to them: these are taken when the store is opened."""
    return current is not None and not is_major_step(dialect, current) and bool(pending_versions(dialect, current))


def is_major_step(dialect: str, current: Version | None) -> bool:
    return current is not None and current[0] != known_versions(dialect)[-1][0]


OLDER_WORKERS = "SELECT id FROM worker WHERE stopped_at IS NULL AND schema_max < :major ORDER BY id"


def refuse_while_they_live(older: list[int]) -> None:
    if older:
        raise StoreUnavailable(f"worker {older[0]} still runs an older Bullpen: stop it, then try again")
