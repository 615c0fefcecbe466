"""Directories: one that holds a store on disk, and one of this machine for what lives no longer than processes do."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from bullpen.errors import StoreRemoved, StoreUnavailable


def make_store_directory(directory: Path) -> None:
    """Private, and `.bullpen` invisible to git, where it is ours to make."""
    if directory.is_dir():
        return
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if directory.name == ".bullpen":
            (directory / ".gitignore").write_text("*\n")
    except OSError as error:
        raise StoreUnavailable(f"{directory} cannot be created: {error.strerror}") from error


def removed(path: object) -> StoreRemoved:
    """Of a store on disk that is not there any more, or is another one by now."""
    return StoreRemoved(
        f"{path} was removed or replaced while it was in use, and its teams with it: "
        "`bullpen run GOAL` begins anew, or put it back and `bullpen resume` goes on"
    )


def runtime_path() -> Path:
    """Short, and the user's own: `/run/user/1000/bullpen` or `/tmp/bullpen-1000`.

    All who share a store have to come to the same one, also who was started without the environment of the others (by
    cron, sudo or a service, from a shell with a TMPDIR of its own): they would not hear each other's rings.
    """
    user = os.getuid()
    for runtime in (os.environ.get("XDG_RUNTIME_DIR", ""), f"/run/user/{user}"):
        # After `sudo -E` it is another's, who could not use what is made there.
        if _is_usable(runtime) and os.stat(runtime).st_uid == user:
            return Path(runtime) / "bullpen"
    shared = next(filter(_is_usable, ("/tmp", tempfile.gettempdir())), "/tmp")
    return Path(shared) / f"bullpen-{user}"


def _is_usable(directory: str) -> bool:
    return (
        os.path.isabs(directory) and len(directory) <= 40 and os.path.isdir(directory) and os.access(directory, os.W_OK)
    )


def make_runtime_directory() -> Path:
    directory = runtime_path()
    with suppress(OSError):
        directory.mkdir(mode=0o700, exist_ok=True)
    with suppress(OSError):
        info = directory.lstat()
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():
            raise StoreUnavailable(
                f"{directory} belongs to somebody else: set XDG_RUNTIME_DIR to a directory of your own"
            )
    return directory
