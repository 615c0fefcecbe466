"""`bullpen chat` as a person at a terminal sees it: typing, answering, leaving, coming back, two at once."""

from __future__ import annotations

import asyncio

import pytest

from bullpen.cli.live.slash import SLASHES
from bullpen.domain.member import USER
from bullpen.domain.request import RequestKind
from bullpen.domain.task import TaskStatus
from bullpen.team import Team
from tests.acceptance.command import Bullpen
from tests.acceptance.scripts import ASKS, FREE, WAITS, go, scripted
from tests.acceptance.tty import CTRL_C, CTRL_D, ENTER, ESCAPE, TAB, UP, Tty
from tests.support.protocol_server import Halt, ProtocolServer

HELLO = """
[[members.lead]]
say = "Hello, who are you?"
[[members.lead]]
say = "Nice to meet you, Kim."
"""

AT_WORK = f"""
[[members.lead]]
say = "I begin."
calls = [{{ name = "bash", arguments = {{ command = "{WAITS}" }} }}]
[[members.lead]]
when = {{ newest = "in blue" }}
say = "Blue it is."
[[members.lead]]
say = "Finished."
"""

ANA_WORKS = f"""
[[members.lead]]
say = "Ana does it."
calls = [
    {{ name = "TaskCreate", arguments = {{ subject = "Analyse the endpoints" }} }},
    {{ name = "Task", arguments = {{ name = "ana", role = "analyst", prompt = "Take what is on the board." }} }},
]
[[members.lead]]
say = "She is at it."
[[members.lead]]
when = {{ newest = "All tasks are finished" }}
say = "It is done."
[[members.ana]]
calls = [{{ name = "bash", arguments = {{ command = "{WAITS}" }} }}]
[[members.ana]]
calls = [{{ name = "TaskUpdate", arguments = {{ taskId = "1", status = "completed", result = "three of them" }} }}]
[[members.ana]]
say = "There are three."
"""

PUSHES = """
[[members.lead]]
calls = [{ name = "bash", arguments = { command = "echo pushed >> log" } }]
[[members.lead]]
calls = [{ name = "bash", arguments = { command = "echo again >> log" } }]
[[members.lead]]
say = "That was it."
"""

NAMES_AND_DELETES = """
[[members.lead]]
calls = [{ name = "TeamCreate", arguments = { name = "library" } }]
[[members.lead]]
say = "It is the library now."
[[members.lead]]
calls = [{ name = "TeamDelete", arguments = {} }]
[[members.lead]]
say = "Farewell."
"""


# -- talking -------------------------------------------------------------------------------------------


def test_chat_begins_a_team_whose_lead_waits_for_the_first_word_and_answers_it(bullpen: Bullpen) -> None:
    scripted(bullpen, HELLO)
    with Tty(bullpen, "chat") as tty:
        tty.until("○ lead  idle")
        assert "created team 'default'" in tty.text
        assert "0 tokens" in tty.text
        tty.enter("Good morning")
        tty.until("you       → lead Good morning")
        tty.until("Hello, who are you?")
        tty.enter("Kim")
        tty.until("Nice to meet you, Kim.")
        tty.enter("/quit")
        assert tty.ended() == 0
        assert "bullpen chat --team default" in tty.text
        assert tty.typed == ""


def test_what_is_typed_while_the_lead_works_reaches_it_before_it_goes_on(bullpen: Bullpen) -> None:
    scripted(bullpen, AT_WORK)
    with Tty(bullpen, "chat") as tty:
        tty.until("○ lead")
        tty.enter("Paint it")
        tty.until("● lead  bash until")
        tty.enter("in blue please")
        tty.until("you       → lead in blue please")
        go(bullpen)
        tty.until("Blue it is.")


def test_a_line_that_is_being_typed_survives_whatever_happens_meanwhile(bullpen: Bullpen) -> None:
    scripted(bullpen, ANA_WORKS)
    with Tty(bullpen, "chat") as tty:
        tty.until("○ lead")
        tty.enter("Analyse it")
        tty.until("● ana")
        tty.type("half a thou")
        tty.until(lambda seen: seen.typed == "> half a thou")
        go(bullpen)
        # What is told is written above the picture, which is drawn again below it: both are waited for.
        tty.until(lambda seen: "lead      It is done." in seen.text and seen.typed == "> half a thou")
        assert tty.text.count("half a thou") == 1
        tty.enter("ght")
        tty.until("you       → lead half a thought")


