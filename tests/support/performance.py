"""A play performed by a team in a process of its own, which can be killed at any moment and started again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bullpen.config import Settings
from bullpen.team import Team, open_team
from bullpen.team.run import Hosting
from bullpen.worker.worker import Worker
from tests.support.cast import Play, layered
from tests.support.processes import Line

TEAMMATES = ("ana", "ben", "cy", "dee")
# Commands that take a while, so that some are cut off in their middle.
PLAY = Play(jobs=layered(20, 4), teammates=TEAMMATES, command_seconds=0.05)


def unconfined(**sections: Any) -> Settings:
    """The local sandbox starts fastest, and everything is allowed in it; what else is said is said on top."""
    return Settings.from_mapping({"sandbox": {"kind": "local"}, "permissions": {"allow": ["*"]}, **sections})


class FewSlots(Hosting):
    """Room for so many teammates only: the others go to another process."""

    slots = 3

    def worker(self, team: Team) -> Worker:
        return Worker(super().worker(team).house, slots=self.slots, team_id=team.id, lease_seconds=self.lease_seconds)


async def perform(line: Line, url: str, name: str, workspace: str, has_room: bool = True) -> None:
    """Host the team until it is done; says `up` when it begins and `over` with how it ended."""
    provider = PLAY.provider()
    async with open_team(
        name,
        store=url,
        create=False,
        model="scripted:play",
        open_model=lambda model, **wishes: provider,
        workspace=workspace,
    ) as team:
        if not has_room:
            assert team.hosting is not None
            team.hosting = FewSlots(
                model="scripted:play", open_model=team.hosting.open_model, workspace=Path(workspace)
            )
        await line.say("up")
        report = await team.run()
        await line.say("over", outcome=report.outcome, text=report.text, lines=report.lines)
