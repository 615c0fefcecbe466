"""The command in a directory of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.command import Bullpen, three_tasks


@pytest.fixture(scope="session")
def pycache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pycache")


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory, pycache: Path) -> Bullpen:
    """A board with three tasks, for tests that change nothing."""
    bullpen = Bullpen(tmp_path_factory.mktemp("used"), pycache)
    bullpen.prepare(three_tasks)
    return bullpen


@pytest.fixture
def bullpen(tmp_path: Path, pycache: Path) -> Bullpen:
    return Bullpen(tmp_path, pycache)
