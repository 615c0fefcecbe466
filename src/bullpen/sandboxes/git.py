"""Git in a sandbox: commits work, and nothing that git would run or believe outside can be planted from inside.

Whoever can write a repository's `config` or `hooks` runs code as whoever uses git there next, the runtime that merges
included. The same holds for the pointers between a worktree and its repository (`.git`, `commondir`, `gitdir`). So
these are read-only, and mounts of their own, which cannot be renamed away.

What a pointer says is believed only if the other side points back: a member can write `.git` in its workspace with a
file tool, and must not get a directory of its choice mounted writable in this way.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bullpen.sandbox import SandboxSpec

STORING = r"^filter\.|^core\.(autocrlf|eol)$"
"""What of the human's settings decides how files are stored."""


@dataclass(frozen=True, slots=True)
class GitView:
    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    guarded: tuple[Path, ...] = ()
    """Read-only inside of what is writable."""


def git_view(workspace: Path) -> GitView:
    """What a sandbox of this workspace needs of its repository; nothing if it is none, or a parent holds it."""
    dot_git = workspace / ".git"
    if dot_git.is_symlink():
        return GitView()
    if dot_git.is_dir():
        return GitView(writable=(dot_git,), guarded=_guarded(dot_git))
    directory = _pointed_to(dot_git, "gitdir:")
    if directory is None:
        return GitView()
    common = _pointed_to(directory / "commondir")
    if common is None:
        return _submodule_view(workspace, dot_git, directory)
    return _worktree_view(dot_git, directory, common)


def _worktree_view(dot_git: Path, directory: Path, common: Path) -> GitView:
    if directory.parent != common / "worktrees" or _pointed_to(directory / "gitdir") != dot_git.resolve():
        return GitView()
    with contextlib.suppress(OSError):
        (common / "logs").mkdir(exist_ok=True)
    shared = (common / name for name in ("objects", "refs", "logs", "reftable", "lfs"))
    pointers = (directory / name for name in ("commondir", "gitdir", "config.worktree"))
    return GitView(
        readable=(common,),
        writable=(directory, *(path for path in shared if path.is_dir())),
        guarded=(dot_git, *(path for path in pointers if path.exists())),
    )


def own_worktree_view(root: Path) -> GitView:
    """Of a worktree that the runtime made for one member: commits go onto its detached HEAD, so no ref of the
    repository need be written. Nor any pack: what was stored before cannot be destroyed together with it."""
    view = git_view(root)
    shared = {"refs", "logs", "reftable"}
    packs = tuple(path / "pack" for path in view.writable if path.name == "objects" and (path / "pack").is_dir())
    return GitView(
        readable=view.readable,
        writable=tuple(path for path in view.writable if path.name not in shared),
        guarded=(*view.guarded, *packs),
    )


def _submodule_view(workspace: Path, dot_git: Path, directory: Path) -> GitView:
    with contextlib.suppress(OSError):
        for line in (directory / "config").read_text(errors="replace").splitlines():
            name, _, value = line.partition("=")
            if name.strip().lower() == "worktree" and (directory / value.strip()).resolve() == workspace.resolve():
                return GitView(writable=(directory,), guarded=(dot_git, *_guarded(directory)))
    return GitView()


def planted_pointers(workspace: Path) -> tuple[Path, ...]:
    """Where a file would redirect a whole repository to another's settings, and has no business.

    No mount can keep a file from being made in a directory that git must write. So it is removed after each command.
    """
    dot_git = workspace / ".git"
    if dot_git.is_symlink() or not dot_git.is_dir():
        return ()
    pointers = (repository / "commondir" for repository in _repositories(dot_git))
    return tuple(path for path in pointers if not os.path.lexists(path))


def _guarded(directory: Path) -> tuple[Path, ...]:
    """What must not be written in a whole repository, and in those of its submodules and worktrees."""
    found: list[Path] = []
    for repository in _repositories(directory):
        # What is not there cannot be guarded. Where we may not make it, nor can a command.
        with contextlib.suppress(OSError):
            (repository / "hooks").mkdir(exist_ok=True)
        found += (repository / name for name in ("hooks", "config", "config.worktree", "commondir"))
    for worktree in (directory / "worktrees").glob("*"):
        found += (worktree / name for name in ("commondir", "gitdir", "config.worktree"))
    return tuple(path for path in found if path.exists() and not path.is_symlink())


def _repositories(directory: Path) -> list[Path]:
    modules = directory / "modules"
    found = [config.parent for config in modules.rglob("config")] if modules.is_dir() else []
    return [repository for repository in (directory, *found) if (repository / "HEAD").exists()]


def _pointed_to(file: Path, prefix: str = "") -> Path | None:
    """The path that a small file of git names, relative to where it lies."""
    try:
        if file.is_symlink() or not file.is_file():
            return None
        text = file.read_text(errors="replace").strip()
    except OSError:
        return None
    if not text.startswith(prefix) or "\n" in text:
        return None
    return Path(os.path.join(file.parent, text.removeprefix(prefix).strip())).resolve()


async def write_identity(spec: SandboxSpec, home: Path, environment: Mapping[str, str]) -> None:
    """Who commits, in the member's own gitconfig: the human's name as git knows it here, without any credential. And
    how files are stored: else those that git-lfs has made, or line ends, would all look changed."""
    path = home / ".gitconfig"
    if path.exists():
        return
    name = await _configured(spec.workspace, environment, "--get", "user.name") or spec.member
    email = await _configured(spec.workspace, environment, "--get", "user.email") or f"{spec.member}@bullpen.invalid"
    storing = await _configured(spec.workspace, environment, "-z", "--get-regexp", STORING)
    path.write_text(
        f"[user]\n\tname = {_quoted(name)}\n\temail = {_quoted(email)}\n"
        # Whoever owns the files outside, inside there is one user.
        f"[safe]\n\tdirectory = *\n"
        # An empty helper forgets those that the machine's configuration names.
        f"[credential]\n\thelper =\n"
        # The repository of a worktree is shared, and not this member's to pack.
        f"[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n[init]\n\tdefaultBranch = main\n"
        f"[advice]\n\tdetachedHead = false\n" + "".join(_line(entry) for entry in storing.split("\0") if entry)
    )


async def _configured(workspace: Path, environment: Mapping[str, str], *which: str) -> str:
    """Reading a configuration runs nothing that it says."""
    try:
        git = await asyncio.create_subprocess_exec(
            "git",
            *("config", *which),
            cwd=workspace,
            env={**environment, "HOME": str(Path.home())},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return ""
    output, _ = await git.communicate()
    return output.decode(errors="replace").strip()


def _line(entry: str) -> str:
    """`filter.lfs.clean` and its value, as git lists them, as a file has them."""
    key, _, value = entry.partition("\n")
    section, _, rest = key.partition(".")
    below, _, name = rest.rpartition(".")
    return f"[{section}{f' {_quoted(below)}' if below else ''}]\n\t{name} = {_quoted(value)}\n"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") + '"'