def test_a_text_of_several_lines_is_told_whole_and_nothing_in_it_steers_the_terminal(bullpen: Bullpen) -> None:
    scripted(bullpen, '[[members.lead]]\nsay = "First line.\\n  indented \\u001b]0;title\\u0007\\nlast line"')
    with Tty(bullpen, "chat") as tty:
        tty.until("○ lead")
        tty.enter("Tell me")
        seen = tty.until("\n    last line")
        assert "\n    First line.\n      indented \\x1b]0;title\\x07\n    last line" in seen
        assert b"\x1b]0;" not in tty.raw


async def test_what_the_lead_says_is_shown_while_it_says_it_and_once_when_it_is_said(bullpen: Bullpen) -> None:
    halt = Halt(events=5)
    async with ProtocolServer(lambda heard: "It grows on the screen, word by word, to its end.") as server:
        server.inject(halt)
        # The libraries of models as they were compiled when they were installed: that takes long.
        bullpen.environment |= server.environ
        (bullpen.directory / "bullpen.toml").write_text('model = "anthropic:claude-sonnet-5"\n' + FREE)
        with Tty(bullpen, "chat") as tty:
            await asyncio.to_thread(tty.until, "○ lead")
            tty.enter("Tell me")
            await asyncio.to_thread(tty.until, "lead …\n  It grows on")
            assert "to its end" not in tty.text
            halt.until.set()
            await asyncio.to_thread(tty.until, "lead      It grows on the screen, word by word, to its end.")
            await asyncio.to_thread(tty.until, lambda seen: "○ lead  idle" in seen.lines)
            assert tty.text.count("It grows on") == 1


def test_leaving_and_coming_back_finds_the_team_and_what_was_said(bullpen: Bullpen) -> None:
    scripted(bullpen, HELLO)
    with Tty(bullpen, "chat") as tty:
        tty.until("○ lead")
        tty.enter("Good morning")
        # Told, not only shown while it is said: so it is stored.
        tty.until("lead      Hello, who are you?")
        tty.type(CTRL_D)
        assert tty.ended() == 0
    with Tty(bullpen, "chat") as tty:
        # Who there is may be drawn before the past is told.
        tty.until(lambda seen: "○ lead" in seen.text and "lead      Hello, who are you?" in seen.text)
        tty.type(UP)
        tty.until(lambda seen: seen.typed == "> Good morning")
        tty.type(CTRL_C)
        assert tty.ended() == 130
        assert "not sent: Good morning" in tty.text


def test_a_team_that_its_lead_names_anew_and_deletes_is_shown_as_what_it_is(bullpen: Bullpen) -> None:
    scripted(bullpen, NAMES_AND_DELETES)
    with Tty(bullpen, "chat") as tty:
        tty.until("── default ")
        tty.enter("Begin")
        tty.until("── library ")
        tty.until("It is the library now.")
        tty.enter("That is all")
        tty.until("the team has been deleted: /quit")
        tty.until("Farewell.")
        tty.enter("Are you there?")
        tty.until("bullpen: team 'library' has been deleted")
        tty.enter("/quit")
        assert tty.ended() == 0


# -- slash commands --------------------------------------------------------------------------------------


def test_every_slash_command_answers(bullpen: Bullpen) -> None:
    scripted(bullpen, ANA_WORKS + '[[members."*"]]\nsay = "Yes."\nrepeat = true\n')
    with Tty(bullpen, "chat", columns=120, rows=50) as tty:
        tty.until("○ lead")
        tty.enter("Analyse it")
        tty.until("● ana  analyst  bash until")
        for line, answer in (
            ("/tasks", "● in progress  ana"),
            ("/team", "MEMBER  ROLE"),
            ("/inbox", "no mail for user"),
            ("/inbox @ana", "no mail for ana"),
            ("/inbox lead", "user (human)"),
            ("/send ana be quick", "you       → ana be quick"),
            ("@ana and thorough", "you       → ana and thorough"),
            ("/broadcast tea is ready", "you       → ana tea is ready"),
            ("/approve", "nobody asks you anything"),
            ("/reject 7", "request 7 is not open"),
            ("/log", "calls TaskCreate"),
            ("/log @ana", "calls bash"),
            ("/cost", "coordination"),
            ("/compact ana the schema", "ana compresses its memory before its next request"),
            ("/pause", "paused: nobody asks a model"),
            ("/resume", "the team goes on"),
            ("/interrupt ana", "ana       is interrupted"),
            ("/help", "Alt-Enter"),
            ("/taks", "there is no /taks; did you mean /tasks? /help shows what there is"),
            ("/send", "to whom, and what? /send name text"),
            ("/send bob hello", "there is no member 'bob'"),
            ("/stop", "asked to shut down: lead, ana"),
        ):
            tty.enter(line)
            tty.until(answer)
        assert all(f"/{name}" in tty.text for name in SLASHES)
        tty.until("lead      shuts down")
        tty.enter("Are you there?")
        tty.until("lead      is back on worker")
        tty.enter("/quit")
        assert tty.ended() == 0


