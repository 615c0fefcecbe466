"""Bringing what a team made into the user's checkout, and taking it back.

Invariants: everything is decided, and refused where it must be, before anything is touched. Unsaved work is never
overwritten, unless it is exactly what the team began with or what is to be there anyway. Neither the stash nor any
branch but the one that is checked out is touched, and no hook is run.

The changes of the team go from `before` (the checkout's files) to `after` by a merge of trees, without any file. A
merge or squash commits what the same merge makes of HEAD: what was unsaved stays unsaved.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from bullpen.errors import Conflict, NotFound
from bullpen.workspaces.application import Application, Applications, Change, Mode, Restaging, State
from bullpen.workspaces.beginning import described
from bullpen.workspaces.checkout import Checkout, Head
from bullpen.workspaces.git import Git, GitFailed
from bullpen.workspaces.made import Made
from bullpen.workspaces.merging import Merge, message_of
from bullpen.workspaces.trees import GITLINK, changed, entries, merge_trees

_NEW = "bullpen-new-"
_MINE = ("GIT_AUTHOR_", "GIT_COMMITTER_", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """`mode`: None takes what fits. `commits`: only these; None for everything. `goal` and `message` are for the
    commit."""

    mode: Mode | None = None
    commits: tuple[str, ...] | None = None
    message: str = ""
    goal: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """What `theirs` changed since `base`."""

    base: str
    theirs: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What would be done. `files` are those that change; `commits` the team's that come. `is_merged`: with their own
    history, else copied onto HEAD (the team did not begin from it). `left`: submodules, which are not changed."""

    made: Made
    mode: Mode
    head: Head
    commits: tuple[str, ...]
    is_chosen: bool
    is_merged: bool
    after: str
    committed: str | None
    files: tuple[str, ...]
    restaged: tuple[Restaging, ...]
    keeps_unsaved: bool
    left: tuple[str, ...] = ()
    last: Application | None = None

    @property
    def is_nothing(self) -> bool:
        return not self.files and not self.restaged


async def make_plan(checkout: Checkout, made: Made, wish: Wish) -> Plan:
    """Conflict, with what to do, where it cannot be applied."""
    return await _Planning(checkout, made, wish).plan()


async def carry_out(checkout: Checkout, plan: Plan, wish: Wish) -> Application:
    """The lock of the checkout is held since the plan was made."""
    commit = await _commit(checkout.git, plan, wish) if plan.committed is not None else None
    one = Application(
        number=0,
        branch=plan.made.trunk.branch,
        base=plan.made.trunk.base,
        tip=plan.made.tip,
        mode=plan.mode,
        ref=plan.head.ref,
        head=plan.head.commit,
        commit=commit,
        commits=plan.commits if plan.is_chosen else None,
        changes=tuple(Change(path, None, None) for path in plan.files),
        restaged=plan.restaged,
    )
    applications = Applications(checkout)
    with tempfile.TemporaryDirectory(dir=checkout.git_directory, prefix=_NEW) as directory:
        new = Path(directory)
        await _write_files(checkout, plan.after, plan.files, new)
        return await applications.carry_out(await applications.begin(one, new), new)


