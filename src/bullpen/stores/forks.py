"""What a forked child gives back: the locks and the sessions of its parent.

An `flock` is freed, and a server takes its client for gone, when the last copy of
the descriptor is closed. A child that was forked without a new program has one of
each, and may outlive a parent that is killed (the pools of `multiprocessing` do):
nobody would ever get into the store again, and a dead worker would be taken for a
living one.

What can be given back only between two steps is left alone by every other thread while one forks.
"""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Protocol
from weakref import WeakKeyDictionary


class Holder(Protocol):
    def let_go(self) -> None:
        """In a child that has just been forked: close what locks. The files, and what is said, are the parent's."""
        ...


Step = AbstractContextManager[Any]

_holders: WeakKeyDictionary[Holder, tuple[Step, ...]] = WeakKeyDictionary()
_forking = threading.Lock()
_stopped = ExitStack()


def let_go_in_children(holder: Holder, *steps: Step) -> None:
    """`steps` are held by whoever is in the middle of what `let_go` closes. A fork waits for them: they are short, and
    may be entered again by the thread that is inside, which may be the one that forks."""
    with _forking:
        _holders[holder] = steps


def _stop() -> None:
    _forking.acquire()
    for steps in list(_holders.values()):
        for step in steps:
            _stopped.enter_context(step)


def _go_on() -> None:
    _stopped.close()
    _forking.release()


def _let_go() -> None:
    # A stack: where one cannot let go, the others do, and the child may fork in turn.
    with ExitStack() as stack:
        stack.callback(_go_on)
        for holder in list(_holders):
            stack.callback(holder.let_go)


os.register_at_fork(before=_stop, after_in_parent=_go_on, after_in_child=_let_go)
