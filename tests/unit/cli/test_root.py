"""The help of the root is the help of its commands, although it imports none of them."""

from __future__ import annotations

import pytest

from bullpen.cli.root import COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_a_commands_line_in_the_help_is_its_own(name: str) -> None:
    command = COMMANDS[name].build()
    assert (command.help or "").splitlines()[0] == COMMANDS[name].line


@pytest.mark.parametrize("name", ["task", "team"])
def test_a_branch_names_its_commands(name: str) -> None:
    branch = COMMANDS[name].build()
    assert COMMANDS[name].line.rstrip(".").partition(": ")[2] == ", ".join(branch.commands)
