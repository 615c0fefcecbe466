"""Git as the runtime calls it: nothing that a repository configures is run, nobody is asked, nothing is guessed.

Invariant: what a member wrote into its worktree is never executed here. Whatever has to look into a worktree in which
a member works (its files, a repository that it planted there) is done in its sandbox; see `worktrees`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bullpen.errors import BullpenError

# Neither hooks nor a file system monitor, nor anything that reaches into a nested repository.
SAFELY = (
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "submodule.recurse=false"),
    *("-c", "gc.auto=0"),
    *("-c", "maintenance.auto=false"),
    *("-c", "commit.gpgSign=false"),
    *("-c", "advice.detachedHead=false"),
)
COMMIT_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
LONGEST_COMPLAINT = 500


class GitFailed(BullpenError):
    """Git could not do that."""

    exit_code = 3


@dataclass(frozen=True, slots=True)
class Answer:
    exit_code: int
    output: bytes
    complaint: str

    @property
    def text(self) -> str:
        return self.output.decode(errors="surrogateescape")


class Git:
    """Git in one directory, whatever repository that belongs to."""

    def __init__(self, directory: Path | str, *, inherits: tuple[int, ...] = ()) -> None:
        """`inherits`: descriptors that each call of git has, too; a lock is held until the last who has it is gone."""
        self.directory = Path(directory)
        self.inherits = inherits

    async def run(self, *arguments: str, text: str | None = None, env: Mapping[str, str] | None = None) -> str:
        """What it printed, without the last line's end. GitFailed with git's own complaint if it did not exit 0."""
        answer = await self.ask(*arguments, text=text, env=env)
        if answer.exit_code != 0:
            raise GitFailed(
                f"git {arguments[0]} in {self.directory}: {answer.complaint or f'exit code {answer.exit_code}'}"
            )
        return answer.text.removesuffix("\n")

    async def ask(self, *arguments: str, text: str | None = None, env: Mapping[str, str] | None = None) -> Answer:
        """Like `run`, where a code other than 0 is an answer too."""
        try:
            process = await asyncio.create_subprocess_exec(
                "git",
                *("-C", str(self.directory), *SAFELY, *arguments),
                env={**_environment(), **(env or {})},
                stdin=asyncio.subprocess.DEVNULL if text is None else asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                pass_fds=self.inherits,
                # Ctrl-C is for us, not for what we are in the middle of.
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise GitFailed("git is not installed: install it, or work with --isolation shared") from error
        except OSError as error:
            raise GitFailed(f"git cannot be started: {error}") from error
        try:
            given = None if text is None else text.encode(errors="surrogateescape")
            output, complaints = await process.communicate(given)
        except asyncio.CancelledError:
            # With whatever it started to reach another machine.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.shield(process.wait())
            raise
        complaint = " ".join(complaints.decode(errors="replace").split())[:LONGEST_COMPLAINT]
        return Answer(process.returncode or 0, output, complaint)

    async def find(self, name: str) -> str | None:
        """The commit that a ref or an expression names, if there is one."""
        answer = await self.ask("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        found = answer.text.strip()
        return found if answer.exit_code == 0 and COMMIT_ID.fullmatch(found) else None

    async def is_there(self) -> bool:
        """Is its directory, on this machine, in a repository?"""
        return (await self.ask("rev-parse", "--git-dir")).exit_code == 0

    async def contains(self, descendant: str, ancestor: str) -> bool:
        return (await self.ask("merge-base", "--is-ancestor", ancestor, descendant)).exit_code == 0


def _environment() -> dict[str, str]:
    """Ours, without what speaks of another repository (we may be called from a hook) or would ask somebody."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return {
        **kept,
        "LC_ALL": "C.UTF-8",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_PAGER": "cat",
        "GIT_EDITOR": "true",
    }
