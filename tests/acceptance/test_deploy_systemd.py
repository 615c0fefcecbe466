"""`deploy/systemd`: the unit is one that systemd understands, and what it starts ends in good order."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.command import BOUND_SECONDS, COMMAND, Elsewhere, read_line
from tests.support.deployments import UNIT, Unit, drain_seconds

# With any of these, bubblewrap cannot mount a /proc of its own or make its namespaces.
SPOILS_BUBBLEWRAP = {
    "ProcSubset",
    "ProtectKernelLogs",
    "ProtectKernelTunables",
    "ProtectProc",
    "RestrictNamespaces",
}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    copy = tmp_path / UNIT.name
    # It looks for the program, which is not installed where the unit says.
    copy.write_text(UNIT.read_text().replace("/opt/bullpen/bin/bullpen", COMMAND[0]))
    ran = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_systemd_waits_longer_than_the_worker_drains_and_leaves_the_commands_of_members_alone() -> None:
    unit = Unit.read()
    assert float(unit.get("TimeoutStopSec")) > drain_seconds(unit.command({}))
    assert (unit.get("KillMode"), unit.get("KillSignal")) == ("mixed", "SIGTERM")
    assert not SPOILS_BUBBLEWRAP & unit.settings.keys()


def test_the_command_of_the_unit_hosts_and_leaves_at_its_signal(tmp_path: Path, postgres_url: str) -> None:
    unit, options = Unit.read(), {"WORKER_OPTIONS": "--slots 3 --labels gpu,linux --json"}
    bullpen = Elsewhere(tmp_path, postgres_url)
    program, *words = unit.command(options)
    assert Path(program).name == Path(COMMAND[0]).name
    process = bullpen.start(*words, XDG_STATE_HOME=str(tmp_path / "state"))
    with process:
        try:
            assert '"ready"' in read_line(process)
            assert bullpen("worker", "check").out.startswith("alive on")
            [worker] = bullpen.read("worker", "list")
            assert (worker["slots"], worker["labels"]) == (3, ["gpu", "linux"])
            process.send_signal(signal.Signals[unit.get("KillSignal")])
            assert process.wait(BOUND_SECONDS) == 0
        finally:
            process.kill()
    assert bullpen.read("worker", "list") == []
    [left] = bullpen.read("worker", "list", "--all")
    assert left["state"] == "left"


def test_what_makes_no_sense_is_not_started_again(tmp_path: Path, postgres_url: str) -> None:
    unit, options = Unit.read(), {"WORKER_OPTIONS": "--slots none"}
    bullpen = Elsewhere(tmp_path, postgres_url)
    code = int(unit.get("RestartPreventExitStatus"))
    assert "--slots is a number" in bullpen.refused(*unit.command(options)[1:], code=code)
