"""Trees as values: compared, and merged with a base of one's choice. No file is touched.

Whatever needs an index gets one of its own in a temporary place, never the user's.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bullpen.workspaces.git import Git
from bullpen.workspaces.merging import Merge, merge

FEW = 200
GITLINK = "160000"
_NOBODY = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "bullpen"), ("EMAIL", "bullpen@bullpen.invalid"), ("DATE", "@0 +0000"))
}


@dataclass(frozen=True, slots=True)
class Entry:
    mode: str
    object: str


async def merge_trees(git: Git, base: str, ours: str, theirs: str) -> Merge:
    """What `theirs` changed since `base`, brought into `ours`; each is a commit or a tree."""
    # Older versions of git find the base in the history only: so there is one, of commits that nothing refers to.
    root = await _commit(git, base)
    left, right = await _commit(git, ours, root), await _commit(git, theirs, root)
    return await merge(git, left, right)


async def _commit(git: Git, of: str, *parents: str) -> str:
    before = (word for parent in parents for word in ("-p", parent))
    return await git.run("commit-tree", f"{of}^{{tree}}", *before, "-m", "bullpen", env=_NOBODY)


async def changed(git: Git, before: str, after: str) -> frozenset[str]:
    """The paths at which two trees differ; a renamed file is two."""
    found = await git.run("diff-tree", "-r", "-z", "--no-renames", "--name-only", before, after)
    return frozenset(name for name in found.split("\0") if name)


async def entries(git: Git, tree: str, paths: Collection[str]) -> dict[str, Entry]:
    """What a tree has at these paths."""
    found: dict[str, Entry] = {}
    if not paths:
        return found
    # Of a few, git looks only at these.
    words = sorted(paths) if len(paths) <= FEW else []
    listed = await git.run("ls-tree", "-r", "-z", "--full-tree", tree, "--", *words, env={"GIT_LITERAL_PATHSPECS": "1"})
    for line in listed.split("\0"):
        meta, _, path = line.partition("\t")
        if path in paths:
            mode, _, name = meta.split(" ", 2)
            found[path] = Entry(mode, name)
    return found


@asynccontextmanager
async def own_index() -> AsyncIterator[dict[str, str]]:
    """The environment for an index that is nobody's."""
    with tempfile.TemporaryDirectory(prefix="bullpen-") as directory:
        yield {"GIT_INDEX_FILE": str(Path(directory) / "index")}
