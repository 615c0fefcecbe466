"""The demo's script and application, as they are shipped."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bullpen.demo.story import FOR_EVER_SECONDS, write_script
from bullpen.demo.workspace import APP, lay_out
from bullpen.providers.scripted import Script, Step


def steps_of(path: Path) -> list[Step]:
    return [step for steps in Script.from_file(path).steps.values() for step in steps]


def test_the_script_can_be_played_and_nothing_in_it_is_left_to_be_filled_in(tmp_path: Path) -> None:
    script = write_script(tmp_path / "script.json", python="python3.99", speed=1.0)
    assert steps_of(script)
    text = script.read_text()
    assert "{{file:" not in text
    assert "{{python}}" not in text
    assert "python3.99 -m unittest" in text


def test_speed_scales_every_delay(tmp_path: Path) -> None:
    usual = steps_of(write_script(tmp_path / "usual.json", python="python3", speed=1.0))
    twice = steps_of(write_script(tmp_path / "twice.json", python="python3", speed=2.0))
    assert all(step.delay_seconds > 0 for step in usual)
    assert [step.delay_seconds / 2 for step in usual] == [step.delay_seconds for step in twice]


def test_at_its_usual_speed_all_thinking_takes_less_than_half_a_minute(tmp_path: Path) -> None:
    steps = steps_of(write_script(tmp_path / "script.json", python="python3", speed=1.0))
    assert sum(step.delay_seconds for step in steps) < 30


def test_with_chaos_exactly_one_step_of_backend_hangs(tmp_path: Path) -> None:
    script = Script.from_file(write_script(tmp_path / "script.json", python="python3", speed=1.0, hangs=True))
    hanging = [
        (name, call.arguments["path"])
        for name, steps in script.steps.items()
        for step in steps
        if step.delay_seconds == FOR_EVER_SECONDS
        for call in step.calls[:1]
    ]
    assert hanging == [("backend", "bookshop/graphql.py")]


def test_the_application_passes_its_own_tests_before(tmp_path: Path) -> None:
    lay_out(tmp_path / "bookshop")
    ran = subprocess.run(
        [sys.executable, "-m", "unittest"], cwd=tmp_path / "bookshop", capture_output=True, text=True, check=True
    )
    assert "Ran 8 tests" in ran.stderr
    listed = subprocess.run(
        [sys.executable, "-m", "bookshop", "/books/2"], cwd=tmp_path / "bookshop", capture_output=True, check=True
    )
    assert json.loads(listed.stdout)["title"] == "Solaris"


def test_the_application_begins_as_a_commit_of_all_its_files(tmp_path: Path) -> None:
    lay_out(tmp_path / "bookshop")
    status = subprocess.run(
        ["git", "status", "--porcelain", "--ignored"], cwd=tmp_path / "bookshop", capture_output=True, text=True
    )
    assert status.stdout == ""
    shipped = {path.name for path in APP.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    there = {path.name for path in (tmp_path / "bookshop").rglob("*") if ".git" not in path.parts}
    assert shipped <= there
