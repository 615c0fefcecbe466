"""`bullpen log`: a member's transcript for people."""

from __future__ import annotations

import json
import re
import signal

import pytest
from inline_snapshot import snapshot

from bullpen.team import Team
from tests.acceptance.command import BOUND_SECONDS, Bullpen, read_line
from tests.acceptance.plays import FINISHES, TEAM, at_work, play


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Bullpen:
    bullpen = Bullpen(tmp_path_factory.mktemp("finished"))
    play(bullpen, FINISHES)
    return bullpen


def test_what_it_was_told_said_called_and_got(finished: Bullpen) -> None:
    shown = re.sub(r"\d\d:\d\d:\d\d", "HH:MM:SS", finished("log", "ana").out)
    assert "\n".join(line[:100] for line in shown.splitlines()) == snapshot("""\
   1 HH:MM:SS told
      <team>The lead is `lead`. Teammates: none yet. The human is `user`.</team>

      <instructions>Take what is on the board.</instructions>

      <task id="1">
      Analyse the endpoints
      … 1 more line; --full shows all
   2 HH:MM:SS says
      I count.
   2 HH:MM:SS calls bash
      command: seq 1 9
   3 HH:MM:SS bash gave
      1
      2
      3
      4
      5
      6
      … 4 more lines; --full shows all
   4 HH:MM:SS calls TaskUpdate
      taskId: 1
      status: completed
      result: three endpoints
   5 HH:MM:SS TaskUpdate gave
      #1 [completed, owner ana] Analyse the endpoints
   6 HH:MM:SS says
      The first is done.
   7 HH:MM:SS told
      <task id="2">
      Write them down

      Check (must exit 0 before this is completed): test -s notes.txt

      <result task="1" by="ana">three endpoints</result>
      … 1 more line; --full shows all
   8 HH:MM:SS calls TaskUpdate
      taskId: 2
      status: completed
      result: too early
   9 HH:MM:SS TaskUpdate failed
      the check of #2 failed with exit code 1: it is not completed and stays yours. Repair what is w
      (it printed nothing)
  10 HH:MM:SS calls write_file
      path: notes.txt
      content:
      a
      b
      c
  11 HH:MM:SS write_file gave
      created notes.txt (3 lines, 6 bytes)
  12 HH:MM:SS calls TaskUpdate
      taskId: 2
      status: completed
      result: notes.txt, three lines
  13 HH:MM:SS TaskUpdate gave
      #2 [completed, owner ana] Write them down
  14 HH:MM:SS says
      Both are done.\
""")


def test_mail_says_who_wrote_and_whether_it_is_the_human(finished: Bullpen) -> None:
    shown = finished("log", "LEAD").out
    assert re.search(r"mail \d+ from user \(human\)\n      Analyse\n", shown)
    assert re.search(r"mail \d+ from system \(system, notice\)\n      All tasks are finished: 2 completed\.\n", shown)


def test_full_cuts_nothing(finished: Bullpen) -> None:
    assert "more lines; --full shows all" in finished("log", "ana").out
    shown = finished("log", "ana", "--full").out
    assert "      1\n      2\n      3\n      4\n      5\n      6\n      7\n      8\n      9\n" in shown
    assert "--full" not in shown


def test_the_newest_are_shown_and_json_has_them_whole(finished: Bullpen) -> None:
    turns = finished.read("log", "ana")
    assert [turn["seq"] for turn in turns] == list(range(1, len(turns) + 1))
    assert {turn["kind"] for turn in turns} == {"user", "assistant", "tool_result"}
    assert [turn["seq"] for turn in finished.read("log", "ana", "--limit", "2")] == [len(turns) - 1, len(turns)]
    assert finished("log", "ana", "--limit", "1").lines[0] == "the newest 1 turns; --limit shows more"


def test_follow_tells_each_turn_as_it_comes(bullpen: Bullpen) -> None:
    with at_work(bullpen) as working:
        following = bullpen.start("log", "ana", "--follow", "--json")
        turn = json.loads(read_line(following))
        while turn["kind"] != "assistant":
            turn = json.loads(read_line(following))
        working.say("seen")
        assert "seen" in json.loads(read_line(following))["content"]["text"]
        following.send_signal(signal.SIGINT)
        _, err = following.communicate(timeout=BOUND_SECONDS)
        assert (following.returncode, err) == (130, b"")
        working.end()


def test_wrong_names_get_one_helpful_line(finished: Bullpen) -> None:
    assert finished.refused("log", "bob") == f"there is no member 'bob' in team {TEAM}; there are lead, ana"
    assert finished.refused("log", "user") == "you have no transcript: `bullpen inbox` shows your mail"
    assert finished.refused("log", "ana", "--limit", "0") == "--limit is a number from 1 on, not '0'"
    assert finished.refused("log") == "missing argument 'NAME'; see `bullpen log --help`"


def test_who_has_no_past_yet_has_no_log(bullpen: Bullpen) -> None:
    async def spawn(team: Team) -> None:
        await team.spawn("ana")

    bullpen.prepare(spawn)
    assert bullpen("log", "ana").out == "ana has said and heard nothing yet\n"
    assert bullpen.read("log", "ana") == []
