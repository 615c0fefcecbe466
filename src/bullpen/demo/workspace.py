"""Where the demo is played: the application in a git repository, with the state of its team in it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

APP = Path(__file__).parent / "app"

# Neither the user's configuration (hooks, signatures) nor a repository around it may have a say.
_GIT = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}
_OPTIONS = ("-c", "user.name=Bullpen", "-c", "user.email=demo@localhost", "-c", "init.defaultBranch=main")
_BEGINNING = (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "A bookshop with a REST API"))


def lay_out(directory: Path) -> None:
    """The application as it is before, committed where there is git; without git the demo only shows less."""
    shutil.copytree(APP, directory, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    if shutil.which("git"):
        all(_git(directory, *words) for words in _BEGINNING)


def store_url(directory: Path) -> str:
    return f"sqlite:///{directory}/.bullpen/bullpen.db"


def python_command() -> str:
    """As people write it, if it is there; else the interpreter that runs the demo."""
    return "python3" if shutil.which("python3") else shlex.quote(sys.executable)


def _git(directory: Path, *words: str) -> bool:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    ran = subprocess.run(
        ["git", *_OPTIONS, *words],
        cwd=directory,
        env={**environment, **_GIT},
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    return ran.returncode == 0
