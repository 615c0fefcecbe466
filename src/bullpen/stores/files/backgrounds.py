"""What goes on beside the members of a team: a file for each, and one that says which of them still run."""

from __future__ import annotations

from dataclasses import dataclass

from bullpen.domain.background import Background, BackgroundState
from bullpen.domain.codec import encode
from bullpen.stores.files.form import file_bytes, record, whole
from bullpen.stores.files.layout import BACKGROUND_FILE, Home
from bullpen.stores.files.view import View


@dataclass(frozen=True, slots=True)
class Backgrounds:
    view: View
    home: Home
    team_id: int

    def next_number(self) -> int:
        return max(self._numbers(), default=0) + 1

    def find(self, number: int) -> Background | None:
        path = self.home.background(number)
        raw = self.view.object(path)
        return None if raw is None else record(Background, {**raw, "team_id": self.team_id}, path)

    def save(self, background: Background) -> None:
        raw = encode(background)
        del raw["team_id"]
        self.view.write(self.home.background(background.id), file_bytes(raw))
        running = [number for number in self._running() if number != background.id]
        if background.state is BackgroundState.RUNNING:
            running.append(background.id)
        self.view.write(self.home.running_backgrounds, file_bytes({"running": sorted(running)}))

    def listed(self, *, running_only: bool) -> list[Background]:
        numbers = self._running() if running_only else sorted(self._numbers())
        return [background for number in numbers if (background := self.find(number)) is not None]

    def _numbers(self) -> list[int]:
        names = (BACKGROUND_FILE.fullmatch(name) for name in self.view.names(self.home.backgrounds))
        return [int(match[1]) for match in names if match]

    def _running(self) -> list[int]:
        state = self.view.object(self.home.running_backgrounds)
        with whole(self.home.running_backgrounds):
            return [] if state is None else [int(number) for number in state["running"]]
