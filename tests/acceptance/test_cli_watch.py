"""`bullpen watch`: looking on from another terminal, which the team does not notice."""

from __future__ import annotations

import json
import re
import signal

import pytest

from bullpen.team import Team
from tests.acceptance.command import BOUND_SECONDS, Bullpen, read_line
from tests.acceptance.plays import FINISHES, TEAM, ask_team, at_work, play


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Bullpen:
    bullpen = Bullpen(tmp_path_factory.mktemp("finished"))
    play(bullpen, FINISHES)
    return bullpen


async def last_position(team: Team) -> str:
    return await team.store.last_position(team.id)


def test_it_tells_what_was_and_what_comes_and_ends_with_the_run(bullpen: Bullpen) -> None:
    with at_work(bullpen) as working:
        watching = bullpen.start("watch")
        told = ""
        while "takes #1" not in told:
            told = read_line(watching)
        working.say()
        assert working.end()[0] == 0
        out, err = watching.communicate(timeout=BOUND_SECONDS)
    assert watching.returncode == 0
    assert "✓ #1 Wait for the word: heard: the word" in out.decode()
    assert "lead      All is done." in out.decode()
    assert err.decode() == f"bullpen: all tasks of team {TEAM} are completed, and nobody hosts it any more\n"


def test_on_a_terminal_the_last_lines_show_how_things_stand(bullpen: Bullpen) -> None:
    with at_work(bullpen) as working:
        code, seen = bullpen.on_terminal("watch", types="\x03", when="\x1b[4A", NO_COLOR="1")
        assert code == 130
        assert working.process.poll() is None
        working.say()
        assert working.end()[0] == 0
    assert re.search(r"0/1 tasks · 1 in progress · .* tokens · \$0\.00 of \$5 · \d:\d\d\n○ lead", seen)
    assert re.search(r"\n● ana  analyst  bash echo heard.*  #1 Wait for the word\n", seen)
    # Drawn anew over themselves when time has passed.
    assert "#1 Wait for the word\n\x1b[4A\r\x1b[J\n" in seen


def test_a_killed_host_ends_it_too(bullpen: Bullpen) -> None:
    with at_work(bullpen) as working:
        watching = bullpen.start("watch")
        read_line(watching)
        working.process.send_signal(signal.SIGKILL)
        _, err = watching.communicate(timeout=BOUND_SECONDS)
    assert watching.returncode == 0
    assert "nobody hosts team" in err.decode()


def test_it_ends_with_its_reader(bullpen: Bullpen) -> None:
    with at_work(bullpen) as working:
        watching = bullpen.start("watch", "--json")
        assert watching.stdout is not None
        read_line(watching)
        watching.stdout.close()
        _, err = watching.communicate(timeout=BOUND_SECONDS)
        assert (watching.returncode, err) == (141, b"")
        working.say()
        working.end()


def test_of_a_team_at_rest_it_shows_the_last_news_and_ends(finished: Bullpen) -> None:
    before = ask_team(finished, last_position)
    ran = finished("watch", TEAM)
    assert "Migration complete." in ran.lines[-1]
    assert len(ran.lines) <= 20
    everything = [json.loads(line) for line in finished("watch", "--json").lines]
    assert everything[0]["kind"] == "TeamCreated"
    assert everything[-1]["kind"] == "WorkerStopped"
    # It never writes.
    assert ask_team(finished, last_position) == before


def test_a_team_that_is_not_there_is_told(finished: Bullpen) -> None:
    assert finished.refused("watch", "nobody") == f"there is no team 'nobody'; there are {TEAM}"
