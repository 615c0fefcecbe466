"""What a project says of itself to agents: instructions (AGENTS.md, CLAUDE.md) and roles (`.claude/agents`).

Read once for an incarnation, because it becomes part of the system prompt: so everything is bounded, and in a fixed
order. Links that lead out of the workspace are not followed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bullpen.domain.text import clean
from bullpen.errors import ToolError
from bullpen.tools.fence import Place, read_bytes
from bullpen.tools.front_matter import split_front_matter

INSTRUCTIONS = ("AGENTS.md", "CLAUDE.md")
ROLES = ".claude/agents"
MAX_FILE_BYTES = 1_000_000
ROOT_CHARACTERS = 30_000
MAX_NESTED = 50
MAX_DEPTH = 4
MAX_DIRECTORIES = 5_000
MAX_ROLES = 100

_NOT_ENTERED = frozenset({"node_modules", "__pycache__", "venv", "target", "dist", "build", "vendor"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Instructions:
    """`path` is relative to the workspace. Those of the root are whole; of a nested one `text` says for which
    directory it is, and that it is there."""

    path: Path
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """`tools` empty: all. `model` as it is written there, None where it says nothing or `inherit`."""

    name: str
    description: str = ""
    model: str | None = None
    tools: tuple[str, ...] = ()
    prompt: str = ""
    path: Path


def find_instructions(workspace: Path) -> list[Instructions]:
    """Of the root first. Two files of one directory that say the same are one."""
    found = [Instructions(path=path, text=_cut(path, text)) for path, text in _said_in(workspace, workspace)]
    nested = 0
    for directory in _directories(workspace):
        for path, text in _said_in(workspace, directory):
            nested += 1
            if nested > MAX_NESTED:
                return found
            found.append(Instructions(path=path, text=_pointer(path, text)))
    return found


def _said_in(workspace: Path, directory: Path) -> Iterator[tuple[Path, str]]:
    said: set[str] = set()
    for name in INSTRUCTIONS:
        text = read_text(workspace, directory / name)
        if text is not None and text.strip() and text.strip() not in said:
            said.add(text.strip())
            yield (directory / name).relative_to(workspace), clean(text)


def _cut(path: Path, text: str) -> str:
    if len(text) <= ROOT_CHARACTERS:
        return text
    return f"{text[:ROOT_CHARACTERS]}\n[… {len(text) - ROOT_CHARACTERS:,} more characters: read {path}]"


def _pointer(path: Path, text: str) -> str:
    return f"Holds for everything below {path.parent}/ ({len(text):,} characters): read it before you work there."


def _directories(workspace: Path) -> Iterator[Path]:
    """Below the workspace, near ones first, as far as instructions are looked for."""
    level, seen = [workspace], 0
    for _ in range(MAX_DEPTH):
        below: list[Path] = []
        for directory in level:
            for path in entries(workspace, directory):
                if path.name.startswith(".") or path.name in _NOT_ENTERED or path.is_symlink() or not path.is_dir():
                    continue
                seen += 1
                if seen > MAX_DIRECTORIES:
                    return
                below.append(path)
                yield path
        level = below


def find_roles(workspace: Path) -> list[Role]:
    """By name."""
    found: dict[str, Role] = {}
    for path in entries(workspace, workspace / ROLES):
        if path.suffix == ".md" and (text := read_text(workspace, path)) is not None:
            role = _role(path, text)
            found.setdefault(role.name.casefold(), role)
    return [found[key] for key in sorted(found)][:MAX_ROLES]


def _role(path: Path, text: str) -> Role:
    values, body = split_front_matter(text)
    model = values.get("model", "")
    return Role(
        name=clean(values.get("name") or path.stem)[:100],
        description=clean(" ".join(values.get("description", "").split()))[:1_000],
        model=None if model in ("", "inherit") else clean(model),
        tools=tuple(tool.strip() for tool in clean(values.get("tools", "")).split(",") if tool.strip()),
        prompt=clean(body)[:ROOT_CHARACTERS],
        path=path,
    )


def entries(workspace: Path, directory: Path) -> list[Path]:
    """What lies in a directory of the workspace, by name; nothing if it leads out of it."""
    try:
        if not directory.resolve().is_relative_to(workspace.resolve()):
            return []
        return [directory / name for name in sorted(os.listdir(directory))]
    except OSError:
        return []


def read_text(workspace: Path, path: Path) -> str | None:
    """None if it is not there, not a file of the workspace, or no text of a sensible size."""
    root, real = workspace.resolve(), path.resolve()
    if not real.is_relative_to(root):
        return None
    try:
        data, _ = read_bytes(Place(root, real.relative_to(root).parts, str(path)))
    except (OSError, ToolError):
        return None
    return None if len(data) > MAX_FILE_BYTES or b"\0" in data else data.decode("utf-8", "replace")
