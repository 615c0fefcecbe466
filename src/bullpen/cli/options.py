"""The global options: taken out of the words in one place, so they are understood before and after the subcommand.

Words after `--` are left alone: `bullpen send ana -- use --json` sends them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bullpen.errors import UsageError

VALUES = {"--store": "URL", "--team": "NAME"}
FLAGS = ("--json", "--version")


@dataclass(frozen=True)
class Globals:
    store: str | None = None
    team: str | None = None
    json: bool = False
    version: bool = False


def hoist(words: Sequence[str]) -> tuple[Globals, list[str]]:
    """The global options, and the words without them; UsageError for one that lacks its value."""
    values: dict[str, str] = {}
    flags: set[str] = set()
    rest: list[str] = []
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if word == "--":
            rest += ["--", *words[position:]]
            break
        name, equals, value = word.partition("=")
        if name in FLAGS:
            if equals:
                raise UsageError(f"{name} takes no value")
            flags.add(name)
        elif name in VALUES:
            if not equals and position < len(words):
                value = words[position]
                position += 1
            if not value or value.startswith("-"):
                raise UsageError(f"{name} needs a value: {name} {VALUES[name]}")
            values[name] = value
        else:
            rest.append(word)
    chosen = Globals(
        store=values.get("--store"), team=values.get("--team"), json="--json" in flags, version="--version" in flags
    )
    return chosen, rest


def wants_json(words: Sequence[str]) -> bool:
    """Also when the words cannot be understood: how is the error to be told?"""
    words = list(words)
    return "--json" in (words[: words.index("--")] if "--" in words else words)
