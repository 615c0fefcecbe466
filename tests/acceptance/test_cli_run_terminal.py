"""`bullpen run` and `bullpen resume` on a terminal: a chat with a goal, that ends with its report."""

from __future__ import annotations

import pytest

from tests.acceptance.command import Bullpen
from tests.acceptance.scripts import WAITS, go, scripted
from tests.acceptance.tty import CTRL_C, Tty

TWO_TASKS = f"""
[[members.lead]]
say = "Two tasks for ana."
calls = [
    {{ name = "TaskCreate", arguments = {{ subject = "Analyse the endpoints of the whole service" }} }},
    {{ name = "TaskCreate", arguments = {{ subject = "Design the schema", blockedBy = [1] }} }},
    {{ name = "Task", arguments = {{ name = "ana", role = "analyst", prompt = "Take what is on the board." }} }},
]
[[members.lead]]
say = "She is at it."
[[members.lead]]
when = {{ newest = "All tasks are finished" }}
say = "Both are done."
[[members.lead]]
say = "I see."
repeat = true
[[members.ana]]
when = {{ newest = '<task id="1"' }}
repeat = true
calls = [{{ name = "bash", arguments = {{ command = "{WAITS}; echo waited" }} }}]
[[members.ana]]
when = {{ newest = "interrupted" }}
repeat = true
calls = [{{ name = "bash", arguments = {{ command = "{WAITS}; echo waited" }} }}]
[[members.ana]]
when = {{ newest = "waited" }}
repeat = true
calls = [{{ name = "TaskUpdate", arguments = {{ taskId = "1", status = "completed", result = "three of them" }} }}]
[[members.ana]]
when = {{ newest = '<task id="2"' }}
repeat = true
calls = [{{ name = "TaskUpdate", arguments = {{ taskId = "2", status = "completed", result = "written" }} }}]
[[members.ana]]
say = "Done with it."
repeat = true
"""


ASKS_FOR_COLOUR = """
[[members.lead]]
calls = [{ name = "SendMessage", arguments = { recipient = "user", content = "Which colour?" } }]
[[members.lead]]
say = "I wait for you."
[[members.lead]]
when = { newest = "Blue" }
say = "Then it is blue."
"""


def rules(tty: Tty) -> list[str]:
    """The lines that open the picture: there is never more than one."""
    return [line for line in tty.lines if line.startswith("── ")]


def lines_below_the_rule(tty: Tty) -> list[str]:
    lines = tty.lines
    return lines[lines.index(rules(tty)[0]) + 1 :]


def picture_of_ana_at_work(tty: Tty) -> bool:
    """One line a member, since a line that is too wide would go on in the next one; then the one typed in."""
    if len(rules(tty)) != 1 or len(below := lines_below_the_rule(tty)) < 2:
        return False
    lead, ana = below[:2]
    return (
        lead.split() == ["○", "lead", "idle"] and ana.startswith("● ana") and "#1 Analyse" in ana and tty.typed == ">"
    )


def test_a_run_shows_how_it_stands_and_ends_with_its_report(bullpen: Bullpen) -> None:
    scripted(bullpen, TWO_TASKS)
    with Tty(bullpen, "run", "Migrate the service", rows=40) as tty:
        tty.until("● ana  analyst  bash until")
        # The picture may be ahead of what is told above it.
        tty.until("takes #1 Analyse the endpoints of the whole service")
        tty.until(lambda seen: any("0/2 tasks" in rule for rule in rules(seen)))
        go(bullpen)
        assert tty.ended() == 0
        assert "migrate-the-service: done" in tty.text
        assert "✓ #2 Design the schema: written" in tty.text
        assert rules(tty) == []
        assert tty.typed == ""


