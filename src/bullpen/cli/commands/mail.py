"""`bullpen send` and `bullpen inbox`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bullpen.cli import completion
from bullpen.cli.call import Call
from bullpen.cli.commands.number import parse_count, parse_message_id
from bullpen.cli.page import Page
from bullpen.cli.views.mail import draw_inbox, receipt_text
from bullpen.domain.codec import encode
from bullpen.domain.member import USER
from bullpen.domain.message import Receipt
from bullpen.domain.text import name_key
from bullpen.errors import NotFound, UsageError
from bullpen.team import Seat, Team
from bullpen.team.hosts import find_hosts


def send(
    ctx: typer.Context,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME TEXT",
            help="To whom, and what. Put -- before a text with words that begin with -.",
            autocompletion=completion.members,
        ),
    ],
    everyone: Annotated[bool, typer.Option("--all", help="To everyone: all words are the text.")] = False,
    reply_to: Annotated[
        str | None, typer.Option(metavar="ID", help="The message in your inbox that this answers.")
    ] = None,
) -> None:
    """Write to a member, or to everyone."""
    name, text = (None, words) if everyone else (words[0], words[1:])
    if not " ".join(text).strip():
        raise UsageError("the text is missing: bullpen send NAME TEXT, or bullpen send --all TEXT")
    if everyone and reply_to is not None:
        raise UsageError("a reply goes to one member: leave out --all or --reply-to")
    call = Call.of(ctx)
    call.run(_send(call, name, " ".join(text), None if reply_to is None else parse_message_id(reply_to)))


async def _send(call: Call, name: str | None, content: str, reply_to: int | None) -> None:
    async with call.team() as team:
        receipts = await _post(team, name, content, reply_to)
        seats = {seat.member.key: seat for seat in await team.list_seats()}
        hosts = await find_hosts(team.store, team.record)
    told = [(receipt, seats[receipt.message.recipient_key]) for receipt in receipts]
    documents = [_document(receipt, seat) for receipt, seat in told]

    def draw(page: Page) -> None:
        for receipt, seat in told:
            page.line(receipt_text(receipt, seat, has_worker=bool(hosts.hosting or hosts.willing)))

    call.show(documents if name is None else documents[0], draw)


async def _post(team: Team, name: str | None, content: str, reply_to: int | None) -> list[Receipt]:
    if name is None:
        return await team.broadcast(content)
    try:
        return [await team.send(name, content, reply_to=reply_to)]
    except NotFound as error:
        if name_key(name) == "all":
            raise NotFound(f"{error}; `bullpen send --all TEXT` writes to everyone") from error
        raise


def _document(receipt: Receipt, seat: Seat) -> dict[str, Any]:
    is_hosted = seat.worker is not None and not seat.is_dead
    return {**encode(receipt), "is_hosted": is_hosted}


def inbox(
    ctx: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Whose; without it yours.", autocompletion=completion.members)
    ] = USER,
    new: Annotated[bool, typer.Option("--new", help="Only what was not delivered yet.")] = False,
    limit: Annotated[str, typer.Option(metavar="N", help="How many, the newest.")] = "100",
) -> None:
    """Look at the mail of a member; looking never drains."""
    call = Call.of(ctx)
    call.run(_inbox(call, name, new, parse_count(limit, "--limit")))


async def _inbox(call: Call, name: str, new: bool, limit: int) -> None:
    async with call.team() as team:
        found = await team.list_mail(name, undelivered_only=new, limit=limit + 1)
    messages, has_more = found[-limit:], len(found) > limit
    call.show(messages, lambda page: draw_inbox(page, name, messages, is_new_only=new, has_more=has_more))
