"""The integrator: what members hand in comes onto the trunk of their team, in the order in which it came.

Of each team one submission at a time is taken by one worker, under its lease; the store sees to that. Whatever dies
in between: the submission is taken again, and found on the trunk if it is there. Who cannot integrate it, because the
repository is not on its machine or does not let it in, leaves it to others if there are any.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress

from bullpen.agent.house import House
from bullpen.agent.room import Room, open_room, origin_of
from bullpen.config import Settings
from bullpen.domain.member import USER, Team
from bullpen.domain.submission import Submission
from bullpen.domain.task import Evidence
from bullpen.domain.trunk import Trunk
from bullpen.errors import Conflict, LeaseLost, SandboxUnavailable, StoreUnavailable, UsageError
from bullpen.worker.aside import Aside, list_others
from bullpen.workspaces.git import GitFailed
from bullpen.workspaces.integration import Integration
from bullpen.workspaces.merging import listed
from bullpen.workspaces.worktrees import INTEGRATION

logger = logging.getLogger(__name__)

CHECK_SECONDS = 600.0
TAIL_CHARACTERS = 4_000
TIMED_OUT = 124
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0


class Integrator:
    """Of one worker, for all teams that it hosts. `worker_id` and `team_id` may change while it runs."""

    def __init__(self, house: House, *, worker_id: Callable[[], int], team_id: Callable[[], int | None]) -> None:
        self._house = house
        self._store = house.store
        self._worker_id = worker_id
        self._team_id = team_id
        self._running: set[asyncio.Task[None]] = set()
        self._rooms: dict[int, Room] = {}
        self._aside = Aside(house.store.clock)
        self._pauses: dict[int, float] = {}
        self._closing = AsyncExitStack()

    async def run(self) -> None:
        """Until it is cancelled. LeaseLost when the worker has lost its lease."""
        try:
            async with self._store.listen_submissions() as bell:
                while True:
                    bell.clear()
                    if not await self._take_all():
                        await asyncio.sleep(FIRST_PAUSE_SECONDS)
                        continue
                    await bell.wait(self._aside.seconds_left)
        finally:
            await self._stop()

    async def _take_all(self) -> bool:
        """False if the store is away."""
        try:
            while True:
                submission = await self._store.take_submission(
                    self._worker_id(), team_id=self._team_id(), except_teams=self._aside.team_ids
                )
                if submission is None:
                    return True
                task = asyncio.create_task(self._integrate(submission), name=f"integrates {submission.label}")
                self._running.add(task)
                task.add_done_callback(self._running.discard)
        except StoreUnavailable:
            return False

    async def _stop(self) -> None:
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)
        await self._closing.aclose()
        self._rooms.clear()

    # -- one submission --------------------------------------------------------------------------------------------

    async def _integrate(self, submission: Submission) -> None:
        """As often as it takes, or until another worker may try; other teams' go on meanwhile."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                await self._bring_in(submission)
                self._pauses.pop(submission.team_id, None)
                return
            except (LeaseLost, Conflict):
                # Somebody else has it, or its task is gone.
                return
            except StoreUnavailable:
                pass
            except Exception as error:
                # Git, the disk or the sandbox fail. Whoever handed it in has done nothing wrong.
                if not isinstance(error, (GitFailed, SandboxUnavailable, UsageError, OSError)):
                    logger.exception("%s cannot be integrated", submission.label)
                if await self._leave_to_others(submission, error):
                    return
                await self._complain(submission, error)
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE_SECONDS, pause * 2)

    async def _bring_in(self, submission: Submission) -> None:
        team = await self._store.get_team(submission.team_id)
        trunk = Trunk.of(team.settings)
        if trunk is None:
            await self._refuse(submission, "the team has no branch for it")
            return
        integration = Integration(trunk, origin_of(self._house, trunk))
        while True:
            tip = await integration.newest()
            commit, evidence = await integration.find(submission, tip), None
            if commit is None:
                if not await integration.obtain(submission):
                    if await integration.newest() != tip:
                        # Somebody who is not to may have brought it in just now.
                        continue
                    await self._refuse(submission, _gone(trunk))
                    return
                rebased = await integration.rebase(submission, tip)
                if rebased.conflicts:
                    await self._refuse(submission, _conflict(rebased.conflicts))
                    await integration.drop(submission)
                    return
                commit = await integration.commit(submission, rebased)
                if submission.check and (rebased.is_new or not submission.has_passed):
                    evidence = await self._check(team, submission.check, commit)
                    if not evidence.passed:
                        await self._refuse(submission, _failed(evidence), evidence)
                        await integration.drop(submission)
                        return
                if not await integration.advance(rebased, commit):
                    continue
            await integration.settle(submission, commit)
            await self._store.accept_submission(
                self._worker_id(), submission.team_id, submission.id, commit, evidence=evidence
            )
            return

    async def _refuse(self, submission: Submission, why: str, evidence: Evidence | None = None) -> None:
        await self._store.refuse_submission(
            self._worker_id(), submission.team_id, submission.id, why, evidence=evidence
        )

    async def _check(self, team: Team, command: str, commit: str) -> Evidence:
        """On exactly what the trunk would hold, in a worktree and a sandbox that belong to no member."""
        room = await self._room(team)
        assert room.worktree is not None
        await room.worktree.show(commit)
        done = await room.sandbox.run(command, timeout_seconds=CHECK_SECONDS)
        exit_code = (done.exit_code or TIMED_OUT) if done.timed_out else done.exit_code
        tail = done.output[-TAIL_CHARACTERS:]
        return Evidence(command=command, exit_code=exit_code, tail=tail, seconds=done.seconds, commit=commit)

    async def _room(self, team: Team) -> Room:
        if team.id not in self._rooms:
            settings = Settings.from_mapping(team.settings)
            opening = open_room(self._house, team, settings, INTEGRATION, incarnation=self._worker_id())
            self._rooms[team.id] = await self._closing.enter_async_context(opening)
        return self._rooms[team.id]

    async def _leave_to_others(self, submission: Submission, error: Exception) -> bool:
        """True if it is not this worker's any more. The team is left alone, each time for longer: where nobody can,
        all take their turns ever more slowly."""
        team_id = submission.team_id
        try:
            if not await list_others(self._store, self._worker_id(), team_id):
                return False
            pause = self._pauses.get(team_id, FIRST_PAUSE_SECONDS)
            self._pauses[team_id] = min(LONGEST_PAUSE_SECONDS, pause * 2)
            # Before it is queued again: else it would be taken here in the same moment.
            self._aside.put(team_id, pause)
            await self._store.release_submission(self._worker_id(), team_id, submission.id, str(error))
        except StoreUnavailable:
            return False
        except Conflict:
            return True
        text = (
            f"{socket.gethostname()} cannot integrate what this team hands in, and leaves it to another worker: {error}"
        )
        known = f"integration/{team_id}/worker-{self._worker_id()}/{type(error).__name__}"
        with suppress(StoreUnavailable, Conflict):
            await self._store.notify(team_id, USER, text, operation_id=known)
        return True

    async def _complain(self, submission: Submission, error: Exception) -> None:
        text = f"{submission.label} waits to be integrated: {error}"
        known = f"integration/{submission.team_id}/{submission.id}/{type(error).__name__}"
        with suppress(StoreUnavailable, Conflict):
            await self._store.notify(submission.team_id, USER, text, operation_id=known)


# Why it was refused; that it was, the store says.


def _conflict(files: tuple[str, ...]) -> str:
    return (
        f"it conflicts in {listed(files)} with what others handed in just before. The newest state of the team is "
        "merged into your workspace when you complete it again, with conflict markers in these files, for you to "
        "resolve."
    )


def _gone(trunk: Trunk) -> str:
    return f"what you handed in is gone from {trunk.repository}. It is still in your workspace; complete it again."


def _failed(evidence: Evidence) -> str:
    printed = evidence.tail.strip()
    return (
        f"together with what others handed in just before, its check `{evidence.command}` exits {evidence.exit_code}. "
        "Your workspace has the newest state of the team when you complete it again. The check printed"
        + (f"\n{printed}" if printed else " nothing.")
    )
