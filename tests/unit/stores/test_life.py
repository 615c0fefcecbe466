"""Proof of life: a lock that somebody holds is never taken away, nor for that of a dead process."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from bullpen.domain.member import Liveness
from bullpen.stores.life import LifeLocks

BOUND_SECONDS = 20.0
LET_IN_SECONDS = 0.2
"""How long one who could come in is waited for; whoever has to wait outside uses it up."""


def test_who_clears_up_takes_nothing_from_one_who_is_just_coming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has made its lock and not locked it yet, so it is found to be free: as it is cleared away, it is locked."""
    first, coming, observer = (LifeLocks(tmp_path / "lives") for _ in range(3))
    first.hold("first")
    (tmp_path / "lives" / "coming.lock").touch()
    arrival = threading.Thread(target=coming.hold, args=("coming",))
    remove = Path.unlink

    def let_in_and_remove(path: Path, missing_ok: bool = False) -> None:
        if path.name == "coming.lock" and not arrival.ident:
            arrival.start()
            arrival.join(LET_IN_SECONDS)
        remove(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", let_in_and_remove)
    try:
        first.hold("second")
        arrival.join(BOUND_SECONDS)
        assert not arrival.is_alive()
        assert observer._look("coming") is Liveness.ALIVE
    finally:
        first.close()
        coming.close()


def test_a_lock_that_cannot_be_removed_is_free_all_the_same(tmp_path: Path) -> None:
    """As in a directory that has become read-only."""
    directory, moved = tmp_path / "lives", tmp_path / "moved"
    locks = LifeLocks(directory)
    locks.hold("mine")
    directory.rename(moved)
    directory.touch()
    locks.drop("mine")
    assert LifeLocks(moved)._look("mine") is Liveness.DEAD
