"""Seeing that a team is done, or stalled, and telling its lead once, then the user: nobody else would.

Looked at only when nobody here is at work, so that a team that moves pays nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import datetime

from bullpen.domain.member import LEAD, USER, Member, MemberStatus
from bullpen.domain.message import MessageType
from bullpen.domain.request import digest_of
from bullpen.domain.standing import Snapshot, Standing, Verdict, judge
from bullpen.domain.task import FINISHED
from bullpen.domain.text import clean
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
        text = await self._word_to_lead(snapshot, standing)
        if text is not None and await self._tell(text, standing, snapshot):
            return _moving(standing)
        await self._end(snapshot, standing)
        return standing

    async def peek(self) -> Standing:
        """The same for who only looks on: nobody is told, and what the lead is still to be told moves the team."""
        snapshot = await self._store.get_snapshot(self._team_id)
        standing = judge(snapshot)
        text = await self._word_to_lead(snapshot, standing)
        is_told = text is None or await self._has_read(text, since=_changed_at(snapshot))
        return standing if is_told else _moving(standing)

    async def _end(self, snapshot: Snapshot, standing: Standing) -> None:
        """Whoever runs the team reads from the standing that it is over, and ends it."""

    async def _tell(self, text: str, standing: Standing, snapshot: Snapshot) -> bool:
        """True if the lead has it still to read: told once for a state, whoever tells it."""
        state = digest_of([standing.digest, _changed_at(snapshot)])[:24]
        message = await self._store.notify(
            self._team_id, LEAD, text, operation_id=f"standing/{self._team_id}/{standing.verdict}/{state}"
        )
        stored = await self._store.get_message(self._team_id, message.id)
        return stored.delivered_at is None

    async def _has_read(self, text: str, *, since: datetime | None) -> bool:
        return any(
            message.content == clean(text)
            and message.delivered_at is not None
            and (since is None or message.sent_at >= since)
            for message in await self._store.list_mail(self._team_id, LEAD)
        )

    async def _word_to_lead(self, snapshot: Snapshot, standing: Standing) -> str | None:
        lead = _lead_of(snapshot)
        if lead.worker_id is None or lead.status is not MemberStatus.IDLE:
            return None
        if standing.verdict is Verdict.STALLED:
            return f"The team has stalled: {_waits(standing)}\nChange something, or say why it must end."
        if standing.verdict is Verdict.DONE and (_has_news(snapshot, lead) or await self._has_unread_results()):
            return f"{ALL_FINISHED}: {_counts(snapshot)}."
        return None

    async def _has_unread_results(self) -> bool:
        """A task may be finished while the lead is being asked: only its result tells it, and that wakes nobody."""
        unread = await self._store.list_mail(self._team_id, LEAD, undelivered_only=True)
        return any(message.type is MessageType.RESULT for message in unread)


class UnattendedWatch(StandingWatch):
    """Of a team that nobody runs, only workers host: that it is over, the user gets by mail, once for a state."""

    _told = ""

    async def _end(self, snapshot: Snapshot, standing: Standing) -> None:
        text = _word_to_user(snapshot, standing)
        if text is None:
            return
        # Not how members stand: who has idled for long enough leaves, and nothing is new by that.
        state = digest_of([text, _changed_at(snapshot)])[:24]
        # The operation would keep it from coming twice, at the price of a write with each look.
        if state != self._told:
            told = f"over/{self._team_id}/{standing.verdict}/{state}"
            await self._store.notify(self._team_id, USER, text, operation_id=told)
            self._told = state


def _word_to_user(snapshot: Snapshot, standing: Standing) -> str | None:
    """None where it has been told otherwise: what it is asked, or that the lead's model cannot be asked."""
    name, counters = snapshot.team.name, _lead_of(snapshot).counters
    if standing.verdict not in (Verdict.DONE, Verdict.STALLED) or counters.get("unanswered"):
        return None
    if failed := counters.get("failed"):
        return f"team {name} has failed: {failed}"
    if standing.verdict is Verdict.STALLED:
        return f"team {name} is stalled: {_waits(standing)}\n`bullpen chat --team {name}` talks with the lead."
    return f"team {name} is finished: {_counts(snapshot) or 'no tasks'}. `bullpen watch {name}` tells what it said."


def _moving(standing: Standing) -> Standing:
    return Standing(verdict=Verdict.MOVES, digest=standing.digest)


def _lead_of(snapshot: Snapshot) -> Member:
    return next(member for member in snapshot.members if member.key == LEAD)


def _changed_at(snapshot: Snapshot) -> datetime | None:
    """When the board last did."""
    return max((task.updated_at for task in snapshot.tasks), default=None)


def _waits(standing: Standing) -> str:
    return "\n".join(["nothing can go on by itself.", *(f"- {line}" for line in standing.lines)])


def _counts(snapshot: Snapshot) -> str:
    counts = Counter(str(task.status) for task in snapshot.tasks)
    return ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))


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
