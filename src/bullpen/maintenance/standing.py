"""Seeing that a team is done, or stalled, and telling its lead once: nobody else would.

Looked at only when nobody here is at work, so that a team that moves pays nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import datetime

from bullpen.domain.member import LEAD, Member, MemberStatus
from bullpen.domain.message import MessageType
from bullpen.domain.request import digest_of
from bullpen.domain.standing import Snapshot, Standing, Verdict, judge
from bullpen.domain.task import FINISHED
from bullpen.errors import BullpenError
from bullpen.store import Store

ALL_FINISHED = "All tasks are finished"
# Events come in bursts: one look for each.
SETTLING_SECONDS = 0.05
LOOK_AGAIN_SECONDS = 5.0


class StandingWatch:
    def __init__(self, store: Store, team_id: int, *, is_quiet: Callable[[], bool] = lambda: True) -> None:
        self._store = store
        self._team_id = team_id
        self._is_quiet = is_quiet

    @asynccontextmanager
    async def watching(self, is_on: bool = True) -> AsyncIterator[None]:
        """While inside, it looks whenever something has happened."""
        if not is_on:
            yield
            return
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def _run(self) -> None:
        async with self._store.listen_events(self._team_id) as bell:
            while True:
                bell.clear()
                if self._is_quiet():
                    # The store may be away, or the team gone: its members find out themselves.
                    with suppress(BullpenError):
                        await self.look()
                await bell.wait(LOOK_AGAIN_SECONDS)
                await asyncio.sleep(SETTLING_SECONDS)

    async def look(self) -> Standing:
        """How the team stands. `moves` too if the lead has just been told how, and will act on it."""
        snapshot = await self._store.get_snapshot(self._team_id)
        standing = judge(snapshot)
        lead = next(member for member in snapshot.members if member.key == LEAD)
        if lead.worker_id is None or lead.status is not MemberStatus.IDLE:
            return standing
        text = await self._word_to_lead(snapshot, standing, lead)
        if text is not None and await self._tell(text, standing, snapshot):
            return Standing(verdict=Verdict.MOVES, digest=standing.digest)
        return standing

    async def _tell(self, text: str, standing: Standing, snapshot: Snapshot) -> bool:
        """True if the lead has it still to read: told once for a state, whoever tells it."""
        moment = max((task.updated_at for task in snapshot.tasks), default=None)
        state = digest_of([standing.digest, moment])[:24]
        message = await self._store.notify(
            self._team_id, LEAD, text, operation_id=f"standing/{self._team_id}/{standing.verdict}/{state}"
        )
        stored = await self._store.get_message(self._team_id, message.id)
        return stored.delivered_at is None

    async def _word_to_lead(self, snapshot: Snapshot, standing: Standing, lead: Member) -> str | None:
        if standing.verdict is Verdict.STALLED:
            waits = "\n".join(f"- {line}" for line in standing.lines)
            return (
                f"The team has stalled: nothing can go on by itself.\n{waits}\n"
                "Change something, or say why it must end."
            )
        if standing.verdict is Verdict.DONE and (_has_news(snapshot, lead) or await self._has_unread_results()):
            counts = Counter(str(task.status) for task in snapshot.tasks)
            return (
                f"{ALL_FINISHED}: " + ", ".join(f"{count} {status}" for status, count in sorted(counts.items())) + "."
            )
        return None

    async def _has_unread_results(self) -> bool:
        """A task may be finished while the lead is being asked: only its result tells it, and that wakes nobody."""
        unread = await self._store.list_mail(self._team_id, LEAD, undelivered_only=True)
        return any(message.type is MessageType.RESULT for message in unread)


def _has_news(snapshot: Snapshot, lead: Member) -> bool:
    """Was a task finished by somebody else since the lead last looked?"""
    seen_at = lead.counters.get("seen_at")
    seen = datetime.fromisoformat(seen_at) if isinstance(seen_at, str) else None
    return any(
        task.status in FINISHED
        and task.owner_key != LEAD
        and task.finished_at is not None
        and (seen is None or task.finished_at > seen)
        for task in snapshot.tasks
    )
