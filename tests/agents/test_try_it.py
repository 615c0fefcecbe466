"""What the seeds propose to try, each a run of a whole team: the goal is the prompt as it stands there."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bullpen.config import Settings
from bullpen.domain.event import EventKind
from bullpen.domain.member import MemberStatus
from bullpen.domain.task import TaskStatus
from bullpen.domain.transcript import TurnKind
from bullpen.provider import ModelRequest
from bullpen.providers.scripted import Call, Step
from bullpen.team import Outcome
from tests.agents.stage import (
    Recorder,
    calls,
    facts,
    mail_of,
    member,
    newest_of,
    play,
    play_led,
    results,
    seeing,
    turns_of,
)
from tests.support.stores import opened
from tests.support.troupe import call, done, events_of, hosted, settings, troupe, until

SHORT_IDLE = {"idle": {"timeout_seconds": 0.2}}
LONG_IDLE = {"idle": {"timeout_seconds": 3600}}


def create(subject: str, **rest: object) -> Call:
    return Call(name="TaskCreate", arguments={"subject": subject, **rest})


def spawn(name: str, **rest: object) -> Call:
    return Call(name="Task", arguments={"name": name, "prompt": f"You are {name}: take what you find.", **rest})


def diligent(request: ModelRequest) -> Step | str:
    """Completes the task it is given, then says so."""
    return done() if "<task id=" in newest_of(request) else "Finished."


def closing(text: str = "All is done.") -> Step:
    return seeing("All tasks are finished", text)


# -- autonomous agents -----------------------------------------------------------------------------------------


async def test_create_3_tasks_on_the_board_then_spawn_alice_and_bob_and_watch_them_auto_claim(
    tmp_path: Path, store_url: str
) -> None:
    split = calls(*(create(f"Part {number}") for number in (1, 2, 3)), spawn("alice"), spawn("bob"))
    model = Recorder({"lead": [split, "They find their work.", closing()], "alice": diligent, "bob": diligent})
    # Neither answers before both have claimed: so both do.
    holds = [model.hold(name, 1) for name in ("alice", "bob")]
    async with troupe(model, tmp_path, store=store_url) as team:
        run = asyncio.create_task(play(team, "Create 3 tasks on the board, then spawn alice and bob."))
        for hold in holds:
            await hold.reached()
        # What wakes the lead comes after its turn.
        await until(team, EventKind.PHASE_ENDED, member="lead")
        for hold in holds:
            hold.release()
        report = await run
        claims = await facts(team, EventKind.TASK_CLAIMED)
        assert sorted(event.data["task"] for event in claims) == [1, 2, 3]
        assert {event.actor for event in claims} == {"alice", "bob"}
    assert report.succeeded
    assert report.text == "All is done."
    assert model.count("lead") == 3


async def test_spawn_a_coder_teammate_and_let_it_find_work_from_the_task_board_itself(tmp_path: Path) -> None:
    model = Recorder(
        {
            "lead": [calls(spawn("coder", role="coder")), "It looks for itself.", closing()],
            "coder": diligent,
        }
    )
    goal = "Spawn a coder teammate and let it find work from the task board itself"
    async with troupe(model, tmp_path) as team:
        await team.create_task("It was here before anybody came")
        report = await play_led(team, model, "coder", goal=goal)
    assert report.succeeded
    assert [task.owner for task in report.tasks] == ["coder"]


async def test_create_tasks_with_dependencies_and_watch_teammates_respect_the_blocked_order(
    tmp_path: Path, store_url: str
) -> None:
    # 1 <- 2, 1 <- 3, (2, 3) <- 4
    split = calls(
        create("Found"),
        create("Left wall", blockedBy=[1]),
        create("Right wall", blockedBy=["#1"]),
        create("Roof", blockedBy="2, 3"),
        *map(spawn, ("alice", "bob", "carol")),
    )
    model = Recorder({"lead": [split, "They know the order.", closing()], "*": diligent})
    async with troupe(model, tmp_path, store=store_url) as team:
        report = await play_led(team, model, "alice", "bob", "carol", goal="Create tasks with dependencies.")
        steps = [
            (event.kind, event.data["task"])
            for event in await events_of(team, EventKind.TASK_CLAIMED, EventKind.TASK_COMPLETED)
        ]
    assert report.succeeded
    for task, blockers in {2: [1], 3: [1], 4: [2, 3]}.items():
        for blocker in blockers:
            assert steps.index((EventKind.TASK_COMPLETED, blocker)) < steps.index((EventKind.TASK_CLAIMED, task))


async def test_the_board_is_shown_with_owners_and_the_team_with_who_works_and_who_is_idle(tmp_path: Path) -> None:
    looks = calls(("TaskList", {}), ("list_teammates", {}))
    model = Recorder({"lead": [looks, "Seen."], "alice": diligent, "bob": ["Nothing for me."]})
    working = model.hold("alice", 1)
    async with troupe(model, tmp_path, settings=settings(**LONG_IDLE)) as team:
        await team.create_task("Hers", role="coder")
        await team.create_task("After hers", role="coder", blocked_by=[1])
        await team.spawn("alice", role="coder", prompt="Code.")
        await team.spawn("bob", role="tester", prompt="Test.")
        async with hosted(team):
            await working.reached()
            await until(team, EventKind.PHASE_ENDED, member="bob")
            await team.store.want_member(team._me, "lead")
            await team.send("lead", "Who does what?")
            await until(team, EventKind.PHASE_ENDED, member="lead")
            # Both only read, so either may end first.
            seen = "\n".join(await results(team, "lead"))
            working.release()
    assert "#1 [in_progress, owner alice, role coder] Hers" in seen
    assert "#2 [pending, blocked by #1, role coder] After hers" in seen
    assert "alice: teammate, role coder, working, works on #1 Hers" in seen
    assert "bob: teammate, role tester, idle" in seen


async def test_alice_writes_tests_fixes_bugs_and_updates_docs_in_trysamples_one_after_the_other(tmp_path: Path) -> None:
    goal = (
        "Create 3 tasks on the task board (all output files should go to the trysamples directory): write tests, "
        "fix bugs, update docs. Then spawn alice as a developer."
    )
    subjects = ("write tests", "fix bugs", "update docs")
    split = calls(*map(create, subjects), spawn("alice", role="developer"))
    files = [f"trysamples/{subject.replace(' ', '_')}.txt" for subject in subjects]
    work = [step for file in files for step in (call("write_file", path=file, content=file), done(), "Finished.")]
    model = Recorder({"lead": [split, "She has all she needs.", closing()], "alice": work})
    async with troupe(model, tmp_path) as team:
        report = await play_led(team, model, "alice", goal=goal)
        ends = await facts(team, EventKind.PHASE_ENDED, member="alice")
    assert report.succeeded
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.txt")) == sorted(files)
    # Three phases of work, and between them she was idle and claimed by herself.
    assert len(ends) == 3
    assert model.script.unused_steps() == ()


async def test_a_task_added_while_alice_is_idle_is_picked_up(tmp_path: Path, store_url: str) -> None:
    model = Recorder({"alice": diligent})
    # Without the safety net: the bell alone tells her. (The seeds promise five seconds.)
    async with opened(store_url) as store, troupe(model, tmp_path, store=store, settings=settings(**LONG_IDLE)) as team:
        await team.create_task("The first")
        await team.spawn("alice", role="developer", prompt="Take what comes.")
        async with hosted(team):
            await until(team, EventKind.PHASE_ENDED, member="alice")
            assert (await member(team, "alice")).status is MemberStatus.IDLE
            await team.create_task("The second")
            await until(team, EventKind.TASK_COMPLETED, task=2)
        assert (await team.get_task(2)).owner == "alice"


async def test_alice_shuts_down_when_nothing_comes_for_as_long_as_the_settings_say(tmp_path: Path) -> None:
    assert Settings().idle.timeout_seconds == 60
    model = Recorder({"alice": diligent})
    async with troupe(model, tmp_path, settings=settings(**SHORT_IDLE)) as team:
        await team.create_task("The only one")
        await team.spawn("alice", role="developer", prompt="Take what comes.")
        async with hosted(team):
            gone = await until(team, EventKind.MEMBER_SHUT_DOWN, member="alice")
        assert gone.data["reason"] == "timeout"
        assert (await member(team, "alice")).status is MemberStatus.SHUTDOWN
    # One for the task, one to say that it is done: the waiting was free.
    assert model.count("alice") == 2


# -- agent teams -------------------------------------------------------------------------------------------------


async def test_spawn_alice_coder_and_bob_tester_and_have_alice_send_bob_a_message(tmp_path: Path) -> None:
    both = calls(spawn("alice", role="coder"), spawn("bob", role="tester"))
    write = call("SendMessage", recipient="bob", content="The login page is ready to be tested.")
    model = Recorder(
        {
            "lead": [both, Step(say="Noted.", repeat=True)],
            "alice": [write, "Told bob."],
            "bob": [Step(say="I see.", repeat=True)],
        }
    )
    async with troupe(model, tmp_path) as team:
        await play(team, "Spawn alice (coder) and bob (tester). Have alice send bob a message.")
        [mail] = [mail for mail in await mail_of(team, "bob") if mail.sender == "alice"]
        assert mail.delivered_at is not None
    heard = [request for request in model.of("bob") if "The login page is ready" in newest_of(request)]
    assert len(heard) == 1
    assert 'from="alice" origin="agent" type="message"' in newest_of(heard[0])


async def test_broadcast_status_update_phase_1_complete_to_all_teammates(tmp_path: Path) -> None:
    text = "status update: phase 1 complete"
    # The seeds name a recipient that is ignored.
    broadcast = Call(name="SendMessage", arguments={"recipient": "anyone", "content": text, "type": "broadcast"})
    names = ("alice", "bob", "carol")
    model = Recorder(
        {
            "lead": [calls(*map(spawn, names)), calls(broadcast), Step(say="Noted.", repeat=True)],
            "*": [Step(say="I see.", repeat=True)],
        }
    )
    async with troupe(model, tmp_path) as team:
        await play(team, f'Broadcast "{text}" to all teammates')
        for name in names:
            assert [mail.content for mail in await mail_of(team, name) if mail.type == "broadcast"] == [text]
        assert not [mail for mail in await mail_of(team, "lead") if mail.type == "broadcast"]
    for name in names:
        assert sum(text in newest_of(request) for request in model.of(name)) == 1


async def test_check_the_lead_inbox_for_any_messages(tmp_path: Path) -> None:
    ask = call("SendMessage", recipient="lead", content="Which port shall I use?")
    model = Recorder(
        {
            "lead": [
                calls(spawn("alice")),
                "I wait.",
                seeing("Which port", call("read_inbox")),
                call("read_inbox"),
                Step(say="Read.", repeat=True),
            ],
            "alice": [ask, "Asked."],
        }
    )
    async with troupe(model, tmp_path) as team:
        await play(team, "Check the lead inbox for any messages")
        first, second = (text for text in await results(team, "lead") if "Which port" in text)
    # Looking shows it, and shows it again.
    assert 'delivered <message from="alice"' in first
    assert "Which port shall I use?" in second


# -- the whole story ---------------------------------------------------------------------------------------------


async def test_migrate_the_app_from_rest_to_graphql_from_team_create_to_team_delete(
    tmp_path: Path, store_url: str
) -> None:
    split = calls(
        ("TeamCreate", {"name": "rest-to-graphql"}),
        create("Analyze REST endpoints", role="analyst"),
        create("Design GraphQL schema", blockedBy=["1"], role="backend"),
        create("Implement resolvers", blockedBy=["2"], role="backend"),
        create("Update frontend", blockedBy=["3"], role="frontend"),
        spawn("analyst", role="analyst", team_name="rest-to-graphql"),
        spawn("backend", role="backend", team_name="rest-to-graphql"),
        spawn("frontend", role="frontend", team_name="rest-to-graphql"),
    )
    end = seeing("All tasks are finished", call("TeamDelete", name="rest-to-graphql"))
    model = Recorder({"lead": [split, "The team is at work.", end, "Migration complete."], "*": diligent})
    # The first begins when the lead has ended its turn: what wakes it comes after that, however busy the machine is.
    analyst = model.hold("analyst", 1)
    async with troupe(model, tmp_path, store=store_url) as team:
        run = asyncio.create_task(play(team, "Migrate the app from REST to GraphQL"))
        await until(team, EventKind.PHASE_ENDED, member="lead")
        analyst.release()
        report = await run
        record = await team.store.get_team(team.id)
        claims = [(event.actor, event.data["task"]) for event in await facts(team, EventKind.TASK_CLAIMED)]
        deleted = (await results(team, "lead"))[-1]
        last = (await turns_of(team, "lead", TurnKind.ASSISTANT))[-1]
        statuses = {each.name: each.status for each in await team.list_members() if each.name != "user"}

    assert report.outcome is Outcome.DONE
    assert report.text == "Migration complete."
    assert "Migration complete." in str(last.content["parts"])
    assert record.name == "rest-to-graphql"
    assert record.deleted_at is not None
    assert claims == [("analyst", 1), ("backend", 2), ("backend", 3), ("frontend", 4)]
    assert [task.status for task in report.tasks] == [TaskStatus.COMPLETED] * 4
    for name in ("analyst", "backend", "frontend"):
        assert f"{name}: stopped when asked" in deleted
        assert statuses[name] is MemberStatus.SHUTDOWN
    # Waiting costs nothing: two requests for each task, and none while a blocker was open.
    assert {name: model.count(name) for name in ("analyst", "backend", "frontend")} == {
        "analyst": 2,
        "backend": 4,
        "frontend": 2,
    }
    assert model.count("lead") == 4


# -- talking and ending, as the second seed has it -----------------------------------------------------------------


async def test_the_lead_asks_a_teammate_to_shut_down_and_it_answers_and_ends(tmp_path: Path) -> None:
    ask = call("SendMessage", recipient="alice", type="shutdown_request", content="We are done.")
    model = Recorder(
        {
            "lead": [calls(spawn("alice")), "She is at work.", seeing("Ready", ask), Step(say="Noted.", repeat=True)],
            "alice": ["Ready when you are."],
        }
    )
    async with troupe(model, tmp_path) as team:
        await play(team, "Spawn alice, then ask her to stop.")
        gone = await until(team, EventKind.MEMBER_SHUT_DOWN, member="alice")
        answers = [mail for mail in await mail_of(team, "lead") if mail.type == "shutdown_response"]
    assert gone.data["reason"] == "asked"
    assert [mail.sender for mail in answers] == ["system"]
    # The runtime answered for her: it cost no call.
    assert model.count("alice") == 1


async def test_please_finish_the_login_page_first_reaches_a_teammate_in_the_middle_of_its_work(tmp_path: Path) -> None:
    model = Recorder({"frontend": [call("bash", command="echo hero"), done(), "Finished."]})
    first = model.hold("frontend", 1)
    async with troupe(model, tmp_path) as team:
        await team.create_task("Build the pages")
        await team.spawn("frontend", prompt="Handle frontend development")
        async with hosted(team):
            await first.reached()
            await team.send("frontend", "Please finish the login page first")
            first.release()
            await until(team, EventKind.PHASE_ENDED, member="frontend")
    second = model.of("frontend")[1]
    assert "Please finish the login page first" in newest_of(second)
    assert 'origin="human"' in newest_of(second)


async def test_a_subagent_explores_and_its_answer_is_the_result(tmp_path: Path) -> None:
    (tmp_path / "src" / "auth").mkdir(parents=True)
    (tmp_path / "src" / "auth" / "login.py").write_text("def login(): ...\n")
    look = Step(calls=(Call(name="glob", arguments={"pattern": "**/login.py"}),), purpose="subagent")
    answer = Step(say="auth is in src/auth/", purpose="subagent")
    ask = call("Task", prompt="explore the codebase: where is auth?", agent_type="explore")
    model = Recorder({"lead": [ask, "It is in src/auth/.", look, answer]})
    async with troupe(model, tmp_path) as team:
        report = await play(team, "Where is auth?")
        [result] = await results(team, "lead")
        members = [each.name for each in await team.list_members()]
    assert result == "auth is in src/auth/"
    assert report.text == "It is in src/auth/."
    # It had a context of its own, and is gone.
    assert "Where is auth?" not in newest_of(model.of("lead", "subagent")[0])
    assert "login.py" in newest_of(model.of("lead", "subagent")[1])
    assert members == ["lead", "user"]
