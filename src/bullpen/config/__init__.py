"""The settings: what they are, where they come from, and how a team carries them.

Every command looks for them when it starts, so the names are imported when they are first used: where there is no
file, `find_settings_file` alone costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bullpen.config.example import settings_page, write_example
    from bullpen.config.file import find_settings_file
    from bullpen.config.load import load_settings
    from bullpen.config.settings import Settings

__all__ = ["Settings", "find_settings_file", "load_settings", "settings_page", "write_example"]

_HOMES = {
    "Settings": "settings",
    "find_settings_file": "file",
    "load_settings": "load",
    "settings_page": "example",
    "write_example": "example",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bullpen.config' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"bullpen.config.{_HOMES[name]}"), name)
