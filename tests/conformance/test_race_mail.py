"""Mail reaches the transcript exactly once, whoever is killed at whatever instruction."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress

import pytest

from bullpen.domain.event import EventKind
from bullpen.domain.member import Member
from bullpen.domain.transcript import TurnKind
from bullpen.store import Bell, Store
from tests.support.processes import Child, Crew, HungUp, Line, Report, release
from tests.support.stores import all_events, bury_the_dead, create_team, join, opened, user_of

KILLS = 100
"""Of those at work. Some more die while they still open the store and take over from their predecessor."""
WRITERS = ("w0", "w1", "w2")
READERS = ("r0", "r1")


# -- roles: what the other processes do ------------------------------------------------------


async def write_letters(line: Line, url: str, team_id: int, name: str, first: int, dead: list[int]) -> None:
    """Numbered letters, each with its own operation id, from `first` on, until told to finish."""
    async with opened(url) as store:
        await bury_the_dead(store, dead)
        me = (await join(store, team_id, name)).ref
        finish = asyncio.create_task(line.hear("finish"))
        number = first
        while not finish.done():
            to = READERS[number % len(READERS)]
            await store.send(me, to, f"{name} {number}", operation_id=f"{name}:{number}")
            await line.say("sent", number=number)
            number += 1


async def read_letters(line: Line, url: str, team_id: int, dead: list[int]) -> None:
    """Host whichever reader is wanted and take its mail; when told to finish, what is there is still taken."""
    async with opened(url) as store:
        await bury_the_dead(store, dead)
        me = (await _host(store, team_id)).ref
        finish = asyncio.create_task(line.hear("finish"))
        async with store.listen_member(me) as bell:
            while True:
                bell.clear()
                may_leave = finish.done()
                taken = await store.take_mail(me, limit=3)
                if taken is not None:
                    await line.say("took", letters=[message.content for message in taken.messages])
                elif may_leave:
                    return
                else:
                    await _either(bell, finish)


async def _host(store: Store, team_id: int) -> Member:
    worker = await store.register_worker(slots=1)
    async with store.listen_wanted() as bell:
        while True:
            bell.clear()
            member = await store.host_member(worker.id, team_id=team_id)
            if member is not None:
                return member
            await bell.wait()


async def _either(bell: Bell, finish: asyncio.Task[Report]) -> None:
    ring = asyncio.ensure_future(bell.wait())
    await asyncio.wait((ring, finish), return_when=asyncio.FIRST_COMPLETED)
    ring.cancel()


async def send_the_same(line: Line, url: str, team_id: int, rounds: int) -> None:
    async with opened(url) as store:
        for index in range(rounds):
            await line.meet()
            [receipt] = await store.send(user_of(team_id), "lead", f"letter {index}", operation_id=f"letter {index}")
            await line.say("sent", message=receipt.message.id)
        await line.hear("finish")


# -- tests --------------------------------------------------------------------------------------


class Correspondence:
    """Writers and readers, killed and replaced; and what they said before."""

    def __init__(self, crew: Crew, url: str, team_id: int) -> None:
        self.acknowledged: dict[str, int] = dict.fromkeys(WRITERS, 0)
        self.taken: list[str] = []
        self.kills_at_work = 0
        self._steps: asyncio.Queue[None] = asyncio.Queue()
        self._crew = crew
        self._place = {"url": url, "team_id": team_id}
        self._dead: list[int] = []
        self._at_work: set[int] = set()
        self._cast: dict[str, tuple[Child, asyncio.Task[None]]] = {}
        for part in (*WRITERS, *READERS):
            self.start(part)

    def start(self, part: str) -> None:
        if part in WRITERS:
            first = self.acknowledged[part] + 1
            child = self._crew.start(write_letters, **self._place, name=part, first=first, dead=self._dead)
        else:
            child = self._crew.start(read_letters, **self._place, dead=self._dead)
        self._cast[part] = (child, asyncio.create_task(self._listen(part, child)))

    async def _listen(self, part: str, child: Child) -> None:
        with suppress(HungUp):
            while True:
                report = await child.hear()
                self._at_work.add(child.pid)
                if report["word"] == "sent":
                    self.acknowledged[part] = report["number"]
                else:
                    self.taken += report["letters"]
                self._steps.put_nowait(None)

    async def step(self) -> None:
        """Wait until one of them has said something; a crash of any fails the test at once."""
        said = asyncio.ensure_future(self._steps.get())
        listening = [task for _, task in self._cast.values()]
        done, _ = await asyncio.wait((said, *listening), return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            await task

    async def replace(self, part: str) -> None:
        """Kill it, hear what it had said until then, and start its successor."""
        child, listening = self._cast[part]
        self.kills_at_work += child.pid in self._at_work
        child.kill()
        await listening
        self._dead.append(child.pid)
        self.start(part)

    async def finish(self, parts: tuple[str, ...]) -> None:
        for part in parts:
            await self._cast[part][0].say("finish")
        for part in parts:
            child, listening = self._cast[part]
            await listening
            await child.join()


@pytest.mark.timeout(900)
async def test_mail_is_delivered_exactly_once_while_writers_and_readers_are_killed(
    shared_store_url: str, crew: Crew, chance: random.Random
) -> None:
    async with opened(shared_store_url) as store:
        team, user = await create_team(store)
        for name in READERS:
            await store.spawn_member(user, name)
        post = Correspondence(crew, shared_store_url, team.id)
        while post.kills_at_work < KILLS:
            # The victim is any of them, not the one that spoke: so it dies in the middle of whatever it does.
            for _ in range(chance.randint(1, 8)):
                await post.step()
            await post.replace(chance.choice((*WRITERS, *READERS)))
        await post.finish(WRITERS)
        await post.finish(READERS)

        delivered = await _read_transcripts(store, team.id)
        for name in WRITERS:
            numbers = [number for own in delivered.values() for sender, number in own if sender == name]
            assert len(numbers) == len(set(numbers)), "a letter was delivered twice"
            assert sorted(numbers) == list(range(1, len(numbers) + 1)), "a letter is missing"
            assert len(numbers) >= post.acknowledged[name] > 0, "an acknowledged letter is missing"
        for own in delivered.values():
            for name in WRITERS:
                in_order = [number for sender, number in own if sender == name]
                assert in_order == sorted(in_order), "the order of a sender was not kept"
        assert Counter(post.taken) <= Counter(f"{name} {n}" for own in delivered.values() for name, n in own)
        await _check_log(store, team.id)


async def _read_transcripts(store: Store, team_id: int) -> dict[str, list[tuple[str, int]]]:
    """For each reader: (sender, number) of the letters in its memory, in order."""
    delivered: dict[str, list[tuple[str, int]]] = {}
    for name in READERS:
        inbox = {message.id: message for message in await store.list_mail(team_id, name, limit=1_000_000)}
        turns = await store.list_turns(team_id, name)
        assert [turn.seq for turn in turns] == list(range(1, len(turns) + 1))
        assert [turn.incarnation for turn in turns] == sorted(turn.incarnation for turn in turns)
        ids = [(entry["message"], turn.seq) for turn in turns if turn.kind == TurnKind.MAIL for entry in turn.content]
        assert Counter(number for number, _ in ids) == Counter(inbox.keys()), "inbox and transcript differ"
        assert all(inbox[number].delivered_turn == seq for number, seq in ids)
        delivered[name] = [(inbox[number].sender, int(inbox[number].content.split()[1])) for number, _ in ids]
    return delivered


async def _check_log(store: Store, team_id: int) -> None:
    events = [event for event in await all_events(store, team_id) if event.data.get("to") in READERS]
    sent = [event.data["text"] for event in events if event.kind == EventKind.MESSAGE_SENT]
    assert len(sent) == len(set(sent)), "a repeated operation id sent a letter twice"
    delivered = [event.data["message"] for event in events if event.kind == EventKind.MESSAGE_DELIVERED]
    assert len(delivered) == len(set(delivered)) == len(sent)


async def test_processes_that_use_one_operation_id_at_the_same_moment_send_once(
    shared_store_url: str, crew: Crew
) -> None:
    rounds = 15
    async with opened(shared_store_url) as store:
        team, _ = await create_team(store)
        senders = [crew.start(send_the_same, url=shared_store_url, team_id=team.id, rounds=rounds) for _ in range(8)]
        for _ in range(rounds):
            await release(senders)
            ids = {(await child.hear("sent"))["message"] for child in senders}
            assert len(ids) == 1, "each is told of the same, first message"
        for child in senders:
            await child.say("finish")
            await child.join()
        letters = [message.content for message in await store.list_mail(team.id, "lead")]
        assert letters == [f"letter {index}" for index in range(rounds)]
