"""The file with the settings: `bullpen.toml`, or `pyproject.toml` with `[tool.bullpen]`.

The nearest one upwards from the working directory counts; the root of a git repository is the last place that is
looked at.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bullpen.errors import UsageError

FILE = "bullpen.toml"
PROJECT_FILE = "pyproject.toml"


def find_settings_file(directory: str | os.PathLike[str] = ".") -> Path | None:
    found = find_table(directory)
    return found and Path(found[0])


def find_table(directory: str | os.PathLike[str]) -> tuple[str, Mapping[str, Any]] | None:
    """The file, and what it says."""
    try:
        here = os.path.abspath(directory)
    except OSError as error:
        raise UsageError("the working directory is gone: change into another one") from error
    while True:
        own, project = os.path.join(here, FILE), os.path.join(here, PROJECT_FILE)
        if os.path.isfile(own):
            return own, _parse(own, _read(own))
        if os.path.isfile(project) and (table := _project_table(project)) is not None:
            return project, table
        above = os.path.dirname(here)
        if above == here or os.path.exists(os.path.join(here, ".git")):
            return None
        here = above


def _project_table(path: str) -> Mapping[str, Any] | None:
    """None if it says nothing of Bullpen; a file of others that cannot be parsed is none of our business."""
    text = _read(path)
    if "bullpen" not in text:
        return None
    try:
        tools = _parse(path, text).get("tool")
    except UsageError:
        if "tool.bullpen" in text:
            raise
        return None
    table = tools.get("bullpen") if isinstance(tools, Mapping) else None
    if table is not None and not isinstance(table, Mapping):
        raise UsageError(f"{path}: tool.bullpen is a table: write [tool.bullpen]")
    return table


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8-sig") as file:
            return file.read()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 (byte {error.start})") from error


def _parse(path: str, text: str) -> Mapping[str, Any]:
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not TOML: {error}") from error
    except RecursionError as error:
        raise UsageError(f"{path} is nested too deeply") from error
