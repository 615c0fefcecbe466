"""Which files a run has changed: by what git says before and after, or by what is on the team's trunk. Nothing where
there is no repository."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bullpen.domain.trunk import Trunk
from bullpen.workspaces.git import Git, GitFailed


@dataclass(frozen=True, slots=True)
class Made:
    """What is on a trunk."""

    commits: int
    files: tuple[str, ...]


async def made_on(trunk: Trunk) -> Made:
    since = f"{trunk.base}..{trunk.ref}"
    repository = Path(trunk.repository)
    count = await _git(repository, "rev-list", "--count", since) or "0"
    names = await _git(repository, "diff", "--name-only", "-z", since) or ""
    return Made(int(count), tuple(name for name in names.split("\0") if name))


async def take_stock(workspace: Path) -> frozenset[tuple[str, str]]:
    """What differs from HEAD, each with what it is now."""
    listing = await _git(workspace, "status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames")
    if listing is None:
        return frozenset()
    paths = [entry[3:] for entry in listing.split("\0") if len(entry) > 3]
    head = await _git(workspace, "rev-parse", "HEAD") or ""
    return frozenset({("", head.strip()), *((path, _mark(workspace / path)) for path in paths)})


async def changed_files(workspace: Path, before: frozenset[tuple[str, str]]) -> tuple[str, ...]:
    after = await take_stock(workspace)
    changed = {path for path, _ in before ^ after if path}
    heads = [dict(stock).get("", "") for stock in (before, after)]
    if all(heads) and heads[0] != heads[1]:
        committed = await _git(workspace, "diff", "--name-only", "-z", heads[0], heads[1]) or ""
        changed |= {path for path in committed.split("\0") if path}
    return tuple(sorted(changed))


def _mark(path: Path) -> str:
    try:
        found = path.stat()
    except OSError:
        return "gone"
    return f"{found.st_mtime_ns} {found.st_size}"


async def _git(workspace: Path, *words: str) -> str | None:
    try:
        answer = await Git(workspace).ask(*words)
    except GitFailed:
        return None
    return answer.text if answer.exit_code == 0 else None
