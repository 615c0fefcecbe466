"""What the human is asked: the oldest open request to them, and the keys that answer it.

A key counts only when the question has been on the screen for a moment and nothing was typed meanwhile: whoever is
about to write `try again` has not said yes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bullpen.cli.page import Page, Painted, Part
from bullpen.domain.member import USER
from bullpen.domain.request import PermissionScope, RequestKind
from bullpen.team.progress import Progress, RequestProgress

ARMING_SECONDS = 0.6
SHOWN_LINES = 5


@dataclass(frozen=True)
class Answer:
    words: str
    approves: bool
    scope: PermissionScope | None = None
    wants_reason: bool = False
    """Better said with why: the key begins a line that says so."""


_PERMISSION = {
    "y": Answer("yes, once", True, PermissionScope.ONCE),
    "t": Answer("for this team", True, PermissionScope.TEAM),
    "a": Answer("always", True, PermissionScope.ALWAYS),
    "n": Answer("no", False),
}
_PLAN = {"y": Answer("yes", True), "n": Answer("no, because …", False, wants_reason=True)}
KEYS = "ytan"


def find_question(progress: Progress) -> RequestProgress | None:
    return next((request for request in progress.requests.values() if request.asked == USER), None)


def answers_to(request: RequestProgress) -> Mapping[str, Answer]:
    return _PERMISSION if request.kind == RequestKind.PERMISSION else _PLAN


def whole_text(page: Page, content: str) -> list[str]:
    """What is asked, line by line; if these are more than are shown, it is told in the news too."""
    asked = Page(page.terminal)
    asked.prose(content.strip(), indent=2)
    return asked.lines


def draw_question(page: Page, request: RequestProgress, *, waiting: int, is_armed: bool) -> None:
    more = f", {waiting - 1} more after it" if waiting > 1 else ""
    title = f"? {request.asker} asks you ({request.kind}, request {request.id}{more})"
    page.line(Painted(title, "yellow"), is_cut=True)
    page.lines += whole_text(page, request.text)[:SHOWN_LINES]
    page.line("  ", *(_keys(request) if is_armed else _words(request)), is_cut=True)


def _keys(request: RequestProgress) -> list[Part]:
    parts: list[Part] = []
    for key, answer in answers_to(request).items():
        parts += [Painted(f"[{key}]", "bold"), f" {answer.words}   "]
    return parts


def _words(request: RequestProgress) -> list[Part]:
    return [Painted(f"/approve {request.id}   /reject {request.id} why", "dim")]
