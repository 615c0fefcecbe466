"""SPEC 2: spawning: what a teammate is given first, and what becomes of a name that is there already."""

from __future__ import annotations

from pathlib import Path

from bullpen.domain.event import EventKind
from bullpen.domain.member import MemberStatus
from bullpen.domain.message import MessageType
from bullpen.domain.transcript import TurnKind
from bullpen.worker.worker import Worker
from tests.agents.stage import Recorder, facts, member, newest_of, text_of, turns_of
from tests.support.troupe import call, done, hosted, settings, troupe, until

SHORT_IDLE = {"idle": {"timeout_seconds": 0.2}}
LONG_IDLE = {"idle": {"timeout_seconds": 3600}}


async def test_prompt_and_first_task_are_delivered_together(tmp_path: Path, store_url: str) -> None:
    model = Recorder({"ana": [done(), "Finished."]})
    async with troupe(model, tmp_path, store=store_url) as team:
        await team.create_task("Write the parser")
        await team.spawn("ana", prompt="Parsers are yours.")
        async with hosted(team):
            await until(team, EventKind.TASK_COMPLETED, task=1)
    first = model.of("ana")[0]
    assert len(first.messages) == 1
    assert "Parsers are yours." in newest_of(first)
    assert '<task id="1">' in newest_of(first)


async def test_where_every_task_is_blocked_the_prompt_waits_for_the_first_thing_that_wakes_it(tmp_path: Path) -> None:
    model = Recorder({"ana": [done(), "Finished."]})
    async with troupe(model, tmp_path, settings=settings(**LONG_IDLE)) as team:
        await team.create_task("The plan")
        await team.create_task("The house", blocked_by=[1])
        await team.claim_task(1)
        await team.spawn("ana", prompt="Houses are yours.")
        async with hosted(team):
            await until(team, EventKind.MEMBER_STATUS_CHANGED, member="ana", status="idle")
            assert model.count("ana") == 0
            await team.complete_task(1, result="drawn")
            await until(team, EventKind.TASK_COMPLETED, task=2)
    first = newest_of(model.of("ana")[0])
    assert "Houses are yours." in first
    assert '<task id="2">' in first
    assert sum("Houses are yours." in newest_of(request) for request in model.of("ana")) == 1


async def test_where_every_task_is_blocked_mail_brings_the_prompt_along(tmp_path: Path) -> None:
    model = Recorder({"ana": ["Noted."]})
    async with troupe(model, tmp_path, settings=settings(**LONG_IDLE)) as team:
        await team.create_task("The plan")
        await team.create_task("The house", blocked_by=[1])
        await team.claim_task(1)
        await team.spawn("ana", prompt="Houses are yours.")
        async with hosted(team):
            await until(team, EventKind.MEMBER_STATUS_CHANGED, member="ana", status="idle")
            await team.send("ana", "It will be a while.")
            await until(team, EventKind.PHASE_ENDED, member="ana")
    [first] = model.of("ana")
    assert "Houses are yours." in newest_of(first)
    assert "It will be a while." in newest_of(first)


async def test_where_the_board_has_nothing_for_it_the_prompt_is_the_work(tmp_path: Path) -> None:
    model = Recorder({"ana": ["It is 42."]})
    async with troupe(model, tmp_path) as team:
        await team.create_task("For testers", role="tester")
        await team.spawn("ana", role="analyst", prompt="What is the answer?")
        async with hosted(team):
            ended = await until(team, EventKind.PHASE_ENDED, member="ana")
    assert ended.data["result"] == "It is 42."
    [first] = model.of("ana")
    assert "What is the answer?" in newest_of(first)


async def test_spawning_with_a_task_number_gives_that_task_with_the_prompt(tmp_path: Path) -> None:
    model = Recorder({"ana": [done(), "Finished."]})
    async with troupe(model, tmp_path, settings=settings(**LONG_IDLE)) as team:
        await team.create_task("For anybody", role="tester")
        await team.create_task("For ana", role="tester")
        await team.spawn("ana", prompt="Do it.", task_id=2)
        async with hosted(team):
            await until(team, EventKind.TASK_COMPLETED, task=2)
    first = newest_of(model.of("ana")[0])
    assert "Do it." in first
    assert '<task id="2">' in first


