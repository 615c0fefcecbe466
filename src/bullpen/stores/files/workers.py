"""Worker records. Each lists whom it hosts, so that no roster has to be searched.

Invariant: a member that names a worker stands in that worker's list. The list may
say more than that; the member's own record decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bullpen.domain.codec import encode
from bullpen.domain.member import Worker
from bullpen.stores.files.form import line_bytes, record, whole
from bullpen.stores.files.layout import STOPPED_WORKERS, WORKER_FILE, WORKERS, worker_file
from bullpen.stores.files.view import View

Place = tuple[int, str]
"""A member: team id and key."""


@dataclass(frozen=True, slots=True)
class Workers:
    view: View

    def find(self, worker_id: int) -> Worker | None:
        found = self._raw(worker_id)
        return None if found is None else _worker(*found)

    def numbers(self) -> list[int]:
        """Of all who have a record."""
        names = [*self.view.names(WORKERS), *self.view.names(STOPPED_WORKERS)]
        return [int(match[1]) for name in names if (match := WORKER_FILE.fullmatch(name))]

    def listed(self, *, include_stopped: bool) -> list[Worker]:
        directories = [WORKERS, STOPPED_WORKERS] if include_stopped else [WORKERS]
        paths = [
            f"{directory}/{name}"
            for directory in directories
            for name in self.view.names(directory)
            if WORKER_FILE.fullmatch(name)
        ]
        found = (_worker(path, raw) for path in paths if (raw := self.view.object(path)) is not None)
        return sorted(found, key=lambda worker: worker.id)

    def save(self, worker: Worker, hosts: Iterable[Place] = ()) -> None:
        """`hosts` counts where there is no record yet."""
        found = self._raw(worker.id)
        listed = [list(place) for place in hosts] if found is None else found[1].get("hosts", [])
        path = worker_file(worker.id, stopped=worker.stopped_at is not None)
        self.view.write(path, line_bytes({**encode(worker), "hosts": listed}))
        if found is not None and found[0] != path:
            self.view.remove(found[0])

    def hosts(self, worker_id: int) -> list[Place]:
        found = self._raw(worker_id)
        if found is None:
            return []
        path, raw = found
        with whole(path):
            return sorted((int(team_id), str(key)) for team_id, key in raw.get("hosts", []))

    def set_hosts(self, worker_id: int, place: Place, *, is_hosted: bool) -> None:
        found = self._raw(worker_id)
        if found is None:
            return
        path, raw = found
        others = [other for other in self.hosts(worker_id) if other != place]
        hosts = [*others, place] if is_hosted else others
        self.view.write(path, line_bytes({**raw, "hosts": [list(entry) for entry in sorted(hosts)]}))

    def _raw(self, worker_id: int) -> tuple[str, dict[str, Any]] | None:
        for stopped in (False, True):
            path = worker_file(worker_id, stopped=stopped)
            raw = self.view.object(path)
            if raw is not None:
                return path, raw
        return None


def lost_worker(worker_id: int, since: datetime) -> Worker:
    """Of whom there is no record, or only one that says it has stopped, while members say that it hosts them: in a copy
    without the files whose names begin with a dot, or after a part of the store was brought back as it once was."""
    return Worker(
        id=worker_id,
        token="",
        host="unknown",
        boot_id="",
        pid=0,
        started_at=since,
        renewed_at=since,
        stop_reason="its record is gone",
    )


def _worker(path: str, raw: dict[str, Any]) -> Worker:
    worker: Worker = record(Worker, raw, path)
    return worker
