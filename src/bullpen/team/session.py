"""One member, played by your own code."""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import suppress
from typing import Any, TypeVar

from bullpen.domain.member import Member, MemberRef, MemberStatus
from bullpen.domain.message import Message, MessageType, Receipt
from bullpen.domain.request import Request, RequestKind
from bullpen.domain.task import Evidence, Task, TaskChanges, TaskStatus, parse_task_status
from bullpen.errors import BullpenError, LeaseLost, ShuttingDown, StoreError
from bullpen.store import Bell, Store
from bullpen.stores.ending import to_the_end
from bullpen.team.deed import deed_of
from bullpen.tools.patience import seen_through

T = TypeVar("T")

LOOK_AGAIN_SECONDS = 1.0
"""So often it is looked, at most, whether the last task that one waits for is gone: nobody rings for that."""


class Session:
    """One member, played by your own code.

    Mail that `take_mail` returned is acknowledged by the next verb of the session that happens:
    if the process dies before that, or in it, it is offered again under the same ids.
    """

    def __init__(self, store: Store, member: Member) -> None:
        self._store = store
        self._member = member
        self._offered: list[int] = []
        self._seems_idle = False
        """It waits no more, and the store could not be told."""
        self._is_leaving = False
        self._has_left = False

    @property
    def name(self) -> str:
        return self._member.name

    @property
    def ref(self) -> MemberRef:
        return self._member.ref

    # -- waiting -----------------------------------------------------------------------------

    async def wait_for_work(self, *, timeout_seconds: float | None = 60.0) -> bool:
        """True when there is mail or a claimable task; False when it is time to go.

        False: it was asked to shut down, it leaves, or nothing came for `timeout_seconds` and a last
        look found nothing, which has ended the membership. The clock runs only while the
        board holds no task that could become this member's. None: wait for ever.
        """
        await self._acknowledge(self._offered)
        if self._seems_idle:
            await self._be_at_work()
        work = await self._store.find_work(self.ref)
        if work is not None:
            return work != "shutdown"
        async with self._store.listen_member(self.ref) as bell:
            try:
                # Idle before the next look: from here on a new task may choose this member to be woken.
                await self._store.set_member_status(self.ref, MemberStatus.IDLE)
                while work is None and not self._is_leaving:
                    work = await self._wait(bell, timeout_seconds)
                if work is None or work == "shutdown":
                    return False
                await self._be_at_work()
                return True
            except LeaseLost:
                # Another task of this session has left just then.
                if not self._is_leaving:
                    raise
                return False
            except BaseException:
                # Who waits no more is not idle: a task that woke it would wake nobody who sleeps.
                self._seems_idle = True
                with suppress(BullpenError):
                    await to_the_end(self._be_at_work())
                raise

    async def _be_at_work(self) -> None:
        await self._store.set_member_status(self.ref, MemberStatus.WORKING)
        self._seems_idle = False

    async def _wait(self, bell: Bell, timeout_seconds: float | None) -> str | None:
        """One look and one sleep; None if it must look again."""
        bell.clear()
        work = await self._store.find_work(self.ref)
        if work is not None or await bell.wait(timeout_seconds):
            return work
        found = await self._store.leave_if_nothing(self.ref)
        if found is None:
            self._is_leaving = self._has_left = True
        if found != "task":
            return found
        # It could become ours later and is no work yet: the clock begins again, but however short it is, nobody spins.
        await bell.wait(max(0.0, LOOK_AGAIN_SECONDS - (timeout_seconds or 0.0)))
        return None

    # -- mail ----------------------------------------------------------------------------------

    async def take_mail(self) -> list[Message]:
        await self._acknowledge(self._offered)
        messages = await self._store.list_offered_mail(self.ref)
        self._offered = [message.id for message in messages]
        return messages

    async def send(
        self, to: str, content: str, *, reply_to: int | None = None, operation_id: str | None = None
    ) -> Receipt:
        [receipt] = await self._finish(
            self._store.send(self.ref, to, content, reply_to=reply_to, operation_id=self._deed(operation_id))
        )
        return receipt

    async def broadcast(self, content: str, *, operation_id: str | None = None) -> list[Receipt]:
        return await self._finish(
            self._store.send(self.ref, None, content, type=MessageType.BROADCAST, operation_id=self._deed(operation_id))
        )

    async def answer_request(
        self, request_id: int, *, approve: bool, reason: str = "", operation_id: str | None = None
    ) -> Request:
        return await self._finish(
            self._store.answer_request(
                self.ref, request_id, approve=approve, reason=reason, operation_id=self._deed(operation_id)
            )
        )

    async def submit_plan(self, plan: str, *, operation_id: str | None = None) -> Request:
        return await self._finish(
            self._store.open_request(
                self.ref, RequestKind.PLAN, "lead", content=plan, operation_id=self._deed(operation_id)
            )
        )

    # -- tasks -----------------------------------------------------------------------------------

    async def create_task(self, subject: str, *, operation_id: str | None = None, **details: Any) -> Task:
        return await self._finish(
            self._store.create_task(self.ref, subject, operation_id=self._deed(operation_id), **details)
        )

    async def claim_next_task(self, *, operation_id: str | None = None) -> Task | None:
        """None if there is nothing for this member, or it is asked to shut down. Who is cancelled in it holds nothing
        by it, unless an operation id was given, with which to ask again."""
        claiming = self._store.claim_next_task(self.ref, operation_id=self._deed(operation_id))
        try:
            # It would wait for work for ever, holding a task that it knows nothing of.
            return await self._finish(claiming if operation_id is not None else seen_through(claiming, self._give_back))
        except ShuttingDown:
            return None

    async def _give_back(self, task: Task | None) -> None:
        if task is not None:
            await self._store.release_task(self.ref, task.id, note=f"{self.name} was cut off as it claimed it")

    async def claim_task(self, task_id: int, *, operation_id: str | None = None) -> Task:
        return await self._finish(self._store.claim_task(self.ref, task_id, operation_id=self._deed(operation_id)))

    async def update_task(self, task_id: int, *, operation_id: str | None = None, **changes: Any) -> Task:
        return await self._finish(
            self._store.update_task(self.ref, task_id, TaskChanges(**changes), operation_id=self._deed(operation_id))
        )

    async def complete_task(
        self, task_id: int, *, result: str = "", evidence: Evidence | None = None, operation_id: str | None = None
    ) -> Task:
        """A task with a check needs the evidence of it: what your code ran, and how it ended."""
        deed = self._deed(operation_id)
        if evidence is None:
            return await self._finish(self._store.complete_task(self.ref, task_id, result=result, operation_id=deed))
        return await self._finish(
            self._store.complete_checked_task(self.ref, task_id, evidence, result=result, operation_id=deed)
        )

    async def fail_task(self, task_id: int, *, reason: str = "", operation_id: str | None = None) -> Task:
        return await self._finish(
            self._store.fail_task(self.ref, task_id, reason=reason, operation_id=self._deed(operation_id))
        )

    async def release_task(self, task_id: int, *, note: str = "", operation_id: str | None = None) -> Task:
        return await self._finish(
            self._store.release_task(self.ref, task_id, note=note, operation_id=self._deed(operation_id))
        )

    async def get_task(self, task_id: int) -> Task:
        return await self._store.get_task(self._member.team_id, task_id)

    async def list_tasks(self, *, status: TaskStatus | str | None = None, owner: str | None = None) -> list[Task]:
        wanted = None if status is None else parse_task_status(status)
        return await self._store.list_tasks(self._member.team_id, status=wanted, owner=owner)

    # -- the end -----------------------------------------------------------------------------------

    async def leave(self, *, is_clean: bool = True) -> None:
        """Shut down: its task goes back to the board. Unacknowledged mail stays, unless the block ended well."""
        if self._has_left:
            return
        # Whoever waits for work is woken by that, and told to go.
        self._is_leaving = True
        with suppress(LeaseLost):
            if is_clean:
                await self._acknowledge(self._offered)
            await self._store.shut_down_member(self.ref, reason="finished" if is_clean else "crashed")
        self._has_left = True

    def _deed(self, operation_id: str | None) -> str | None:
        return deed_of(self._member.team_id, operation_id)

    async def _finish(self, verb: Awaitable[T]) -> T:
        """Mail is acknowledged when the verb after it has happened: to die in it, or to be refused, loses none."""
        offered = self._offered
        outcome = await verb
        # It has happened, whatever becomes of this: the next verb acknowledges what this one could not.
        with suppress(StoreError):
            await self._acknowledge(offered)
        return outcome

    async def _acknowledge(self, offered: list[int]) -> None:
        if offered:
            await self._store.acknowledge_mail(self.ref, offered)
            # Not before: a verb that is cancelled, or finds the store unavailable, leaves it to the next one.
            if self._offered is offered:
                self._offered = []
