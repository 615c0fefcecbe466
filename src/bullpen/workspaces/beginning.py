"""Whether a team can work apart in a directory, and the trunk with which it begins.

Nothing here writes the user's tree, index or branches: a snapshot of unsaved work is made with an index of its own.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bullpen.domain.trunk import PREFIX, Trunk
from bullpen.errors import UsageError
from bullpen.workspaces.git import Git, GitFailed
from bullpen.workspaces.merging import make_commit

OLDEST_GIT = (2, 38)
"""The first that merges without a worktree."""
WORKTREES = 4
"""So many worktrees should fit on the disk."""
SPARE_BYTES = 100_000_000
"""And so much besides: what members make, and the store. A small tree says nothing of that."""
SHOWN = 5
NO_GIT = "git is not installed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """What a team would begin from. `branch` is empty for a detached HEAD; `unsaved` are the files that HEAD does not
    have as they are; `copied` are new ones that each worktree gets a copy of, so that they are nobody's unsaved work;
    `notes` say what will be different in a worktree."""

    root: Path
    head: str
    branch: str
    prefix: str
    unsaved: tuple[str, ...]
    copied: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unfit:
    """Why no worktrees can be made there. `is_git`: somebody who has a repository expects to be told."""

    why: str
    is_git: bool = True


async def survey(
    directory: Path, *, place: Path | None = None, setup: str = "", include: Sequence[str] = ()
) -> Repository | Unfit:
    """`place`: where the worktrees will lie, if that is not in the repository. `setup`: what will be run in each,
    `include`: what will be copied into each."""
    git = Git(directory)
    if shutil.which("git") is None:
        return Unfit(NO_GIT, is_git=False)
    answer = await git.ask("rev-parse", "--is-bare-repository", "--is-inside-work-tree")
    if answer.exit_code != 0:
        # A repository of somebody else is one that git does not open.
        doubtful = "dubious ownership" in answer.complaint
        return Unfit(answer.complaint if doubtful else "it is no git repository", is_git=doubtful)
    is_bare, is_inside = answer.text.split()
    if is_bare == "true" or is_inside != "true":
        raise UsageError(f"{directory} is a bare repository or git's own directory: clone it, and work in the clone")
    if (unfit := await check_git()) is not None:
        return Unfit(unfit)
    head = await git.find("HEAD")
    if head is None:
        return Unfit("the repository has no commit yet: commit once, and each member gets a worktree")
    return await _fit(git, head, place, setup, include)


async def _fit(git: Git, head: str, place: Path | None, setup: str, include: Sequence[str]) -> Repository | Unfit:
    root = Path(await git.run("rev-parse", "--show-toplevel"))
    top = Git(root)
    if (missing := await find_missing_space(top, head, _existing(place) if place else root)) is not None:
        return Unfit(missing)
    copied = await _copied(top, root, include) if include else ()
    return Repository(
        root=root,
        head=head,
        branch=(await git.ask("symbolic-ref", "--quiet", "--short", "HEAD")).text.strip(),
        prefix=(await git.run("rev-parse", "--show-prefix")).rstrip("/"),
        unsaved=await _unsaved(top, copied),
        copied=copied,
        notes=(*await _notes(top, root, setup), *_missing(root, include)),
    )


async def check_git() -> str | None:
    """Why the git of this machine is no good for it; None if it is."""
    if shutil.which("git") is None:
        return NO_GIT
    numbers = re.findall(r"\d+", await Git("/").run("version"))
    version = tuple(int(number) for number in numbers[:2])
    if version >= OLDEST_GIT:
        return None
    return f"git {'.'.join(map(str, version))} is too old, {'.'.join(map(str, OLDEST_GIT))} is needed"


async def _copied(git: Git, root: Path, include: Sequence[str]) -> tuple[str, ...]:
    """What git does not have and would take, among what the settings name to be copied."""
    named = {path.relative_to(root) for pattern in include for path in root.glob(pattern)}
    new = (await git.run("ls-files", "--others", "--exclude-standard", "-z")).split("\0")
    return tuple(name for name in new if name and not named.isdisjoint((Path(name), *Path(name).parents)))


async def _unsaved(git: Git, copied: Sequence[str]) -> tuple[str, ...]:
    """Changed, new or deleted files, as git names them."""
    found = await git.run(
        *("status", "--porcelain=v1", "-z", "--no-renames", "--ignore-submodules=dirty", "--", "."),
        *_without(copied),
    )
    return tuple(entry[3:] for entry in found.split("\0") if entry)


def _without(names: Sequence[str]) -> list[str]:
    """For git, after a path."""
    return [f":(exclude,literal){name}" for name in names]


def _existing(place: Path) -> Path:
    return next(path for path in (place, *place.parents) if path.is_dir())


async def find_missing_space(git: Git, head: str, directory: Path) -> str | None:
    sizes = (line.split(None, 4)[3] for line in (await git.run("ls-tree", "-r", "-l", head)).splitlines())
    needed = WORKTREES * sum(int(size) for size in sizes if size.isdigit()) + SPARE_BYTES
    free = shutil.disk_usage(directory).free
    if free >= needed:
        return None
    return f"only {free / 1e6:,.0f} MB of disk are free, and worktrees need about {needed / 1e6:,.0f} MB"


async def _notes(git: Git, root: Path, setup: str) -> list[str]:
    notes = []
    if (root / ".gitmodules").exists() and "git submodule" not in setup:
        notes.append(
            "submodules are not checked out in worktrees: "
            'worktree.setup = "git submodule update --init" in the settings does it'
        )
    attributes = root / ".gitattributes"
    if attributes.exists() and "filter=lfs" in attributes.read_text(errors="replace") and not shutil.which("git-lfs"):
        notes.append("git-lfs is not installed: in worktrees its files are only pointers")
    if twins := await _twins(git):
        notes.append(f"here, names that differ only in case are one file, and these are two in git: {described(twins)}")
    if (await git.ask("config", "--get", "extensions.partialClone")).text.strip():
        notes.append("this is a partial clone: what git has not fetched yet cannot be fetched in the sandbox")
    return notes


def _missing(root: Path, include: Sequence[str]) -> list[str]:
    missing = [pattern for pattern in include if next(root.glob(pattern), None) is None]
    return [f"worktree.include in the settings: there is no {described(tuple(missing))} here"] if missing else []


async def _twins(git: Git) -> tuple[str, ...]:
    """On a file system that takes them for one another, a worktree has only one of them, and git calls it changed."""
    if (await git.ask("config", "--type=bool", "--get", "core.ignoreCase")).text.strip() != "true":
        return ()
    found: dict[str, list[str]] = {}
    for name in (await git.run("ls-tree", "-r", "-z", "--name-only", "HEAD")).split("\0"):
        found.setdefault(name.casefold(), []).append(name)
    return tuple(name for names in found.values() if len(names) > 1 for name in names)


async def snapshot(repository: Repository) -> str:
    """A commit upon HEAD that holds the tree as it is, new files included; not ignored ones, nor what is copied into
    each worktree anyway, such as an `.env` with secrets."""
    git = Git(repository.root)
    index = Path(await git.run("rev-parse", "--path-format=absolute", "--git-path", "index"))
    with tempfile.TemporaryDirectory(prefix="bullpen-") as directory:
        own = Path(directory) / "index"
        if index.exists():
            shutil.copy2(index, own)
        env = {"GIT_INDEX_FILE": str(own)}
        # In a sparse checkout, also what lies outside of it.
        await git.run("add", "-A", "--sparse", ".", *_without(repository.copied), env=env)
        tree = await git.run("write-tree", env=env)
    return await make_commit(git, tree, repository.head, "unsaved work, as the team found it\n", author="user")


async def begin_trunk(repository: Repository, team: str, *, include_unsaved: bool) -> Trunk:
    """The team's branch, made: a new one, whatever older teams of this name left."""
    git = Git(repository.root)
    base = await snapshot(repository) if include_unsaved else repository.head
    refs = await git.run("for-each-ref", "--format=%(refname)", f"refs/heads/{PREFIX}", f"refs/{PREFIX}")
    name = find_free(team, refs.split())
    trunk = Trunk(
        repository=str(repository.root),
        branch=f"{PREFIX}{name}",
        base=base,
        is_snapshot=include_unsaved,
        started_on=repository.branch,
        prefix=repository.prefix,
    )
    if await git.find(f"refs/heads/{PREFIX.rstrip('/')}") is not None:
        raise UsageError(
            f"your branch `bullpen` is in the way of {trunk.branch}, for git cannot have both: rename it "
            "(`git branch -m bullpen NAME`), or use --isolation shared"
        )
    try:
        # An empty old value: it must not exist.
        await git.run("update-ref", trunk.ref, base, "")
    except GitFailed as error:
        raise UsageError(f"the branch {trunk.branch} cannot be made: {error}") from error
    return trunk


def find_free(team: str, refs: Sequence[str]) -> str:
    """The name of a branch for this team, beside those that there are."""
    names = (ref.replace(f"refs/heads/{PREFIX}", "").replace(f"refs/{PREFIX}", "") for ref in refs)
    # On some file systems names that differ in case are the same.
    taken = {name.partition("/")[0].casefold() for name in names}
    number = 1
    while (name := team if number == 1 else f"{team}-{number}").casefold() in taken:
        number += 1
    return name


def described(files: tuple[str, ...]) -> str:
    more = f" and {len(files) - SHOWN} more" if len(files) > SHOWN else ""
    return ", ".join(files[:SHOWN]) + more
