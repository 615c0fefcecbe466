"""Which files a run has changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from bullpen.team.changes import changed_files, take_stock
from tests.support.repository import make_repository, write


async def test_what_the_environment_says_of_another_repository_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = make_repository(tmp_path / "mine", {"a": "1\n"})
    other = make_repository(tmp_path / "other", {"b": "1\n"})
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    before = await take_stock(repository)
    write(repository, {"a": "2\n", "new": "n\n"})
    assert await changed_files(repository, before) == ("a", "new")


async def test_where_there_is_no_repository_nothing_is_said(tmp_path: Path) -> None:
    before = await take_stock(tmp_path)
    write(tmp_path, {"new": "n\n"})
    assert await changed_files(tmp_path, before) == ()
