"""Working apart: a new worktree against git's own, and an integration against git's rebase and the check."""

from __future__ import annotations

import asyncio
import subprocess
import time
from contextlib import AsyncExitStack
from pathlib import Path

from bench.figures import Section, Target, median, milliseconds, percentile, ratio, times
from bench.ground import Ground
from bench.options import Options
from bullpen.agent.house import House, Models
from bullpen.config import Settings
from bullpen.domain.member import MemberRef, Team
from bullpen.domain.submission import Submission, Work
from bullpen.domain.task import CheckRun, Evidence
from bullpen.domain.trunk import TRUNK, Trunk
from bullpen.store import Store
from bullpen.stores import open_store
from bullpen.worker.integrator import Integrator
from bullpen.workspaces.beginning import Repository, begin_trunk, survey
from bullpen.workspaces.worktrees import Worktrees

FILES = 2_000
LINES = 40
CHECK = "python3 -c 'import pathlib; pathlib.Path(\"f0.py\").read_text()'"
MEMBERS = 2


def measure_worktrees(ground: Ground, options: Options, stores: list[str]) -> Section:
    section = Section("A new worktree")
    section.say(
        f"A repository of {FILES:,} files. In turns: `git worktree add --detach`, and the worktree of a member."
    )
    print("worktrees", flush=True)
    bare, ours = asyncio.run(_worktrees(ground.new_folder(), 3 if options.quick else 15))
    share = ratio(ours, bare)
    section.table(
        ["", "p50", "p99"],
        [[name, milliseconds(median(took)), milliseconds(percentile(took, 0.99))] for name, took in _named(bare, ours)],
    )
    section.say(f"Median of the ratios: {times(share)}.")
    section.targets.append(Target("a new worktree, of `git worktree add`", share, 1.5, at_least=False))
    return section


def _named(bare: list[float], ours: list[float]) -> list[tuple[str, list[float]]]:
    return [("`git worktree add`", bare), ("a member's worktree", ours)]


async def _worktrees(folder: Path, rounds: int) -> tuple[list[float], list[float]]:
    repository = _make_repository(folder)
    worktrees = Worktrees(await _trunk(repository, "worktrees"), folder / "state")
    bare: list[float] = []
    ours: list[float] = []

    async def add(number: int) -> None:
        began = time.monotonic_ns()
        await asyncio.to_thread(_git, repository, "worktree", "add", "-q", "--detach", str(folder / f"bare{number}"))
        bare.append(time.monotonic_ns() - began)

    async def make(number: int) -> None:
        began = time.monotonic_ns()
        await worktrees.make(f"m{number}")
        ours.append(time.monotonic_ns() - began)

    for number in range(rounds):
        # Whoever comes second finds the disk busy with the first: so they change places.
        for one in (add, make) if number % 2 else (make, add):
            await one(number)
    return bare, ours


def measure_integration(ground: Ground, options: Options, stores: list[str]) -> Section:
    section = Section("Integrating a task")
    section.say(
        "From handing in to completed, on SQLite, with a check that is run on the rebased result. In turns with what "
        "git itself needs for the same commit: `git rebase` in a worktree of its own, and the check after it."
    )
    print("integration", flush=True)
    bare, ours = asyncio.run(_integrations(ground.new_folder(), 3 if options.quick else 20))
    above = [one - other for one, other in zip(ours, bare, strict=True)]
    rows = [("`git rebase` and the check", bare), ("integrated, checked and completed", ours), ("above git", above)]
    section.table(
        ["", "p50", "p99"],
        [[name, milliseconds(median(took)), milliseconds(percentile(took, 0.99))] for name, took in rows],
    )
    what = "integration of a task, above git's rebase and the check"
    section.targets.append(Target(what, median(above) / 1e6, 300, at_least=False, unit=" ms"))
    return section


