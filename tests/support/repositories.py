"""Real git repositories, and teams whose work is on a trunk there as if members had made it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bullpen.domain.trunk import TASK_TRAILER, TRUNK, Trunk

USER = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z",
    "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z",
}


def git(directory: Path, *words: str, text: str | bytes = "", env: Mapping[str, str] | None = None) -> str:
    return git_bytes(directory, *words, text=text, env=env).decode(errors="surrogateescape").removesuffix("\n")


def git_bytes(directory: Path, *words: str, text: str | bytes = "", env: Mapping[str, str] | None = None) -> bytes:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    ran = subprocess.run(
        ["git", "-C", str(directory), *words],
        input=text if isinstance(text, bytes) else text.encode(errors="surrogateescape"),
        env={**inherited, **USER, **(env or {})},
        capture_output=True,
        check=False,
    )
    assert ran.returncode == 0, f"git {' '.join(words)}: {ran.stderr.decode(errors='replace')}"
    return ran.stdout


def make_repository(directory: Path, files: Mapping[str, str | bytes] | None = None) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    git(directory, "init", "--quiet", "--initial-branch=main")
    git(directory, "config", "user.name", "Uma User")
    git(directory, "config", "user.email", "uma@example.org")
    write(directory, files or {"a.txt": "one\ntwo\nthree\n", "b.txt": "b\n"})
    git(directory, "add", "-A")
    git(directory, "commit", "--quiet", "-m", "begin")
    return directory


def write(directory: Path, files: Mapping[str, str | bytes | None]) -> None:
    """None: the file goes."""
    for name, content in files.items():
        path = directory / name
        if content is None:
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


class Work:
    """A team's trunk in a repository, and a place in which its commits are made."""

    def __init__(self, repository: Path, place: Path, *, name: str = "demo", base: str = "", **more: Any) -> None:
        self.repository = repository
        self.place = place
        self.trunk = Trunk(
            repository=str(repository),
            branch=f"bullpen/{name}",
            base=base or git(repository, "rev-parse", "HEAD"),
            started_on="main",
            **more,
        )
        git(repository, "update-ref", self.trunk.ref, self.trunk.base)

    @property
    def settings(self) -> dict[str, Any]:
        return {TRUNK: self.trunk.to_mapping()}

    @property
    def tip(self) -> str:
        return git(self.repository, "rev-parse", self.trunk.ref)

    def commit(self, files: Mapping[str, str | bytes | None], *, task: int | None = None, member: str = "ana") -> str:
        """One integrated task: files written, the trunk advanced."""
        made = self.make(files, task=task, member=member)
        git(self.repository, "update-ref", self.trunk.ref, made)
        return made

    def make(
        self,
        files: Mapping[str, str | bytes | None],
        *,
        task: int | None = None,
        member: str = "ana",
        on: str = "",
    ) -> str:
        """A commit upon the trunk, or another one, that is nowhere yet."""
        self.enter(on or self.tip)
        write(self.place, files)
        return self.save(task=task, member=member)

    def enter(self, commit: str) -> None:
        if not self.place.exists():
            git(self.repository, "worktree", "add", "--quiet", "--detach", str(self.place), commit)
        git(self.place, "checkout", "--quiet", "--detach", commit)

    def save(self, *, task: int | None = None, member: str = "ana") -> str:
        """What is in the place now, as a commit of that member."""
        git(self.place, "add", "-A")
        trailer = f"\n\n{TASK_TRAILER}: {task}/1" if task else ""
        who = {"GIT_AUTHOR_NAME": member, "GIT_AUTHOR_EMAIL": f"{member}@bullpen.invalid"}
        subject = f"work for {task}" if task else f"work of {member}"
        git(self.place, "commit", "--quiet", "--allow-empty", "-m", f"{subject}{trailer}", env=who)
        return git(self.place, "rev-parse", "HEAD")