def test_help_is_whole_at_eighty_columns(bullpen: Bullpen) -> None:
    scripted(bullpen, HELLO)
    with Tty(bullpen, "chat", columns=80, rows=50) as tty:
        tty.until("○ lead")
        tty.enter("/help")
        tty.until("Alt-Enter")
        assert "…" not in tty.text
        assert all(word in tty.text for slash in SLASHES.values() for word in slash.meaning.split())


def test_tab_completes_slash_commands_and_names(bullpen: Bullpen) -> None:
    scripted(bullpen, HELLO)
    bullpen.prepare(lambda team: team.spawn("anastasia", role="analyst"))
    with Tty(bullpen, "chat") as tty:
        tty.until("anastasia")
        tty.type("/b")
        tty.until(lambda seen: "  /broadcast" in seen.lines)
        tty.type(TAB)
        tty.until(lambda seen: seen.typed == "> /broadcast")
        tty.type("\x15@an" + TAB)
        tty.until(lambda seen: seen.typed == "> @anastasia")
        tty.type("\x15/inbox an" + TAB)
        tty.until(lambda seen: seen.typed == "> /inbox anastasia")


# -- interrupting and answering --------------------------------------------------------------------------


def test_esc_cuts_the_lead_off_and_what_was_typed_reaches_it_at_once(bullpen: Bullpen) -> None:
    scripted(bullpen, AT_WORK)
    with Tty(bullpen, "chat") as tty:
        tty.until("○ lead")
        tty.type(ESCAPE)
        tty.until("lead is not at work")
        tty.enter("Paint it")
        tty.until("● lead  bash until")
        tty.type("in blue")
        tty.until(lambda seen: seen.typed == "> in blue")
        tty.type(ESCAPE)
        tty.until("lead      is interrupted")
        tty.until(lambda seen: "lead      Blue it is." in seen.text and seen.typed == ">")


def test_a_permission_is_given_or_refused_with_a_key(bullpen: Bullpen) -> None:
    scripted(bullpen, PUSHES, settings=ASKS)
    with Tty(bullpen, "chat") as tty:
        tty.until("○ lead")
        tty.enter("Push it")
        tty.until("? lead asks you (permission, request 1)")
        # The last line of the question, which is drawn from above.
        tty.until("[y] yes, once   [t] for this team   [a] always   [n] no")
        assert "echo pushed >> log" in tty.text
        tty.type("y")
        tty.until("you       → lead yes: lead wants to use bash: echo pushed")
        # Keys count once they are offered, and below the second question.
        tty.until(lambda seen: "[n] no" in seen.text.partition("request 2")[2])
        tty.type("n")
        tty.until("you       → lead no: lead wants to use bash: echo again")
        tty.until("That was it.")
    assert (bullpen.directory / "log").read_text() == "pushed\n"


def test_a_question_that_comes_up_while_one_types_is_not_answered_by_what_is_typed(bullpen: Bullpen) -> None:
    scripted(bullpen, PUSHES, settings=ASKS)
    with Tty(bullpen, "chat") as tty:
        tty.until("○ lead")
        tty.type("Push it" + ENTER + "try ")
        tty.until("? lead asks you (permission, request 1)")
        tty.type("any")
        tty.until(lambda seen: seen.typed == "> try any")
        assert "/approve 1" in tty.text
        assert "[y]" not in tty.text
    assert not (bullpen.directory / "log").exists()


