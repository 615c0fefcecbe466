"""Which sandbox one gets, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bullpen.errors import SandboxUnavailable, UsageError
from bullpen.sandbox import SandboxSpec
from bullpen.sandboxes import open_sandbox
from bullpen.sandboxes.bubblewrap import probe


@pytest.fixture
def spec(tmp_path: Path) -> SandboxSpec:
    return SandboxSpec(member="ana", workspace=tmp_path, private_directory=tmp_path / "private")


@pytest.fixture
def fresh_probe() -> Iterator[None]:
    """The look for bubblewrap is kept for the process: here it is made anew, and forgotten."""
    probe.cache_clear()
    yield
    probe.cache_clear()


@pytest.mark.usefixtures("fresh_probe")
def test_without_bubblewrap_auto_is_local_and_says_so_and_required_is_refused(
    spec: SandboxSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    sandbox = open_sandbox(spec)
    assert sandbox.name == "local"
    assert "bubblewrap is not installed" in sandbox.describe()
    for kind in ("required", "bubblewrap"):
        with pytest.raises(SandboxUnavailable) as refused:
            open_sandbox(spec, kind=kind)
        assert str(refused.value) == (
            "bubblewrap is not installed: install it (apt install bubblewrap), or set sandbox = 'local'"
        )


@pytest.mark.usefixtures("fresh_probe")
def test_a_bubblewrap_that_does_not_work_is_not_used_and_its_words_are_passed_on(
    spec: SandboxSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert "No permissions to create a new namespace" in open_sandbox(spec).describe()
    with pytest.raises(SandboxUnavailable, match="No permissions to create a new namespace"):
        open_sandbox(spec, kind="required")


def test_a_kind_that_does_not_exist_is_refused(spec: SandboxSpec) -> None:
    with pytest.raises(UsageError, match="use auto, required, bubblewrap, local"):
        open_sandbox(spec, kind="docker")


def test_a_providers_key_is_refused_even_if_it_is_asked_for(tmp_path: Path) -> None:
    spec = SandboxSpec(
        member="ana", workspace=tmp_path, private_directory=tmp_path / "p", environment={"ANTHROPIC_API_KEY": "x"}
    )
    with pytest.raises(UsageError, match="ANTHROPIC_API_KEY is a provider's key"):
        open_sandbox(spec, kind="local")
