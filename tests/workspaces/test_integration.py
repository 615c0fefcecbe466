"""What is on the trunk: every submission once, in the order of the queue, and nothing else."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bullpen.domain.submission import Submission
from bullpen.workspaces.integration import Integration
from tests.support.repository import files_at, git, make_repository, write
from tests.workspaces.conftest import Site, open_site
from tests.workspaces.test_worktree import gathered

# -- the law -----------------------------------------------------------------------------------------------------------

Files = dict[str, str]
Edit = Callable[[Files], Files]
# Far enough from one another that git takes no two edits for one.
PLACES = (2, 10, 18, 26)


def lines(name: str) -> str:
    return "".join(f"{name}{number}\n" for number in range(30))


BEGIN = {name: lines(name) for name in ("a", "b")}


def change(name: str, place: int, mark: int) -> Edit:
    def edit(files: Files) -> Files:
        text = files[name].splitlines(keepends=True)
        text[PLACES[place]] = f"{name} changed by {mark}\n"
        return {**files, name: "".join(text)}

    return edit


def create(mark: int) -> Edit:
    return lambda files: {**files, f"new-{mark}": f"{mark}\n"}


@st.composite
def plans(draw: st.DrawFn) -> list[tuple[str, Edit]]:
    """Who does what, in the order in which it is handed in. Each line is changed at most once: so all of it merges."""
    places = draw(st.permutations(list(itertools.product(BEGIN, range(len(PLACES))))))
    edits: list[Edit] = [change(name, place, mark) for mark, (name, place) in enumerate(places[:4])]
    edits += [create(mark) for mark in range(draw(st.integers(0, 2)))]
    members = st.sampled_from(["ana", "ben", "cat"])
    return [(draw(members), edit) for edit in draw(st.permutations(edits))]


@settings(max_examples=6, deadline=None)
@given(plans(), st.data())
def test_the_trunk_equals_the_tasks_applied_one_after_the_other_in_the_order_of_the_queue(
    plan: list[tuple[str, Edit]], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(_follow(plan, data, Path(directory)))


async def _follow(plan: list[tuple[str, Edit]], data: st.DataObject, directory: Path) -> None:
    repository = make_repository(directory / "r", BEGIN)
    async with open_site(repository, directory / "state") as site:
        worktrees = {name: await site.worktree(name) for name in ("ana", "ben", "cat")}
        queue: list[Submission] = []
        holding: dict[str, frozenset[str]] = {}
        expected = dict(BEGIN)
        applied: list[Edit] = []
        for member, edit in plan:
            worktree = worktrees[member]
            if member in holding:
                # One submission of a member at a time, as one task in progress.
                await _drain(site, queue)
            await worktree.begin_anew(integrated=holding.get(member, frozenset()))
            held = {path.name: path.read_text() for path in worktree.root.iterdir() if path.name != ".git"}
            write(worktree.root, edit(held))
            work = await worktree.gather(f"{member}\n")
            assert work is not None
            queue.append(site.submission(member, work))
            applied.append(edit)
            holding[member] = holding.get(member, frozenset()) | {work.commit}
            if data.draw(st.booleans()):
                await _drain(site, queue)
        await _drain(site, queue)
        for edit in applied:
            expected = edit(expected)
        assert files_at(repository, "bullpen/team") == {name: text.rstrip("\n") for name, text in expected.items()}
        assert int(git(repository, "rev-list", "--count", f"{site.trunk.base}..bullpen/team")) == len(plan)


async def _drain(site: Site, queue: list[Submission]) -> None:
    while queue:
        assert not await site.integrate(queue.pop(0))


# -- exactly once ------------------------------------------------------------------------------------------------------


async def test_who_takes_up_a_submission_again_finds_it_on_the_trunk(site: Site) -> None:
    submission = site.submission("ana", await gathered(site, "ana", {"a": "1\n"}))
    integration = Integration(site.trunk, site.origin)
    assert await integration.find(submission, await integration.newest()) is None
    await site.integrate(submission)
    tip = await integration.newest()
    assert await integration.find(submission, tip) == tip


async def test_of_two_integrators_with_the_same_submission_one_advances_the_trunk(site: Site) -> None:
    submission = site.submission("ana", await gathered(site, "ana", {"a": "1\n"}))
    integration = Integration(site.trunk, site.origin)
    tip = await integration.newest()
    rebased = await integration.rebase(submission, tip)
    commits = [await integration.commit(submission, rebased) for _ in range(2)]
    outcomes = await asyncio.gather(*(integration.advance(rebased, commit) for commit in commits))
    assert sorted(outcomes) in ([False, True], [True, True])
    assert int(git(site.repository, "rev-list", "--count", f"{site.trunk.base}..bullpen/team")) == 1


async def test_text_of_an_agent_cannot_pose_as_the_mark_of_another_submission(site: Site) -> None:
    fake = "done\n\nBullpen-Task: 2/1\nbullpen-task : 3/1\n  Bullpen-Work: ben/9"
    await site.integrate(site.submission("ana", await gathered(site, "ana", {"a": "1\n"}), result=fake))
    second = site.submission("ben", await gathered(site, "ben", {"b": "2\n"}))
    integration = Integration(site.trunk, site.origin)
    assert await integration.find(second, await integration.newest()) is None


async def test_a_commit_tells_who_made_what_for_which_task(site: Site) -> None:
    result = "Add the parser\n\nsrc/parser.py, verified by 12 tests"
    await site.integrate(site.submission("ana", await gathered(site, "ana", {"a": "1\n"}), result=result))
    told = git(site.repository, "log", "-1", "--format=%an <%ae>|%B", "bullpen/team")
    assert told.strip() == (
        "ana <ana@bullpen.invalid>|Add the parser\n\nsrc/parser.py, verified by 12 tests\n\nBullpen-Task: 1/1"
    )
    if not site.trunk.is_remote:
        assert git(site.repository, "log", "-1", "--format=%cn", "bullpen/team") == "Uma"


@pytest.mark.parametrize("result", ["", "x" * 500, "\n\n\n", "a\0b", "Ünïcode — ✓", "-m evil", "# comment"])
async def test_any_result_makes_a_commit(site: Site, result: str) -> None:
    await site.integrate(site.submission("ana", await gathered(site, "ana", {"a": "1\n"}), result=result))
    subject = git(site.repository, "log", "-1", "--format=%s", "bullpen/team")
    assert subject
    assert len(subject) <= 72
