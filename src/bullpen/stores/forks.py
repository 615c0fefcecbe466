"""What a forked child gives back: the locks and the sessions of its parent.

An `flock` is freed, and a server takes its client for gone, when the last copy of
the descriptor is closed. A child that was forked without a new program has one of
each, and may outlive a parent that is killed (the pools of `multiprocessing` do):
nobody would ever get into the store again, and a dead worker would be taken for a
living one.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Holder(Protocol):
    def let_go(self) -> None:
        """In a child that has just been forked: close what locks. The files, and what is said, are the parent's."""
        ...


_holders: WeakSet[Holder] = WeakSet()


def let_go_in_children(holder: Holder) -> None:
    _holders.add(holder)


def _let_go() -> None:
    for holder in list(_holders):
        holder.let_go()


os.register_at_fork(after_in_child=_let_go)
