"""The default store: one SQLite file, any number of processes of one machine."""

from bullpen.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
