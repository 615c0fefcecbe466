"""The directory that holds a store on disk."""

from __future__ import annotations

from pathlib import Path

from bullpen.errors import StoreUnavailable


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
