"""How a new team will work, and what it begins from: decided before it begins, and said."""

from __future__ import annotations

from dataclasses import dataclass

from bullpen.cli.call import Call
from bullpen.cli.question import ask
from bullpen.cli.terminal import can_converse
from bullpen.cli.workplace import Workplace, say_what_is_shared
from bullpen.config import Settings
from bullpen.domain.trunk import TRUNK
from bullpen.errors import UsageError
from bullpen.stores.directory import make_store_directory
from bullpen.stores.place import place_of
from bullpen.team import Team
from bullpen.workspaces.address import Address
from bullpen.workspaces.beginning import Repository, Unfit, begin_trunk, described, survey
from bullpen.workspaces.elsewhere import Elsewhere, begin_trunk_elsewhere, survey_elsewhere

KINDS = ("auto", "worktree", "shared")


@dataclass(frozen=True, slots=True)
class Start:
    """`takes_unsaved`: from the user's tree as it is, else from HEAD. `is_asked`: the user has just said so."""

    repository: Repository
    takes_unsaved: bool
    is_asked: bool


def check_isolation(kind: str) -> None:
    if kind not in KINDS:
        raise UsageError(f"--isolation is {', '.join(KINDS[:-1])} or {KINDS[-1]}, not {kind[:40]!r}")


async def find_start(
    call: Call, settings: Settings, place: Workplace, *, include_dirty: bool, may_ask: bool
) -> Start | Elsewhere | None:
    """None: all work in the one directory. UsageError if they were to work apart and cannot."""
    isolation = settings.isolation
    if place.address is not None:
        return await _find_elsewhere(call, isolation, place.address, include_dirty=include_dirty)
    directory = place.directory
    if isolation == "shared" and include_dirty:
        raise UsageError(
            "--include-dirty: with --isolation shared all work in your own files as they are; leave it out"
        )
    say_what_is_shared(call, directory)
    if isolation == "shared":
        return None
    wishes = settings.worktree
    found = await survey(
        directory,
        place=place_of(call.place.url).state_directory,
        setup=wishes.setup or "",
        include=wishes.include,
    )
    if isinstance(found, Unfit):
        if isolation == "worktree":
            raise UsageError(
                f"--isolation worktree: {found.why} ({directory}); --isolation shared works there all the same"
            )
        if found.is_git:
            call.note(f"no worktrees, all work in {directory} itself: {found.why}")
        return None
    for note in found.notes:
        call.note(note)
    is_asked = bool(found.unsaved) and not include_dirty and may_ask and can_converse()
    takes = _wants_unsaved(found) if is_asked else bool(found.unsaved) and include_dirty
    return Start(found, takes, is_asked)


async def _find_elsewhere(call: Call, isolation: str, address: Address, *, include_dirty: bool) -> Elsewhere:
    if isolation == "shared":
        raise UsageError(f"--isolation shared: with {address.text} there is no directory to share; leave it out")
    if include_dirty:
        raise UsageError(f"--include-dirty: nothing of yours is in {address.text}; push it there, or leave it out")
    state_directory = place_of(call.place.url).state_directory
    make_store_directory(state_directory)
    found = await survey_elsewhere(address, state_directory)
    for note in found.notes:
        call.note(note)
    return found


def _wants_unsaved(repository: Repository) -> bool:
    return ask(
        f"{described(repository.unsaved)}: not committed. Shall the team begin with these changes, too? "
        "(Your own files stay as they are either way.)"
    )


async def set_apart(call: Call, team: Team, start: Start | Elsewhere | None) -> None:
    """The team's branch, made and remembered."""
    if start is None:
        return
    if isinstance(start, Elsewhere):
        trunk = await begin_trunk_elsewhere(start, team.name)
        await team.remember(**{TRUNK: trunk.to_mapping()})
        begins = f"{start.branch or start.address.ref} ({start.head[:7]})"
        call.note(f"each member works in a clone of its own of {trunk.repository}, on {trunk.branch}, from {begins}")
        return
    trunk = await begin_trunk(start.repository, team.name, include_unsaved=start.takes_unsaved)
    await team.remember(**{TRUNK: trunk.to_mapping()})
    call.note(f"each member works in a worktree of its own, on {trunk.branch}, from {_from(start)}")


def _from(start: Start) -> str:
    repository = start.repository
    head = f"{repository.branch or 'HEAD'} ({repository.head[:7]})"
    if not repository.unsaved:
        return head
    count = f"{len(repository.unsaved)} unsaved file{'s' if len(repository.unsaved) > 1 else ''}"
    if start.takes_unsaved:
        return f"{head} with your {count}"
    hint = "" if start.is_asked else " (`bullpen run --include-dirty` begins with what is unsaved, too)"
    return f"{head} without your {count}{hint}"
