"""Who has which tools. What is not in a member's list does not exist for it.

Subagents end with their answer: they start nothing that outlives them, and do not speak for the team. Those that
explore or plan have nothing that writes; their bash cannot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bullpen.tool import Tool
from bullpen.tools import board, crew, files, mail, memory, search, shell, skill

_EVERYTHING = (
    *shell.TOOLS[:1],
    *files.TOOLS,
    *search.TOOLS,
    *board.TOOLS,
    *mail.TOOLS,
    *crew.TOOLS,
    *skill.TOOLS,
    *shell.TOOLS[1:],
    *memory.TOOLS,
)
_LOOKING = (shell.READING_BASH, files.READ_FILE, *search.TOOLS, *skill.TOOLS)

CATALOGUE: Mapping[str, tuple[Tool, ...]] = {
    "lead": tuple(
        mail.LEAD_SEND_MESSAGE if tool is mail.SEND_MESSAGE else tool for tool in _EVERYTHING if tool.for_lead
    ),
    "teammate": tuple(tool for tool in _EVERYTHING if tool.for_teammate),
    "explore": _LOOKING,
    "plan": _LOOKING,
    "code": (shell.SUBAGENT_BASH, *files.TOOLS, *search.TOOLS, *skill.TOOLS),
}


def narrowed(tools: Sequence[Tool], *, allow: Sequence[str] | None, deny: Sequence[str]) -> list[Tool]:
    allowed = None if allow is None else {name.casefold() for name in allow}
    denied = {name.casefold() for name in deny}
    return [tool for tool in tools if (allowed is None or _names(tool) & allowed) and not _names(tool) & denied]


def _names(tool: Tool) -> set[str]:
    return {name.casefold() for name in (tool.name, *tool.aliases)}
