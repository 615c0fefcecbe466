"""The trunk of a team in a repository that lies elsewhere: `Origin` over this machine's copy of it.

    refs/heads/bullpen/TEAM                the trunk, advanced by a push that says from where
    refs/bullpen/TEAM/ana                  what ana has, finished or not; only her newest incarnation can move it
    refs/bullpen/TEAM/ana.work-0123456789  what she handed in, until it is on the trunk
    refs/bullpen/TEAM/ana.kept-0123456789  what she left unfinished when she went on with something else

An incarnation takes a member's ref over by moving it to a commit of its own (`take_over`). From then on a predecessor
that still lives somewhere pushes upon something that is no longer there, and is refused.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from bullpen.domain.trunk import KEPT, UNFINISHED_TRAILER, Trunk
from bullpen.workspaces.git import GitFailed
from bullpen.workspaces.merging import make_commit, tree_of
from bullpen.workspaces.mirror import FIRST_FETCH_SECONDS, SECONDS, Mirror, RemoteAway, Update, reason_of
from bullpen.workspaces.origin import State

T = TypeVar("T")
Tell = Callable[[str], Awaitable[None]]

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 15.0
NOTHING = "-"


class Hold:
    """What one incarnation of a member knows of its ref, in a file beside its clone. More than one commit only while a
    push is under way: it may have arrived although nobody was told so. NOTHING: there is no such ref."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> list[str]:
        try:
            return self._path.read_text().split()
        except FileNotFoundError:
            return []

    def write(self, *commits: str) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = self._path.with_name(f"{self._path.name}.new")
        fresh.write_text("\n".join(dict.fromkeys(commits)))
        os.replace(fresh, self._path)

    def is_at(self, commit: str | None) -> bool:
        """Has nobody else moved the ref since?"""
        return (commit or NOTHING) in self.read()


