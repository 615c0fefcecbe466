"""Where a team's repository is now: where it was, or where the user stands if they have moved it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bullpen.domain.trunk import Trunk
from bullpen.workspaces.git import Git


async def locate(trunk: Trunk, here: Path) -> Trunk:
    """The trunk as it is, unless its repository is gone and the one around `here` has it."""
    if trunk.is_remote or Path(trunk.repository).exists():
        return trunk
    git = Git(here)
    top = await git.ask("rev-parse", "--show-toplevel")
    if top.exit_code != 0 or await git.find(trunk.ref) is None or not await git.contains(trunk.ref, trunk.base):
        return trunk
    return replace(trunk, repository=top.text.removesuffix("\n"))
