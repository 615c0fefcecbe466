"""A team's repository with members' worktrees or clones, each with a sandbox of its own, and a queue that is a list."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bullpen.domain.submission import Submission, Work
from bullpen.domain.trunk import Trunk
from bullpen.sandbox import Sandbox, SandboxSpec
from bullpen.sandboxes import open_sandbox
from bullpen.workspaces.address import parse_address
from bullpen.workspaces.beginning import begin_trunk
from bullpen.workspaces.clones import Clones
from bullpen.workspaces.elsewhere import begin_trunk_elsewhere, survey_elsewhere
from bullpen.workspaces.integration import Integration
from bullpen.workspaces.mirror import Mirror
from bullpen.workspaces.origin import LocalOrigin, Origin
from bullpen.workspaces.remote import RemoteOrigin, Tell
from bullpen.workspaces.worktree import OwnWorktree
from bullpen.workspaces.worktrees import Made, Trees, Worktrees
from tests.support.repository import git, make_repository, surveyed

FILES = {"a": "one\ntwo\nthree\n", "b": "b\n", ".gitignore": "*.log\n"}


@dataclass
class Site:
    """Where members of one team work on one machine, `state` its directory. `integrate` does what a worker's integrator
    does, without check and store."""

    repository: Path
    trunk: Trunk
    state: Path
    kind: str
    closing: AsyncExitStack
    tell: Tell | None = None
    handed_in: int = 0
    sandboxes: dict[str, Sandbox] = field(default_factory=dict)

    def machine(self, state: Path) -> Site:
        """The same team on another one."""
        return replace(self, state=state, sandboxes={})

    @property
    def trees(self) -> Trees:
        if not self.trunk.is_remote:
            return Worktrees(self.trunk, self.state)
        return Clones(self.trunk, Mirror(self.trunk.repository, self.state), tell=self.tell)

    @property
    def origin(self) -> Origin:
        if not self.trunk.is_remote:
            return LocalOrigin(self.trunk)
        return RemoteOrigin(self.trunk, Mirror(self.trunk.repository, self.state))

    async def worktree(self, name: str, incarnation: int = 1) -> OwnWorktree:
        def enter(made: Made) -> AbstractAsyncContextManager[Sandbox]:
            return self._sandbox(name, made)

        made = await self.trees.make(name, incarnation, enter)
        sandbox = await self.closing.enter_async_context(enter(made))
        self.sandboxes[name] = sandbox
        return self.trees.open(made, name, sandbox)

    def _sandbox(self, name: str, made: Made) -> Sandbox:
        private = self.state / "members" / name
        private.mkdir(parents=True, exist_ok=True)
        spec = SandboxSpec(
            member=name,
            workspace=made.root / self.trunk.prefix,
            worktree=made.root,
            private_directory=private,
            hidden=(self.state,),
        )
        return open_sandbox(spec, kind=self.kind)

    def submission(self, member: str, work: Work, *, result: str = "made it") -> Submission:
        self.handed_in += 1
        return Submission(
            team_id=1,
            id=self.handed_in,
            member=member,
            task_id=self.handed_in,
            attempt=1,
            base=work.base,
            commit=work.commit,
            result=result,
            submitted_at=datetime.now(UTC),
        )

    async def integrate(self, submission: Submission) -> tuple[str, ...]:
        """The files that conflict."""
        integration = Integration(self.trunk, self.origin)
        tip = await integration.newest()
        assert await integration.obtain(submission)
        rebased = await integration.rebase(submission, tip)
        if not rebased.conflicts:
            commit = await integration.commit(submission, rebased)
            assert await integration.advance(rebased, commit)
            await integration.settle(submission, commit)
        return rebased.conflicts


@asynccontextmanager
async def open_site(repository: Path, state: Path, *, kind: str = "local") -> AsyncIterator[Site]:
    """In worktrees of a repository of this machine."""
    trunk = await begin_trunk(await surveyed(repository), "team", include_unsaved=False)
    async with AsyncExitStack() as closing:
        yield Site(repository, trunk, state, kind, closing)


@asynccontextmanager
async def open_far_site(bare: Path, state: Path, *, kind: str = "local", url: str = "") -> AsyncIterator[Site]:
    """In clones of a repository that lies elsewhere."""
    start = await survey_elsewhere(parse_address(f"git+{url or f'file://{bare}'}"), state)
    trunk = await begin_trunk_elsewhere(start, "team")
    async with AsyncExitStack() as closing:
        yield Site(bare, trunk, state, kind, closing)


def make_bare(directory: Path, files: dict[str, str] | None = None) -> Path:
    """A repository as a server has it."""
    make_repository(directory / "seed", files or FILES)
    git(directory, "clone", "-q", "--bare", "seed", "far.git")
    git(directory / "far.git", "config", "user.name", "Uma")
    return directory / "far.git"


@pytest.fixture(params=["worktree", "clone"])
async def site(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Site]:
    if request.param == "clone":
        async with open_far_site(make_bare(tmp_path), tmp_path / "state") as opened:
            yield opened
    else:
        repository = make_repository(tmp_path / "r", FILES)
        async with open_site(repository, repository / ".bullpen") as opened:
            yield opened