class RemoteOrigin:
    """`hold` for who works there; without it nobody's ref is moved. `tell`: who works waits as long as the repository
    is away, and says so once; without it RemoteAway is raised."""

    def __init__(self, trunk: Trunk, mirror: Mirror, *, hold: Hold | None = None, tell: Tell | None = None) -> None:
        self._trunk = trunk
        self._mirror = mirror
        self._hold = hold
        self._tell = tell
        self._saved: State | None = None
        self.git = mirror.git

    # -- the trunk -------------------------------------------------------------------------------------------------

    async def newest(self, *, everything: bool = False) -> str:
        return await self._patiently(lambda: self._newest(everything))

    async def _newest(self, everything: bool) -> str:
        trunk = self._trunk
        is_first = not self.git.directory.exists()
        await self._mirror.prepare(trunk.base)
        kept = await self._new_kept() if everything else []
        is_there = await self._mirror.fetch(
            *(f"{ref}:{ref}" for ref in (trunk.ref, *kept)), seconds=FIRST_FETCH_SECONDS if is_first else SECONDS
        )
        tip = await self.git.find(trunk.ref) if is_there else None
        if tip is None:
            raise GitFailed(
                f"the branch {trunk.branch} is gone from {self._mirror.url}: "
                f"`git push {self._mirror.url} COMMIT:{trunk.ref}` brings it back"
            )
        return tip

    async def _new_kept(self) -> list[str]:
        """What is kept under names that this machine does not know yet."""
        pattern = self._trunk.member_ref(f"*{KEPT}*")
        there = await self._mirror.list_refs(pattern)
        here = await self.git.run("for-each-ref", "--format=%(refname)", self._trunk.member_ref(""))
        return sorted(there.keys() - set(here.split()))

    async def advance(self, tip: str, commit: str) -> bool:
        refused = await self._mirror.push(Update(self._trunk.ref, commit, tip))
        if not refused:
            return True
        now = await self._mirror.find(self._trunk.ref)
        if now == tip:
            # Not another's doing: it is protected, or the disk there is full.
            raise self._refused(refused)
        return now == commit

    # -- what members have -----------------------------------------------------------------------------------------

    async def name(self, commit: str, ref: str) -> None:
        """Nothing is ever removed from the copy, named or not."""

    async def share(self, commit: str, *refs: str) -> None:
        await self._patiently(lambda: self._share(commit, *refs))

    async def _share(self, commit: str, *refs: str) -> None:
        self._saved = None
        if KEPT in refs[0] or self._hold is None:
            if refused := await self._mirror.push(*(Update(ref, commit) for ref in refs)):
                raise self._refused(refused)
        elif self._hold.read() != [commit] or len(refs) > 1:
            await self._move(self._hold, commit, *refs)
        if KEPT in refs[0]:
            await self.git.ask("update-ref", refs[0], commit)

    async def _move(self, hold: Hold, commit: str, ref: str, *more: str) -> None:
        while True:
            before = hold.read() or [NOTHING]
            hold.write(*before, commit)
            expected = before[0].replace(NOTHING, "")
            refused = await self._mirror.push(Update(ref, commit, expected), *(Update(one, commit) for one in more))
            now = await self._mirror.find(ref) if refused else commit
            if now == commit:
                break
            if (now or "") == expected:
                raise self._refused(refused)
            if now is not None and not hold.is_at(now):
                raise GitFailed(f"{ref.removeprefix('refs/')} was moved in {self._mirror.url} by somebody else")
            # A push of ours arrived unnoticed, or somebody removed it: upon that, then.
            hold.write(now or NOTHING)
        hold.write(commit)

    def _refused(self, refused: Mapping[str, str]) -> RemoteAway:
        return RemoteAway(f"{self._mirror.url} refuses {', '.join(refused)}: {reason_of(refused)}")

    async def save(self, member: str, look: Callable[[], Awaitable[State]]) -> bool:
        try:
            state = await look()
            if state != self._saved:
                is_clean = state.tree == await tree_of(self.git, state.head)
                commit = state.head if is_clean else await self.mark(member, state, "saved")
                await self._share(commit, self._trunk.member_ref(member))
                self._saved = state
        except GitFailed:
            return False
        return True

    async def mark(self, member: str, state: State, mark: str) -> str:
        """A commit that says what is in the files, and upon what."""
        message = f"what {member} has in work\n\n{UNFINISHED_TRAILER}: {member}/{mark}\n"
        return await make_commit(self.git, state.tree, state.head, message, author=member)

    async def read_state(self, commit: str) -> State:
        """The other way round."""
        tree = await tree_of(self.git, commit)
        marks = await self.git.run("log", "-1", f"--format=%(trailers:key={UNFINISHED_TRAILER},valueonly)", commit)
        above = await self.git.find(f"{commit}^") if marks.strip() else None
        return State(above or commit, tree)

    async def find_shared(self, member: str) -> str | None:
        """What the member's ref is there, at hand."""
        return await self._patiently(lambda: self._find_shared(self._trunk.member_ref(member)))

    async def _find_shared(self, ref: str) -> str | None:
        while True:
            commit = await self._mirror.find(ref)
            if commit is None or await self._has(commit):
                return commit
            await self._mirror.fetch(ref)
            if await self._has(commit):
                return commit

    async def take_over(self, member: str, commit: str, expected: str | None) -> bool:
        """False if the ref is not what was expected any more."""
        assert self._hold is not None
        self._hold.write(expected or NOTHING, commit)
        ref = self._trunk.member_ref(member)
        return await self._patiently(lambda: self._take_over(ref, commit, expected))

    async def _take_over(self, ref: str, commit: str, expected: str | None) -> bool:
        assert self._hold is not None
        refused = await self._mirror.push(Update(ref, commit, expected or ""))
        if refused:
            now = await self._mirror.find(ref)
            if now == expected:
                raise self._refused(refused)
            if now != commit:
                return False
        self._hold.write(commit)
        return True

    # -- what was handed in ------------------------------------------------------------------------------------------

    async def is_gathered(self, member: str, commit: str) -> bool:
        ref = self._trunk.work_ref(member, commit)
        return await self._patiently(lambda: self._mirror.find(ref)) == commit

    async def obtain(self, member: str, commit: str) -> bool:
        if not await self._has(commit):
            await self._mirror.fetch(self._trunk.work_ref(member, commit))
        return await self._has(commit)

    async def drop(self, member: str, commit: str) -> None:
        # At worst it is a name too many.
        with suppress(GitFailed):
            await self._mirror.push(Update(self._trunk.work_ref(member, commit), None, commit))

    async def tidy(self, member: str, queued: frozenset[str]) -> None:
        with suppress(GitFailed):
            gathered = await self._mirror.list_refs(self._trunk.work_ref(member, "*"))
            left = [Update(ref, None, commit) for ref, commit in gathered.items() if commit not in queued]
            if left:
                await self._mirror.push(*left)

    # -- waiting -----------------------------------------------------------------------------------------------------

    async def _has(self, commit: str) -> bool:
        return (await self.git.ask("cat-file", "-e", f"{commit}^{{commit}}")).exit_code == 0

    async def _patiently(self, step: Callable[[], Awaitable[T]]) -> T:
        pause = FIRST_PAUSE_SECONDS
        while True:
            was_away = self._mirror.is_away
            try:
                done = await step()
            except RemoteAway as error:
                if self._tell is None:
                    raise
                if not self._mirror.is_away:
                    self._mirror.is_away = True
                    await self._tell(str(error))
            else:
                # What began before it went away proves nothing.
                if was_away:
                    self._mirror.is_away = False
                return done
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE_SECONDS, pause * 2)
