"""A team that begins in a repository that lies elsewhere: what it begins from, its trunk, and its work brought here.

Nothing is decided by guessing: that this machine may push is known because the trunk was pushed.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from bullpen.domain.trunk import PREFIX, Trunk
from bullpen.errors import NotFound, UsageError
from bullpen.workspaces.address import Address
from bullpen.workspaces.beginning import check_git, find_free, find_missing_space
from bullpen.workspaces.git import COMMIT_ID, GitFailed
from bullpen.workspaces.mirror import FIRST_FETCH_SECONDS, DiskFull, Mirror, RemoteAway, Update, mirror_of, reason_of

HEAD = "HEAD"


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """What a team would begin from: `head` on `branch`, which is empty for a tag or a commit."""

    address: Address
    mirror: Mirror
    head: str
    branch: str
    notes: tuple[str, ...] = ()


async def survey_elsewhere(address: Address, state_directory: Path) -> Elsewhere:
    """With all that it needs fetched. UsageError, with what to do, if it cannot be reached or has no such ref."""
    if (unfit := await check_git()) is not None:
        raise UsageError(f"{unfit}: needed for {address.text}")
    mirror = mirror_of(address, state_directory)
    try:
        ref, head, branch = await _find_head(address, mirror)
        await mirror.prepare(head)
        # With a name of its own here: it keeps later fetches short.
        base = f"refs/base/{ref.removeprefix('refs/')}"
        is_there = await mirror.fetch(f"{ref}:{base}", seconds=FIRST_FETCH_SECONDS)
        # What was fetched: it may have moved since it was looked at.
        found = await mirror.git.find(base) if is_there else None
    except (DiskFull, OSError) as error:
        raise UsageError(str(error)) from error
    except RemoteAway as error:
        raise UsageError(f"{error}; `git ls-remote {address.url}` must work on this machine") from error
    if found is None:
        raise UsageError(f"{address.url} has no commit {address.ref or HEAD}")
    if (missing := await find_missing_space(mirror.git, found, mirror.directory)) is not None:
        raise UsageError(f"{mirror.directory}: {missing}")
    return Elsewhere(
        address=address, mirror=mirror, head=found, branch=branch, notes=tuple(await _notes(mirror, address, found))
    )


async def _find_head(address: Address, mirror: Mirror) -> tuple[str, str, str]:
    """The ref to fetch, its commit, and its branch."""
    patterns = (address.ref, f"{address.ref}^{{}}") if address.ref else ()
    refs = await mirror.list_refs(HEAD, "refs/heads/*", *patterns)
    if not any(ref.startswith("refs/") for ref in refs):
        raise UsageError(f"{address.url} has no commit yet: push one, and the team begins from it")
    wanted = address.ref or refs.get(f"@{HEAD}", HEAD)
    for ref in (wanted, f"refs/heads/{wanted}", f"refs/tags/{wanted}"):
        if ref in refs:
            return ref, refs.get(f"{ref}^{{}}", refs[ref]), ref.removeprefix("refs/heads/") if "/heads/" in ref else ""
    if COMMIT_ID.fullmatch(wanted):
        return wanted, wanted, ""
    branches = sorted(ref.removeprefix("refs/heads/") for ref in refs if ref.startswith("refs/heads/"))
    raise UsageError(
        f"{address.url} has no branch, tag or commit {wanted.removeprefix('refs/heads/')!r}: say with #BRANCH where "
        f"to begin ({', '.join(branches[:10]) or 'there is none'})"
    )


async def _notes(mirror: Mirror, address: Address, head: str) -> list[str]:
    notes = []
    if (await mirror.git.ask("cat-file", "-e", f"{head}:.gitmodules")).exit_code == 0:
        notes.append("submodules are not checked out in clones")
    attributes = await mirror.git.ask("cat-file", "blob", f"{head}:.gitattributes")
    if b"filter=lfs" in attributes.output:
        notes.append("files of git-lfs are only pointers in clones")
    if address.credential is not None:
        notes.append(
            "the password of the address stays on this machine: workers on others need access of their own "
            "(an ssh key, a credential helper)"
        )
    return notes


async def begin_trunk_elsewhere(start: Elsewhere, team: str) -> Trunk:
    """The team's branch, pushed: a new one, whatever other teams have. UsageError if pushing is not allowed."""
    mirror = start.mirror
    while True:
        refs = await mirror.list_refs(f"refs/heads/{PREFIX}*", f"refs/{PREFIX}*")
        name = find_free(team, list(refs))
        trunk = Trunk(repository=start.address.url, branch=f"{PREFIX}{name}", base=start.head, started_on=start.branch)
        # The lead's with it: some take branches only, and that had better be known before there is work.
        refs_made = (trunk.ref, trunk.member_ref("lead"))
        try:
            refused = await mirror.push(*(Update(ref, start.head, "") for ref in refs_made))
        except RemoteAway as error:
            raise UsageError(f"{error}; the team's work is pushed there: this machine must be allowed to") from error
        if not refused:
            return trunk
        if not any("stale" in why for why in refused.values()):
            raise UsageError(
                f"{start.address.url} takes no pushes of {trunk.branch} and refs/{trunk.branch}/* from here: "
                f"{reason_of(refused)}"
            )


async def bring_here(trunk: Trunk, state_directory: Path) -> Trunk:
    """The same trunk with a repository of this machine, in which all that the team and its members have is at hand."""
    if not trunk.is_remote:
        return trunk
    if shutil.which("git") is None:
        raise GitFailed("git is not installed")
    mirror = Mirror(trunk.repository, state_directory)
    await mirror.prepare(trunk.base)
    members = f"{trunk.member_ref('*')}:{trunk.member_ref('*')}"
    if not await mirror.fetch(f"{trunk.ref}:{trunk.ref}", members, prunes=True, seconds=FIRST_FETCH_SECONDS):
        raise NotFound(f"the branch {trunk.branch} is gone from {trunk.repository}")
    return replace(trunk, repository=str(mirror.git.directory))
