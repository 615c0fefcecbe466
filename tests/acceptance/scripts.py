"""Scripts for teams in tests of the command, and settings under which they start fast."""

from __future__ import annotations

from tests.acceptance.command import Bullpen

# Commands run unconfined, which starts at once; unless a test says so, nothing is asked.
FREE = '[sandbox]\nkind = "local"\n[permissions]\nallow = ["*"]\n'
ASKS = '[sandbox]\nkind = "local"\n'
WAITS = "until [ -e go ]; do sleep 0.05; done"
"""A command that ends when the test says so."""


def scripted(bullpen: Bullpen, script: str, *, settings: str = FREE) -> None:
    """From here on the command's model plays this."""
    (bullpen.directory / "script.toml").write_text(script)
    model = f'model = "scripted:{bullpen.directory}/script.toml"\n'
    (bullpen.directory / "bullpen.toml").write_text(model + settings)


def go(bullpen: Bullpen) -> None:
    """Let `WAITS` end."""
    (bullpen.directory / "go").touch()
