"""Each test has its own state below its own folder: stores in memory would share one."""

from __future__ import annotations

from pathlib import Path

import pytest

from bullpen.agent import governor


@pytest.fixture(autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))


@pytest.fixture
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries come at once: what is tested is that they come, and how often."""
    monkeypatch.setattr(governor, "FIRST_DELAY_SECONDS", 0.01)
    monkeypatch.setattr(governor, "MAX_DELAY_SECONDS", 0.01)


@pytest.fixture(params=["memory", "sqlite-file", "files"])
def store_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """For the promises that lean on the store: each kind that needs no server."""
    place: Path = tmp_path_factory.mktemp("store")
    match request.param:
        case "sqlite-file":
            return f"sqlite:///{place}/bullpen.db"
        case "files":
            return f"files:{place}"
        case _:
            return "sqlite:///:memory:"
