"""The benchmark runs to its end and writes its page: what it measures is not judged here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run_bench(out: Path, *words: str) -> None:
    command = [sys.executable, "-m", "bench", *words, "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.timeout(300)
def test_the_quick_benchmark_of_claims_writes_its_page(tmp_path: Path) -> None:
    run_bench(tmp_path, "--quick", "--only", "claims", "--stores", "sqlite")
    page = (tmp_path / "benchmarks.md").read_text()
    assert "| sqlite |" in page
    assert "| **sqlite / bare** |" in page
    [twice] = [line for line in page.splitlines() if line.startswith("| sqlite |") and "never" in line]
    assert "never" in twice
    assert (tmp_path / "benchmarks.svg").read_text().lstrip().startswith("<?xml")


@pytest.mark.timeout(120)
def test_the_quick_benchmark_of_waking_hears_every_way_to_be_woken(tmp_path: Path) -> None:
    run_bench(tmp_path, "--quick", "--only", "wake")
    page = (tmp_path / "benchmarks.md").read_text()
    ways = ("sqlite, mail", "files, task", "postgresql, mail", "bare NOTIFY", "bare NOTIFY there and back")
    for way in ways:
        assert f"| {way} | 30 |" in page


@pytest.mark.timeout(300)
def test_the_quick_benchmark_of_whole_teams_writes_its_page(tmp_path: Path) -> None:
    run_bench(tmp_path, "agents", "--quick", "--stores", "sqlite")
    assert [path.name for path in tmp_path.iterdir()] == ["benchmarks-agents.md"]
    page = (tmp_path / "benchmarks-agents.md").read_text()
    for what in ("makespan, of the best schedule", "CPU a model turn", "unchanged prefix", "memory of an idle"):
        assert what in page
    # Not a matter of the machine: nobody asks a model for nothing.
    assert "| idle tokens | ≤ 0 | 0.00 | ok |" in page
    assert "| tokens of the lead for notices | ≤ 0 | 0.00 | ok |" in page


@pytest.mark.timeout(600)
def test_the_quick_soak_drains_a_board_with_a_crowd_and_nothing_is_done_twice(tmp_path: Path) -> None:
    """Sixty members on two workers and PostgreSQL; the invariants are checked from the log, else it fails."""
    run_bench(tmp_path, "--quick", "--only", "soak")
    page = (tmp_path / "benchmarks-machines.md").read_text()
    assert "tasks completed: 400; done twice: 0; claims: 400" in page
    assert "| tasks claimed or completed twice | ≤ 0 | 0.00 | ok |" in page
