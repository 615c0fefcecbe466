"""The tools, one file per family, behind one registry; `toolbox_for` says who has which."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from bullpen.errors import UsageError

if TYPE_CHECKING:
    from bullpen.tools.registry import Toolbox

__all__ = ["TOOLBOX_KINDS", "toolbox_for"]

TOOLBOX_KINDS = ("lead", "teammate", "explore", "plan", "code")


def toolbox_for(kind: str, *, allow: Sequence[str] | None = None, deny: Sequence[str] = ()) -> Toolbox:
    """The tools of a lead, a teammate, or a subagent that explores, plans or codes.

    `allow`: only these of them; `deny`: not these. Either may use any name that a tool is understood by.
    Whoever has the same tools has the same box: its descriptions are many times as large as a member.
    """
    return _toolbox(kind, None if allow is None else tuple(allow), tuple(deny))


@cache
def _toolbox(kind: str, allow: tuple[str, ...] | None, deny: tuple[str, ...]) -> Toolbox:
    from bullpen.tools.catalogue import CATALOGUE, narrowed
    from bullpen.tools.registry import Toolbox

    if kind not in CATALOGUE:
        raise UsageError(f"{kind[:40]!r} is no kind of agent: use {', '.join(TOOLBOX_KINDS)}")
    return Toolbox(narrowed(CATALOGUE[kind], allow=allow, deny=deny))
