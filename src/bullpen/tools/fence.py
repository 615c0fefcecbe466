"""Where file tools may go: the workspace, without git's own files and without what is hidden.

Invariant: what is opened lies where it was allowed, at the moment of opening. A path is resolved and judged as what
it really is; then it is opened step by step from the workspace, following no link. So a link that a command plants
between the judgement and the opening leads nowhere.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bullpen.errors import ToolError
from bullpen.sandboxes.paths import is_hidden, secret_places, with_real
from bullpen.tool import ToolContext

MAX_BYTES = 64_000_000
SMALL_BYTES = 100_000
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A pipe would be waited for otherwise.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Place:
    """A path that may be used: `parts` below a real `root`, with no link between. `shown` is its name for the model."""

    root: Path
    parts: tuple[str, ...]
    shown: str

    @property
    def path(self) -> Path:
        return self.root.joinpath(*self.parts)


class Fence:
    """Of one member. Where paths lie in one another, the deeper one counts: a workspace inside the store's directory
    is a workspace, and the store inside a workspace is hidden."""

    def __init__(self, context: ToolContext) -> None:
        self.root = context.workspace.resolve()
        hidden = (*secret_places(), *map(Path, context.settings.get("hidden_paths", ())))
        below = os.path.join(self.root, "")
        self.hidden = tuple(sorted(Path(path) for path in with_real(hidden) if path.startswith(below)))
        self._readable = tuple(Path(path).resolve() for path in context.settings.get("readable_paths", ()))

    def to_read(self, path: str) -> Place:
        real = self._real(path)
        for root in self._readable:
            if real.is_relative_to(root):
                return Place(root.parent, real.relative_to(root.parent).parts, str(real))
        return self._inside(path, real, "Reading is limited to it and to the output of your own commands")

    def to_write(self, path: str) -> Place:
        return self._inside(path, self._real(path), "You can write only there")

    def is_hidden(self, real: Path) -> bool:
        return is_hidden(real, self.hidden)

    def _real(self, path: str) -> Path:
        if not path.strip() or "\0" in path:
            raise ToolError(f"{path[:80]!r} is not a path")
        # Against the workspace, not against wherever this process was started.
        return Path(os.path.realpath(self.root / Path(os.path.expanduser(path))))

    def _inside(self, path: str, real: Path, rule: str) -> Place:
        if not real.is_relative_to(self.root):
            where = "" if Path(path) == real else f" (it is {real})"
            raise ToolError(f"{path[:200]} lies outside the workspace {self.root}{where}. {rule}.")
        parts = real.relative_to(self.root).parts
        if any(part.casefold() == ".git" for part in parts):
            raise ToolError(f"{path[:200]} belongs to git: use git in bash, it is not read or written as a file")
        if self.is_hidden(real):
            raise ToolError(f"{path[:200]} is hidden: it holds secrets or the team's own state, and is no part of work")
        return Place(self.root, parts, str(Path(*parts)))


@contextmanager
def told(place: Place) -> Iterator[None]:
    """What the system says of a path, in words for the model."""
    try:
        yield
    except FileNotFoundError:
        raise ToolError(f"there is no {place.shown}: look with glob") from None
    except NotADirectoryError:
        raise ToolError(f"{place.shown}: a part of this path is a file or has become a link; look with glob") from None
    except IsADirectoryError:
        raise ToolError(f"{place.shown} is a directory: look into it with glob") from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ToolError(f"{place.shown} has become a link while it was opened; try again") from None
        raise ToolError(f"{place.shown}: {error.strerror or error}") from None


@contextmanager
def parent_of(place: Place, *, make: bool = False) -> Iterator[int]:
    """The directory in which it lies, open; its parents are made if they are missing and that is wanted."""
    directory = os.open(place.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in place.parts[:-1]:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=directory)
            deeper = os.open(part, _DIRECTORY, dir_fd=directory)
            os.close(directory)
            directory = deeper
        yield directory
    finally:
        os.close(directory)


def is_small(place: Place) -> bool:
    """A file that is read in no time, if it is one."""
    try:
        found = os.lstat(place.path)
    except OSError:
        return True
    return not stat.S_ISREG(found.st_mode) or found.st_size <= SMALL_BYTES


def read_bytes(place: Place) -> tuple[bytes, os.stat_result]:
    with parent_of(place) as directory:
        return read_entry(directory, place)


def read_entry(directory: int, place: Place) -> tuple[bytes, os.stat_result]:
    """The file of that name in an open directory. OSError; ToolError for what is no file, or too large for one."""
    if not place.parts:
        raise IsADirectoryError
    with open(os.open(place.parts[-1], _FILE, dir_fd=directory), "rb") as file:
        found = os.fstat(file.fileno())
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError
        if not stat.S_ISREG(found.st_mode):
            raise ToolError(f"{place.shown} is no file but a pipe, a socket or a device")
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ToolError(
            f"{place.shown} has {found.st_size:,} bytes, too many for this tool: use bash (head, tail, sed -n, grep)"
        )
    return data, found
