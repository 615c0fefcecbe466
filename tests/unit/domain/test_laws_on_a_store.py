"""Any verbs in any order, by anyone, on the store in memory: what must hold afterwards holds after each step.

Members act under incarnations that may be long over, workers die at any moment, time passes. Refusals are fine;
what is never fine is a state that the domain does not know.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from bullpen.clock import FakeClock
from bullpen.domain.event import Event, EventKind
from bullpen.domain.graph import has_cycle
from bullpen.domain.member import Autonomy, Member, MemberKind, MemberRef, MemberStatus
from bullpen.domain.message import Message, MessageType
from bullpen.domain.request import Request, RequestKind, RequestStatus
from bullpen.domain.task import RELEASES_DEPENDENTS, Evidence, Task, TaskChanges, TaskStatus, is_claimable
from bullpen.errors import BullpenError, StoreUnavailable
from bullpen.store import Store
from bullpen.stores import open_store

NAMES = ["ana", "ben", "cat", "dan"]
ROLES = {"ana": "backend", "ben": "backend", "cat": None, "dan": "frontend"}
AWAKE = {MemberStatus.WORKING, MemberStatus.WAITING, MemberStatus.WANTED}
HOSTED = {MemberStatus.WORKING, MemberStatus.IDLE, MemberStatus.WAITING, MemberStatus.STOPPING}

names = st.sampled_from(NAMES)
anyone = st.sampled_from([*NAMES, "lead", "user"])
numbers = st.integers(1, 8)
some_numbers = st.lists(numbers, max_size=3).map(tuple)
roles = st.sampled_from([None, "Backend", "front end", "frontend"])


class Team(RuleBasedStateMachine):
    """`refs` are the incarnations that somebody still believes to have: the last one of each name, over or not."""

    @initialize()
    def begin(self) -> None:
        self.clock = FakeClock()
        self.runner = asyncio.Runner()
        self.store: Store = open_store("sqlite:///:memory:", clock=self.clock, poll_interval_seconds=3600.0)
        self.run(self.store.__aenter__())
        self.team = self.run(self.store.create_team("crew", settings={"max_teammates": 100}))
        self.refs = {name: MemberRef(self.team.id, name, 0) for name in ("lead", "user")}
        self.worker = self.run(self.store.register_worker(slots=10))
        self.created = 0
        self.sent = 0

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            self.check_log()
            self.run(self.store.__aexit__(None, None, None))
            self.runner.close()

    def run(self, verb: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(verb)

    def attempt(self, verb: Coroutine[Any, Any, Any]) -> Any:
        """What the store refuses it refuses in its own words."""
        try:
            return self.run(verb)
        except StoreUnavailable:
            raise
        except BullpenError:
            return None

    def ref(self, name: str) -> MemberRef:
        return self.refs.get(name, MemberRef(self.team.id, name, 1))

    # -- members -----------------------------------------------------------------------

    @rule(name=names, autonomy=st.sampled_from(Autonomy))
    def spawn(self, name: str, autonomy: Autonomy) -> None:
        self.clock.advance(0.01)
        self.attempt(self.store.spawn_member(self.ref("user"), name, role=ROLES[name], prompt="go", autonomy=autonomy))

    @rule(name=st.sampled_from(["cat", "dan"]))
    def join(self, name: str) -> None:
        member = self.attempt(self.store.join_member(self.worker.id, self.team.id, name, role=ROLES[name]))
        if member is not None:
            self.refs[name] = member.ref

    @rule()
    def host(self) -> None:
        member = self.attempt(self.store.host_member(self.worker.id))
        if member is not None:
            self.refs[member.name] = member.ref

    @rule(name=names)
    def spawn_and_host(self, name: str) -> None:
        self.spawn(name, Autonomy.AUTO)
        self.host()

    @rule(name=names, status=st.sampled_from(MemberStatus))
    def set_status(self, name: str, status: MemberStatus) -> None:
        self.clock.advance(0.01)
        self.attempt(self.store.set_member_status(self.ref(name), status))

    @rule(name=names)
    def idle(self, name: str) -> None:
        self.attempt(self.store.end_phase(self.ref(name), why="no_tool_use"))

    @rule(name=names)
    def last_look(self, name: str) -> None:
        self.attempt(self.store.end_phase(self.ref(name), why="no_tool_use"))
        self.attempt(self.store.leave_if_nothing(self.ref(name)))

    @rule(name=anyone, reason=st.sampled_from(["finished", "timeout", "error"]))
    def leave(self, name: str, reason: str) -> None:
        self.attempt(self.store.shut_down_member(self.ref(name), reason=reason))

    @rule(name=names)
    def crash(self, name: str) -> None:
        self.attempt(self.store.release_member(self.ref(name), note="crashed"))

    @rule(dies=st.booleans(), has_successor=st.booleans())
    def end_worker(self, dies: bool, has_successor: bool) -> None:
        old = self.worker
        if has_successor:
            self.worker = self.run(self.store.register_worker(slots=10))
        if dies:
            self.run(self.store.lapse_worker(old.id, renewals_seen=None))
        else:
            self.run(self.store.stop_worker(old.id))
        if not has_successor:
            self.worker = self.run(self.store.register_worker(slots=10))

    @rule(seconds=st.sampled_from([1, 20, 60]))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(seconds)
        self.run(self.store.hand_back_tasks())
        self.run(self.store.expire_requests())

    # -- tasks -------------------------------------------------------------------------

    @rule(
        by=anyone,
        blocked_by=some_numbers,
        role=roles,
        owner=st.none() | names,
        check=st.sampled_from([None, None, "true"]),
    )
    def create(
        self, by: str, blocked_by: tuple[int, ...], role: str | None, owner: str | None, check: str | None
    ) -> None:
        task = self.attempt(
            self.store.create_task(self.ref(by), "x", blocked_by=blocked_by, role=role, owner=owner, check=check)
        )
        if task is not None:
            self.created += 1
            assert task.id == self.created, "numbers grow by one and are never used again"

    @rule(role=roles)
    def create_simply(self, role: str | None) -> None:
        self.create("user", (), role, None, None)

    @rule(by=anyone, task=numbers, add=some_numbers, blocks=some_numbers, remove=some_numbers)
    def change_edges(
        self, by: str, task: int, add: tuple[int, ...], blocks: tuple[int, ...], remove: tuple[int, ...]
    ) -> None:
        changes = TaskChanges(add_blocked_by=add, add_blocks=blocks, remove_blocked_by=remove)
        self.attempt(self.store.update_task(self.ref(by), task, changes))

    @rule(by=anyone, task=numbers, owner=st.none() | names)
    def assign(self, by: str, task: int, owner: str | None) -> None:
        self.attempt(self.store.update_task(self.ref(by), task, TaskChanges(owner=owner)))

    @rule(by=anyone, task=numbers, role=roles, check=st.sampled_from([None, "true"]))
    def change(self, by: str, task: int, role: str | None, check: str | None) -> None:
        self.attempt(self.store.update_task(self.ref(by), task, TaskChanges(role=role, check=check)))

    @rule(by=anyone)
    def claim_next(self, by: str) -> None:
        before = {task.id: task for task in self.tasks()}
        member = next((one for one in self.members() if one.name == by), None)
        task = self.attempt(self.store.claim_next_task(self.ref(by)))
        if task is not None:
            assert member is not None
            assert is_claimable(before[task.id], name=by, role=member.role)

    @rule(by=anyone, task=numbers)
    def claim(self, by: str, task: int) -> None:
        self.attempt(self.store.claim_task(self.ref(by), task))

    @rule(by=anyone, task=numbers, verb=st.sampled_from(["complete", "fail", "release", "retry", "delete"]))
    def step(self, by: str, task: int, verb: str) -> None:
        self.attempt(getattr(self.store, f"{verb}_task")(self.ref(by), task))

    @rule(by=anyone, task=numbers, passes=st.booleans())
    def check(self, by: str, task: int, passes: bool) -> None:
        run = self.attempt(self.store.start_check(self.ref(by), task))
        if run is not None:
            evidence = Evidence(command=run.check, exit_code=0 if passes else 1)
            self.attempt(self.store.finish_check(self.ref(by), run, evidence))

    # -- mail and requests -------------------------------------------------------------

    @rule(by=anyone, to=anyone)
    def send(self, by: str, to: str) -> None:
        self.attempt(self.store.send(self.ref(by), to, "hello"))

    @rule(by=anyone)
    def take(self, by: str) -> None:
        self.attempt(self.store.take_mail(self.ref(by), limit=3))

    @rule(by=st.sampled_from(["lead", "user"]), asked=anyone, has_deadline=st.booleans())
    def ask_to_stop(self, by: str, asked: str, has_deadline: bool) -> None:
        timeout = 30.0 if has_deadline else None
        self.attempt(self.store.open_request(self.ref(by), RequestKind.SHUTDOWN, asked, timeout_seconds=timeout))

    @rule(by=names, kind=st.sampled_from([RequestKind.PLAN, RequestKind.PERMISSION]))
    def ask(self, by: str, kind: RequestKind) -> None:
        self.attempt(self.store.open_request(self.ref(by), kind, "lead", content="may I?"))

    @rule(by=anyone, request=st.integers(1, 5), approve=st.booleans())
    def answer(self, by: str, request: int, approve: bool) -> None:
        self.attempt(self.store.answer_request(self.ref(by), request, approve=approve))

    @rule(by=anyone, request=st.integers(1, 5))
    def cancel(self, by: str, request: int) -> None:
        self.attempt(self.store.cancel_request(self.ref(by), request))

    # -- what must hold ----------------------------------------------------------------

    def tasks(self) -> list[Task]:
        found: list[Task] = self.run(self.store.list_tasks(self.team.id))
        deleted: list[Task] = self.run(self.store.list_tasks(self.team.id, status=TaskStatus.DELETED))
        return found + deleted

    def members(self) -> list[Member]:
        found: list[Member] = self.run(self.store.list_members(self.team.id))
        return found

    @invariant()
    def the_board_is_sound(self) -> None:
        if not hasattr(self, "runner"):
            return
        tasks = {task.id: task for task in self.tasks()}
        assert sorted(tasks) == list(range(1, self.created + 1))
        assert not has_cycle({task.id: task.blocked_by for task in tasks.values()})
        for task in tasks.values():
            unfinished = [n for n in task.blocked_by if tasks[n].status not in RELEASES_DEPENDENTS]
            assert task.open_blockers == len(unfinished)
            if task.verifying:
                assert task.check is not None
                assert task.status in (TaskStatus.PENDING, TaskStatus.IN_PROGRESS)
            if task.status is not TaskStatus.IN_PROGRESS:
                assert task.reserved_until is None
            assert task.status is not TaskStatus.IN_PROGRESS or task.owner is not None
        held = Counter(task.owner_key for task in tasks.values() if task.status is TaskStatus.IN_PROGRESS)
        assert all(count == 1 for count in held.values()), "one task in progress for each owner"

    @invariant()
    def members_are_sound(self) -> None:
        if not hasattr(self, "runner"):
            return
        members = {member.name: member for member in self.members()}
        for member in members.values():
            if member.kind in (MemberKind.TEAMMATE, MemberKind.EXTERNAL):
                assert (member.worker_id is not None) == (member.status in HOSTED), member
            if member.status is MemberStatus.SHUTDOWN:
                assert member.shutdown_request_id is None
            believed = self.refs.get(member.name)
            assert believed is None or believed.incarnation <= member.incarnation
        for task in self.tasks():
            if task.status is TaskStatus.IN_PROGRESS and task.owner in NAMES:
                owner = members[task.owner]
                assert owner.status in HOSTED or task.reserved_until is not None, "a dead owner keeps its task"
        for request in self.run(self.store.list_requests(self.team.id, status=RequestStatus.OPEN)):
            if request.kind is RequestKind.SHUTDOWN:
                assert members[request.asked].shutdown_request_id == request.id
            elif request.asker in NAMES:
                assert members[request.asker].status is not MemberStatus.SHUTDOWN, "nobody waits for the answer"

    @invariant()
    def no_task_waits_for_somebody_who_could_be_revived(self) -> None:
        """Stalls are judged by this: if a revivable member could take it, somebody was revived for it, or is up."""
        if not hasattr(self, "runner"):
            return
        members = self.members()
        tasks = self.tasks()
        busy = {task.owner_key for task in tasks if task.status is TaskStatus.IN_PROGRESS}
        for task in tasks:
            takers = [member for member in members if is_claimable(task, name=member.name, role=member.role)]
            if task.owner is None:
                takers = [m for m in takers if m.autonomy is Autonomy.AUTO]
            if not any(member.can_be_revived for member in takers):
                continue
            awake = [
                member
                for member in takers
                if member.kind in (MemberKind.TEAMMATE, MemberKind.EXTERNAL)
                and member.shutdown_request_id is None
                and (member.status in AWAKE or (member.status is MemberStatus.IDLE and member.key not in busy))
            ]
            assert awake, f"{task} waits, and nobody is woken for it"

    @invariant()
    def mail_adds_up(self) -> None:
        """Each message is undelivered, or in exactly one turn of its recipient; only a shutdown that is over is
        withdrawn unread."""
        if not hasattr(self, "runner"):
            return
        for member in self.members():
            mail = self.run(self.store.list_mail(self.team.id, member.name, limit=10_000))
            waiting = self.run(self.store.list_mail(self.team.id, member.name, undelivered_only=True, limit=10_000))
            turns = self.run(self.store.list_turns(self.team.id, member.name))
            assert [turn.seq for turn in turns] == list(range(1, len(turns) + 1))
            written = [entry["message"] for turn in turns if turn.kind == "mail" for entry in turn.content]
            assert len(written) == len(set(written))
            delivered = [message for message in mail if message.delivered_at is not None]
            assert sorted(written) == sorted(message.id for message in delivered if message.delivered_turn is not None)
            assert len(mail) == len(delivered) + len(waiting)
            assert all(message.delivered_turn is None for message in waiting)
            for message in delivered:
                assert message.delivered_turn is not None or self.is_over(message)

    def is_over(self, message: Message) -> bool:
        """Does it ask for a shutdown that nobody waits for any more?"""
        if message.type is not MessageType.SHUTDOWN_REQUEST or message.request_id is None:
            return False
        request: Request = self.run(self.store.get_request(self.team.id, message.request_id))
        return request.status is not RequestStatus.OPEN

    def check_log(self) -> None:
        """The log tells the same story: claims alternate with what makes a task free again, mail is sent once."""
        events: list[Event] = self.run(self.store.list_events(self.team.id, limit=100_000))
        assert len({event.position for event in events}) == len(events)
        held: dict[int, str] = {}
        for event in events:
            number: Any = event.data.get("task")
            if event.kind == EventKind.TASK_CLAIMED:
                assert number not in held, f"#{number} was claimed twice"
                held[number] = event.data["owner"]
            elif event.kind in (
                EventKind.TASK_RELEASED,
                EventKind.TASK_ASSIGNED,
                EventKind.TASK_COMPLETED,
                EventKind.TASK_FAILED,
                EventKind.TASK_DELETED,
            ):
                held.pop(number, None)
        running = {task.id: task.owner for task in self.tasks() if task.status is TaskStatus.IN_PROGRESS}
        assert held == running
        sent = [event.data["message"] for event in events if event.kind == EventKind.MESSAGE_SENT]
        stored = [
            message.id
            for member in self.members()
            for message in self.run(self.store.list_mail(self.team.id, member.name, limit=10_000))
        ]
        assert sorted(sent) == sorted(stored)


TestTeam = Team.TestCase
TestTeam.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
