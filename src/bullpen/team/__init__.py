"""The face of a team to programs: what the terminal, the browser, MCP and your own code call.

    async with open_team("graphql", store="sqlite:///work.db") as team:
        task = await team.create_task("Analyse the REST endpoints")
        async with team.join("cat", role="tester") as me:
            while await me.wait_for_work(timeout_seconds=60):
                …

`Team` acts for the human: what it writes comes from `user`. A `Session` acts for
one member that your own code plays, under a lease that is renewed in the background.
"""

from bullpen.team.report import Outcome, Report, Seat
from bullpen.team.session import Session
from bullpen.team.team import DEFAULT_STORE, DEFAULT_TEAM, Team, open_team, set_task_status

__all__ = [
    "DEFAULT_STORE",
    "DEFAULT_TEAM",
    "Outcome",
    "Report",
    "Seat",
    "Session",
    "Team",
    "open_team",
    "set_task_status",
]
