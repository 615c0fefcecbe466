"""The life of a member in this process: recover, then work and rest in turns until it ends.

    recover ──> rest ──mail, task, prompt──> work ──> rest ──> …
                  └── asked to stop, timed out ──> over

The same loop for the lead and for teammates; the lead claims nothing and never times
out. Whatever is decided here is decided from the store, so that any process can go on:
`counters["phase"]` is the number of the open work phase, `held` which task it rests with,
`apart` for which task the files of its worktree are, `briefed` which prompt it was given,
`waits` the request whose answer it waits for, `unanswered` why its model could not be
asked, `failed` why it could not go on otherwise.
"""

from __future__ import annotations

import asyncio

from bullpen.agent.agent import Agent
from bullpen.agent.apart import begin_apart, hand_in, save_apart
from bullpen.agent.calls import has_open_calls, run_open_calls
from bullpen.agent.hooks import is_kept_up
from bullpen.agent.turn import Ending, take_turn
from bullpen.domain.member import Autonomy, MemberStatus
from bullpen.domain.message import escape
from bullpen.domain.request import RequestStatus, digest_of
from bullpen.domain.standing import has_unread_prompt
from bullpen.domain.task import Task
from bullpen.domain.transcript import TurnKind
from bullpen.errors import Conflict, ShuttingDown
from bullpen.sandbox import ProcessIdentity
from bullpen.store import Bell
from bullpen.stores.life import boot_id
from bullpen.tools.backgrounds import Backgrounds
from bullpen.tools.handing_in import FOR_TASK
from bullpen.tools.handover import hand_over

# What wakes the lead is gathered for so long: one turn for a burst of mail.
GATHERING_SECONDS = 0.5
# The idle clock is read so often in one time-out, to see whether it may run.
CLOCK_READINGS = 6
# While it stands still, so often.
STILL_READINGS = 2

REMINDER = (
    "Your task is still open. Finish it (TaskUpdate status completed, with its result), fail it and say what you "
    "tried, give it back (status pending), or call idle and say what you wait for. You are not reminded again."
)


ASK_AGAIN = "Your model could not be asked for a while. Go on with what came before."


async def live(agent: Agent) -> bool:
    """True when the member has shut down, False when it goes on as another: a lead whose next team has begun.
    LeaseLost when somebody else is it."""
    async with agent.store.listen_member(agent.ref) as agent.bell:
        agent.has_moved = False
        await recover(agent)
        return await _work_and_rest(agent)


async def _work_and_rest(agent: Agent) -> bool:
    while True:
        if agent.counters.get("phase"):
            await work(agent)
        if agent.has_moved:
            return False
        if agent.member.status is MemberStatus.SHUTDOWN or not await rest(agent):
            return True


# -- recover ----------------------------------------------------------------------------------------------


async def recover(agent: Agent) -> None:
    """What a predecessor left: its processes die, what it began is settled, what was queued runs."""
    running = await agent.store.list_backgrounds(agent.team.id, name=agent.member.name, running_only=True)
    known = [
        ProcessIdentity(pid=one.pid, start_ticks=one.start_ticks)
        for one in running
        if one.boot_id == boot_id() and one.pid is not None and one.start_ticks is not None
    ]
    if agent.member.incarnation > 1:
        # It looks at every process of the machine; who was never hosted before left none.
        await agent.sandbox.kill_leftovers(known)
    await agent.store.lose_backgrounds(agent.ref)
    await agent.load()
    if not agent.turns:
        agent.must_reintroduce = False
    await run_open_calls(agent)
    await agent.refresh()
    if agent.counters.get("phase") and agent.must_reintroduce and not _has_spoken(agent):
        agent.must_reintroduce = False
        await agent.tell(f"You were restarted.\n\n<identity>{await agent.identity()}</identity>")
    elif agent.must_reintroduce and agent.counters.get("unanswered"):
        await _begin(agent, [ASK_AGAIN], task=None)


def _has_spoken(agent: Agent) -> bool:
    """Its last word was said before the restart: there is nothing to ask the model again."""
    return bool(agent.turns) and agent.turns[-1].kind == TurnKind.ASSISTANT and not has_open_calls(agent.turns)


# -- work ---------------------------------------------------------------------------------------------------


async def work(agent: Agent) -> None:
    """Turns, until the phase is over and has been reported."""
    while True:
        agent.house.check_open()
        ending = await take_turn(agent)
        if agent.has_moved:
            return
        if ending is None:
            await save_apart(agent)
            continue
        task = None if agent.is_lead else await agent.find_task()
        if task is not None and task.submission is None and _may_be_reminded(agent, ending):
            await agent.tell(REMINDER, reminded=1)
        elif await _is_over(agent, ending, task):
            break
    if task is not None:
        await save_apart(agent, at_once=True)
    await _end_phase(agent, ending, task)


