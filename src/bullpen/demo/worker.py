"""A process that hosts the members of the demo's team: `python -m bullpen.demo.worker STORE TEAM_ID WORKSPACE MODEL`.

It says `up` when it is registered, and leaves when its standard input ends: it never outlives who started it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from bullpen.stores import open_store
from bullpen.team import Team
from bullpen.team.run import Hosting

TEAMMATES = 2


async def host(store: str, team_id: int, workspace: Path, model: str) -> None:
    async with open_store(store) as opened:
        team = Team(opened, await opened.get_team(team_id))
        async with Hosting(model=model, workspace=workspace, slots=TEAMMATES).worker(team):
            os.write(sys.stdout.fileno(), b"up\n")
            await asyncio.to_thread(sys.stdin.buffer.read)


if __name__ == "__main__":
    asyncio.run(host(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]))