def test_the_picture_fits_a_narrow_terminal_and_one_that_grows(bullpen: Bullpen) -> None:
    scripted(bullpen, TWO_TASKS)
    with Tty(bullpen, "run", "Migrate the service", columns=40) as tty:
        # ana may be at work before the lead has gone idle; and a screen may be read while it is drawn.
        tty.until(picture_of_ana_at_work)
        [rule] = rules(tty)
        assert "0/2" in rule
        assert "$0.00" in rule
        tty.resize(120, 30)
        tty.until(lambda seen: picture_of_ana_at_work(seen) and len(rules(seen)[0]) > 100)


def test_ctrl_c_lets_the_team_rest_and_resume_finishes_it(bullpen: Bullpen) -> None:
    scripted(bullpen, TWO_TASKS)
    with Tty(bullpen, "run", "Migrate the service") as tty:
        tty.until("● ana  analyst  bash until")
        tty.type(CTRL_C)
        tty.until("resting after the steps under way")
        go(bullpen)
        assert tty.ended() == 130
        assert "`bullpen resume migrate-the-service` goes on" in tty.text.replace("\n", "")
        assert rules(tty) == []
    with Tty(bullpen, "resume", rows=60) as tty:
        assert tty.ended() == 0
        assert "Two tasks for ana." in tty.text
        assert "migrate-the-service: done" in tty.text


def test_ctrl_c_twice_leaves_at_once_and_loses_nothing(bullpen: Bullpen) -> None:
    scripted(bullpen, TWO_TASKS)
    with Tty(bullpen, "run", "Migrate the service") as tty:
        tty.until("● ana  analyst  bash until")
        tty.type(CTRL_C)
        tty.until("Ctrl-C again ends")
        tty.type(CTRL_C)
        assert tty.ended() == 130
    go(bullpen)
    with Tty(bullpen, "resume", rows=60) as tty:
        assert tty.ended() == 0
        assert "migrate-the-service: done" in tty.text


def test_ctrl_c_twice_in_a_moment_gives_the_terminal_back(bullpen: Bullpen) -> None:
    scripted(bullpen, TWO_TASKS)
    with Tty(bullpen, "run", "Migrate the service") as tty:
        tty.until("● ana  analyst  bash until")
        assert not tty.echoes()
        tty.type(CTRL_C + CTRL_C)
        assert tty.ended() == 130
        assert tty.echoes()
        assert tty.lines[-1] == "bullpen: left at once: `bullpen resume migrate-the-service` goes on"


@pytest.mark.parametrize("terminal", ["xterm-256color", "dumb"])
def test_a_terminal_that_is_closed_lets_the_team_rest_and_resume_finishes_it(bullpen: Bullpen, terminal: str) -> None:
    scripted(bullpen, TWO_TASKS)
    with Tty(bullpen, "run", "Migrate the service", TERM=terminal) as tty:
        tty.until("● ana  analyst  bash until" if terminal != "dumb" else "ana")
        exit_code = tty.hang_up()
        go(bullpen)
        assert exit_code() == 130
    assert "WorkerLapsed" not in bullpen("events", "migrate-the-service").out, "it left in good order"
    with Tty(bullpen, "resume", rows=60) as tty:
        assert tty.ended() == 0
        assert "migrate-the-service: done" in tty.text


def test_a_question_of_the_lead_is_answered_in_the_running_run(bullpen: Bullpen) -> None:
    scripted(bullpen, ASKS_FOR_COLOUR)
    with Tty(bullpen, "run", "Paint it") as tty:
        tty.until("Which colour?")
        tty.until(lambda seen: "I wait for you." in seen.text and "○ lead  idle" in seen.lines)
        tty.enter("Blue")
        assert tty.ended() == 0
        assert "you       → lead Blue" in tty.text
        assert "Then it is blue." in tty.text


def test_on_a_dumb_terminal_a_run_prints_plain_lines(bullpen: Bullpen) -> None:
    scripted(bullpen, '[[members.lead]]\nsay = "It is painted."')
    with Tty(bullpen, "run", "Paint it", TERM="dumb") as tty:
        assert tty.ended() == 0
        assert "paint: done" in tty.text
        assert b"\x1b" not in tty.raw
