"""Messages, and what a sender is told."""

from __future__ import annotations

from collections.abc import Sequence

from bullpen.cli.page import Page, Painted
from bullpen.cli.views.moment import clock
from bullpen.domain.member import MemberKind, MemberStatus
from bullpen.domain.message import Message, MessageType, Origin, Receipt
from bullpen.team import Seat

NOBODY = "nobody hosts it: `bullpen resume` does"


def draw_inbox(page: Page, name: str, messages: Sequence[Message], *, is_new_only: bool, has_more: bool) -> None:
    if not messages:
        page.line(f"no {'new ' if is_new_only else ''}mail for {name}")
        return
    if has_more:
        page.line(Painted(f"the newest {len(messages)}; --limit shows more", "dim"))
    for message in messages:
        page.gap()
        _draw_message(page, message)


def _draw_message(page: Page, message: Message) -> None:
    now = page.terminal.now
    # Only the runtime knows who is human: it is said of each message, whatever its text claims.
    origin = "" if message.origin is Origin.AGENT or message.sender == message.origin else f" ({message.origin})"
    facts = [clock(message.sent_at, now)]
    if message.type is not MessageType.MESSAGE:
        facts.append(message.type.replace("_", " "))
    if message.request_id is not None:
        facts.append(f"request {message.request_id}")
    if message.reply_to is not None:
        facts.append(f"reply to {message.reply_to}")
    state = Painted("new", "yellow") if message.delivered_at is None else Painted("delivered", "dim")
    answered = "" if message.answered_at is None else ", answered"
    page.line(
        Painted(f"{message.id} ", "dim"),
        Painted(message.sender, "bold"),
        f"{origin}  ",
        Painted(", ".join(facts), "dim"),
        "  ",
        state,
        Painted(answered, "dim"),
    )
    page.block(message.content)


def receipt_text(receipt: Receipt, seat: Seat, *, has_worker: bool) -> str:
    """One line: that it is stored, and what that means for its recipient. `has_worker`: some process hosts members."""
    return f"{receipt.message.id} to {receipt.message.recipient}: {_meaning(receipt, seat, has_worker)}"


def _meaning(receipt: Receipt, seat: Seat, has_worker: bool) -> str:
    member = seat.member
    if receipt.outcome == "kept":
        back = "joins again" if member.kind is MemberKind.EXTERNAL else "comes back"
        return f"kept until it {back}, it is shut down"
    if member.kind is MemberKind.USER:
        return "in the inbox"
    nobody = "nobody hosts it just now, a worker is to take it" if has_worker else NOBODY
    if receipt.outcome == "revives":
        return f"queued, wakes it up again; {nobody}"
    if seat.worker is None:
        return f"queued; {nobody}"
    if seat.is_dead:
        return "queued; its process is dead, it is read when another one hosts it"
    if member.status is MemberStatus.IDLE:
        return "queued, wakes it up"
    return "queued, it is read after the current step"
