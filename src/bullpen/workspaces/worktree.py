"""A member's own worktree on this machine.

Whatever looks at files that its member could write runs in its sandbox (`_inside`): a repository planted among them
runs its own programs when git looks at it. Out here only git's objects and refs are read and written.

HEAD is detached, always: at the newest trunk that this worktree has seen, or at what was gathered upon it.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from pathlib import Path

from bullpen.domain.submission import Work
from bullpen.domain.trunk import Trunk
from bullpen.sandbox import Sandbox
from bullpen.workspace import Conflicting
from bullpen.workspaces.git import COMMIT_ID, SAFELY, GitFailed
from bullpen.workspaces.merging import listed, make_commit, merge, still_marked, tree_of
from bullpen.workspaces.origin import LocalOrigin, Origin, State
from bullpen.workspaces.trees import changed

INSIDE_SECONDS = 300.0
FEW = 100
"""So many files of a directory are passed over one by one: what its member adds to them is work."""
EXCLUDE = "bullpen-exclude"
"""In the worktree's own git directory: what is not the member's work though it lies there."""
CONFIG = "bullpen-config"
"""Beside it: what makes the member's own git pass over the same."""


def environment_of(own: Path) -> dict[str, str]:
    """For the member's own commands. Other repositories that they make, tests for example, are not concerned."""
    return {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"includeIf.gitdir:{own}.path",
        "GIT_CONFIG_VALUE_0": str(own / CONFIG),
    }


def pattern_of(name: str) -> str:
    """What excludes exactly this, and whatever is in it."""
    return "/" + "".join(f"\\{letter}" if letter in r"\*?[ #!" else letter for letter in name)


