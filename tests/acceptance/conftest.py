"""The command in a directory of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.command import Bullpen, three_tasks
from tests.support.company import WIRES, Wire


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Bullpen:
    """A board with three tasks, for tests that change nothing."""
    bullpen = Bullpen(tmp_path_factory.mktemp("used"))
    bullpen.prepare(three_tasks)
    return bullpen


@pytest.fixture
def bullpen(tmp_path: Path) -> Bullpen:
    return Bullpen(tmp_path)


@pytest.fixture(params=WIRES, ids=lambda wire: f"{wire.format}-{'streamed' if wire.is_streamed else 'whole'}")
def wire(request: pytest.FixtureRequest) -> Wire:
    """Both formats, each whole and streamed."""
    found: Wire = request.param
    return found
