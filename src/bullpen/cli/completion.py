"""What Tab offers. A completion creates nothing, says nothing and waits for no server."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bullpen.cli.call import Call
    from bullpen.cli.options import Globals

VARIABLE = "_BULLPEN_COMPLETE"


def complete() -> int:
    """Answer the shell: what was typed is in its variables, the offer goes to stdout."""
    import typer

    from bullpen.cli.root import app

    typer.main.get_command(app).main(prog_name="bullpen", complete_var=VARIABLE)
    return 0


def statuses(incomplete: str) -> list[str]:
    from bullpen.domain.task import TaskStatus

    return _beginning(incomplete, list(TaskStatus))


def settings(incomplete: str) -> list[str]:
    from bullpen.config.read import dotted, list_keys

    return _beginning(incomplete, [dotted(path) for path in list_keys()])


def scopes(incomplete: str) -> list[str]:
    from bullpen.domain.request import PermissionScope

    return _beginning(incomplete, list(PermissionScope))


def requests(incomplete: str) -> list[str]:
    """The open ones that are put to the human."""
    return _beginning(incomplete, _look(_request_ids))


def teams(incomplete: str) -> list[str]:
    return _beginning(incomplete, _look(_team_names))


def members(incomplete: str) -> list[str]:
    return _beginning(incomplete, _look(_member_names))


def tasks(incomplete: str) -> list[str]:
    return _beginning(incomplete, _look(_task_numbers))


def unfinished_tasks(incomplete: str) -> list[str]:
    return _beginning(incomplete, _look(_unfinished_numbers))


async def _task_numbers(call: Call) -> list[str]:
    async with call.team() as team:
        return [str(task.id) for task in await team.list_tasks()]


async def _unfinished_numbers(call: Call) -> list[str]:
    from bullpen.domain.task import FINISHED

    async with call.team() as team:
        return [str(task.id) for task in await team.list_tasks() if task.status not in FINISHED]


async def _team_names(call: Call) -> list[str]:
    async with call.store() as store:
        return [team.name for team in await store.list_teams()]


async def _member_names(call: Call) -> list[str]:
    async with call.team() as team:
        return [member.name for member in await team.list_members()]


async def _request_ids(call: Call) -> list[str]:
    from bullpen.domain.member import USER

    async with call.team() as team:
        return [str(request.id) for request in await team.list_requests() if request.asked_key == USER]


def _beginning(incomplete: str, names: list[str]) -> list[str]:
    return [str(name) for name in names if name.casefold().startswith(incomplete.casefold())]


def _look(work: Callable[[Call], Coroutine[Any, Any, list[str]]]) -> list[str]:
    # Whatever goes wrong: somebody who pressed Tab is not to be told of it.
    with suppress(Exception):
        from bullpen.cli.call import Call

        call = Call(_typed_globals())
        if not call.place.url.startswith("postgres"):
            return call.run(work(call))
    return []


def _typed_globals() -> Globals:
    import shlex

    from bullpen.cli.options import Globals, hoist

    typed = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    with suppress(Exception):
        return hoist(shlex.split(typed)[1:])[0]
    return Globals()
