"""Real git repositories, and everything of a user's that a team must leave as it was."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from bullpen.domain.trunk import TRUNK, Trunk
from bullpen.team import Team
from bullpen.workspaces.beginning import Repository, begin_trunk, survey

_WHO = ("-c", "user.name=Uma", "-c", "user.email=uma@example.com", "-c", "commit.gpgSign=false")


def git(directory: Path, *words: str) -> str:
    """What it printed, without the end of the last line."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(
        ["git", *_WHO, *words], cwd=directory, env=environment, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, f"git {words}: {done.stdout}{done.stderr}"
    return done.stdout.removesuffix("\n")


def make_repository(directory: Path, files: Mapping[str, str] | None = None) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    git(directory, "init", "-q", "-b", "main")
    git(directory, "config", "user.name", "Uma")
    git(directory, "config", "user.email", "uma@example.com")
    write(directory, files or {"README.md": "one\ntwo\nthree\n"})
    git(directory, "add", "-A")
    git(directory, "commit", "-q", "-m", "first")
    return directory


def write(directory: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)


def fingerprint(repository: Path) -> dict[str, str]:
    """The user's files, index, HEAD, branches, tags and stash; not what belongs to teams."""
    found = {}
    for path in sorted(repository.rglob("*")):
        name = path.relative_to(repository).as_posix()
        if not name.startswith((".git/", ".bullpen")) and name != ".git" and not path.is_dir():
            found[name] = _digest(path)
    found["index"] = _digest(repository / ".git" / "index")
    found["HEAD"] = (repository / ".git" / "HEAD").read_text()
    refs = git(repository, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    own = [ref for ref in refs if not ref.startswith(("refs/heads/bullpen/", "refs/bullpen/"))]
    return {**found, "refs": "\n".join(own), "config": _digest(repository / ".git" / "config")}


def _digest(path: Path) -> str:
    held = os.readlink(path).encode() if path.is_symlink() else path.read_bytes()
    return f"{path.lstat().st_mode:o} {hashlib.sha256(held).hexdigest()}"


async def surveyed(directory: Path) -> Repository:
    found = await survey(directory)
    assert isinstance(found, Repository), found
    return found


async def set_apart(team: Team, directory: Path, *, include_unsaved: bool = False) -> Trunk:
    """Its members work in worktrees from here on."""
    trunk = await begin_trunk(await surveyed(directory), team.name, include_unsaved=include_unsaved)
    await team.remember(**{TRUNK: trunk.to_mapping()})
    return trunk


def files_at(repository: Path, commit: str) -> dict[str, str]:
    names = git(repository, "ls-tree", "-r", "--name-only", commit).splitlines()
    return {name: git(repository, "show", f"{commit}:{name}") for name in names}
