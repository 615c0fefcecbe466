"""Whether the board holds something that could become a member's: asked once for all who wait for the same.

Only that there is nothing is shared. That one of them has something assigned says nothing about the others; and who
has something assigned while the others have nothing learns it before it leaves, from `leave_if_nothing`.
"""

from __future__ import annotations

from bullpen.domain.member import Member
from bullpen.store import Store


class Prospects:
    def __init__(self) -> None:
        self._nothing_at: dict[tuple[int, str, str], float] = {}

    async def has_any(self, member: Member, store: Store, young_seconds: float) -> bool:
        """An answer that another got is good for `young_seconds`."""
        key = (member.team_id, member.role_key, member.autonomy)
        asked_at = self._nothing_at.get(key)
        now = store.clock.monotonic()
        if asked_at is not None and now - asked_at < young_seconds:
            return False
        # Noted before the answer is there: those who wake at the same moment do not all ask.
        self._nothing_at[key] = now
        try:
            found = await store.has_prospects(member.ref)
        except BaseException:
            self._nothing_at.pop(key, None)
            raise
        if found:
            self._nothing_at.pop(key, None)
        return found
