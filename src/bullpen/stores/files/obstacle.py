"""What keeps a file from being written, asked before it is in the journal.

From there on it has happened, and everybody would wait for it to be applied: whatever another program put where a
file of ours belongs, or made its own, must hold up no one but who writes there.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO

# What stands where a directory should, or a link that leads to itself or to a name that no file can have.
_NO_PLACE = (errno.ELOOP, errno.ENOTDIR, errno.ENAMETOOLONG)


def check_replace(path: str) -> str | None:
    """Why this file cannot be made, or replaced by a new one; None if it can."""
    return _check_kind(path) or check_directory(os.path.dirname(path))


def check_append(path: str) -> str | None:
    """Why nothing can be appended to this file; None if it can."""
    why = _check_kind(path)
    if why is not None:
        return why
    if os.path.exists(path):
        return None if os.access(path, os.R_OK | os.W_OK) else _not_ours(path)
    if not os.path.islink(path):
        return check_directory(os.path.dirname(path))
    # A file can be made behind a link, but not the directory in which it would lie.
    target = os.path.dirname(os.path.realpath(path))
    return check_directory(target) if os.path.isdir(target) else _in_the_way(path)


def check_directory(directory: str) -> str | None:
    """Why nothing can be made in this directory, or it cannot be made itself; None if it can."""
    directory = _nearest(directory)
    if not os.path.isdir(directory):
        return _in_the_way(directory)
    return None if os.access(directory, os.W_OK | os.X_OK) else _not_ours(directory)


def check_move(source: str, target: str) -> str | None:
    """Why what lies at `source` cannot be moved to `target`; None if it can, or nothing lies there yet."""
    if not os.path.lexists(source):
        return None
    # It would be taken for moved already, and stay where it is. Where case makes no difference it may be itself.
    if os.path.lexists(target) and not os.path.samestat(os.lstat(source), os.lstat(target)):
        return _in_the_way(target, what="directory")
    directory = os.path.dirname(target)
    why = check_directory(os.path.dirname(source)) or check_directory(directory)
    if why is not None:
        return why
    if not os.path.islink(source) and not os.access(source, os.W_OK):
        return _not_ours(source)
    is_apart = os.path.ismount(source) or os.lstat(source).st_dev != os.stat(_nearest(directory)).st_dev
    return f"{source} is mounted and cannot be moved: do so by hand, nothing was changed" if is_apart else None


def without_waiting(path: str, flags: int) -> int:
    """A pipe with the name of a file would be waited for until somebody writes into it."""
    return os.open(path, flags | os.O_NONBLOCK)


def is_regular(file: BinaryIO) -> bool:
    """What is a pipe or a device has no content that ends: it is as good as torn."""
    return stat.S_ISREG(os.fstat(file.fileno()).st_mode)


def _nearest(directory: str) -> str:
    """It, or of the directories that it lies in the innermost that is there."""
    while not os.path.lexists(directory):
        directory = os.path.dirname(directory)
    return directory


def _check_kind(path: str) -> str | None:
    try:
        is_file = stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:
        is_file = True
    except OSError as error:
        if error.errno not in _NO_PLACE:
            raise
        is_file = False
    return None if is_file else _in_the_way(path)


def _in_the_way(path: str, *, what: str = "file") -> str:
    return f"there is no place for a {what} at {path}: remove what lies there, nothing was changed"


def _not_ours(path: str) -> str:
    return f"{path} may not be written by this user: nothing was changed"
