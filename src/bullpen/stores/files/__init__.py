"""The store `files:DIR`: the seeds' layout, readable by people, shared by processes."""

from bullpen.stores.files.store import FilesStore

__all__ = ["FilesStore"]
