"""Integrators of many machines at the same moment: real processes, each with a copy of its own, one repository."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bullpen.domain.submission import Submission
from bullpen.domain.trunk import Trunk
from bullpen.workspaces.git import GitFailed
from bullpen.workspaces.integration import Integration
from bullpen.workspaces.mirror import Mirror
from bullpen.workspaces.remote import RemoteOrigin
from tests.support.processes import Crew, Line, release
from tests.support.repository import git
from tests.workspaces.conftest import make_bare, open_far_site
from tests.workspaces.test_worktree import gathered

MACHINES = 4


async def integrate(
    line: Line, trunk: dict[str, Any], state: str, submissions: list[dict[str, Any]], meets: bool
) -> None:
    """What a worker's integrator does with each, at the same moment as the others; says how often it had to begin
    again."""
    remote = Trunk(**trunk)
    integration = Integration(remote, RemoteOrigin(remote, Mirror(remote.repository, Path(state))))
    await integration.newest()
    lost = 0
    for one in submissions:
        submission = Submission(**{**one, "submitted_at": datetime.now(UTC)})
        while True:
            tip = await integration.newest()
            commit = await integration.find(submission, tip)
            if commit is None:
                if not await integration.obtain(submission):
                    assert await integration.newest() != tip
                    continue
                rebased = await integration.rebase(submission, tip)
                commit = await integration.commit(submission, rebased)
                if meets:
                    # Everyone has decided upon the same commit: now all push.
                    await line.meet()
                    meets = False
                if not await integration.advance(rebased, commit):
                    lost += 1
                    continue
            await integration.settle(submission, commit)
            break
    await line.say("over", lost=lost)


def facts(submission: Submission) -> dict[str, Any]:
    return {
        name: getattr(submission, name)
        for name in ("team_id", "id", "member", "task_id", "attempt", "base", "commit", "result")
    }


def integrated(bare: Path, base: str) -> Counter[str]:
    log = git(bare, "log", "--format=%(trailers:key=Bullpen-Task,valueonly)", f"{base}..bullpen/team")
    return Counter(log.split())


async def test_each_of_many_submissions_comes_onto_the_trunk_once_whoever_pushes(tmp_path: Path, crew: Crew) -> None:
    async with open_far_site(make_bare(tmp_path), tmp_path / "state") as site:
        handed_in = [
            facts(site.submission(f"m{number}", await gathered(site, f"m{number}", {f"f{number}": "x\n"})))
            for number in range(MACHINES)
        ]
        children = [
            crew.start(
                integrate,
                trunk=site.trunk.to_mapping(),
                state=str(tmp_path / f"machine-{number}"),
                # All of them on each machine, each begins with another: as if leases had gone wrong all over.
                submissions=[*handed_in[number:], *handed_in[:number]],
                meets=True,
            )
            for number in range(MACHINES)
        ]
        await release(children)
        lost = [(await child.hear("over"))["lost"] for child in children]
        assert sum(lost) >= MACHINES - 1
        assert integrated(site.repository, site.trunk.base) == {f"{number + 1}/1": 1 for number in range(MACHINES)}
        assert "error" not in git(site.repository, "fsck")


async def test_the_same_submission_pushed_by_all_at_once_is_there_once(tmp_path: Path, crew: Crew) -> None:
    async with open_far_site(make_bare(tmp_path), tmp_path / "state") as site:
        one = facts(site.submission("ana", await gathered(site, "ana", {"a": "1\n"})))
        children = [
            crew.start(
                integrate,
                trunk=site.trunk.to_mapping(),
                state=str(tmp_path / f"machine-{number}"),
                submissions=[one],
                meets=True,
            )
            for number in range(MACHINES)
        ]
        await release(children)
        for child in children:
            await child.hear("over")
        assert integrated(site.repository, site.trunk.base) == {"1/1": 1}


async def fetch_often(line: Line, trunk: dict[str, Any], state: str) -> None:
    remote = Trunk(**trunk)
    origin = RemoteOrigin(remote, Mirror(remote.repository, Path(state)))
    await line.meet()
    failed = []
    for _ in range(10):
        try:
            await origin.newest(everything=True)
        except GitFailed as error:
            failed.append(str(error))
    await line.say("over", failed=failed)


async def test_processes_of_one_machine_share_its_copy_while_the_trunk_moves(tmp_path: Path, crew: Crew) -> None:
    async with open_far_site(make_bare(tmp_path), tmp_path / "state") as site:
        shared = {"trunk": site.trunk.to_mapping(), "state": str(tmp_path / "machine")}
        children = [crew.start(fetch_often, **shared) for _ in range(MACHINES)]
        await release(children)
        for number in range(5):
            name = f"m{number}"
            await site.integrate(site.submission(name, await gathered(site, name, {name: "x\n"})))
        for child in children:
            assert (await child.hear("over"))["failed"] == []
