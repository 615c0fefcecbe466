"""The tool of one's own memory: compact."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bullpen.tool import Kind, Parameter, Tool, ToolContext, ToolOutput


async def _compact(context: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput:
    return ToolOutput(text="your conversation is summarised before your next step", compact=arguments.get("focus", ""))


COMPACT = Tool(
    name="compact",
    description="""Have your conversation summarised and go on with the summary. It happens by itself when your \
context is full.

Good: after a long investigation whose details you no longer need, compact(focus="the three failing tests").
Bad: in the middle of a change: details that you need next would be gone.""",
    parameters=(
        Parameter(
            name="focus",
            kind=Kind.TEXT,
            description="What the summary must keep above all.",
            aliases=("instructions", "reason"),
        ),
    ),
    run=_compact,
    is_repeatable=True,
    runs_last=True,
)

TOOLS = (COMPACT,)
