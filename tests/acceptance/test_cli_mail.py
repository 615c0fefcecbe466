"""`bullpen send` and `bullpen inbox`."""

from __future__ import annotations

import asyncio
import re

import pytest
from inline_snapshot import snapshot

from bullpen.domain.member import MemberStatus
from bullpen.team import Team
from tests.acceptance.command import Bullpen


async def nothing(team: Team) -> None:
    return None


def test_send_says_that_nobody_hosts_the_recipient(bullpen: Bullpen) -> None:
    bullpen.prepare(nothing)
    assert (
        bullpen("send", "lead", "please", "begin").out == "1 to lead: queued; nobody hosts it: `bullpen resume` does\n"
    )
    sent = bullpen.read("send", "LEAD", "and hurry")
    assert (sent["message"]["content"], sent["message"]["recipient"]) == ("and hurry", "lead")
    assert (sent["outcome"], sent["is_hosted"], sent["message"]["origin"]) == ("queued", False, "human")


def test_send_says_what_becomes_of_the_message(bullpen: Bullpen) -> None:
    async def work(team: Team) -> list[str]:
        said = []
        async with team.join("cat") as cat:
            said.append((await asyncio.to_thread(bullpen, "send", "cat", "one")).out)
            await team.store.set_member_status(cat.ref, MemberStatus.IDLE)
            said.append((await asyncio.to_thread(bullpen, "send", "cat", "two")).out)
            assert [message.content for message in await cat.take_mail()] == ["one", "two"]
        said.append((await asyncio.to_thread(bullpen, "send", "cat", "three")).out)
        return said

    assert bullpen.prepare(work) == snapshot(
        [
            "1 to cat: queued, it is read after the current step\n",
            "2 to cat: queued, wakes it up\n",
            "3 to cat: kept until it joins again, it is shut down\n",
        ]
    )


def test_a_broadcast_goes_to_everyone_else(bullpen: Bullpen) -> None:
    async def work(team: Team) -> None:
        await team.spawn("ana", role="analyst")
        async with team.join("cat"):
            ran = await asyncio.to_thread(bullpen, "send", "--all", "stop", "at", "noon")
            assert [line.split(":")[0] for line in ran.lines] == ["1 to lead", "2 to ana", "3 to cat"]

    bullpen.prepare(work)
    sent = bullpen.read("send", "--all", "go")
    assert [each["message"]["recipient"] for each in sent] == ["lead", "ana", "cat"]


def test_words_after_two_dashes_are_text(bullpen: Bullpen) -> None:
    bullpen.prepare(nothing)
    bullpen("send", "lead", "--", "use", "--json", "-x")
    assert bullpen.read("inbox", "lead")[0]["content"] == "use --json -x"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["send", "zoe", "hi"], "there is no member 'zoe' in this team, nothing was sent; there are lead"),
        (["send", "lead"], "the text is missing: bullpen send NAME TEXT, or bullpen send --all TEXT"),
        (["send", "lead", "  "], "the text is missing: bullpen send NAME TEXT, or bullpen send --all TEXT"),
        (["send"], "missing argument 'NAME TEXT'; see `bullpen send --help`"),
        (["send", "lead", "x", "--reply-to", "a"], "'a' is not the number of a message; `bullpen inbox` shows them"),
        (["send", "lead", "x", "--reply-to", "7"], "there is no message 7 in the inbox of user to reply to"),
        (["send", "--all", "x", "--reply-to", "7"], "a reply goes to one member: leave out --all or --reply-to"),
        (["inbox", "zoe"], "there is no member 'zoe' in this team"),
        (["inbox", "--limit", "many"], "--limit is a number from 1 on, not 'many'"),
        (["inbox", "--limit", "0"], "--limit is a number from 1 on, not '0'"),
    ],
)  # fmt: skip
def test_what_people_mistype_gets_one_line_and_exit_2(used: Bullpen, words: list[str], line: str) -> None:
    assert used.refused(*words) == line


def test_who_writes_to_all_is_shown_how(bullpen: Bullpen) -> None:
    bullpen.prepare(nothing)
    assert bullpen.refused("send", "all", "hi").endswith("; `bullpen send --all TEXT` writes to everyone")


def test_an_inbox_is_looked_at_and_never_drained(bullpen: Bullpen) -> None:
    async def work(team: Team) -> None:
        async with team.join("cat") as cat:
            await cat.send("user", "which colour?\nred or blue")
            await team.send("cat", "blue")
            await cat.take_mail()
            await cat.broadcast("done")

    bullpen.prepare(work)
    shown = bullpen("inbox").out
    assert re.sub(r"\d\d:\d\d:\d\d", "hh:mm:ss", shown) == snapshot("""\
1 cat  hh:mm:ss  new
  which colour?
  red or blue

4 cat  hh:mm:ss, broadcast  new
  done
""")
    assert bullpen("inbox", "--new").out == shown
    assert [message["content"] for message in bullpen.read("inbox")] == ["which colour?\nred or blue", "done"]
    assert [message["delivered_at"] is None for message in bullpen.read("inbox", "cat")] == [False]
    assert bullpen("inbox", "CAT", "--new").out == "no new mail for CAT\n"
    assert bullpen("inbox", "--limit", "1").lines[0] == "the newest 1; --limit shows more"


def test_a_reply_marks_the_question_answered(bullpen: Bullpen) -> None:
    async def work(team: Team) -> None:
        async with team.join("cat") as cat:
            await cat.send("user", "which colour?")

    bullpen.prepare(work)
    bullpen("send", "cat", "blue", "--reply-to", "#1")
    assert bullpen("inbox").lines[0].endswith("new, answered")
    assert bullpen.read("inbox", "cat")[0]["reply_to"] == 1


def test_no_mail_is_said(bullpen: Bullpen) -> None:
    bullpen.prepare(nothing)
    assert bullpen("inbox").out == "no mail for user\n"
