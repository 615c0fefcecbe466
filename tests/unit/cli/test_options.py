"""The global options, wherever they stand."""

from __future__ import annotations

import pytest

from bullpen.cli.options import Globals, hoist, wants_json
from bullpen.errors import UsageError


@pytest.mark.parametrize(
    ("words", "chosen", "rest"),
    [
        ("task list", Globals(), "task list"),
        ("--json task list", Globals(json=True), "task list"),
        ("task list --json", Globals(json=True), "task list"),
        ("--team a task list --store sqlite:///x.db", Globals(team="a", store="sqlite:///x.db"), "task list"),
        ("task --team=a list", Globals(team="a"), "task list"),
        ("--team a task list --team b", Globals(team="b"), "task list"),
        ("send ana -- --json --team", Globals(), "send ana -- --json --team"),
        ("--json send ana -- --team x", Globals(json=True), "send ana -- --team x"),
        ("task list --status pending", Globals(), "task list --status pending"),
        ("task list --version", Globals(version=True), "task list"),
        ("--store=sqlite:///a=b.db task list", Globals(store="sqlite:///a=b.db"), "task list"),
    ],
)
def test_global_options_are_found_before_and_after_the_command(words: str, chosen: Globals, rest: str) -> None:
    assert hoist(words.split()) == (chosen, rest.split())


@pytest.mark.parametrize("words", ["--team", "task list --store", "--team --json", "--team=", "--team -- x"])
def test_a_missing_value_is_told(words: str) -> None:
    with pytest.raises(UsageError, match="needs a value"):
        hoist(words.split())


def test_a_flag_takes_no_value() -> None:
    with pytest.raises(UsageError, match="--json takes no value"):
        hoist(["--json=1"])


def test_the_form_of_an_error_is_known_even_if_the_words_make_no_sense() -> None:
    assert wants_json(["--team", "--json"])
    assert not wants_json(["send", "ana", "--", "--json"])
