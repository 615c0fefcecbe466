"""One application: what `apply` did to the user's checkout, written down before it is done, so that it can be undone.

    applying ──> applied ──> undoing ──> (gone)
        └───────────────────────^

A record holds the files as they were and as they are to be. Each file is put in its place by one rename, so at any
moment it is one or the other: whatever is killed, what was begun can be taken back. Taking back refuses as soon as
one of the files is neither, and touches nothing then: somebody has worked on.

Records lie in the checkout's own git directory; they go where the repository goes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any, Self

from bullpen.errors import Conflict
from bullpen.workspaces.beginning import described
from bullpen.workspaces.checkout import Checkout, Head
from bullpen.workspaces.git import GitFailed
from bullpen.workspaces.trees import Entry

DIRECTORY = "bullpen-apply"
_TEMPORARY = ".bullpen-apply"
_FILE, _OLD, _OLD_INDEX, _NEW_INDEX = "record.json", "old", "index.old", "index.new"


class Mode(StrEnum):
    MERGE = "merge"
    SQUASH = "squash"
    PATCH = "patch"


class State(StrEnum):
    APPLYING = "applying"
    APPLIED = "applied"
    UNDOING = "undoing"


@dataclass(frozen=True, slots=True)
class Change:
    """Of one file: how it was known before and is known after, None where there is none."""

    path: str
    old: str | None
    new: str | None


@dataclass(frozen=True, slots=True)
class Restaging:
    """Of one path in the index."""

    path: str
    old: Entry | None
    new: Entry | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """`tip` of the trunk `branch`, which began at `base`, was brought to `ref`: `head` before, `commit` after, None if
    nothing was committed. `commits` are those that were chosen; None: everything. `index_before` and `index_after` say
    what the index held."""

    number: int
    branch: str
    base: str
    tip: str
    mode: Mode
    ref: str
    head: str
    commit: str | None
    commits: tuple[str, ...] | None = None
    changes: tuple[Change, ...] = ()
    restaged: tuple[Restaging, ...] = ()
    new_directories: tuple[str, ...] = ()
    index_before: str = ""
    index_after: str = ""
    state: State = State.APPLYING
    applied_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(change.path for change in self.changes)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        known: dict[str, Any] = dict(document)
        known["mode"], known["state"] = Mode(known["mode"]), State(known["state"])
        known["changes"] = tuple(Change(**change) for change in known["changes"])
        known["restaged"] = tuple(
            Restaging(each["path"], _entry(each["old"]), _entry(each["new"])) for each in known["restaged"]
        )
        known["commits"] = None if known["commits"] is None else tuple(known["commits"])
        known["new_directories"] = tuple(known["new_directories"])
        return cls(**known)


def _entry(document: Mapping[str, str] | None) -> Entry | None:
    return None if document is None else Entry(**document)


class Applications:
    """Those of one checkout. Whoever calls what changes something holds the lock of the checkout."""

    def __init__(self, checkout: Checkout) -> None:
        self._checkout = checkout
        self._git = checkout.git
        self.directory = checkout.git_directory / DIRECTORY

    # -- looking -------------------------------------------------------------------------------------------------

    def list_all(self) -> list[Application]:
        """The oldest first."""
        found = []
        for path in self.directory.glob(f"*/{_FILE}"):
            try:
                found.append(Application.of(json.loads(path.read_text())))
            except (ValueError, KeyError, TypeError) as error:
                raise Conflict(f"{path} makes no sense ({error}): move it away if nothing is to be undone") from error
        return sorted(found, key=lambda one: one.number)

    def of(self, branch: str, base: str) -> list[Application]:
        return [one for one in self.list_all() if (one.branch, one.base) == (branch, base)]

    async def is_in_place(self, one: Application, head: Head) -> bool:
        """Not taken back by other means: its commit is there, or something that it changed is not as it was before."""
        if one.commit is not None:
            return await self._git.contains(head.commit, one.commit)
        return any(self._now(change.path) != change.old for change in one.changes)

    def _now(self, path: str) -> str | None:
        return mark_of(self._checkout.root / path)

    def _place(self, one: Application) -> Path:
        return self.directory / str(one.number)

    # -- doing ---------------------------------------------------------------------------------------------------

    async def begin(self, one: Application, new: Path) -> Application:
        """`new`: a directory with the files as they are to be. From here on it can be taken back."""
        one = replace(one, number=max((each.number for each in self.list_all()), default=0) + 1)
        place, root = self._place(one), self._checkout.root
        shutil.rmtree(place, ignore_errors=True)
        (place / _OLD).mkdir(parents=True)
        changes = []
        for number, change in enumerate(one.changes):
            _copy_if_there(root / change.path, place / _OLD / str(number))
            changes.append(Change(change.path, mark_of(place / _OLD / str(number)), mark_of(new / change.path)))
        directories = dict.fromkeys(
            parent.as_posix()
            for change in changes
            if change.new is not None
            for parent in reversed(PurePosixPath(change.path).parents[:-1])
            if not (root / parent).is_dir() or (root / parent).is_symlink()
        )
        one = replace(one, changes=tuple(changes), new_directories=tuple(directories))
        if one.restaged:
            one = await self._write_indexes(one)
        self._write(one)
        return one

    async def carry_out(self, one: Application, new: Path) -> Application:
        """All of it, or nothing."""
        try:
            self._lay(one, {change.path: new / change.path for change in one.changes if change.new is not None})
            if one.restaged:
                os.replace(await self._refreshed(one), self._checkout.index)
            if one.commit is not None:
                await self._move_head(one, one.commit, one.head)
            one = replace(one, state=State.APPLIED)
            self._write(one)
        except (OSError, GitFailed, Conflict) as error:
            await self._roll_back(one)
            raise Conflict(f"nothing was applied: {error}") from error
        except BaseException:
            await self._roll_back(one)
            raise
        return one

    async def _roll_back(self, one: Application) -> None:
        """What somebody else has changed meanwhile is left to them."""
        await self._restore(one, [change for change in one.changes if self._is_known(change)])

    async def take_back(self, one: Application) -> None:
        """Everything as it was before. Conflict, and nothing is touched, where that would destroy something newer."""
        await self._check_untouched(one)
        await self._restore(one, one.changes)

    async def _restore(self, one: Application, changes: Sequence[Change]) -> None:
        one = replace(one, state=State.UNDOING)
        olds = {change.path: self._place(one) / _OLD / str(number) for number, change in enumerate(one.changes)}
        self._write(one)
        sources = {change.path: olds[change.path] for change in changes if change.old is not None}
        self._lay(replace(one, changes=tuple(changes)), sources, back=True)
        if one.restaged:
            await self._restore_index(one)
        if one.commit is not None and (await self._checkout.get_head()).commit != one.head:
            await self._move_head(one, one.head, one.commit)
        self.forget(one)

    async def _restore_index(self, one: Application) -> None:
        """As a whole if nothing else was staged since, else only what was changed in it."""
        now = await self._describe(self._checkout.index)
        if now == one.index_before:
            return
        place = self._place(one)
        if now == one.index_after:
            shutil.copy(place / _OLD_INDEX, place / _NEW_INDEX)
        else:
            shutil.copy(self._checkout.index, place / _NEW_INDEX)
            await self._restage(place / _NEW_INDEX, {each.path: each.old for each in one.restaged})
        os.replace(place / _NEW_INDEX, self._checkout.index)

    def forget(self, one: Application) -> None:
        """It cannot be undone any more."""
        (self._place(one) / _FILE).unlink(missing_ok=True)
        shutil.rmtree(self._place(one), ignore_errors=True)
        with suppress(OSError):
            self.directory.rmdir()

    # -- what would be destroyed ----------------------------------------------------------------------------------

    async def _check_untouched(self, one: Application) -> None:
        known = frozenset(one.files)
        newer = [
            change.path
            for change in one.changes
            if not self._is_known(change) or (change.old and self._checkout.is_obstructed(change.path, known))
        ]
        if newer:
            raise Conflict(
                f"{described(tuple(newer))}: changed since, and undoing would destroy that; save it elsewhere first"
            )
        if one.commit is not None:
            await self._check_head(one)
        staged = await self._checkout.staged({each.path for each in one.restaged})
        restaged = [each.path for each in one.restaged if staged.get(each.path) not in (each.old, each.new)]
        if restaged:
            raise Conflict(f"{described(tuple(restaged))}: staged since, and undoing would destroy that")

    def _is_known(self, change: Change) -> bool:
        return self._now(change.path) in (change.old, change.new)

    async def _check_head(self, one: Application) -> None:
        head = await self._checkout.get_head()
        expected = (one.commit,) if one.state is State.APPLIED else (one.commit, one.head)
        if head.ref == one.ref and head.commit in expected:
            return
        name = Head("", one.ref).name
        assert one.commit is not None
        if head.ref != one.ref:
            raise Conflict(f"it was applied to {name}, and you are on {head.name}: `git switch {name}`, then undo")
        if not await self._git.contains(head.commit, one.commit):
            raise Conflict(f"{name} does not hold {one.commit[:7]} any more: there is nothing left to undo")
        count = await self._git.run("rev-list", "--count", f"{one.commit}..{head.commit}")
        mainline = "-m 1 " if one.mode is Mode.MERGE else ""
        raise Conflict(
            f"{name} has {count} newer commit{'s' if count != '1' else ''}, and undoing would drop them: "
            f"`git revert {mainline}{one.commit[:7]}` takes back only this"
        )

    # -- files, index, HEAD -----------------------------------------------------------------------------------------

    def _lay(self, one: Application, sources: Mapping[str, Path], *, back: bool = False) -> None:
        """First away with what is to go, for a file may take the place of a directory; then each into its place."""
        root = self._checkout.root
        temporary = f"{_TEMPORARY}-{one.number}"
        for change in one.changes:
            # One that a kill left behind.
            with suppress(FileNotFoundError, NotADirectoryError):
                (root / change.path).with_name(temporary).unlink()
            if self._check_known(change) is not None and change.path not in sources:
                (root / change.path).unlink()
                if not back:
                    _remove_empty(root, change.path)
        if back:
            for directory in reversed(one.new_directories):
                with suppress(OSError):
                    (root / directory).rmdir()
        for change in one.changes:
            if change.path in sources and self._check_known(change) != mark_of(sources[change.path]):
                _put(sources[change.path], root / change.path, temporary)

    def _check_known(self, change: Change) -> str | None:
        """Once more, at the last moment: somebody may save a file just now."""
        now = self._now(change.path)
        if now not in (change.old, change.new):
            raise Conflict(f"{change.path} was changed just now")
        return now

    async def _write_indexes(self, one: Application) -> Application:
        place = self._place(one)
        shutil.copy(self._checkout.index, place / _OLD_INDEX)
        shutil.copy(self._checkout.index, place / _NEW_INDEX)
        await self._restage(place / _NEW_INDEX, {each.path: each.new for each in one.restaged})
        before, after = [await self._describe(place / name) for name in (_OLD_INDEX, _NEW_INDEX)]
        return replace(one, index_before=before, index_after=after)

    async def _describe(self, index: Path) -> str:
        """Everything in it that is more than a memory of the files' times."""
        held = await self._git.run("ls-files", "--stage", "-v", "-z", env={"GIT_INDEX_FILE": str(index)})
        return _digest(held.encode(errors="surrogateescape"))

    async def _restage(self, index: Path, entries: Mapping[str, Entry | None]) -> None:
        env = {"GIT_INDEX_FILE": str(index)}
        left_out = await self._checkout.left_out()
        lines = [f"0 {'0' * 40}\t{path}\0" for path in entries]
        lines += [f"{entry.mode} {entry.object}\t{path}\0" for path, entry in entries.items() if entry is not None]
        await self._git.run("update-index", "-z", "--index-info", text="".join(lines), env=env)
        sparse = "".join(f"{path}\0" for path, entry in entries.items() if entry is not None and path in left_out)
        if sparse:
            await self._git.run("update-index", "-z", "--skip-worktree", "--stdin", text=sparse, env=env)

    async def _refreshed(self, one: Application) -> Path:
        """With the times of the files: else every look at them reads them all."""
        index = self._place(one) / _NEW_INDEX
        await self._git.ask("update-index", "-q", "--refresh", env={"GIT_INDEX_FILE": str(index)})
        return index

    async def _move_head(self, one: Application, to: str, since: str) -> None:
        what = "undone" if one.state is State.UNDOING else one.mode
        await self._git.run("update-ref", "-m", f"bullpen apply: {one.branch}, {what}", one.ref, to, since)

    def _write(self, one: Application) -> None:
        path = self._place(one) / _FILE
        temporary = path.with_suffix(".new")
        with temporary.open("w") as file:
            json.dump(asdict(one), file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)


def mark_of(path: Path) -> str | None:
    """The file that is there, so that any difference shows; None if there is none."""
    try:
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            return f"link {_digest(os.fsencode(os.readlink(path)))}"
        if stat.S_ISDIR(mode):
            return None
        if not stat.S_ISREG(mode):
            return "other"
        return f"{'executable' if mode & stat.S_IXUSR else 'file'} {_digest(path.read_bytes())}"
    except (FileNotFoundError, NotADirectoryError):
        return None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _copy_if_there(source: Path, target: Path) -> None:
    # What is no file is a directory that others' paths account for.
    if source.is_symlink() or source.is_file():
        shutil.copy(source, target, follow_symlinks=False)


def _put(source: Path, target: Path, temporary: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(temporary)
    shutil.copy(source, beside, follow_symlinks=False)
    os.replace(beside, target)


def _remove_empty(root: Path, path: str) -> None:
    """As git does when the last file of a directory goes."""
    for parent in PurePosixPath(path).parents[:-1]:
        try:
            (root / parent).rmdir()
        except OSError:
            return
