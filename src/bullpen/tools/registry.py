"""Which tools there are, under which names, and who may call them: enforced here, where calls are dispatched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bullpen.domain.prompt import ToolSpec
from bullpen.errors import ToolError
from bullpen.tool import Tool


@dataclass(frozen=True, slots=True)
class Resolved:
    """A tool, and the arguments that the name it was called by implies."""

    tool: Tool
    implied: Mapping[str, Any]


class Toolbox:
    """The tools of one member. Its list is constant for an incarnation: the prefix of each request stays."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._names: dict[str, Resolved] = {}
        for tool in self._tools.values():
            for alias, implied in tool.aliases.items():
                self._names[alias.casefold()] = Resolved(tool, implied)
        for tool in self._tools.values():
            self._names[tool.name.casefold()] = Resolved(tool, {})
        self._specs = tuple(tool.spec() for tool in self._tools.values())

    def specs(self) -> tuple[ToolSpec, ...]:
        """The same object each time: what a provider makes of it is made once."""
        return self._specs

    def resolve(self, name: str) -> Resolved:
        """ToolError for a tool that does not exist or is not this member's; the text says which there are."""
        found = self._names.get(name.strip().casefold())
        if found is None:
            raise ToolError(f"there is no tool {name[:60]!r} for you; you have {', '.join(self._tools)}")
        return found
