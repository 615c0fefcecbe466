"""Where the workers of a team come from, other than this process: a `Runner` is given to `open_team` or `Hosting`.

    async with open_team("crew", store="postgresql://…", model="anthropic:…", runner=RayRunner(slots=8)) as team:
        report = await team.run("Migrate the API")

Without one, the process that runs a team hosts it.
"""

from bullpen.runners.ray.runner import RayRunner
from bullpen.team.run import Crew, Runner

__all__ = ["Crew", "RayRunner", "Runner"]
