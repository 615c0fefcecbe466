"""What may be typed after a slash: each asks the team for something, and says in a few lines what came of it."""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import NamedTuple

from bullpen.cli.commands.known import get_member
from bullpen.cli.commands.number import parse_request_id
from bullpen.cli.commands.team import look_at_team
from bullpen.cli.page import MIN_FLEXIBLE, Column, Page, Painted, Part
from bullpen.cli.text import wrapped
from bullpen.cli.views.log import draw_turn
from bullpen.cli.views.mail import draw_inbox, receipt_text
from bullpen.cli.views.task import draw_board
from bullpen.cli.views.team import draw_team
from bullpen.domain.member import LEAD, USER
from bullpen.domain.message import Receipt
from bullpen.domain.request import PermissionScope, Request, RequestKind
from bullpen.errors import UsageError
from bullpen.team import Team

SHOWN_TURNS = 20
SHOWN_MAIL = 10


class Quit(Exception):
    """The human leaves; the team rests."""


class Slash(NamedTuple):
    parameters: str
    meaning: str
    run: Callable[[Page, Team, str], Awaitable[None]]
    takes_name: bool = False


async def run_slash(page: Page, team: Team, line: str) -> None:
    """`/name rest`. UsageError says what there is instead."""
    word, _, rest = line.removeprefix("/").strip().partition(" ")
    name = ALIASES.get(word.casefold(), word.casefold())
    if name not in SLASHES:
        near = difflib.get_close_matches(name, SLASHES, n=1)
        meant = f"did you mean /{near[0]}? " if near else ""
        raise UsageError(f"there is no /{word[:40]}; {meant}/help shows what there is")
    await SLASHES[name].run(page, team, rest.strip())


def usage_of(name: str) -> str:
    return f"/{name} {SLASHES[name].parameters}".rstrip()


def slash_names() -> Iterable[tuple[str, str]]:
    return ((name, slash.meaning) for name, slash in SLASHES.items())


def takes_name(word: str) -> bool:
    """Is a name the first thing after it?"""
    slash = SLASHES.get(word.removeprefix("/"))
    return slash is not None and slash.takes_name


# -- looking -----------------------------------------------------------------------------------------------------


async def _team(page: Page, team: Team, rest: str) -> None:
    draw_team(page, await look_at_team(team))


async def _tasks(page: Page, team: Team, rest: str) -> None:
    tasks = await team.list_tasks()
    draw_board(page, tasks, {task.id: task for task in tasks})


async def _inbox(page: Page, team: Team, rest: str) -> None:
    name = (await get_member(team, rest.removeprefix("@"))).name if rest else USER
    found = await team.list_mail(name, limit=SHOWN_MAIL + 1)
    messages, has_more = found[-SHOWN_MAIL:], len(found) > SHOWN_MAIL
    draw_inbox(page, name, messages, is_new_only=False, has_more=has_more)


async def _log(page: Page, team: Team, rest: str) -> None:
    member = await get_member(team, rest.removeprefix("@") or LEAD)
    turns = await team.list_turns(member.name)
    if not turns:
        page.line(f"{member.name} has said and heard nothing yet")
    for turn in turns[-SHOWN_TURNS:]:
        draw_turn(page, turn, is_full=False)


async def _cost(page: Page, team: Team, rest: str) -> None:
    from bullpen.cli.views.cost import draw_cost
    from bullpen.team.spending import look_at_spending

    draw_cost(page, await look_at_spending(team))


async def _help(page: Page, team: Team, rest: str) -> None:
    rows = [(usage_of(name), slash.meaning) for name, slash in SLASHES.items()]
    rows += [
        ("@name text", "write to that member"),
        ("Esc", "interrupt the lead; what is typed reaches it at once"),
        ("Ctrl-C", "leave: the team rests, nothing is lost; again: at once"),
        ("Alt-Enter", "a new line"),
    ]
    page.table((Column("TYPE"), Column("AND", is_flexible=True)), [*_whole(page, rows)])


def _whole(page: Page, rows: list[tuple[str, str]]) -> Iterator[tuple[Part, Part]]:
    """Each on as many lines as it takes: a table would cut what is too long, and help that is cut is none."""
    width = page.terminal.width
    room = None if width is None else max(MIN_FLEXIBLE, width - max(len(usage) for usage, _ in rows) - 2)
    for usage, says in rows:
        first, *more = [says] if room is None else wrapped(says, room)
        yield Painted(usage, "bold"), first
        yield from (("", piece) for piece in more)


# -- writing -----------------------------------------------------------------------------------------------------


async def _send(page: Page, team: Team, rest: str) -> None:
    name, _, content = rest.partition(" ")
    if not content.strip():
        raise UsageError(f"to whom, and what? {usage_of('send')}")
    await _say_receipt(page, team, await team.send(name.removeprefix("@"), content.strip()))