async def test_spawning_the_name_of_one_who_shut_down_brings_it_back_with_its_memory(tmp_path: Path) -> None:
    model = Recorder({"ana": ["My number is 17.", "It is still 17."]})
    async with troupe(model, tmp_path, settings=settings(**SHORT_IDLE)) as team:
        await team.spawn("ana", prompt="Think of a number.")
        async with hosted(team):
            gone = await until(team, EventKind.MEMBER_SHUT_DOWN, member="ana")
            spawned = await team.spawn("ana", prompt="Say it again.")
            assert spawned.outcome == "revived"
            await until(team, EventKind.PHASE_ENDED, after=gone.position, member="ana")
    again = model.of("ana")[1]
    assert "Say it again." in newest_of(again)
    assert "My number is 17." in text_of(again)
    assert "<identity>" in newest_of(again)


async def test_spawning_an_idle_name_delivers_the_prompt_to_the_living_loop(tmp_path: Path) -> None:
    model = Recorder({"ana": ["Ready.", "Done that too."]})
    async with troupe(model, tmp_path, settings=settings(**LONG_IDLE)) as team:
        await team.spawn("ana", prompt="Be there.")
        async with hosted(team):
            first = await until(team, EventKind.PHASE_ENDED, member="ana")
            await until(team, EventKind.MEMBER_STATUS_CHANGED, member="ana", status="idle")
            spawned = await team.spawn("ana", prompt="Do this.")
            assert spawned.outcome == "delivered"
            await until(team, EventKind.PHASE_ENDED, after=first.position, member="ana")
            assert (await member(team, "ana")).incarnation == 1
        assert len(await facts(team, EventKind.MEMBER_HOSTED, member="ana")) == 1
    assert "Do this." in newest_of(model.of("ana")[1])
    assert model.count("ana") == 2


async def test_spawning_a_working_name_queues_the_prompt_as_mail(tmp_path: Path) -> None:
    model = Recorder({"ana": [call("TaskList"), "Done both."]})
    held = model.hold("ana", 1)
    async with troupe(model, tmp_path) as team:
        await team.spawn("ana", prompt="Do this.")
        async with hosted(team):
            await held.reached()
            spawned = await team.spawn("ana", prompt="And do that.")
            assert spawned.outcome == "queued"
            held.release()
            await until(team, EventKind.PHASE_ENDED, member="ana")
        [mail] = await team.list_mail("ana")
        assert (mail.type, mail.content) == (MessageType.MESSAGE, "And do that.")
        assert len(await turns_of(team, "ana", TurnKind.MAIL)) == 1
        assert len(await facts(team, EventKind.MEMBER_HOSTED, member="ana")) == 1
    assert "And do that." in newest_of(model.of("ana")[1])


async def test_a_name_is_one_member_whatever_its_case(tmp_path: Path) -> None:
    model = Recorder({"ana": ["Ready.", "Done that too."]})
    async with troupe(model, tmp_path, settings=settings(**LONG_IDLE)) as team:
        await team.spawn("ana", prompt="Be there.")
        async with hosted(team):
            first = await until(team, EventKind.PHASE_ENDED, member="ana")
            await team.spawn("ANA", prompt="Do this.")
            await until(team, EventKind.PHASE_ENDED, after=first.position, member="ana")
        assert [one.name for one in await team.list_members()] == ["lead", "user", "ana"]


async def test_after_a_restart_a_teammate_goes_on_with_the_task_that_it_holds(tmp_path: Path, store_url: str) -> None:
    model = Recorder({"ana": [call("TaskList"), done(), "Finished."]})
    held = model.hold("ana", 2)
    async with troupe(model, tmp_path, store=store_url) as team:
        assert team.hosting is not None
        await team.create_task("The one")
        await team.spawn("ana", prompt="Take it.")
        async with Worker(team.hosting.worker(team).house, team_id=team.id, rest_seconds=0.0):
            await held.reached()
        assert (await member(team, "ana")).status is MemberStatus.WANTED
        held.release()
        async with hosted(team):
            await until(team, EventKind.TASK_COMPLETED, task=1)
        assert len(await facts(team, EventKind.TASK_CLAIMED)) == 1
        assert (await team.get_task(1)).owner == "ana"
    resumed = newest_of(model.of("ana")[2])
    assert "You were restarted." in resumed
    assert "<identity>" in resumed
