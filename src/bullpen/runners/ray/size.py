"""How many workers a team needs, by the labels that they have. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil

from bullpen.domain.member import Member, MemberKind, MemberStatus

Labels = tuple[str, ...]
NONE: Labels = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """`slots` teammates for each worker; a lead takes none."""

    slots: int
    min_workers: int
    max_workers: int

    def need(self, members: Iterable[Member], labels_of: Mapping[int, Labels]) -> dict[Labels, int]:
        """Workers by their labels. `labels_of`: of our own workers, by id.

        Whoever is hosted by one of ours counts where it is, also if it asked for less; whoever is hosted elsewhere
        needs none of ours. So a crowd without labels on a worker with them makes room there, not elsewhere.
        """
        seats: Counter[Labels] = Counter()
        is_led = False
        for member in members:
            home = _home(member, labels_of)
            if home is None:
                continue
            if member.kind is MemberKind.LEAD:
                is_led = True
            else:
                seats[home] += 1
        need = {labels: ceil(count / self.slots) for labels, count in seats.items()}
        need[NONE] = max(need.get(NONE, 0), self.min_workers, int(is_led))
        while sum(need.values()) > self.max_workers:
            need[max(need, key=lambda labels: need[labels])] -= 1
        return need


def _home(member: Member, labels_of: Mapping[int, Labels]) -> Labels | None:
    """With which labels the worker is, or must be, that hosts it; None if it needs none of ours."""
    if member.kind not in (MemberKind.LEAD, MemberKind.TEAMMATE):
        return None
    if member.worker_id is not None:
        return labels_of.get(member.worker_id)
    return member.labels if member.status is MemberStatus.WANTED else None