async def _say_receipt(page: Page, team: Team, receipt: Receipt) -> None:
    """Only where something is not as one would think."""
    if receipt.outcome == "queued":
        return
    seats = {seat.member.key: seat for seat in await team.list_seats()}
    page.line(Painted(receipt_text(receipt, seats[receipt.message.recipient_key], has_worker=True), "dim"))


async def _broadcast(page: Page, team: Team, rest: str) -> None:
    if not rest:
        raise UsageError(f"what is everyone to read? {usage_of('broadcast')}")
    for receipt in await team.broadcast(rest):
        await _say_receipt(page, team, receipt)


# -- answering ---------------------------------------------------------------------------------------------------


async def _approve(page: Page, team: Team, rest: str) -> None:
    request, words = await _request(team, rest, "approve")
    scope = None
    if request.kind is RequestKind.PERMISSION:
        first, _, others = words.partition(" ")
        known = first.casefold() in tuple(PermissionScope)
        scope = PermissionScope(first.casefold()) if known else PermissionScope.ONCE
        words = others if known else words
    await team.approve(request.id, reason=words.strip(), scope=scope)


async def _reject(page: Page, team: Team, rest: str) -> None:
    request, words = await _request(team, rest, "reject")
    await team.reject(request.id, reason=words)


async def _request(team: Team, rest: str, verb: str) -> tuple[Request, str]:
    """The one that is meant, without a number the oldest open one; and the words after it."""
    asked = [request for request in await team.list_requests() if request.asked_key == USER]
    number, _, words = rest.partition(" ")
    if not number.removeprefix("#").isdigit():
        if not asked:
            raise UsageError("nobody asks you anything just now")
        return asked[0], rest
    wanted = parse_request_id(number)
    found = next((request for request in asked if request.id == wanted), None)
    if found is None:
        there = ", ".join(str(request.id) for request in asked)
        raise UsageError(
            f"request {wanted} is not open" + (f"; open are {there}: {usage_of(verb)}" if there else "; none is")
        )
    return found, words.strip()


# -- steering ----------------------------------------------------------------------------------------------------


async def _interrupt(page: Page, team: Team, rest: str) -> None:
    name, _, content = rest.partition(" ")
    member = await get_member(team, name.removeprefix("@") or LEAD)
    interrupted = await team.interrupt(member.name, content.strip())
    if not interrupted.is_up:
        page.line(Painted(f"{member.name} does nothing just now (it is {interrupted.status})", "dim"))


async def _pause(page: Page, team: Team, rest: str) -> None:
    await team.pause()
    page.line("paused: nobody asks a model, what runs is finished; /resume goes on")


async def _resume(page: Page, team: Team, rest: str) -> None:
    await team.unpause()
    await team.wake_up()
    page.line("the team goes on")


async def _stop(page: Page, team: Team, rest: str) -> None:
    if rest:
        member = await get_member(team, rest.removeprefix("@"))
        await team.shut_down(member.name, reason="the human asks for it")
        page.line(f"{member.name} is asked to shut down")
        return
    asked = await team.stop()
    page.line(f"asked to shut down: {', '.join(request.asked for request in asked)}" if asked else "nobody is up")
    page.line(Painted("/resume, or a word to the lead, brings them back with their memory", "dim"))


async def _compact(page: Page, team: Team, rest: str) -> None:
    name, _, focus = rest.partition(" ")
    member = await team.compact(name.removeprefix("@") or LEAD, focus)
    page.line(f"{member.name} compresses its memory before its next request")


async def _quit(page: Page, team: Team, rest: str) -> None:
    raise Quit


SLASHES = {
    "team": Slash("", "who is in the team and alive, its mail and open requests", _team),
    "tasks": Slash("", "the board", _tasks),
    "inbox": Slash("[name]", "the mail of a member; without a name yours", _inbox, takes_name=True),
    "send": Slash("name text", "write to a member", _send, takes_name=True),
    "broadcast": Slash("text", "write to everyone", _broadcast),
    "approve": Slash("[number] [once|team|always]", "say yes to a request; without a number the oldest", _approve),
    "reject": Slash("[number] [why]", "say no to a request", _reject),
    "interrupt": Slash("[name] [text]", "cut off what a member does just now", _interrupt, takes_name=True),
    "pause": Slash("", "nobody asks a model until /resume", _pause),
    "log": Slash("[name]", "what a member said, did and was told", _log, takes_name=True),
    "cost": Slash("", "what was spent, by whom", _cost),
    "compact": Slash("[name] [focus]", "have a memory compressed, keeping what concerns the focus", _compact, True),
    "stop": Slash("[name]", "ask a member, or everyone, to shut down", _stop, takes_name=True),
    "resume": Slash("", "go on after /pause or /stop", _resume),
    "help": Slash("", "this list", _help),
    "quit": Slash("", "leave; the team rests until somebody comes back", _quit),
}
ALIASES = {"exit": "quit", "q": "quit", "unpause": "resume", "board": "tasks", "?": "help", "h": "help"}