async def recover(checkout: Checkout) -> list[Application]:
    """What a kill left half done is taken back. The lock of the checkout is held."""
    for path in checkout.git_directory.glob(f"{_NEW}*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    applications = Applications(checkout)
    begun = [one for one in applications.list_all() if one.state is not State.APPLIED]
    for one in reversed(begun):
        await applications.take_back(one)
    return begun


async def undo(checkout: Checkout, branch: str, base: str) -> tuple[Application, bool]:
    """What was applied last of this trunk, taken back; whether its branch had to be brought back for it."""
    applications = Applications(checkout)
    known = applications.of(branch, base)
    if not known:
        raise NotFound(
            f"nothing of {branch} is applied in {checkout.root}: it was undone, cleaned up, or never applied"
        )
    last = known[-1]
    ref = f"refs/heads/{branch}"
    is_gone = await checkout.git.find(ref) is None
    if is_gone and await checkout.git.find(last.tip) is None:
        raise Conflict(f"{branch} is gone, and what was applied is the only copy: it is not undone")
    if is_gone:
        # Else there would be nothing left of the work.
        await checkout.git.run("update-ref", ref, last.tip, "")
    await applications.take_back(last)
    return last, is_gone


class _Planning:
    def __init__(self, checkout: Checkout, made: Made, wish: Wish) -> None:
        self._checkout = checkout
        self._git = checkout.git
        self._made = made
        self._wish = wish

    async def plan(self) -> Plan:
        git, trunk = self._git, self._made.trunk
        await self._checkout.check_quiet()
        head = await self._checkout.get_head()
        if head.ref == trunk.ref:
            back = trunk.started_on or "BRANCH"
            raise Conflict(f"{trunk.branch} itself is checked out: `git switch {back}`, then apply")
        mode = self._wish.mode or await self._fitting_mode(head)
        known = await self._in_place(head)
        commits, steps = await self._steps(head, known)
        absent = await self._checkout.left_out()
        before = await self._look(head, steps, absent)
        after = await self._merged(head, before, steps)
        touched = await changed(git, before, after)
        links = await self._submodules(before, after, touched)
        touched -= links
        await self._check_saved(touched, before, absent)
        committed = None
        if mode is not Mode.PATCH:
            committed = await self._committed(head, before, after, steps)
        restaged = () if committed is None else await self._restaged(head, before, after, committed)
        # What a sparse checkout leaves out is changed in the index only, if that is.
        files = touched if mode is Mode.PATCH else touched - absent
        return Plan(
            made=self._made,
            mode=mode,
            head=head,
            commits=commits,
            is_chosen=self._wish.commits is not None,
            is_merged=self._wish.commits is None and await git.contains(head.commit, trunk.base),
            after=after,
            committed=committed,
            files=tuple(sorted(files)),
            restaged=restaged,
            keeps_unsaved=committed not in (None, after),
            left=tuple(sorted(links)) if mode is Mode.PATCH else (),
            last=known[-1] if known else None,
        )

    async def _fitting_mode(self, head: Head) -> Mode:
        """A merge; but what the team made upon work that is unsaved still cannot be committed without it."""
        trunk = self._made.trunk
        if not trunk.is_snapshot:
            return Mode.MERGE
        unsaved = await changed(self._git, f"{trunk.base}^", trunk.base)
        files = await self._checkout.look(head.commit, unsaved)
        return Mode.PATCH if await changed(self._git, head.commit, files.tree) else Mode.MERGE

    async def _in_place(self, head: Head) -> list[Application]:
        """What was applied of this trunk before and stayed."""
        applications = Applications(self._checkout)
        trunk = self._made.trunk
        known = applications.of(trunk.branch, trunk.base)
        return [one for one in known if await applications.is_in_place(one, head)]

    async def _steps(self, head: Head, known: Sequence[Application]) -> tuple[tuple[str, ...], list[Step]]:
        """What is to be brought in, and as what changes."""
        taken = {commit for one in known for commit in one.commits or ()}
        if self._wish.commits is not None:
            chosen = tuple(commit for commit in self._wish.commits if commit not in taken)
            return chosen, [Step(f"{commit}^", commit) for commit in chosen]
        made, since = self._made, self._made.trunk.base
        shared = (await self._git.ask("merge-base", head.commit, made.tip)).text.strip()
        for tip in (shared, *(one.tip for one in known if one.commits is None)):
            # What is there already: merged by the user, or applied before.
            if tip and await self._git.contains(tip, since) and await self._git.contains(made.tip, tip):
                since = tip
        listed = (await self._git.run("rev-list", "--reverse", "--topo-order", f"{since}..{made.tip}")).split()
        rest = tuple(commit for commit in listed if commit not in taken)
        if len(rest) < len(listed):
            return rest, [Step(f"{commit}^", commit) for commit in rest]
        return rest, [Step(since, made.tip)] if rest else []

    # -- what the files would be -------------------------------------------------------------------------------------

    async def _look(self, head: Head, steps: Sequence[Step], absent: Collection[str]) -> str:
        """HEAD with what is unsaved where the team changed something: only such as the team knew may be there."""
        concerned: frozenset[str] = frozenset()
        for step in steps:
            concerned |= await changed(self._git, step.base, step.theirs)
        links = await self._submodules(*(tree for step in steps for tree in (step.base, step.theirs)), concerned)
        files = await self._checkout.look(head.commit, concerned - links, absent=absent)
        unsaved = await changed(self._git, head.commit, files.tree)
        now = await entries(self._git, files.tree, unsaved)
        known: dict[str, list[object]] = {path: [] for path in unsaved}
        for side in dict.fromkeys(side for step in steps for side in (step.base, step.theirs)):
            theirs = await entries(self._git, side, unsaved)
            for path in unsaved:
                known[path].append(theirs.get(path))
        in_the_way = {path for path in unsaved if now.get(path) not in known[path]}
        self._refuse(in_the_way | set(files.obstacles))
        return files.tree

    async def _check_saved(self, touched: frozenset[str], before: str, absent: Collection[str]) -> None:
        """A merge may touch files that the team did not: where it renamed a directory, for example."""
        files = await self._checkout.look(before, touched, absent=absent)
        self._refuse(await changed(self._git, before, files.tree) | set(files.obstacles))

    def _refuse(self, in_the_way: Collection[str]) -> None:
        if in_the_way:
            raise Conflict(
                f"not applied, for you have unsaved work in {described(tuple(sorted(in_the_way)))}: commit it, stash "
                "it or move it away, then apply"
            )

    async def _merged(self, head: Head, before: str, steps: Sequence[Step]) -> str:
        merged = await _fold(self._git, before, steps)
        if not merged.conflicts:
            return merged.tree
        files, branch = described(merged.conflicts), self._made.trunk.branch
        if self._wish.commits is not None:
            raise Conflict(
                f"not applied, nothing was touched: this does not fit {head.name} by itself, in {files}; it may build "
                "on other work of the team: apply all of it"
            )
        raise Conflict(
            f"not applied, nothing was touched: {head.name} and {branch} both changed {files} since the team began; "
            f"`git merge {branch}` lets you resolve it by hand"
        )

    # -- what would be committed and staged --------------------------------------------------------------------------

    async def _committed(self, head: Head, before: str, after: str, steps: Sequence[Step]) -> str:
        """The tree of the commit: the same upon HEAD, without what is unsaved."""
        if before == await self._git.run("rev-parse", f"{head.commit}^{{tree}}"):
            return after
        merged = await _fold(self._git, head.commit, steps)
        if merged.conflicts:
            raise Conflict(
                f"not applied: what the team made in {described(merged.conflicts)} builds on work that you have not "
                "committed; commit that first, or apply with --patch"
            )
        return merged.tree

    async def _restaged(self, head: Head, before: str, after: str, committed: str) -> tuple[Restaging, ...]:
        git = self._git
        paths = await changed(git, head.commit, committed) | await changed(git, before, after)
        was, is_to_be, here, there = [
            await entries(git, tree, paths) for tree in (head.commit, committed, before, after)
        ]
        staged = await self._checkout.staged(paths)
        restaged, in_the_way = [], set()
        for path in sorted(paths):
            now = staged.get(path)
            if now == was.get(path):
                new = is_to_be.get(path)
            elif now == here.get(path):
                new = there.get(path)
            elif now in (is_to_be.get(path), there.get(path)):
                new = now
            else:
                in_the_way.add(path)
                continue
            if new != now:
                restaged.append(Restaging(path, now, new))
        if in_the_way:
            raise Conflict(
                f"not applied, for what you have staged in {described(tuple(sorted(in_the_way)))} is neither what is "
                "committed nor what is in the file: commit it, or apply with --patch, which leaves the index alone"
            )
        return tuple(restaged)

    async def _submodules(self, *given: str | Collection[str]) -> frozenset[str]:
        *trees, paths = given
        assert not isinstance(paths, str)
        found = set()
        for tree in dict.fromkeys(str(tree) for tree in trees):
            found |= {path for path, entry in (await entries(self._git, tree, paths)).items() if entry.mode == GITLINK}
        return frozenset(found)


async def _fold(git: Git, ours: str, steps: Sequence[Step]) -> Merge:
    merged = Merge(await git.run("rev-parse", "--verify", f"{ours}^{{tree}}"))
    for step in steps:
        merged = await merge_trees(git, step.base, merged.tree, step.theirs)
        if merged.conflicts:
            break
    return merged


async def _write_files(checkout: Checkout, tree: str, paths: Collection[str], new: Path) -> None:
    """As a checkout of that tree would write them, with the user's filters and line ends, but elsewhere."""
    place = {"GIT_DIR": str(checkout.git_directory), "GIT_WORK_TREE": str(new), "GIT_INDEX_FILE": f"{new}.index"}
    git = Git(new, inherits=checkout.git.inherits)
    try:
        await git.run("read-tree", tree, env=place)
        there = "".join(f"{path}\0" for path in await entries(checkout.git, tree, paths))
        if there:
            await git.run("checkout-index", "-z", "--stdin", text=there, env=place)
    finally:
        Path(f"{new}.index").unlink(missing_ok=True)


# -- the commit, which is the user's --------------------------------------------------------------------------------


async def _commit(git: Git, plan: Plan, wish: Wish) -> str:
    assert plan.committed is not None
    parents = [plan.head.commit]
    if plan.mode is Mode.MERGE:
        parents.append(plan.made.tip if plan.is_merged else await _copy_commits(git, plan))
    words = ["commit-tree", plan.committed, *(word for parent in parents for word in ("-p", parent)), "-F", "-"]
    try:
        return (await git.run(*words, text=_message(plan, wish), env=_mine())).strip()
    except GitFailed as error:
        if "tell me who you are" in str(error) or "empty ident" in str(error) or "no email" in str(error):
            raise Conflict(
                "git does not know who you are, and the commit would be yours: set user.name and user.email with "
                "`git config`, or apply with --patch"
            ) from error
        raise


async def _copy_commits(git: Git, plan: Plan) -> str:
    """The team's commits upon HEAD, each by who made it."""
    upon = plan.head.commit
    for commit in plan.commits:
        merged = await merge_trees(git, f"{commit}^", upon, commit)
        if merged.conflicts:
            raise Conflict(
                f"not applied, nothing was touched: the commits do not fit {plan.head.name} one by one, in "
                f"{described(merged.conflicts)}; apply with --squash"
            )
        told = await git.run("show", "--no-patch", "--format=%an%x00%ae%x00%ad%x00%B", "--date=raw", commit)
        name, email, date, message = told.split("\0", 3)
        who = {"GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": email, "GIT_AUTHOR_DATE": date}
        words = ("commit-tree", merged.tree, "-p", upon, "-F", "-")
        upon = (await git.run(*words, text=message, env={**_mine(), **who})).strip()
    return upon


def _message(plan: Plan, wish: Wish) -> str:
    branch = plan.made.trunk.branch
    otherwise = f"Merge {branch}" if plan.mode is Mode.MERGE else f"Work of {branch}"
    if wish.message:
        return message_of(wish.message, otherwise=otherwise)
    goal = " ".join(wish.goal.split())
    first = f"{otherwise}: {goal}" if goal and plan.mode is Mode.MERGE else goal or otherwise
    chosen = [commit for commit in plan.made.commits if commit.commit in plan.commits]
    lines = [f"- {commit.subject} ({commit.member}{f', #{commit.task}' if commit.task else ''})" for commit in chosen]
    return message_of("\n".join([first, "", *lines]), otherwise=otherwise)


def _mine() -> dict[str, str]:
    """Who the user is, where they say so in their environment."""
    return {name: value for name, value in os.environ.items() if name.startswith(_MINE)}