class OwnWorktree:
    """`Worktree` of one member. `own` is what git keeps of it in the repository; without an `origin` that is the
    user's own."""

    def __init__(
        self, trunk: Trunk, member: str, root: Path, own: Path, sandbox: Sandbox, origin: Origin | None = None
    ) -> None:
        self.root = root
        self.directory = root / trunk.prefix
        self._trunk = trunk
        self._member = member
        self._own = own
        self._sandbox = sandbox
        self._origin: Origin = LocalOrigin(trunk) if origin is None else origin
        self._git = self._origin.git

    async def gather(self, message: str, *, integrated: frozenset[str] = frozenset()) -> Work | None:
        state = await self.look()
        tip = await self._origin.newest()
        if state.head in integrated and await self._is_nothing(state, tip, integrated):
            await self._move(tip)
            return None
        base = await self._base(state.head, tip)
        if state.tree == await tree_of(self._git, base):
            return None
        if base == tip and await self._is_gathered(state):
            # Again, after a kill: it is the same commit, so it is not handed in twice.
            return Work(base=tip, commit=state.head)
        await self._check_resolved(base, state.tree)
        commit = await self._save(state.tree, base, message)
        if base != tip:
            commit = await self._merge(tip, commit, message)
            if await tree_of(self._git, commit) == await tree_of(self._git, tip):
                # It is on the trunk by now: handed in before a kill, or others made the same.
                await self._move(tip)
                return None
        await self._point(commit)
        await self._origin.share(
            commit, self._trunk.member_ref(self._member), self._trunk.work_ref(self._member, commit)
        )
        return Work(base=tip, commit=commit)

    async def begin_anew(self, *, integrated: frozenset[str], queued: frozenset[str] | None = None) -> str | None:
        state = await self.look()
        tip = await self._origin.newest(everything=True)
        kept = None if await self._is_nothing(state, tip, integrated) else await self._keep(state, tip)
        await self._move(tip)
        if queued is not None:
            await self._origin.tidy(self._member, queued)
        return kept

    async def catch_up(self, *, integrated: frozenset[str]) -> None:
        state = await self.look()
        tip = await self._origin.newest()
        if await self._is_nothing(state, tip, integrated):
            await self._move(tip)
            return
        base = await self._base(state.head, tip)
        if base == tip:
            return
        commit = await self._save(state.tree, base, "unfinished")
        await self._merge(tip, commit, "unfinished")

    async def keep(self) -> str | None:
        state = await self.look()
        tip = await self._origin.newest()
        return None if await self._is_nothing(state, tip, frozenset()) else await self._keep(state, tip)

    async def save(self) -> bool:
        return await self._origin.save(self._member, self.look)

    async def list_changed(self, work: Work) -> frozenset[str]:
        return await changed(self._git, work.base, work.commit)

    async def find_unfinished(self) -> str | None:
        """A commit that holds what is unfinished, without a name yet; None if nothing is."""
        state = await self.look()
        tip = await self._origin.newest()
        if await self._is_nothing(state, tip, frozenset()):
            return None
        message = f"what {self._member} left unfinished"
        return await make_commit(self._git, state.tree, await self._base(state.head, tip), message, author=self._member)

    async def show_newest(self) -> None:
        await self.show(await self._origin.newest())

    async def show(self, commit: str) -> None:
        """Exactly this commit, whatever was there; only what git ignores stays."""
        clean = self._call("clean", "-fdq")
        await self._inside(f"{self._unlock()}; {self._showing(commit)} && {clean} && {self._pointing(commit)}")

    async def list_untracked(self) -> frozenset[str]:
        """What git neither has nor ignores; of a directory in which it has nothing, `name/`."""
        return frozenset(await self._list_others("--directory", "--no-empty-directory"))

    async def pass_over(self, names: Collection[str]) -> None:
        """What lies there under these names is nobody's work."""
        patterns: list[str] = []
        for name in sorted(names):
            below = await self._list_others("--", name, most=FEW + 1)
            patterns += map(pattern_of, below if len(below) <= FEW else [name])
        if patterns:
            await self._inside(f"printf '%s\\n' {shlex.join(patterns)} >> {shlex.quote(str(self._own / EXCLUDE))}")

    async def _list_others(self, *which: str, most: int = 1_000) -> list[str]:
        listing = ("-c", "core.quotePath=false", "--literal-pathspecs", "ls-files", "--others", "--exclude-standard")
        said = await self._inside(f"{self._call(*listing, *which)} | head -n {most}")
        # Names with a line's end or a quote in them are said in another way, and left alone.
        return [name for name in said.splitlines() if name and not name.startswith('"')]

    # -- looking ---------------------------------------------------------------------------------------------

    async def look(self) -> State:
        """What is in the files now, as a tree. What a killed git left locked is unlocked. What was written
        outside of a sparse checkout is work as any other."""
        taking = f"{self._call('add', '-A', '--sparse', '.')} && {self._leaving_out()}"
        saying = f"{self._call('write-tree')} && {self._call('rev-parse', 'HEAD')}"
        head, tree = (await self._inside(f"{self._unlock()}; {taking} && {saying}")).split()[-1:-3:-1]
        if not (COMMIT_ID.fullmatch(head) and COMMIT_ID.fullmatch(tree)):
            raise GitFailed(f"{self.root} is no worktree any more: what git says of it makes no sense")
        return State(head, tree)

    async def _base(self, head: str, tip: str) -> str:
        """The newest trunk that its work is made upon."""
        answer = await self._git.ask("merge-base", head, tip)
        return answer.text.strip() if answer.exit_code == 0 else self._trunk.base

    async def _is_nothing(self, state: State, tip: str, integrated: frozenset[str]) -> bool:
        """Nothing in it that is not on the trunk."""
        if state.tree != await tree_of(self._git, state.head):
            return False
        return state.head in integrated or await self._git.contains(tip, state.head)

    async def _is_gathered(self, state: State) -> bool:
        if state.tree != await tree_of(self._git, state.head):
            return False
        return await self._origin.is_gathered(self._member, state.head)

    async def _check_resolved(self, base: str, tree: str) -> None:
        if marked := await still_marked(self._git, base, tree):
            raise Conflicting(
                f"there are still conflict markers in {listed(marked)}: edit each so that it says what both sides "
                "want, without the lines <<<<<<<, ======= and >>>>>>>"
            )

    # -- keeping, merging, moving ------------------------------------------------------------------------------

    async def _save(self, tree: str, base: str, message: str) -> str:
        """A commit with a name: from here on it cannot be lost."""
        commit = await make_commit(self._git, tree, base, message, author=self._member)
        await self._origin.name(commit, self._trunk.member_ref(self._member))
        return commit

    async def _keep(self, state: State, tip: str) -> str:
        base = await self._base(state.head, tip)
        commit = await self._find_saved(state, base)
        if commit is None:
            commit = await self._save(state.tree, base, f"what {self._member} left unfinished")
        ref = self._trunk.kept_ref(self._member, commit)
        await self._origin.name(commit, ref)
        await self._origin.share(commit, ref)
        return ref.removeprefix("refs/")

    async def _find_saved(self, state: State, base: str) -> str | None:
        """The same, saved a moment ago: it needs no second name."""
        saved = await self._git.find(self._trunk.member_ref(self._member))
        if saved is None or await tree_of(self._git, saved) != state.tree:
            return None
        return saved if await self._git.find(f"{saved}^") == base else None

    async def _merge(self, tip: str, commit: str, message: str) -> str:
        """The commit upon the newest trunk, which then is what the files hold; Conflicting: they hold the markers."""
        merged = await merge(self._git, tip, commit)
        await self._inside(f"{self._showing(merged.tree)} && {self._pointing(tip)}")
        if merged.conflicts:
            await self._inside(self._laying_out(merged.conflicts))
            raise Conflicting(
                "others changed the same places meanwhile. The newest state of the team has been merged into your "
                f"workspace; it conflicts in {listed(merged.conflicts)}. Between <<<<<<< and ======= is what the team "
                "has now, from there to >>>>>>> what you made: read these files again, edit each so that it does what "
                "both want, verify, then go on as before"
            )
        return await self._save(merged.tree, tip, message)

    async def _point(self, commit: str) -> None:
        await self._inside(self._pointing(commit))

    async def _move(self, commit: str) -> None:
        """To a commit of the trunk: there is nothing of its own in it any more."""
        await self._inside(f"{self._showing(commit)} && {self._pointing(commit)}")
        ref = self._trunk.member_ref(self._member)
        await self._origin.name(commit, ref)
        await self._origin.share(commit, ref)

    # -- what is said inside: in few commands, for each costs a little -------------------------------------------

    def _unlock(self) -> str:
        """What git locks of a worktree alone. Nobody else is in it: each is left by one that was killed."""
        return shlex.join(["rm", "-f", *(str(self._own / f"{name}.lock") for name in ("index", "HEAD"))])

    def _leaving_out(self) -> str:
        """What is not its member's work is none either if the member added or committed it itself, unless the trunk
        has it. Nearly always there is nothing of that kind: one command says so."""
        listed = ("ls-files", "--cached", "--ignored", f"--exclude-from={self._own / EXCLUDE}")
        base = f'"$({self._call("merge-base", "HEAD", self._trunk.ref)} || echo {self._trunk.base})"'
        added = ("diff-index", "--cached", "--name-only", "--no-renames", "--diff-filter=A", "-z")
        steps = (
            self._call(*listed, "-z"),
            # A .gitignore may take back what these patterns say.
            self._call("check-ignore", "--no-index", "-z", "--stdin"),
            f"xargs -0 -r {self._call('--literal-pathspecs', *added)} {base} --",
            self._call("update-index", "--force-remove", "-z", "--stdin"),
        )
        return f'{{ [ -z "$({self._call(*listed)})" ] || {{ {" | ".join(steps)}; }}; }}'

    def _showing(self, tree: str) -> str:
        return self._call("read-tree", "-u", "--reset", tree)

    def _laying_out(self, paths: Sequence[str]) -> str:
        """These files though they lie outside of a sparse checkout: who is to edit them must see them."""
        found = self._call("--literal-pathspecs", "ls-files", "-z", "--", *paths)
        return f"{found} | {self._call('checkout-index', '-f', '-z', '--stdin', '--ignore-skip-worktree-bits')}"

    def _pointing(self, commit: str) -> str:
        return self._call("update-ref", "--no-deref", "HEAD", commit)

    def _call(self, *arguments: str) -> str:
        exclude = ("-c", f"core.excludesFile={self._own / EXCLUDE}")
        return shlex.join(["git", "-C", str(self.root), *SAFELY, *exclude, *arguments])

    async def _inside(self, script: str) -> str:
        done = await self._sandbox.run(script, timeout_seconds=INSIDE_SECONDS)
        if done.exit_code != 0 or done.timed_out:
            complaint = " ".join(done.output.split())[-500:]
            raise GitFailed(f"git in {self.root}: {complaint or f'exit code {done.exit_code}'}")
        return done.output
