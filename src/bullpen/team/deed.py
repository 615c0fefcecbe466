"""The operation ids that programs give: each names one deed of one team."""

from __future__ import annotations


def deed_of(team_id: int, operation_id: str | None) -> str | None:
    """Stores know operations of all their teams: `done-3` of another team, or of an earlier one of this name, would
    be taken for the same deed, and its outcome returned. Nor is it one of the runtime's own. Who counts begins with 0;
    an empty one is refused by the store."""
    return operation_id if operation_id is None or operation_id == "" else f"own/{team_id}/{operation_id}"
