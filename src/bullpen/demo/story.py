"""The script of the demo, made ready to be played: files and interpreter filled in, delays scaled."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).parent / "script"
# Of a step that says nothing of it.
THINKING_SECONDS = 0.6
FOR_EVER_SECONDS = 3600.0

_FILE = re.compile(r"\{\{file:(.+?)\}\}")


def write_script(path: Path, *, python: str, speed: float, hangs: bool = False) -> Path:
    """Its path: `scripted:PATH` plays it. `hangs`: who comes to the step that is marked `chaos` thinks for ever, so
    that its worker is killed in the middle of it, however slow or fast the machine is."""
    data = tomllib.loads((SCRIPT / "story.toml").read_text("utf-8"))
    for step in (step for steps in data["members"].values() for step in steps):
        waits = step.pop("chaos", False) and hangs
        thinking = step.get("delay_seconds", THINKING_SECONDS) / speed
        step["delay_seconds"] = FOR_EVER_SECONDS if waits else thinking
    path.write_text(json.dumps(_filled(data, python)), "utf-8")
    return path


def _filled(value: Any, python: str) -> Any:
    if isinstance(value, str):
        found = _FILE.fullmatch(value)
        return (SCRIPT / "files" / found[1]).read_text("utf-8") if found else value.replace("{{python}}", python)
    if isinstance(value, dict):
        return {key: _filled(item, python) for key, item in value.items()}
    return [_filled(item, python) for item in value] if isinstance(value, list) else value
