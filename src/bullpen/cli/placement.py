"""Where the members of a run are hosted, as it was typed: here, or by the workers of a runner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bullpen.errors import UsageError

if TYPE_CHECKING:
    from bullpen.cli.call import Call
    from bullpen.config import Settings
    from bullpen.team.run import Runner


@dataclass(frozen=True, slots=True)
class Placement:
    runner: str | None
    address: str | None

    @classmethod
    def named(cls, runner: str | None, address: str | None) -> Placement:
        if runner not in (None, "ray"):
            raise UsageError(f"there is no runner {runner[:40]!r}: --runner ray, or none to host the team here")
        if address is not None and runner is None:
            raise UsageError("--ray-address needs --runner ray")
        return cls(runner, address)

    @property
    def words(self) -> tuple[str, ...]:
        """The same, to be typed again."""
        if self.runner is None:
            return ()
        return ("--runner", self.runner, *(() if self.address is None else ("--ray-address", self.address)))

    async def find_runner(self, call: Call, settings: Settings) -> Runner | None:
        """Looked at before a team begins: what could never run is refused, in one line."""
        if self.runner is None:
            return None
        from bullpen.runners import RayRunner

        ray = settings.ray
        runner = RayRunner(
            address=self.address or ray.address,
            slots=ray.slots,
            min_workers=ray.min_workers,
            max_workers=ray.max_workers,
            num_cpus=ray.num_cpus,
            idle_seconds=ray.idle_seconds,
            on_note=call.note,
        )
        await runner.check(call.place.url)
        return runner