async def _integrations(folder: Path, rounds: int) -> tuple[list[float], list[float]]:
    repository = _make_repository(folder)
    async with AsyncExitStack() as stack:
        url = f"sqlite:///{folder}/.bullpen/bullpen.db"
        store = await stack.enter_async_context(open_store(url))
        team = await store.create_team("bench", settings=Settings().to_mapping())
        trunk = await _trunk(repository, "bench")
        user = (await store.get_member(team.id, "user")).ref
        team = await store.change_team(user, settings={TRUNK: trunk.to_mapping()})
        bench = _Bench(store, team, trunk, folder)
        worker = await store.register_worker(slots=MEMBERS, lease_seconds=600)
        house = House(store=store, models=Models(), workspace=repository, state_directory=folder / "state")
        integrator = Integrator(house, worker_id=lambda: worker.id, team_id=lambda: team.id)
        running = asyncio.create_task(integrator.run())
        stack.callback(running.cancel)
        # The first makes the worktree in which results are checked.
        await bench.integrate(0)
        bare: list[float] = []
        ours: list[float] = []
        for number in range(1, rounds + 1):
            bare.append(await asyncio.to_thread(bench.rebase, number))
            ours.append(await bench.integrate(number))
    return bare, ours


class _Bench:
    """Each commit changes a file of its own upon a trunk that has moved on meanwhile: so it must be rebased."""

    def __init__(self, store: Store, team: Team, trunk: Trunk, folder: Path) -> None:
        self._store = store
        self._team = team
        self._trunk = trunk
        self._repository = Path(trunk.repository)
        self._work = folder / "work"
        _git(self._repository, "worktree", "add", "-q", "--detach", str(self._work), trunk.base)

    def commit(self, name: str) -> Work:
        """Upon the commit with which the team began, whatever is on the trunk by now."""
        _git(self._work, "checkout", "-q", "--detach", self._trunk.base)
        (self._work / name).write_text(f"{name}\n")
        _git(self._work, "add", "-A")
        _git(self._work, "commit", "-q", "-m", name)
        return Work(base=self._trunk.base, commit=_git(self._work, "rev-parse", "HEAD"))

    def rebase(self, number: int) -> float:
        self.commit(f"bare{number}")
        began = time.monotonic_ns()
        _git(self._work, "rebase", "-q", self._trunk.ref)
        subprocess.run(["bash", "-c", CHECK], cwd=self._work, check=True)
        return float(time.monotonic_ns() - began)

    async def integrate(self, number: int) -> float:
        work = await asyncio.to_thread(self.commit, f"ours{number}")
        user = (await self._store.get_member(self._team.id, "user")).ref
        task = await self._store.create_task(user, f"task {number}", check=CHECK, owner="user")
        await self._store.claim_task(user, task.id)
        began = time.monotonic_ns()
        run = await self._store.start_check(user, task.id)
        assert run is not None
        # It passed on another tree than that of the trunk: so it is checked once more, after the rebase.
        submission = await self._hand_in(user, task.id, run, work)
        await self._until_ended(submission)
        return float(time.monotonic_ns() - began)

    async def _hand_in(self, user: MemberRef, number: int, run: CheckRun, work: Work) -> int:
        evidence = Evidence(command=CHECK, exit_code=0)
        task = await self._store.finish_check(user, run, evidence, result=f"task {number}", work=work)
        assert task.submission is not None
        return task.submission

    async def _until_ended(self, number: int) -> Submission:
        async with self._store.listen_events(self._team.id) as bell:
            while True:
                bell.clear()
                submission = await self._store.get_submission(self._team.id, number)
                if not submission.is_open:
                    assert submission.integrated, submission.note
                    return submission
                await bell.wait(5.0)


async def _trunk(repository: Path, name: str) -> Trunk:
    found = await survey(repository)
    assert isinstance(found, Repository), found
    return await begin_trunk(found, name, include_unsaved=False)


def _make_repository(folder: Path) -> Path:
    repository = folder / "repository"
    repository.mkdir()
    _git(repository, "init", "-q", "-b", "main")
    _git(repository, "config", "user.name", "Bench")
    _git(repository, "config", "user.email", "bench@example.com")
    for number in range(FILES):
        (repository / f"f{number}.py").write_text(f"x = {number}\n" * LINES)
    _git(repository, "add", "-A")
    _git(repository, "commit", "-q", "-m", "first")
    return repository


def _git(directory: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=directory, check=True, capture_output=True, text=True)
    return done.stdout.strip()
