"""What a scripted member sees, and templates over it.

`{{name}}` in a text or an argument stands for something seen; a name that stands for nothing is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from bullpen.domain.prompt import AssistantMessage, CallPart, ChatMessage, ResultPart, TextPart, UserMessage
from bullpen.provider import ModelRequest

_TEMPLATE = re.compile(r"\{\{\s*(.+?)\s*\}\}")
# The last of each in the conversation, as the runtime frames it; attributes stand in any order.
_SEEN = {
    "task_id": r'<task\b[^>]*?\bid="([^"]*)"',
    "last_message_id": r'<message\b[^>]*?\bid="([^"]*)"',
    "last_message_from": r'<message\b[^>]*?\bfrom="([^"]*)"',
    "request_id": r'\brequest_id="([^"]*)"',
}


class Sight:
    def __init__(self, request: ModelRequest) -> None:
        self.request = request
        self._context: str | None = None

    @property
    def newest(self) -> str:
        """The newest user message, its results included."""
        newest = next((item for item in reversed(self.request.messages) if isinstance(item, UserMessage)), None)
        return _text(newest) if newest else ""

    def context(self) -> str:
        """The whole conversation, without the system prompt."""
        if self._context is None:
            self._context = "\n".join(_text(message) for message in self.request.messages)
        return self._context

    def result(self) -> str:
        """The text of the newest tool result."""
        results = (
            part
            for message in reversed(self.request.messages)
            for part in reversed(message.parts)
            if isinstance(part, ResultPart)
        )
        found = next(results, None)
        if found is None:
            raise LookupError("there is no tool result yet")
        return found.text

    def fill(self, value: Any, groups: Mapping[str, str]) -> Any:
        """The value with its templates filled, however deep; LookupError names the one that stands for nothing."""
        if isinstance(value, str):
            return _TEMPLATE.sub(lambda found: self._stands_for(found[1], groups), value)
        if isinstance(value, Mapping):
            return {key: self.fill(item, groups) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.fill(item, groups) for item in value]
        return value

    def _stands_for(self, name: str, groups: Mapping[str, str]) -> str:
        if name in groups:
            return groups[name]
        plain: Mapping[str, Callable[[], str]] = {
            "member": lambda: self.request.member,
            "newest": lambda: self.newest,
            "result": self.result,
        }
        if name in plain:
            return plain[name]()
        pattern = name.removeprefix("find:").strip() if name.startswith("find:") else _SEEN.get(name)
        if pattern is None:
            known = ", ".join([*plain, *_SEEN, "find:REGEX", "and the groups of `when`"])
            raise LookupError(f"{{{{{name}}}}} is not known: there are {known}")
        try:
            found = list(re.finditer(pattern, self.context(), re.DOTALL))
        except re.error as error:
            raise LookupError(f"{{{{{name}}}}} is not a regular expression: {error}") from None
        if not found:
            raise LookupError(f"{{{{{name}}}}} stands for nothing that was seen")
        last = found[-1]
        return last[1] if last.re.groups else last[0]


def _text(message: ChatMessage) -> str:
    return "\n".join(
        _shown(message, part) for part in message.parts if isinstance(part, TextPart | ResultPart | CallPart)
    )


def _shown(message: ChatMessage, part: TextPart | ResultPart | CallPart) -> str:
    if isinstance(part, CallPart) and isinstance(message, AssistantMessage):
        return f"{part.name} {dict(part.arguments)}"
    return "" if isinstance(part, CallPart) else part.text