def test_a_plan_put_to_the_human_is_shown_whole_and_rejected_with_a_reason(bullpen: Bullpen) -> None:
    scripted(bullpen, HELLO)
    plan = "\n".join(f"Step {number} of the plan." for number in range(1, 9))
    with Tty(bullpen, "chat") as tty:
        tty.until("○ lead")

        async def ask(team: Team) -> None:
            async with team.join("cat") as me:
                await team.store.open_request(me.ref, RequestKind.PLAN, USER, content=plan)
                # Beside the loop, which renews the lease of who asks.
                await asyncio.to_thread(answer)

        def answer() -> None:
            tty.until("[n] no, because …")
            assert "    Step 8 of the plan." in tty.text
            tty.type("n")
            tty.until(lambda seen: seen.typed == "> /reject 1")
            tty.enter("too long")
            tty.until("you       → cat no, too long")

        bullpen.prepare(ask)


# -- two terminals -----------------------------------------------------------------------------------------


def test_a_second_terminal_looks_on_writes_and_takes_over_when_the_first_one_ends(bullpen: Bullpen) -> None:
    scripted(bullpen, AT_WORK)
    with Tty(bullpen, "chat") as first:
        first.until("○ lead")
        first.enter("Paint it")
        first.until("● lead  bash until")
        with Tty(bullpen, "chat") as second:
            second.until("hosted by pid")
            assert "I begin." in second.text
            second.enter("in blue please")
            first.until("you       → lead in blue please")
            first.kill()
            second.until("lead      is back on worker")
            second.until("Blue it is.")
            second.until(lambda seen: "hosted by pid" not in seen.lines[-1])


def test_a_terminal_that_can_ask_no_model_looks_on_and_says_when_nobody_hosts_the_team(bullpen: Bullpen) -> None:
    scripted(bullpen, HELLO)
    with Tty(bullpen, "chat") as first:
        first.until("○ lead")
        (bullpen.directory / "script.toml").unlink()
        with Tty(bullpen, "chat") as second:
            second.until("hosted by pid")
            first.enter("/quit")
            assert first.ended() == 0
            second.until("nobody hosts it now")
            second.type(CTRL_D)
            assert second.ended() == 0


# -- what it needs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["chat"], ["chat", "--json"]])
def test_chat_without_a_terminal_is_refused_in_one_line(bullpen: Bullpen, words: list[str]) -> None:
    ran = bullpen(*words, code=2)
    assert "chat needs a terminal: from anywhere else `bullpen send lead TEXT` writes to the lead" in ran.err
    assert len(ran.err.splitlines()) == 1


def test_chat_on_a_terminal_that_cannot_move_its_cursor_is_refused_in_one_line(bullpen: Bullpen) -> None:
    with Tty(bullpen, "chat", columns=200, TERM="dumb") as tty:
        assert tty.ended() == 2
        assert "chat needs a terminal" in tty.text


def test_chat_without_a_model_says_what_to_set(bullpen: Bullpen) -> None:
    bullpen.environment = {key: value for key, value in bullpen.environment.items() if not key.endswith("_API_KEY")}
    with Tty(bullpen, "chat", columns=200) as tty:
        assert tty.ended() == 2
        assert "no model is set: set ANTHROPIC_API_KEY or OPENAI_API_KEY" in tty.text
    assert bullpen.read("team", "list") == []


def test_without_colours_nothing_is_coloured(bullpen: Bullpen) -> None:
    scripted(bullpen, HELLO)
    with Tty(bullpen, "chat", NO_COLOR="1") as tty:
        tty.until("○ lead")
        tty.enter("Good morning")
        tty.until("Hello, who are you?")
        tty.type(CTRL_D)
        assert tty.ended() == 0
        assert not any(code in tty.raw for code in (b"[31m", b"[32m", b"[33m", b"[36m", b"[1m", b"[2m", b"[38;"))


def test_tasks_that_the_human_adds_from_elsewhere_appear_as_they_come(bullpen: Bullpen) -> None:
    scripted(bullpen, HELLO)
    with Tty(bullpen, "chat") as tty:
        tty.until("○ lead")
        bullpen("task", "add", "Water the plants")
        tty.until("adds #1 Water the plants")
        tty.until("0/1 tasks")
        [task] = bullpen.read("task", "list")
        assert task["status"] == TaskStatus.PENDING
