"""Members work apart: each has files of its own, and what is handed in comes together on the trunk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bullpen.domain.event import EventKind
from bullpen.domain.submission import SubmissionState
from bullpen.domain.task import TaskStatus
from bullpen.provider import ModelRequest
from bullpen.providers.scripted import Step
from bullpen.team import Outcome, Team
from tests.agents.stage import Recorder, calls, newest_of, results
from tests.support.repository import files_at, fingerprint, git, make_repository, set_apart, write
from tests.support.troupe import call, done, events_of, settings, troupe, until

WAITS = "I wait."


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repository", {"a": "one\ntwo\nthree\n", "b": "b\n"})


@asynccontextmanager
async def apart(script: Mapping[str, Any] | Recorder, repository: Path, **sections: Any) -> AsyncIterator[Team]:
    store = f"sqlite:///{repository}/.bullpen/bullpen.db"
    model = script if isinstance(script, Recorder) else Recorder(script)
    async with troupe(model, repository, store=store, settings=settings(**sections)) as team:
        await set_apart(team, repository)
        yield team


def waiting(request: ModelRequest) -> str:
    return WAITS


def bash(command: str) -> Step:
    return call("bash", command=command)


def worker(*commands: str) -> list[Step | str]:
    """Runs these, completes its task, says so."""
    return [*map(bash, commands), done(), "Finished."]


def integrated(repository: Path) -> dict[str, str]:
    return files_at(repository, "bullpen/troupe")


async def test_each_works_in_files_of_its_own_and_the_users_are_left_alone(repository: Path) -> None:
    write(repository, {"a": "unsaved\n", "new": "n\n"})
    before = fingerprint(repository)
    # Both have written before either looks.
    model = Recorder(
        {
            "lead": waiting,
            "ana": worker("echo ana > from-ana", "ls from-*; cat a"),
            "ben": worker("echo ben > from-ben", "ls from-*"),
        }
    )
    holds = [model.hold(name, 2) for name in ("ana", "ben")]
    async with apart(model, repository) as team:
        for name in ("ana", "ben"):
            await team.create_task(f"For {name}", role=name)
            await team.spawn(name, role=name)
        run = asyncio.create_task(team.run("Go."))
        for hold in holds:
            await hold.reached()
        for hold in holds:
            hold.release()
        assert (await run).succeeded
        assert "from-ana\none\ntwo\nthree\n[exit" in (await results(team, "ana"))[1]
        assert (await results(team, "ben"))[1].startswith("from-ben\n[exit")
    assert integrated(repository).keys() == {"a", "b", "from-ana", "from-ben"}
    assert fingerprint(repository) == before


async def test_a_dependent_starts_from_what_its_blocker_made(repository: Path) -> None:
    model = Recorder({"lead": waiting, "ana": worker("echo made > made"), "ben": worker("cat made")})
    async with apart(model, repository) as team:
        first = await team.create_task("First", role="first")
        await team.create_task("Second", role="second", blocked_by=[first.id])
        await team.spawn("ana", role="first")
        await team.spawn("ben", role="second")
        report = await team.run("Go.")
        assert report.succeeded
        assert "made" in (await results(team, "ben"))[0]
        log = [event.kind for event in await events_of(team, EventKind.WORK_INTEGRATED, EventKind.TASK_UNBLOCKED)]
        # Claimable with the integration, not before it.
        assert log[:2] == [EventKind.WORK_INTEGRATED, EventKind.TASK_UNBLOCKED]


async def test_the_lead_sees_what_was_integrated_and_its_own_work_is_integrated_too(repository: Path) -> None:
    def lead(request: ModelRequest) -> Step | str:
        if "All tasks are finished" in newest_of(request):
            return bash("cat a made; echo lead > notes")
        return "The end." if "[exit code" in newest_of(request) else WAITS

    model = Recorder({"lead": lead, "ana": worker("echo ana > a; echo made > made")})
    async with apart(model, repository) as team:
        await team.create_task("One")
        await team.spawn("ana")
        report = await team.run("Go.")
        assert report.outcome is Outcome.DONE
        assert "ana\nmade" in (await results(team, "lead"))[0]
        assert [one.member for one in await team.store.list_submissions(team.id)] == ["ana", "lead"]
    assert integrated(repository) == {"a": "ana", "b": "b", "made": "made", "notes": "lead"}
    assert report.commits == 2
    assert "Bullpen-Work: lead/2" in git(repository, "log", "-1", "--format=%B", "bullpen/troupe")


async def test_a_conflict_goes_back_to_its_owner_who_repairs_it_while_others_go_on(repository: Path) -> None:
    def ben(request: ModelRequest) -> Step | str:
        newest = newest_of(request)
        if "<task id=" in newest:
            return bash("sed -i s/two/BEN/ a")
        if "it conflicts in a" in newest or "conflict markers" in newest:
            return bash("sed -i '/^<<<<<<<\\|^=======\\|^>>>>>>>/d' a; cat a")
        return "Finished." if "[completed" in newest else done()

    model = Recorder({"lead": waiting, "ana": worker("sed -i s/two/ANA/ a"), "ben": ben, "cat": worker("echo cat > b")})
    # Ben edits before ana has handed in, and completes after it.
    ben_completes = model.hold("ben", 2)
    async with apart(model, repository) as team:
        for role in ("ben", "ana", "cat"):
            await team.create_task(f"For {role}", role=role)
            await team.spawn(role, role=role)
        run = asyncio.create_task(team.run("Go."))
        await ben_completes.reached()
        await until(team, EventKind.TASK_COMPLETED, task=2)
        await until(team, EventKind.TASK_COMPLETED, task=3)
        ben_completes.release()
        report = await run
        assert report.succeeded, report.lines
    assert integrated(repository) == {"a": "one\nANA\nBEN\nthree", "b": "cat"}


async def test_a_check_that_fails_only_after_the_rebase_goes_back_with_its_output(repository: Path) -> None:
    """Each passes alone; together they do not."""

    def ben(request: ModelRequest) -> Step | str:
        newest = newest_of(request)
        if "<task id=" in newest:
            return bash("echo ben > from-ben")
        if "two are too many" in newest:
            return bash("rm from-ben; echo 'ben too' >> b")
        return "Finished." if "[completed" in newest else done()

    check = "test ! -e from-ana -o ! -e from-ben || { echo two are too many; exit 1; }"
    model = Recorder({"lead": waiting, "ana": worker("echo ana > from-ana"), "ben": ben})
    ben_completes = model.hold("ben", 2)
    async with apart(model, repository) as team:
        for role in ("ben", "ana"):
            await team.create_task(f"For {role}", role=role, check=check)
            await team.spawn(role, role=role)
        run = asyncio.create_task(team.run("Go."))
        await ben_completes.reached()
        await until(team, EventKind.TASK_COMPLETED, task=2)
        ben_completes.release()
        report = await run
        assert report.succeeded, report.lines
        assert all(task.evidence and task.evidence.passed for task in await team.list_tasks())
    assert integrated(repository) == {"a": "one\ntwo\nthree", "b": "b\nben too", "from-ana": "ana"}


async def test_what_is_given_back_half_done_is_kept_and_said_to_who_takes_it_next(repository: Path) -> None:
    gives_up = [bash("echo half > half"), call("TaskUpdate", taskId="1", status="failed", result="too hard"), "Sorry."]
    model = Recorder({"lead": waiting, "ana": gives_up})
    async with apart(model, repository) as team:
        await team.create_task("One")
        await team.spawn("ana")
        await team.run("Go.")
        [task] = await team.list_tasks()
        assert task.status is TaskStatus.FAILED
        assert task.result is not None
        assert "too hard" in task.result
        kept = task.result.split("`")[1].split()[-1]
        assert files_at(repository, kept)["half"] == "half"
        assert await team.store.list_submissions(team.id) == []
    assert "half" not in integrated(repository)
    assert git(repository, "for-each-ref", "refs/bullpen/troupe/").count("ana.kept-") == 1


async def test_what_was_begun_for_a_task_that_is_somebody_elses_by_now_is_kept_and_not_integrated(
    repository: Path,
) -> None:
    told = [bash("echo half > half"), "Half.", "I stop."]
    model = Recorder({"lead": waiting, "ana": told, "ben": worker("echo ben > b")})
    asked = model.hold("ana", 2)
    async with apart(model, repository) as team:
        await team.create_task("One")
        await team.spawn("ana")
        run = asyncio.create_task(team.run("Go."))
        await asked.reached()
        await team.release_task(1)
        await team.spawn("ben")
        await until(team, EventKind.TASK_COMPLETED, task=1)
        asked.release()
        report = await run
        assert report.succeeded, report.lines
        assert [one.member for one in await team.store.list_submissions(team.id)] == ["ben"]
    assert integrated(repository) == {"a": "one\ntwo\nthree", "b": "ben"}
    [kept] = [line.split()[-1] for line in git(repository, "for-each-ref").splitlines() if "kept-" in line]
    assert files_at(repository, kept)["half"] == "half"


async def test_who_lost_a_task_and_claims_it_again_goes_on_with_its_files(repository: Path) -> None:
    """As after a night between Ctrl-C and `resume`."""
    ana = [bash("echo half > half"), "Half.", "I stop.", bash("cat half; echo more >> half"), done(), "Finished."]
    model = Recorder({"lead": waiting, "ana": ana})
    asked = model.hold("ana", 2)
    async with apart(model, repository) as team:
        await team.create_task("One")
        await team.spawn("ana")
        run = asyncio.create_task(team.run("Go."))
        await asked.reached()
        await team.release_task(1)
        asked.release()
        report = await run
        assert report.succeeded, report.lines
        assert "half" in (await results(team, "ana"))[1]
        assert "is in your files still" in newest_of(model.of("ana")[3])
    assert integrated(repository)["half"] == "half\nmore"


async def test_who_lost_a_task_and_claims_it_by_itself_goes_on_with_its_files_too(repository: Path) -> None:
    ana = [bash("echo half > half"), call("claim_task", taskId="1"), bash("cat half"), done(), "Finished."]
    model = Recorder({"lead": waiting, "ana": ana})
    asked = model.hold("ana", 2)
    async with apart(model, repository) as team:
        await team.create_task("One")
        await team.spawn("ana")
        run = asyncio.create_task(team.run("Go."))
        await asked.reached()
        await team.release_task(1)
        asked.release()
        report = await run
        assert report.succeeded, report.lines
        assert "is in your files still" in (await results(team, "ana"))[1]
        assert "half" in (await results(team, "ana"))[2]
    assert integrated(repository)["half"] == "half"


async def test_who_lost_a_task_to_another_is_told_under_which_name_its_half_is_kept(repository: Path) -> None:
    ana = [bash("echo half > half"), "Half.", "I stop.", *worker("ls")]
    model = Recorder({"lead": waiting, "ana": ana, "ben": worker("echo ben > b")})
    asked = model.hold("ana", 2)
    async with apart(model, repository) as team:
        await team.create_task("One")
        await team.spawn("ana", role="ana")
        run = asyncio.create_task(team.run("Go."))
        await asked.reached()
        await team.create_task("Two", role="ana")
        await team.release_task(1)
        await team.spawn("ben", role="ben")
        await until(team, EventKind.TASK_COMPLETED, task=1)
        asked.release()
        report = await run
        assert report.succeeded, report.lines
        [kept] = [ref for ref in git(repository, "for-each-ref", "--format=%(refname)").splitlines() if "kept-" in ref]
        assert f"kept as {kept.removeprefix('refs/')}" in newest_of(model.of("ana")[3])
    assert "half" not in integrated(repository)


async def test_only_the_owner_completes_what_is_in_its_worktree(repository: Path) -> None:
    model = Recorder(
        {
            "lead": [call("TaskUpdate", taskId="1", status="completed", result="mine"), *[WAITS] * 9],
            "ana": worker("echo ana > a"),
        }
    )
    hold = model.hold("ana", 1)
    async with apart(model, repository) as team:
        await team.create_task("One")
        await team.spawn("ana")
        lead = model.hold("lead", 1)
        run = asyncio.create_task(team.run("Go."))
        await hold.reached()
        lead.release()
        await until(team, EventKind.TOOL_CALL_FINISHED, tool="TaskUpdate")
        hold.release()
        assert (await run).succeeded
        assert "only ana completes it" in (await results(team, "lead"))[0]
    assert integrated(repository)["a"] == "ana"


async def test_a_task_without_a_change_is_completed_without_the_queue(repository: Path) -> None:
    model = Recorder({"lead": waiting, "ana": worker("cat a")})
    async with apart(model, repository) as team:
        await team.create_task("Look")
        await team.spawn("ana")
        report = await team.run("Go.")
        assert report.succeeded
        assert await team.store.list_submissions(team.id) == []
    assert report.commits == 0


async def test_what_a_check_leaves_behind_is_not_handed_in_as_work(repository: Path) -> None:
    """Neither with a change of its own nor without one, nor what every Python leaves in a repository that ignores
    nothing."""
    script = {"lead": waiting, "ana": worker("echo made > made"), "ben": worker("python3 -m compileall -q code")}
    write(repository, {"code/module.py": "NUMBER = 1\n"})
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "code")
    async with apart(script, repository) as team:
        for name in ("ana", "ben"):
            await team.create_task(f"For {name}", role=name, check="date >> report")
            await team.spawn(name, role=name)
        assert (await team.run("Go.")).succeeded
        assert [one.member for one in await team.store.list_submissions(team.id)] == ["ana"]
    assert integrated(repository).keys() == {"a", "b", "made", "code/module.py"}


async def test_the_check_of_the_whole_is_run_on_what_was_integrated(repository: Path) -> None:
    model = Recorder({"lead": waiting, "ana": worker("echo made > made")})
    async with apart(model, repository) as team:
        await team.create_task("One")
        await team.spawn("ana")
        report = await team.run("Go.", check="grep made made")
    assert report.succeeded
    assert report.check is not None
    assert not (repository / "made").exists()


async def test_a_setup_runs_once_in_each_worktree_and_its_failure_is_told_to_the_human(repository: Path) -> None:
    setup = {"setup": f"echo x >> set-up; echo x >> {repository.parent}/ran"}
    model = Recorder({"lead": waiting, "ana": worker("cat set-up")})
    async with apart(model, repository, worktree=setup) as team:
        await team.create_task("One")
        await team.spawn("ana")
        assert (await team.run("Go.")).succeeded
    assert (repository.parent / "ran").read_text() == "x\n" * 2
    model = Recorder({"lead": waiting})
    async with troupe(model, repository, settings=settings(worktree={"setup": "echo no cake; exit 3"})) as team:
        await set_apart(team, repository)
        report = await team.run("Go.")
        assert report.outcome is Outcome.ERROR
        assert "worktree.setup `echo no cake; exit 3` exits 3" in " ".join(report.lines)
        assert "no cake" in " ".join(report.lines)


async def test_what_a_setup_leaves_behind_is_not_handed_in_but_what_is_added_to_it_is(repository: Path) -> None:
    left = "mkdir -p few many odd; touch 'few/a [1]' top; (cd many; seq 500 | xargs touch); echo set up >> a"
    script = {"lead": waiting, "ana": worker("echo made > few/made; echo more > many/more; git add -A; ls top")}
    async with apart(script, repository, worktree={"setup": left}) as team:
        await team.create_task("One", check="ls top many/7")
        await team.spawn("ana")
        assert (await team.run("Go.")).succeeded
        assert "top\n[exit code 0]" in (await results(team, "ana"))[0]
    assert integrated(repository) == {"a": "one\ntwo\nthree\nset up", "b": "b", "few/made": "made"}


async def test_what_is_included_is_not_seen_by_the_members_own_git_but_in_other_repositories(repository: Path) -> None:
    write(repository, {".env": "KEY=1\n"})
    other = f"git init -q {repository}-2 && cd {repository}-2 && touch .env && git status --porcelain"
    script = {"lead": waiting, "ana": worker("cat .env && git add -A && git status --porcelain", other)}
    async with apart(script, repository, worktree={"include": [".env"]}) as team:
        await team.create_task("One")
        await team.spawn("ana")
        assert (await team.run("Go.")).succeeded
        assert (await results(team, "ana"))[0].startswith("KEY=1\n[exit code 0]")
        assert (await results(team, "ana"))[1].startswith("?? .env")
    assert integrated(repository).keys() == {"a", "b"}


async def test_a_submission_tells_its_way(repository: Path) -> None:
    model = Recorder({"lead": waiting, "ana": worker("echo ana > a")})
    async with apart(model, repository) as team:
        await team.create_task("One", check="true")
        await team.spawn("ana")
        await team.run("Go.")
        [one] = await team.store.list_submissions(team.id)
        assert (one.state, one.member, one.task_id, one.attempt) == (SubmissionState.INTEGRATED, "ana", 1, 1)
        assert one.integrated == git(repository, "rev-parse", "bullpen/troupe")
        # The check has passed on exactly this tree where it was made: it is not run twice.
        assert len(await events_of(team, EventKind.TASK_CHECK_STARTED)) == 1


async def test_two_claims_in_one_phase_each_begin_at_the_newest_trunk(repository: Path) -> None:
    steps = [
        bash("echo first > first"),
        done(),
        call("claim_task"),
        bash("cat first; git status --porcelain; echo second > second"),
        call("TaskUpdate", taskId="2", status="completed", result="both"),
        "Finished.",
    ]
    async with apart({"lead": waiting, "ana": steps}, repository) as team:
        await team.create_task("One")
        await team.create_task("Two")
        await team.spawn("ana")
        report = await team.run("Go.")
        assert report.succeeded
        assert "first\n[exit code 0]" in (await results(team, "ana"))[3]
    assert integrated(repository).keys() == {"a", "b", "first", "second"}


async def test_calls_of_one_reply_that_complete_and_edit_are_handed_in_together(repository: Path) -> None:
    steps = [
        calls(
            ("write_file", {"path": "x", "content": "x\n"}),
            ("TaskUpdate", {"taskId": "1", "status": "completed", "result": "x"}),
        ),
        "Finished.",
    ]
    async with apart({"lead": waiting, "ana": steps}, repository) as team:
        await team.create_task("One")
        await team.spawn("ana")
        assert (await team.run("Go.")).succeeded
    assert integrated(repository)["x"] == "x"
