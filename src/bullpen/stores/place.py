"""What of a store lies on this machine: where its neighbours keep their state, and what nobody in a sandbox may see."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

GATE_SUFFIX = ".gate"
LIVES_SUFFIX = ".workers"
# Its locks too: who could reach them would hold up the whole team, or take a living worker's proof of life away.
SQLITE_SUFFIXES = ("", "-wal", "-shm", "-journal", GATE_SUFFIX, LIVES_SUFFIX)


@dataclass(frozen=True, slots=True)
class Place:
    """`state_directory` is where members' homes and the like are kept; `hidden` are the store's own paths."""

    state_directory: Path
    hidden: tuple[Path, ...]


def place_of(url: str) -> Place:
    """Of a store with a directory of its own, that directory; of any other, one below the user's state."""
    if url.startswith("sqlite:///") and not url.endswith(":memory:"):
        path = Path(url.removeprefix("sqlite:///")).expanduser().absolute()
        real = real_file(path)
        files = tuple(real.with_name(real.name + suffix) for suffix in SQLITE_SUFFIXES)
        if path.parent.name == ".bullpen":
            return Place(path.parent, (path.parent, *files) if path.is_symlink() else (path.parent,))
        state = _state_of(url)
        return Place(state, (state, *files))
    if url.startswith("files:"):
        directory = Path(url.removeprefix("files:").removeprefix("//")).expanduser().absolute()
        state = _state_of(url)
        own = tuple(directory / name for name in (".tasks", ".teams", ".team", ".bullpen"))
        return Place(state, (state, *own))
    state = _state_of(url)
    return Place(state, (state,))


def real_file(path: Path) -> Path:
    """Where SQLite keeps its log, and so where its locks are: who comes by a link must meet who comes without."""
    return Path(os.path.realpath(path))


def _state_of(url: str) -> Path:
    home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    if url.startswith("sqlite:///") and not url.endswith(":memory:"):
        url = str(Path(url.removeprefix("sqlite:///")).expanduser().absolute())
    elif url.endswith(":memory:"):
        # Each process has its own: another's members of the same name are not ours, nor are their processes leftovers.
        url = f"{url}{os.getpid()}"
    digest = hashlib.sha256(url.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return Path(home).expanduser() / "bullpen" / digest
