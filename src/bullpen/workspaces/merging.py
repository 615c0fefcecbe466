"""Trees and commits as git's own objects: merged and made without any worktree."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bullpen.domain.trunk import TASK_TRAILER, WORK_TRAILER
from bullpen.workspaces.git import COMMIT_ID, Git, GitFailed

CONFLICTING = 1
LONGEST_SUBJECT = 72
SHOWN_FILES = 20

# What merge-tree writes above the side that it is merged into: the commit's name.
MARKER = r"^<<<<<<< ([0-9a-f]{40}|[0-9a-f]{64})"
_TRAILERS = re.compile(rf"^(?=(?:{TASK_TRAILER}|{WORK_TRAILER})\s*:)", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Merge:
    """`conflicts`: the files that do not merge; in `tree` they hold the markers."""

    tree: str
    conflicts: tuple[str, ...] = ()


async def merge(git: Git, ours: str, theirs: str) -> Merge:
    """Both sides' changes since they parted."""
    answer = await git.ask("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, theirs)
    tree, *names = answer.text.split("\0")
    if answer.exit_code not in (0, CONFLICTING) or not COMMIT_ID.fullmatch(tree):
        raise GitFailed(f"git merge-tree in {git.directory}: {answer.complaint or f'exit code {answer.exit_code}'}")
    return Merge(tree, tuple(dict.fromkeys(name for name in names if name)))


async def make_commit(git: Git, tree: str, parent: str, message: str, *, author: str) -> str:
    """The human is who commits, as git knows it; or the author, where git knows nobody."""
    who = {"GIT_AUTHOR_NAME": author, "GIT_AUTHOR_EMAIL": f"{author}@bullpen.invalid"}
    arguments = ("commit-tree", tree, "-p", parent, "-F", "-")
    answer = await git.ask(*arguments, text=message, env=who)
    if answer.exit_code != 0:
        nobody = {"GIT_COMMITTER_NAME": "bullpen", "GIT_COMMITTER_EMAIL": "bullpen@bullpen.invalid"}
        return await git.run(*arguments, text=message, env={**who, **nobody})
    return answer.text.strip()


async def tree_of(git: Git, commit: str) -> str:
    return await git.run("rev-parse", "--verify", f"{commit}^{{tree}}")


async def still_marked(git: Git, before: str, tree: str) -> tuple[str, ...]:
    """Files of the tree that hold conflict markers of ours."""
    found = await git.run("diff", "--name-only", "-z", "--no-ext-diff", f"-G{MARKER}", before, tree)
    return tuple(name for name in found.split("\0") if name)


def message_of(text: str, *, otherwise: str, trailer: str = "") -> str:
    """A commit's message: a subject that fits, the rest below, and nothing in it that poses as a trailer of ours."""
    clean = _TRAILERS.sub("> ", text.replace("\0", "").replace("\r", "")).strip()
    first, _, rest = (clean or otherwise).partition("\n")
    subject = " ".join(first.split())
    if len(subject) > LONGEST_SUBJECT:
        cut = subject[: LONGEST_SUBJECT - 1].rsplit(" ", 1)[0] or subject[: LONGEST_SUBJECT - 1]
        rest = f"…{subject[len(cut) :]}\n{rest}"
        subject = f"{cut}…"
    parts = [subject or otherwise, rest.strip(), trailer]
    return "\n\n".join(part for part in parts if part) + "\n"


def listed(files: tuple[str, ...]) -> str:
    more = f" and {len(files) - SHOWN_FILES} more" if len(files) > SHOWN_FILES else ""
    return ", ".join(files[:SHOWN_FILES]) + more