async def _is_over(agent: Agent, ending: Ending, task: Task | None) -> bool:
    """Not if a hook keeps it up, or what it made does not merge: it has been told then."""
    if not agent.is_lead and ending.may_be_refused and await is_kept_up(agent, ending.why, task):
        return False
    return bool(ending.unanswered) or await hand_in(agent, task, ending.text)


def _may_be_reminded(agent: Agent, ending: Ending) -> bool:
    return ending.may_be_reminded and not agent.counters.get("reminded")


async def _end_phase(agent: Agent, ending: Ending, task: Task | None) -> None:
    waits_for = ending.waits_for or await _find_open_wait(agent)
    agent.member = await agent.store.end_phase(
        agent.ref,
        why=ending.why,
        result=ending.text,
        status=MemberStatus.IDLE if waits_for is None else MemberStatus.WAITING,
        counters={
            "phase": None,
            "phases": agent.counters.get("phase"),
            "turns": None,
            "reminded": None,
            "kept_up": None,
            "checkpoint": None,
            "repeated": None,
            "conflicts": None,
            "crashes": None,
            "unfit": None,
            "ending": None,
            "task": None,
            # Who leaves gives it back.
            "held": None if task is None or ending.leaves else task.id,
            "waits": waits_for,
            "unanswered": ending.unanswered,
            "failed": ending.text if ending.why == "error" else None,
        },
        operation_id=f"{agent.team.id}/{agent.member.key}/phase-{agent.counters.get('phase', 0)}/end",
    )
    if ending.leaves is not None:
        await _leave(agent, ending.leaves)


async def _find_open_wait(agent: Agent) -> int | None:
    """It was woken by something else than the answer that it waits for: then it waits on."""
    number = agent.counters.get("waits")
    if number is None:
        return None
    request = await agent.store.get_request(agent.team.id, int(number))
    return request.id if request.status is RequestStatus.OPEN else None


async def _leave(agent: Agent, reason: str) -> None:
    backgrounds = agent.known(Backgrounds)
    if backgrounds is not None:
        await backgrounds.stop_all()
    agent.member = await agent.store.shut_down_member(agent.ref, reason=reason)


# -- rest ---------------------------------------------------------------------------------------------------


async def rest(agent: Agent) -> bool:
    """True when a work phase has begun; False when the member has ended."""
    agent.house.check_open()
    if await _take_up_own_task(agent):
        return True
    await _become_idle(agent)
    # A worker that leaves may have counted it among those in the middle of a turn, for whom it waits.
    agent.house.check_open()
    clock = _IdleClock(agent)
    while True:
        agent.bell.clear()
        found = await _look(agent)
        if found is not None:
            return found
        if not agent.is_lead:
            # Who is idle costs no memory.
            agent.forget()
        if not await clock.wait(agent.bell) and not await _stays(agent):
            return False


async def _become_idle(agent: Agent) -> None:
    """Before the first look: from here on a new task may choose this member to be woken."""
    await agent.refresh()
    wanted = MemberStatus.WAITING if agent.counters.get("waits") else MemberStatus.IDLE
    if agent.member.is_up and agent.member.status is not wanted:
        await agent.set_status(wanted)


async def _look(agent: Agent) -> bool | None:
    """One look, in the order of what counts: shutdown, mail, a task, the prompt. None: there is nothing."""
    found = await agent.store.find_work(agent.ref)
    if found == "shutdown":
        await agent.refresh()
        if agent.is_asked_to_stop:
            await _leave(agent, "asked")
            return False
        # Its model answers: the question is mail.
        found = "mail" if await _has_unread_mail(agent) else None
    if found == "mail":
        await _begin_with_mail(agent)
        return True
    if agent.is_lead or agent.counters.get("waits"):
        return None
    if found == "task" and await _claim(agent):
        return True
    return True if await _begin_with_prompt(agent) else None


async def _has_unread_mail(agent: Agent) -> bool:
    return bool(await agent.store.list_mail(agent.team.id, agent.member.name, undelivered_only=True, limit=1))


async def _take_up_own_task(agent: Agent) -> bool:
    """After a restart it goes on with what it holds, unless it was resting with it.

    Before it is seen idle: a team whose only task is held by one who rests would be taken for stalled.
    """
    if agent.is_lead:
        return False
    task = await agent.find_task()
    if task is None or agent.counters.get("held") == task.id:
        return False
    await _begin_with_task(agent, task)
    return True


