"""Which tasks and members a verb about the board is about, and what may stand in a task's fields."""

from __future__ import annotations

from collections.abc import Sequence

from bullpen.domain.member import LEAD, USER, Member, MemberRef
from bullpen.domain.task import FINISHED, Task, TaskStatus, format_ids
from bullpen.domain.text import check_role, clean, name_key
from bullpen.errors import NotFound, UsageError
from bullpen.stores.transaction import Lock, Transaction
from bullpen.stores.verbs.post import notify

MAX_SUBJECT_LENGTH = 1000


async def get_task_record(tx: Transaction, team_id: int, task_id: int, lock: Lock) -> Task:
    task = await tx.find(Task, team_id, task_id, lock=lock)
    if task is None:
        raise NotFound(f"there is no task #{task_id} in this team")
    return task


def foresee_task(tx: Transaction, by: MemberRef, task_id: int) -> None:
    """`hold_task` comes next."""
    lock = Lock.NONE if _leads(by) else Lock.UPDATE
    tx.foresee(lambda: tx.find(Task, by.team_id, task_id, lock=lock))


async def hold_task(tx: Transaction, by: MemberRef, task_id: int) -> Task:
    """To end it, or to take it away. Others have nothing to do with what somebody else works on, as a rule."""
    if _leads(by):
        await hold_owners(tx, by, task_id)
    return await get_task_record(tx, by.team_id, task_id, Lock.UPDATE)


async def hold_owners(tx: Transaction, by: MemberRef, task_id: int, *new: str) -> None:
    """Who has the task, or is to have it, is told of what becomes of it: held before it, in the order of locks. That
    one may just be leaving, and want its task."""
    seen = await get_task_record(tx, by.team_id, task_id, Lock.NONE)
    owners = {name_key(name) for name in new}
    if seen.owner_key is not None and seen.status not in FINISHED:
        owners.add(seen.owner_key)
    for key in sorted(owners - {name_key(by.name)}):
        await tx.find(Member, by.team_id, key, lock=Lock.SHARE)


def _leads(by: MemberRef) -> bool:
    return name_key(by.name) in (LEAD, USER)


async def get_owner(tx: Transaction, team_id: int, name: str) -> Member:
    member = await tx.find(Member, team_id, name_key(name), lock=Lock.SHARE)
    if member is None:
        raise NotFound(f"there is no member {name!r} to give the task to")
    return member


async def get_blockers(tx: Transaction, team_id: int, ids: Sequence[int]) -> list[Task]:
    """Each once, by number, held; NotFound if one is not there or was deleted."""
    wanted = sorted(set(ids))
    found = await tx.find_tasks(team_id, wanted, Lock.SHARE) if wanted else []
    usable = {task.id for task in found if task.status is not TaskStatus.DELETED}
    missing = tuple(number for number in wanted if number not in usable)
    if missing:
        raise NotFound(f"there is no task {format_ids(missing)} to wait for")
    return found


def checked_subject(subject: str) -> str:
    text = " ".join(clean(subject, what="subject").split())
    if not text:
        raise UsageError("a task needs a subject: say in one line what is to be done")
    if len(text) > MAX_SUBJECT_LENGTH:
        raise UsageError(
            f"the subject has {len(text):,} characters, at most {MAX_SUBJECT_LENGTH:,}: use the description"
        )
    return text


def checked_role(role: str | None) -> str | None:
    return check_role((role or "").strip()) or None


def checked_check(check: str | None) -> str | None:
    return clean(check or "", what="check").strip() or None


async def report_missing_role(tx: Transaction, task: Task) -> None:
    if task.role_key and not await tx.has_role(task.team_id, task.role_key):
        await notify(
            tx,
            task.team_id,
            task.created_by,
            f"#{task.id} is for role {task.role!r}, which nobody in the team has: spawn one, or change the role",
            wakes=False,
        )
