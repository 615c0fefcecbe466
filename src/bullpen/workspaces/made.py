"""What a team made: the commits of `base..trunk`, and what members have that is not on the trunk yet.

Invariant: nothing here writes anything but objects.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bullpen.domain.text import name_key
from bullpen.domain.trunk import TASK_TRAILER, Trunk
from bullpen.errors import NotFound, UsageError
from bullpen.workspaces.git import Git

_FORMAT = f"%x01%H%x1f%an%x1f%(trailers:key={TASK_TRAILER},valueonly,separator=%x2c)%x1f%s"
_HEADER = re.compile(r"\x01([0-9a-f]{40,64})\x1f([^\x1f]*)\x1f([^\x1f]*)\x1f(.*)", re.DOTALL)
_TASK = re.compile(r"(\d+)/(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamCommit:
    """`task` and `attempt` are None for work outside of any task. `insertions` and `deletions` count lines."""

    commit: str
    task: int | None
    attempt: int | None
    member: str
    subject: str
    files: tuple[str, ...]
    insertions: int
    deletions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What is there of a team's work: `tip` is the trunk as it was looked at."""

    trunk: Trunk
    tip: str
    commits: tuple[TeamCommit, ...]

    def of_task(self, number: int) -> tuple[TeamCommit, ...]:
        return tuple(commit for commit in self.commits if commit.task == number)

    def by(self, member: str) -> tuple[TeamCommit, ...]:
        return tuple(commit for commit in self.commits if name_key(commit.member) == name_key(member))


async def look_at_work(trunk: Trunk) -> Made:
    git = Git(trunk.repository)
    tip = await get_tip(trunk)
    return Made(trunk=trunk, tip=tip, commits=await list_commits(git, f"{trunk.base}..{tip}"))


async def get_tip(trunk: Trunk) -> str:
    """Where the trunk is now. UsageError or NotFound where it is not, with where to look."""
    git = Git(trunk.repository)
    if not Path(trunk.repository).is_dir():
        raise UsageError(f"the repository {trunk.repository} is not on this machine: look where the team worked")
    tip = await git.find(trunk.ref)
    if tip is None:
        raise NotFound(
            f"the branch {trunk.branch} is gone from {trunk.repository}: `bullpen clean` removed it, or somebody else"
        )
    if not await git.contains(tip, trunk.base):
        raise NotFound(f"the branch {trunk.branch} in {trunk.repository} does not go back to where the team began")
    return tip


async def list_commits(git: Git, *revisions: str) -> tuple[TeamCommit, ...]:
    """The oldest first."""
    log = await git.run(
        *("log", "--reverse", "--topo-order", "-z", "--numstat", "-M", "--no-ext-diff", "--no-show-signature"),
        *(f"--format={_FORMAT}", "--end-of-options", *revisions, "--"),
    )
    return tuple(_parsed(iter(log.split("\0"))))


def _parsed(words: Iterator[str]) -> Iterator[TeamCommit]:
    header: re.Match[str] | None = None
    counts: list[tuple[str, str, str]] = []
    for word in words:
        if found := _HEADER.fullmatch(word):
            if header is not None:
                yield _commit(header, counts)
            header, counts = found, []
        elif word.strip("\n"):
            inserted, deleted, name = word.lstrip("\n").split("\t", 2)
            if not name:  # renamed: the old name and the new one follow
                next(words)
                name = next(words)
            counts.append((inserted, deleted, name))
    if header is not None:
        yield _commit(header, counts)


def _commit(header: re.Match[str], counts: list[tuple[str, str, str]]) -> TeamCommit:
    task = _TASK.fullmatch(header[3].rpartition(",")[2].strip())
    return TeamCommit(
        commit=header[1],
        task=int(task[1]) if task else None,
        attempt=int(task[2]) if task else None,
        member=header[2],
        subject=header[4],
        files=tuple(name for _, _, name in counts),
        # Git counts no lines in binary files.
        insertions=sum(int(inserted) for inserted, _, _ in counts if inserted.isdigit()),
        deletions=sum(int(deleted) for _, deleted, _ in counts if deleted.isdigit()),
    )