async def _claim(agent: Agent) -> bool:
    if agent.member.autonomy is Autonomy.ASSIGNED and not await _is_assigned_something(agent):
        return False
    try:
        task = await agent.store.claim_next_task(agent.ref)
    except (ShuttingDown, Conflict):
        return False
    if task is None:
        return False
    await _begin_with_task(agent, task, is_new=True)
    return True


async def _is_assigned_something(agent: Agent) -> bool:
    return bool(await agent.store.list_tasks(agent.team.id, owner=agent.member.name, limit=1))


# -- how a phase begins ---------------------------------------------------------------------------------------


async def _begin_with_mail(agent: Agent) -> None:
    if agent.is_lead and agent.turns:
        await asyncio.sleep(GATHERING_SECONDS)
    await _begin(agent, await _begin_without_task(agent), task=None)


async def _begin_without_task(agent: Agent) -> list[str]:
    """Who holds a task goes on with its files as they are."""
    holds = not agent.is_lead and agent.counters.get("held") and await agent.find_task()
    return [] if holds else await begin_apart(agent)


async def _begin_with_task(agent: Agent, task: Task, *, is_new: bool = False) -> None:
    apart = await begin_apart(agent, task) if is_new else []
    await _begin(agent, [await hand_over(agent.store, task), *apart], task=task)


async def _begin_with_prompt(agent: Agent) -> bool:
    """The prompt is the work only where the board has nothing that could become its."""
    if not has_unread_prompt(agent.member) or await agent.store.has_prospects(agent.ref):
        return False
    await _begin(agent, await _begin_without_task(agent), task=None)
    return True


async def _begin(agent: Agent, parts: list[str], *, task: Task | None) -> None:
    """What it is told first, and that a phase is open: one step. Mail follows by itself."""
    await agent.refresh()
    if not agent.turns:
        await agent.load()
    # Whoever interrupted it while it rested has cut off nothing, and not what begins here.
    agent.was_interrupted()
    opening: list[str] = []
    if agent.must_reintroduce:
        opening.append(f"<identity>{await agent.identity()}</identity>")
        agent.must_reintroduce = False
    elif not agent.turns and not agent.is_lead:
        opening.append(f"<team>{await agent.roster()}</team>")
    if has_unread_prompt(agent.member):
        opening.append(f"<instructions>{escape(agent.member.prompt)}</instructions>")
    held = agent.counters.get("held")
    counters = {
        "phase": int(agent.counters.get("phases") or 0) + 1,
        "phase_seq": agent.last_seq,
        "turns": 0,
        "task": held if task is None else task.id,
        "briefed": digest_of(agent.member.prompt),
        "unanswered": None,
        "failed": None,
        "ending": None,
    }
    if task is not None:
        counters[FOR_TASK] = task.id
    texts = [*opening, *parts]
    if texts:
        await agent.tell("\n\n".join(texts), **counters)
    else:
        await agent.set_counters(**counters)
    if agent.member.status is not MemberStatus.WORKING:
        await agent.set_status(MemberStatus.WORKING)
    await agent.refresh()


# -- the idle clock -------------------------------------------------------------------------------------------


class _IdleClock:
    """Runs only while the board holds nothing that could become this member's."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._left = agent.settings.idle.timeout_seconds

    async def wait(self, bell: Bell) -> bool:
        """True when it rang; False when the time is up."""
        limit = self._agent.settings.idle.timeout_seconds
        if self._agent.is_lead or not limit or self._agent.settings.idle.on_timeout == "stay":
            return await bell.wait()
        readings = CLOCK_READINGS
        while self._left > 0:
            step = min(limit / readings, self._left)
            if await bell.wait(step):
                return True
            if await self._stands_still():
                # It begins anew however soon that is seen to be over.
                self._left, readings = limit, STILL_READINGS
            elif readings == STILL_READINGS:
                readings = CLOCK_READINGS
            else:
                self._left -= step
        self._left = limit
        return False

    async def _stands_still(self) -> bool:
        agent = self._agent
        if agent.counters.get("waits") or (agent.counters.get("held") and await agent.find_task()):
            return True
        return await agent.house.prospects.has_any(agent.member, agent.store, self._young_seconds)

    @property
    def _young_seconds(self) -> float:
        return self._agent.settings.idle.timeout_seconds / CLOCK_READINGS


async def _stays(agent: Agent) -> bool:
    """The last look and the exit are one step of the store: what arrives just then is found, or revives it."""
    return await agent.store.leave_if_nothing(agent.ref) is not None
