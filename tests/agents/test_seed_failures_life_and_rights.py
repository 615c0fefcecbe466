"""Ways in which the seeds' own code ends a teammate, or lets it do what it may not, as a whole team meets them."""

from __future__ import annotations

from pathlib import Path

from bullpen.domain.event import EventKind
from bullpen.domain.member import MemberStatus
from bullpen.providers.scripted import Fault, Step
from tests.agents.stage import Recorder, calls, member, newest_of, play, results
from tests.support.sandboxes import Ground, require_bubblewrap
from tests.support.troupe import call, done, hosted, settings, troupe, until


async def test_a_missing_argument_an_unknown_tool_and_an_exception_are_results_and_end_nobody(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    wild = calls(
        ("write_file", {"content": "where to?"}),
        ("fly", {"to": "the moon"}),
        ("read_file", {"path": "directory"}),
        ("TaskUpdate", {"taskId": "seven"}),
    )
    model = Recorder({"ana": [wild, done(), "Finished."]})
    async with troupe(model, tmp_path) as team:
        await team.create_task("Hers")
        await team.spawn("ana", prompt="Take it.")
        async with hosted(team):
            await until(team, EventKind.PHASE_ENDED, member="ana")
            assert (await member(team, "ana")).status is MemberStatus.IDLE
            made = await team.store.list_calls(team.id, "ana")
    assert [one.is_error for one in made] == [True] * 4 + [False]
    assert "path" in newest_of(model.of("ana")[1])


async def test_one_error_of_the_model_ends_nobody(tmp_path: Path, short_delays: None) -> None:
    for kind in ("overloaded", "rate_limited", "cut", "garbage"):
        model = Recorder({"ana": [Step(say="Finished.", faults=(Fault(kind=kind, retry_after_seconds=0.01),))]})
        async with troupe(model, tmp_path) as team:
            await team.spawn("ana", prompt="Say it.")
            async with hosted(team):
                ended = await until(team, EventKind.PHASE_ENDED, member="ana")
            assert ended.data["result"] == "Finished."
        assert model.count("ana") == 2


async def test_a_teammate_cannot_delete_its_team_nor_spawn_nor_ask_others_to_stop(tmp_path: Path) -> None:
    tries = calls(
        ("TeamDelete", {}),
        ("TeamCreate", {"name": "mine"}),
        ("Task", {"name": "friend", "prompt": "Join me."}),
        ("SendMessage", {"recipient": "lead", "type": "shutdown_request"}),
    )
    async with troupe({"eve": [tries, "I see."]}, tmp_path, name="ours") as team:
        await team.spawn("eve", prompt="Try.")
        async with hosted(team):
            await until(team, EventKind.PHASE_ENDED, member="eve")
            made = await team.store.list_calls(team.id, "eve")
        record = await team.store.get_team(team.id)
        assert (record.deleted_at, record.name) == (None, "ours")
        assert [each.name for each in await team.list_members()] == ["lead", "user", "eve"]
    assert [one.is_error for one in made] == [True] * 4


async def test_an_exploring_subagent_writes_nothing_and_has_no_subagents(ground: Ground) -> None:
    require_bubblewrap()
    tries = calls(
        ("write_file", {"path": "made.txt", "content": "made"}),
        ("edit_file", {"path": "there.txt", "old_text": "as it was", "new_text": "changed"}),
        ("Task", {"prompt": "Write it for me.", "agent_type": "code"}),
        ("bash", {"command": "echo made > made.txt"}),
        ("read_file", {"path": "there.txt"}),
        purpose="subagent",
    )
    (ground.workspace / "there.txt").write_text("as it was\n")
    for kind in ("explore", "plan"):
        ask = call("Task", prompt="Look, and try to write.", agent_type=kind)
        model = Recorder({"lead": [ask, "I see.", tries, Step(say="I could not.", purpose="subagent")]})
        async with troupe(model, ground.workspace, settings=settings(sandbox={"kind": "bubblewrap"})) as team:
            await play(team)
            [said] = await results(team, "lead")
        assert said == "I could not."
        seen = newest_of(model.of("lead", "subagent")[1])
        assert seen.count("there is no tool") == 3
        assert "Read-only file system" in seen
        assert "as it was" in seen
        assert not (ground.workspace / "made.txt").exists()
        assert (ground.workspace / "there.txt").read_text() == "as it was\n"


async def test_a_coding_subagent_writes_and_has_no_subagents_of_its_own(tmp_path: Path) -> None:
    work = calls(
        ("write_file", {"path": "made.txt", "content": "made"}),
        ("Task", {"prompt": "Do it for me."}),
        ("SendMessage", {"recipient": "user", "content": "Hello."}),
        purpose="subagent",
    )
    ask = call("Task", prompt="Write made.txt.", agent_type="code")
    model = Recorder({"lead": [ask, "I see.", work, Step(say="Written.", purpose="subagent")]})
    async with troupe(model, tmp_path) as team:
        await play(team)
        assert await results(team, "lead") == ["Written."]
    assert (tmp_path / "made.txt").read_text() == "made"
    assert newest_of(model.of("lead", "subagent")[1]).count("there is no tool") == 2


async def test_grep_for_shutdown_runs_and_what_would_remove_the_home_removes_nothing_of_it(ground: Ground) -> None:
    require_bubblewrap()
    (ground.workspace / "code.py").write_text("def shutdown(): ...\n")
    both = calls(("bash", {"command": "grep -n shutdown code.py"}), ("bash", {"command": "rm -rf ~"}))
    confined = settings(sandbox={"kind": "bubblewrap"}, permissions={"allow": []})
    async with troupe({"ana": [both, "Done."]}, ground.workspace, settings=confined) as team:
        await team.spawn("ana", prompt="Look.")
        async with hosted(team):
            await until(team, EventKind.PHASE_ENDED, member="ana")
            looked, _ = await results(team, "ana")
    assert "1:def shutdown(): ..." in looked
    assert (ground.home / ".ssh" / "id_rsa").read_text() == "SECRET"
    assert (ground.home / ".gitconfig").exists()


async def test_without_confinement_the_same_asks_first(tmp_path: Path) -> None:
    asks = settings(permissions={"allow": []})
    async with troupe({"ana": [call("bash", command="rm -rf ~"), "I see."]}, tmp_path, settings=asks) as team:
        await team.spawn("ana", prompt="Remove it.")
        async with hosted(team):
            await until(team, EventKind.PHASE_ENDED, member="ana")
            [said] = await results(team, "ana")
    assert "not allowed" in said
