"""A member as this process runs it. The truth about it stays in the store: whatever is kept here can be lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from bullpen.agent.context import Context
from bullpen.agent.house import House
from bullpen.agent.identity import identity_text, roster_text
from bullpen.agent.room import Room
from bullpen.config import Settings
from bullpen.domain.member import Member, MemberKind, MemberRef, MemberStatus, Team
from bullpen.domain.prompt import ToolSpec
from bullpen.domain.task import Task, TaskStatus
from bullpen.domain.transcript import Turn, TurnKind
from bullpen.provider import Provider
from bullpen.store import Bell
from bullpen.tool import ToolContext
from bullpen.tools.registry import Toolbox
from bullpen.workspace import Worktree

T = TypeVar("T")


class Agent:
    """`turns` is its transcript as far as it was read; `load` reads on. `system` and the tools never change."""

    def __init__(
        self,
        house: House,
        team: Team,
        member: Member,
        *,
        settings: Settings,
        provider: Provider,
        toolbox: Toolbox,
        room: Room,
        system: str,
    ) -> None:
        self.house = house
        self.store = house.store
        self.clock = house.store.clock
        self.settings = settings
        self.team = team
        self.member = member
        self.provider = provider
        self.limits = provider.limits
        """As far as is known: who sends too much learns that the window is smaller."""
        self.toolbox = toolbox
        self.specs: tuple[ToolSpec, ...] = toolbox.specs()
        self.system = system
        self.workspace = room.workspace
        self.private_directory = room.private_directory
        self.sandbox = room.sandbox
        self.worktree: Worktree | None = room.worktree
        self.turns: list[Turn] = []
        self.context = Context()
        self.memo: dict[Any, Any] = {}
        """What the provider keeps of the conversation between two requests."""
        self.begun: frozenset[str] = frozenset()
        """Calls that were stored as started with the last reply, to be run here."""
        self.cut_off_questions: set[int] = set()
        """Requests to the human whose answer was waited for when that was cut off."""
        self.wants_compaction: str | None = None
        # Who was hosted before has a past: it is told once more who it is.
        self.must_reintroduce = member.incarnation > 1
        self.interrupts = _interrupts(member)
        self.asked_at = self.clock.now()
        self.saved_at = self.clock.monotonic()
        self.bell: Bell
        """What this member sleeps on; `loop.live` hangs it up."""
        self.has_moved = False
        self.has_mail = False
        # While a call runs, it and who watches over it read and write the member's row: what is read later is newer.
        self._row = asyncio.Lock()
        self._resources: dict[Any, Any] = {}
        self._closing = AsyncExitStack()

    @property
    def ref(self) -> MemberRef:
        return self.member.ref

    @property
    def is_lead(self) -> bool:
        return self.member.kind is MemberKind.LEAD

    @property
    def counters(self) -> Mapping[str, Any]:
        return self.member.counters

    @property
    def is_gated(self) -> bool:
        """Until its plan is approved it may only look."""
        return self.member.plan_required and self.member.plan_digest is None

    @property
    def is_asked_to_stop(self) -> bool:
        """Told to stop, and it does not decide about that itself."""
        member = self.member
        accepts = self.settings.shutdown.policy == "accept" and member.shutdown_request_id is not None
        return accepts or member.status is MemberStatus.STOPPING

    async def refresh(self) -> None:
        """Its row and its team's as they are now; LeaseLost if somebody else is this member by now. Whatever rings
        from here on has not been seen yet."""
        self.bell.clear()
        async with self._row:
            now = await self.store.attend(self.ref)
            self.member, self.team, self.has_mail = now.member, now.team, now.has_mail

    async def load(self) -> None:
        """Read on in the transcript."""
        self.turns += await self.store.list_turns(self.member.team_id, self.member.name, after_seq=self.last_seq)

    async def tell(self, text: str, **counters: Any) -> None:
        """The runtime's own word, as a stored turn."""
        await self.record(TurnKind.USER, {"text": text}, counters=counters or None)

    async def record(self, kind: TurnKind, content: Any, **rest: Any) -> Turn:
        turn = await self.store.record_turn(self.ref, kind, content, **rest)
        if turn.seq == self.last_seq + 1:
            self.turns.append(turn)
        return turn

    @property
    def last_seq(self) -> int:
        return self.turns[-1].seq if self.turns else 0

    async def set_counters(self, **counters: Any) -> None:
        async with self._row:
            self.member = await self.store.set_member_counters(self.ref, counters)

    async def set_status(self, status: MemberStatus, *, reason: str = "") -> None:
        async with self._row:
            self.member = await self.store.set_member_status(self.ref, status, reason=reason)

    async def find_task(self) -> Task | None:
        """What it has in progress."""
        held = await self.store.list_tasks(self.team.id, status=TaskStatus.IN_PROGRESS, owner=self.member.name)
        return held[0] if held else None

    async def roster(self) -> str:
        """Whom it works with. Of a large team that is a long list: it is let go before anything is waited for."""
        return roster_text(self.member, await self.store.list_members(self.team.id))

    async def identity(self) -> str:
        return identity_text(self.member, self.team, await self.roster(), await self.find_task(), self.workspace)

    def was_interrupted(self) -> bool:
        """Has somebody asked to cut off what it does since the last time this was asked?"""
        count = _interrupts(self.member)
        is_new, self.interrupts = count > self.interrupts, max(count, self.interrupts)
        return is_new

    def become(self, member: Member) -> None:
        """Go on as this member: a lead in its next team."""
        self.house.successors[self.member.team_id] = member.team_id
        self.member = member
        self.forget()
        self.has_moved = True

    def forget(self) -> None:
        """What is kept of the conversation: it is in the store, and read again when it is needed."""
        self.turns = []
        self.context = Context()
        self.memo = {}

    @property
    def tool_settings(self) -> Mapping[str, Any]:
        """What tools are told of this process."""
        return {
            "hidden_paths": self.house.hidden,
            "readable_paths": (self.private_directory,),
            "file_ledger": self.house.ledger,
            "shutdown_deadline_seconds": self.settings.shutdown.deadline_seconds,
        }

    def known(self, kind: type[T]) -> T | None:
        """A resource that is there already."""
        found: T | None = self._resources.get(kind)
        return found

    def resource(self, kind: Callable[[ToolContext], T], context: ToolContext) -> T:
        if kind not in self._resources:
            made = kind(context)
            self._resources[kind] = made
            if hasattr(made, "aclose"):
                self._closing.push_async_callback(made.aclose)
        resource: T = self._resources[kind]
        return resource

    async def aclose(self) -> None:
        await self._closing.aclose()


def _interrupts(member: Member) -> int:
    return int(member.counters.get("interrupt", 0))
