"""A team on a terminal: what happens scrolls above, how it stands is always in sight, and one may type at any time.

The console only shows and passes on: what it tells comes from the team's log, what is typed goes through `Team`. So
any number of consoles may look at one team, whoever hosts it.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

from bullpen.cli import text
from bullpen.cli.live import slash
from bullpen.cli.live.desk import Desk
from bullpen.cli.live.hosting import Left
from bullpen.cli.live.picture import draw_picture
from bullpen.cli.live.question import ARMING_SECONDS, KEYS, answers_to, draw_question, find_question
from bullpen.cli.live.story import tell
from bullpen.cli.page import Page, Painted
from bullpen.domain.budget import limits_of
from bullpen.domain.event import Event, EventKind
from bullpen.domain.member import LEAD, USER, MemberRef, MemberStatus
from bullpen.domain.text import name_key
from bullpen.errors import BullpenError
from bullpen.store import BEGINNING
from bullpen.stores.place import place_of
from bullpen.team import Team
from bullpen.team.hosts import find_hosts
from bullpen.team.progress import Progress, RequestProgress

T = TypeVar("T")

# Of what happened before it was opened, so much is told.
SHOWN_BEFORE = 15
HINT_SECONDS = 4.0
MAX_STREAM_ROWS = 8


_HOSTING = frozenset({EventKind.MEMBER_HOSTED, EventKind.MEMBER_LAPSED, EventKind.MEMBER_WANTED})
_END_OF_SPEECH = frozenset({EventKind.MODEL_ANSWERED, EventKind.PHASE_ENDED})


class Console:
    keys = tuple(KEYS)

    def __init__(self, team: Team, progress: Progress) -> None:
        self._team = team
        self._progress = progress
        self._budget_usd = limits_of(team.record.settings).max_cost_usd
        self._stream = ""
        self._flash: tuple[str, float] = ("", 0.0)
        self._elsewhere = ""
        self._is_past = True
        self._last_line = ""
        """Of what was written; at first, nothing stands above."""
        self._question: RequestProgress | None = None
        self._asked_at = 0.0
        self._lines: asyncio.Queue[str] = asyncio.Queue()
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._desk = Desk(self, history=place_of(team.store.url).state_directory / "history")

    # -- from beginning to end ---------------------------------------------------------------------------------

    async def during(self, work: Coroutine[Any, Any, T]) -> T:
        """What the work returns, with the console shown meanwhile. Left, once the work has been cancelled and has come
        to its end, if the human leaves before."""
        doing = asyncio.ensure_future(work)
        try:
            async with self._shown() as watching:
                ends: set[asyncio.Future[Any]] = {doing, self._desk.left, *watching}
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                if doing.done():
                    await self._tell_the_rest()
            for task in watching:
                if task.done() and not task.cancelled():
                    task.result()
        finally:
            if unsent := self._desk.typed.strip():
                print(f"not sent: {text.one_line(unsent)}")
            if not doing.done():
                doing.cancel()
                await asyncio.wait({doing})
        if doing.cancelled():
            raise Left
        return doing.result()

    @asynccontextmanager
    async def _shown(self) -> AsyncIterator[list[asyncio.Task[None]]]:
        last = await self._team.store.last_position(self._team.id)
        async with self._desk.shown():
            watching = [
                asyncio.create_task(self._follow()),
                asyncio.create_task(self._tell(last)),
                asyncio.create_task(self._listen()),
            ]
            try:
                yield watching
            finally:
                for task in watching:
                    task.cancel()
                await asyncio.wait(watching)

    # -- what happens --------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        async with aclosing(self._team.follow_events(after=BEGINNING)) as log:  # type: ignore[type-var]
            async for event in log:
                self._events.put_nowait(event)

    async def _tell(self, last: str) -> None:
        """Of the past, the end; then everything, as it comes."""
        past: deque[list[str]] = deque(maxlen=SHOWN_BEFORE)
        while last and self._progress.position != last:
            page = await self._told(await self._events.get())
            if page.lines:
                past.append(page.lines)
        await self._team.acknowledge_mail([mail.id for mail in await self._team.list_mail(undelivered_only=True)])
        self._is_past = False
        await self._look_who_hosts()
        self._write([*(line for lines in past for line in lines), ""])
        while True:
            events = [await self._events.get()]
            while not self._events.empty():
                events.append(self._events.get_nowait())
            # What comes in a burst is written in one piece.
            lines = [line for event in events for line in (await self._told(event)).lines]
            if any(event.kind in _HOSTING for event in events):
                await self._look_who_hosts()
            self._write(lines)
            self._desk.refresh()

    def _write(self, lines: Sequence[str]) -> None:
        """Blocks have a blank line before and after them, never two."""
        written = []
        for line in lines:
            if line or self._last_line:
                written.append(line)
            self._last_line = line
        self._desk.write(written)

    async def _look_who_hosts(self) -> None:
        hosts = await find_hosts(self._team.store, self._team.record)
        others = [host for host in hosts.hosting if host.pid != os.getpid()]
        if others:
            self._elsewhere = f"hosted by pid {others[0].pid} on {others[0].host}"
        else:
            self._elsewhere = "" if hosts.hosting or hosts.willing else "nobody hosts it now"

    async def _told(self, event: Event) -> Page:
        page = self._desk.page()
        self._progress.follow(event)
        await tell(page, self._team, event, self._progress)
        if event.kind in (EventKind.TEAM_RENAMED, EventKind.TEAM_DELETED):
            self._team.record = await self._team.store.get_team(self._team.id)
        if event.kind in _END_OF_SPEECH and event.data.get("member") == LEAD:
            self._stream = ""
        if event.kind == EventKind.MESSAGE_SENT and event.data.get("to") == USER and not self._is_past:
            await self._team.acknowledge_mail([int(event.data["message"])])
        self._note_question()
        return page

    async def _tell_the_rest(self) -> None:
        """Whatever was written is told before the report."""
        last = await self._team.store.last_position(self._team.id)
        async with self._team.store.listen_events(self._team.id) as bell:
            for _ in range(100):
                if self._progress.position == last:
                    return
                bell.clear()
                await bell.wait(0.05)

    def hear(self, who: MemberRef, piece: str) -> None:
        """What a model says, while it says it: the lead's is shown."""
        if who.name == LEAD:
            self._stream += piece
            self._desk.refresh()

    def _note_question(self) -> None:
        question = find_question(self._progress)
        if question is not None and (self._question is None or question.id != self._question.id):
            loop = asyncio.get_running_loop()
            self._asked_at = loop.time()
            loop.call_later(ARMING_SECONDS, self._desk.refresh)
        self._question = question

    # -- how it looks --------------------------------------------------------------------------------------------

    def draw(self, page: Page, rows: int) -> None:
        question = Page(page.terminal)
        if self._question is not None:
            waiting = sum(request.asked == USER for request in self._progress.requests.values())
            draw_question(question, self._question, waiting=waiting, is_armed=self._is_armed())
        room = rows - len(question.lines) - 2
        self._draw_stream(page, min(max(room // 2, 2), MAX_STREAM_ROWS))
        draw_picture(
            page,
            self._progress,
            now=datetime.now(UTC),
            budget_usd=self._budget_usd,
            title=self._progress.team or self._team.name,
            members_shown=max(min(room - len(page.lines), 8), 1),
        )
        page.lines += question.lines

    def _draw_stream(self, page: Page, rows: int) -> None:
        """The end of what the lead is just saying."""
        if not self._stream.strip():
            return
        spoken = Page(page.terminal)
        spoken.prose(self._stream.strip(), indent=2)
        page.line(Painted(f"{LEAD} …", "bold"))
        page.lines += spoken.lines[-rows:]

    def draw_hint(self, page: Page) -> None:
        offers, chosen = self._desk.completions
        words, until = self._flash
        if offers:
            shown = (Painted(f"{offer}  ", "bold" if offer == chosen else "dim") for offer in offers)
            page.line("  ", *shown, is_cut=True)
        elif until > asyncio.get_running_loop().time():
            page.line("  ", Painted(words, "yellow"), is_cut=True)
        else:
            page.line("  ", Painted(self._standing_hint(), "dim"), is_cut=True)

    def _standing_hint(self) -> str:
        lead = self._progress.members.get(LEAD)
        is_busy = lead is not None and lead.status == MemberStatus.WORKING
        if self._progress.is_deleted:
            parts = ["the team has been deleted: /quit, then `bullpen chat` begins another"]
        elif self._desk.typed:
            parts = ["Enter sends it"] + ["Esc interrupts with it"] * is_busy + ["Alt-Enter begins a new line"]
        else:
            parts = ["Esc interrupts"] * is_busy + ["/help", "Ctrl-C leaves"]
        return " · ".join(parts + [self._elsewhere] * bool(self._elsewhere))

    def flash(self, words: str) -> None:
        """For a moment, below the line."""
        loop = asyncio.get_running_loop()
        self._flash = (words, loop.time() + HINT_SECONDS)
        self._desk.refresh()

    # -- what is typed ---------------------------------------------------------------------------------------------

    def complete(self, typed: str) -> Iterable[tuple[str, str]]:
        words = typed.split(" ")
        names = [(member.name, member.role or "") for member in self._progress.members.values()]
        if len(words) == 1 and typed.startswith("/"):
            offers = [(f"/{name}", meaning) for name, meaning in slash.slash_names()]
        elif len(words) == 1 and typed.startswith("@"):
            offers = [(f"@{name}", role) for name, role in names]
        elif len(words) == 2 and slash.takes_name(words[0]):
            offers = names
        else:
            return []
        return [offer for offer in offers if offer[0].casefold().startswith(words[-1].casefold())]

    def takes_key(self, key: str) -> bool:
        return self._question is not None and key in answers_to(self._question) and self._is_armed()

    def _is_armed(self) -> bool:
        since = max(self._asked_at, self._desk.last_key_at)
        return not self._desk.typed and asyncio.get_running_loop().time() - since >= ARMING_SECONDS

    def on_key(self, key: str) -> None:
        question = self._question
        if question is None:
            return
        answer = answers_to(question)[key]
        if answer.wants_reason:
            self._desk.begin_line(f"/reject {question.id} ")
        else:
            self._lines.put_nowait(f"{'/approve' if answer.approves else '/reject'} {question.id} {answer.scope or ''}")

    def on_line(self, line: str) -> None:
        self._lines.put_nowait(line)

    def on_escape(self) -> None:
        """Whoever is at work is cut off; what was typed reaches it at once."""
        typed = self._desk.typed.strip()
        name, words = (typed.removeprefix("@").partition(" ")[::2]) if typed.startswith("@") else (LEAD, typed)
        member = self._progress.members.get(name_key(name))
        if member is None or member.status != MemberStatus.WORKING:
            self.flash(f"{name} is not at work" + ("; Enter sends what you typed" if typed else ""))
        elif typed.startswith("/"):
            self.flash("Enter runs what you typed")
        else:
            self._desk.take_line()
            self._lines.put_nowait(f"/interrupt {name} {words}")

    async def _listen(self) -> None:
        """One line after the other, in the order in which they were typed."""
        while True:
            line = await self._lines.get()
            page = self._desk.page()
            try:
                await self._obey(page, line)
            except slash.Quit:
                self._desk.leave()
            except BullpenError as error:
                page.line(Painted(f"bullpen: {error}", "red"))
            if page.lines:
                self._write(["", *page.lines, ""] if len(page.lines) > 1 else page.lines)

    async def _obey(self, page: Page, line: str) -> None:
        if line.startswith("/"):
            await slash.run_slash(page, self._team, line)
        elif line.startswith("@"):
            await slash.run_slash(page, self._team, f"/send {line.removeprefix('@')}")
        else:
            await self._team.talk(line)
