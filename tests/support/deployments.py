"""What `deploy/` says, read by the few rules of its formats that are used there."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "systemd" / "bullpen-worker@.service"
CONTAINERFILE = DEPLOY / "container" / "Containerfile"
MANIFESTS = DEPLOY / "kubernetes"


@dataclass(frozen=True)
class Unit:
    """Of a unit of systemd: its settings, each with all its values."""

    settings: Mapping[str, list[str]]

    @classmethod
    def read(cls) -> Unit:
        settings: dict[str, list[str]] = {}
        for line in UNIT.read_text().splitlines():
            key, equals, value = line.partition("=")
            if equals and not line.startswith(("#", ";", "[")):
                settings.setdefault(key, []).append(value)
        return cls(settings)

    def get(self, key: str) -> str:
        [value] = self.settings[key]
        return value

    def command(self, environment: Mapping[str, str]) -> list[str]:
        """`ExecStart` as systemd splits it: `$NAME` becomes as many words as its value has."""
        words: list[str] = []
        for word in shlex.split(self.get("ExecStart")):
            words += shlex.split(environment.get(word[1:], "")) if word.startswith("$") else [word]
        return words


@dataclass(frozen=True)
class Containerfile:
    """Its instructions, in order: each a keyword and the rest of its line."""

    instructions: list[tuple[str, str]] = field(default_factory=list)

    @classmethod
    def read(cls) -> Containerfile:
        text = re.sub(r"(?m)^#.*\n", "", CONTAINERFILE.read_text()).replace("\\\n", " ")
        pairs = [line.partition(" ") for line in text.splitlines() if line.strip()]
        return cls([(keyword, " ".join(rest.split())) for keyword, _, rest in pairs])

    def all(self, keyword: str) -> list[str]:
        return [rest for word, rest in self.instructions if word == keyword]

    @property
    def entrypoint(self) -> list[str]:
        [text] = self.all("ENTRYPOINT")
        words: list[str] = json.loads(text)
        return words


def drain_seconds(words: list[str]) -> float:
    return float(words[words.index("--drain") + 1])
