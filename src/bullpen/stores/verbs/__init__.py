"""The verbs of the store, each written once, over `stores.transaction.Transaction`."""

from bullpen.stores.verbs.store import VerbStore

__all__ = ["VerbStore"]
