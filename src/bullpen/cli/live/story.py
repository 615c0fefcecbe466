"""What the console tells of an event: news in a line, and whole what is said to the human, or by them.

The log holds only beginnings of texts; the whole ones are read from where they are stored, so every terminal that
looks on tells the same, whoever hosts the team.
"""

from __future__ import annotations

from datetime import datetime

from bullpen.cli import text
from bullpen.cli.live.news import draw_news, head_of
from bullpen.cli.live.question import SHOWN_LINES, whole_text
from bullpen.cli.page import Page, Painted
from bullpen.domain.event import Event, EventKind
from bullpen.domain.member import LEAD, USER
from bullpen.domain.transcript import TurnKind
from bullpen.team import Team
from bullpen.team.progress import Progress

INDENT = 4
YOU = "you"


async def tell(page: Page, team: Team, event: Event, progress: Progress) -> None:
    """`progress` has followed this event already."""
    match event.kind:
        case EventKind.TURN_RECORDED if event.data.get("member") == LEAD:
            if event.data.get("kind_of_turn") == TurnKind.ASSISTANT:
                draw_speech(page, event.at, LEAD, "", await _said(team, int(event.data["seq"])))
        case EventKind.MESSAGE_SENT if USER in (event.actor, event.data.get("to")):
            if not event.data.get("request"):
                await _tell_message(page, team, event)
        case EventKind.REQUEST_OPENED if event.data.get("asked") == USER:
            request = await team.store.get_request(team.id, int(event.data["request"]))
            if len(whole_text(page, request.content)) > SHOWN_LINES:
                to = f"asks you ({request.kind}, request {request.id})"
                draw_speech(page, event.at, request.asker, to, request.content)
        case EventKind.REQUEST_CLOSED if event.data.get("asked") == USER and event.data.get("approved") is not None:
            verdict = Painted("yes", "green") if event.data["approved"] else Painted("no", "red")
            reason = f", {event.data['reason']}" if event.data.get("reason") else ""
            asker = Painted(f"→ {event.data['asker']} ", "dim")
            about = Painted(f": {event.data.get('text', '')}", "dim")
            page.line(*head_of(page, event.at, YOU), asker, verdict, reason, about, is_cut=True)
        case EventKind.PHASE_ENDED if event.data.get("member") == LEAD and event.data.get("why") != "error":
            # Its words have been told when it said them.
            pass
        case _:
            draw_news(page, event, progress)


async def _said(team: Team, seq: int) -> str:
    for turn in await team.store.list_turns(team.id, LEAD, after_seq=seq - 1, limit=1):
        if turn.kind == TurnKind.ASSISTANT:
            parts = turn.content["parts"]
            return "".join(str(part["text"]) for part in parts if part.get("type") == "text").strip()
    return ""


async def _tell_message(page: Page, team: Team, event: Event) -> None:
    message = await team.store.get_message(team.id, int(event.data["message"]))
    to = "" if message.recipient == USER else f"→ {message.recipient}"
    style = "red" if event.data.get("type") == "error" else ""
    draw_speech(page, event.at, message.sender, to, message.content, style=style)


def draw_speech(page: Page, at: datetime, who: str, to: str, words: str, *, style: str = "") -> None:
    """In one line if it fits, else below it, with room around."""
    if not words.strip():
        return
    head = head_of(page, at, YOU if who == USER else who)
    if to:
        head += [Painted(to, style or "dim"), " "]
    width = page.terminal.width
    used = sum(text.width_of(part if isinstance(part, str) else part.text) for part in head)
    plain = text.lines(words.strip())
    if len(plain) == 1 and (width is None or used + text.width_of(plain[0]) <= width):
        page.line(*head, Painted(plain[0], style))
        return
    page.lines.append("")
    page.line(*head)
    page.prose(words.strip(), indent=INDENT, style=style)
    page.lines.append("")
