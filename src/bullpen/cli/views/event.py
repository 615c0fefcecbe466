"""The log, one line for each fact. Kinds and facts that are not known here are shown as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bullpen.cli.page import Page, Painted
from bullpen.cli.views.moment import clock
from bullpen.domain.event import Event

_KIND_WIDTH = 20
_ACTOR_WIDTH = 8

_STYLES = {
    "TaskCompleted": "green",
    "TaskFailed": "red",
    "TaskClaimed": "cyan",
    "MemberLapsed": "red",
    "WorkerLapsed": "red",
    "MessageQuarantined": "red",
    "RequestOpened": "yellow",
    "HookRefused": "yellow",
}

# In this order; what is not named here follows as key=value.
_FACTS: Mapping[str, Callable[[Any], str]] = {
    "task": lambda value: f"#{value}",
    "message": lambda value: f"message {value}",
    "request": lambda value: f"request {value}",
    "member": str,
    "name": str,
    "old": lambda value: f"was {value}",
    "to": lambda value: f"to {value}",
    "by": lambda value: f"by #{value}",
    "status": str,
    "subject": str,
    "fields": lambda value: ", ".join(map(str, value)),
    "path": str,
    "overlaps": lambda value: "files overlap with " + ", ".join(f"#{number}" for number in value),
    "blocked_by": lambda value: "waits for " + ", ".join(f"#{number}" for number in value),
    "text": str,
    "goal": str,
    "result": str,
    "reason": str,
    "note": str,
}
_NOTHING: tuple[Any, ...] = (None, "", [], {})
# Said by the rest of the line.
_UNTOLD = frozenset({"type", "origin", "incarnation", "generation"})


def draw_event(page: Page, event: Event) -> None:
    page.line(
        Painted(clock(event.at, page.terminal.now), "dim"),
        "  ",
        Painted(f"{event.kind:<{_KIND_WIDTH}}", _STYLES.get(event.kind, "")),
        "  ",
        Painted(f"{event.actor:<{_ACTOR_WIDTH}}", "bold"),
        "  ",
        *(part for fact in facts_of(event) for part in (fact, "  ")),
        is_cut=True,
    )


def facts_of(event: Event) -> list[str]:
    told = {key: value for key, value in event.data.items() if value not in _NOTHING and key not in _UNTOLD}
    if told.get("outcome") == "queued":
        del told["outcome"]
    if told.get("owner") == event.actor or told.get("member") == event.actor:
        told = {key: value for key, value in told.items() if value != event.actor}
    known = [say(told.pop(key)) for key, say in _FACTS.items() if key in told]
    return known + [f"{key}={said}" for key, said in _pairs(told)]


def _pairs(facts: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    """What lies in another fact has that one's name before its own: `evidence.exit_code`."""
    for key, value in facts.items():
        if isinstance(value, Mapping):
            yield from _pairs(value, f"{path}{key}.")
        elif value not in _NOTHING:
            yield f"{path}{key}", _said(value)


def _said(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return " ".join(f"{key}={said}" for key, said in _pairs(value))
    return ",".join(map(_said, value)) if isinstance(value, list | tuple) else str(value)
