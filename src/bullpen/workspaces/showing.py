"""Git's own output for the human, as if they had typed the command: on their terminal, in their colours, through
their pager. The one place where git is not called through `Git`, which runs no pager and captures what is printed."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from bullpen.workspaces.git import SAFELY, GitFailed

# What a repository or a shell that calls us may say of another repository.
_ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR")
# Bytes that can be applied as a patch, whatever the human has set for their eyes.
_PLAIN = ("--no-color", "--no-ext-diff", "--no-textconv")


def show(directory: Path | str, command: str, arguments: Sequence[str], *, is_terminal: bool, has_colours: bool) -> int:
    """Waits until it has been read; the exit code is git's own, as a shell would say it."""
    look = ("--no-color",) if not has_colours else ()
    words = ["git", "-C", str(directory), *SAFELY, command, *(look if is_terminal else _PLAIN), *arguments]
    environment = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE}
    # Ctrl-C is for git and its pager, which know what to do with it. Unlike SIG_IGN, a handler is not inherited.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        code = subprocess.run(words, env=environment, check=False).returncode
    except FileNotFoundError as error:
        raise GitFailed("git is not installed") from error
    finally:
        signal.signal(signal.SIGINT, before)
    return code if code >= 0 else 128 - code
