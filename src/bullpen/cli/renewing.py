"""Settings that a team takes anew when a human lets it go on.

A team carries its settings, so that it is the same wherever it is hosted. But what prepares a worktree and what guards
its steps are commands of the human's: one that fails is mended in the file, and `resume` is how to say so.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from bullpen.cli.call import Call
from bullpen.cli.question import ask
from bullpen.cli.terminal import can_converse
from bullpen.config import Settings, find_settings_file, load_settings
from bullpen.domain.trunk import Trunk
from bullpen.team import Team
from bullpen.team.beginning import WORKSPACE

RENEWED = ("worktree.", "hooks.")


async def renew_settings(call: Call, team: Team, directory: Path) -> None:
    """From those that are in force in this directory; nobody hosts the team. Where there are none, it keeps its own: a
    program may have given it those."""
    known, now = Settings.from_mapping(team.record.settings), load_settings(directory, environment=os.environ)
    file = find_settings_file(directory)
    if file is None and not any(key.startswith(RENEWED) for key in now.sources):
        return
    where = "the environment" if file is None else str(file)
    if (
        known.hooks != now.hooks
        and await _could_be_a_members(team, file, directory)
        and not _may_take_hooks(call, where)
    ):
        now = replace(now, hooks=known.hooks)
    before = dict(known.values())
    differing = [key for key, value in now.values() if key.startswith(RENEWED) and before.get(key) != value]
    if not differing:
        return
    mapping = now.to_mapping()
    await team.remember(worktree=mapping["worktree"], hooks=mapping["hooks"])
    call.note(f"{', '.join(differing)}: not as before, taken anew from {where}")


async def _could_be_a_members(team: Team, file: Path | None, directory: Path) -> bool:
    """Who shares the directory may have written the file, and hooks run outside of the sandbox."""
    known = team.record.settings
    if Trunk.of(known) is not None or file is None or not file.is_relative_to(directory):
        return False
    # A board that was begun by hand may have been worked on by workers, and never by a run.
    return WORKSPACE in known or any(member.incarnation for member in await team.list_members())


def _may_take_hooks(call: Call, where: str) -> bool:
    said = f"hooks in {where} are not as before, they run outside of the sandbox, and members could write that file"
    if not call.is_json and can_converse():
        return ask(f"{said}. Shall they be taken?")
    call.note(f"{said}: not taken; `bullpen resume` on a terminal asks")
    return False
