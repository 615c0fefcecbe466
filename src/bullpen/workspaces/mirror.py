"""A repository that lies elsewhere, and this machine's copy of it: what git fetches and pushes, out of every sandbox.

Invariants: access to it is this machine's own (keys, credential helpers, what the human typed); no password, and no
address, is written into the copy, which members can read. What is pushed is pushed only upon what was expected there.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shlex
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from bullpen.workspaces.address import SCHEMES, Address, Credential, without_user
from bullpen.workspaces.git import COMMIT_ID, Answer, Git, GitFailed

DIRECTORY = "clones"
REPOSITORY = "repository.git"
CREDENTIAL = "credential"
# The whole history once; then what is new.
FIRST_FETCH_SECONDS = 3600.0
SECONDS = 300.0
TIMED_OUT = 124
ATTEMPTS = 20
LOCKED_SECONDS = 0.05
STALE_LOCK_SECONDS = 60.0
# What a shell says of how to reach others; the rest of git's variables speak of another repository.
_REACHING = re.compile(
    r"GIT_(SSH.*|ASKPASS|SSL_.*|PROXY.*|HTTP_.*|CONFIG_(COUNT|KEY.*|VALUE.*|GLOBAL|SYSTEM|NOSYSTEM))"
)
_LOCKED = re.compile(r"cannot lock ref|incorrect old value|\.lock': File exists")
# What git says when it looks at a clone that another process adds or removes at this moment.
_HALF_THERE = re.compile(r"failed to read \S*(commondir|gitdir)")
_LOCK = re.compile(r"Unable to create '([^']+\.lock)': File exists")


class RemoteAway(GitFailed):
    """The repository cannot be reached, or refuses this machine: worth another try."""


class DiskFull(RemoteAway):
    """There is no room for the copy of this machine."""


@dataclass(frozen=True, slots=True)
class Update:
    """`new` None removes the ref. `expected` is what it must be now: empty, nothing; None, whatever it is."""

    ref: str
    new: str | None
    expected: str | None = None


class Mirror:
    """One for each repository in a process. `was_reached`: it has let this machine in. `is_away` says that somebody has
    been told so."""

    def __init__(self, url: str, state_directory: Path) -> None:
        self.url = url
        self.directory = state_directory / DIRECTORY / _key(url)
        self.git = Git(self.directory / REPOSITORY)
        self.was_reached = False
        self.is_away = False
        # One fetch at a time: others would find the refs locked.
        self._fetching = asyncio.Lock()

    # -- this machine's copy -------------------------------------------------------------------------------------

    async def prepare(self, like: str) -> None:
        """The copy is there, empty at first. `like`: any commit, for the kind of its names."""
        if (self.git.directory / "HEAD").exists():
            return
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        made = Path(tempfile.mkdtemp(prefix="new-", dir=self.directory))
        try:
            kind = "sha256" if len(like) > 40 else "sha1"
            await Git(made).run("init", "--quiet", "--bare", "--template=", f"--object-format={kind}", ".")
            # Another process may have been quicker.
            with suppress(OSError):
                made.rename(self.git.directory)
        finally:
            await asyncio.to_thread(shutil.rmtree, made, ignore_errors=True)

    def remember(self, credential: Credential | None) -> None:
        """What the human typed with the address; stays on this machine, where no sandbox sees it."""
        if credential is None:
            return
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = self.directory / f"{CREDENTIAL}.{os.getpid()}"
        with open(fresh, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(f"username={credential.user}\npassword={credential.password}\n")
        fresh.replace(self.directory / CREDENTIAL)

    # -- looking and fetching --------------------------------------------------------------------------------------

    async def list_refs(self, *patterns: str) -> dict[str, str]:
        """Refs there, with their commits; `ref^{}` for what a tag is of, `@ref` for where a symbolic one points."""
        answer = await self._reach("ls-remote", "--symref", "--", self.url, *patterns)
        if answer.exit_code != 0:
            raise self._away("read", answer)
        found = {}
        for line in answer.text.splitlines():
            value, _, ref = line.partition("\t")
            if value.startswith("ref: "):
                found[f"@{ref}"] = value.removeprefix("ref: ")
            elif COMMIT_ID.fullmatch(value):
                found[ref] = value
        return found

    async def find(self, ref: str) -> str | None:
        return (await self.list_refs(ref)).get(ref)

    async def fetch(self, *refspecs: str, prunes: bool = False, seconds: float = SECONDS) -> bool:
        """False if one of them is not there. A ref alone gets no name here: only what it holds is fetched."""
        words = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--force")
        async with self._fetching:
            for attempt in range(1, ATTEMPTS + 1):
                answer = await self._reach(
                    *words, *(("--prune",) if prunes else ()), "--", self.url, *refspecs, seconds=seconds
                )
                if answer.exit_code == 0:
                    return True
                if "couldn't find remote ref" in answer.complaint or "not our ref" in answer.complaint:
                    return False
                # Another process of this machine fetches the same, or left a lock when it was killed.
                is_passing = _LOCKED.search(answer.complaint) or _HALF_THERE.search(answer.complaint)
                if not is_passing or attempt == ATTEMPTS:
                    raise self._away("read", answer)
                if lock := _LOCK.search(answer.complaint):
                    _unlock(lock[1])
                await asyncio.sleep(LOCKED_SECONDS)
        raise AssertionError

    # -- pushing ---------------------------------------------------------------------------------------------------

    async def push(self, *updates: Update) -> dict[str, str]:
        """All of them or none. The refs that were refused, and why; RemoteAway if nobody answered."""
        leases = [f"--force-with-lease={one.ref}:{one.expected}" for one in updates if one.expected is not None]
        # A plus would push whatever is there, lease or not.
        specs = [f"{'+' if one.expected is None else ''}{one.new or ''}:{one.ref}" for one in updates]
        words = ("push", "--porcelain", "--atomic", "--no-verify", "--no-signed", "--no-follow-tags")
        answer = await self._reach(*words, "--recurse-submodules=no", *leases, "--", self.url, *specs)
        refused = _refused(answer)
        if answer.exit_code != 0 and not refused:
            raise self._away("written", answer)
        return refused

    # -- reaching it -----------------------------------------------------------------------------------------------

    async def _reach(self, *arguments: str, seconds: float = SECONDS) -> Answer:
        git = self.git if self.git.directory.exists() else Git("/")
        try:
            async with asyncio.timeout(seconds):
                answer = await git.ask(*arguments, env=self._environment())
        except TimeoutError:
            return Answer(TIMED_OUT, b"", f"no answer for {seconds:g} s")
        self.was_reached = self.was_reached or answer.exit_code == 0
        return answer

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if _REACHING.fullmatch(name)}
        settings = [("http.lowSpeedLimit", "1"), ("http.lowSpeedTime", "60")]
        credential = self.directory / CREDENTIAL
        if credential.exists():
            # For this host alone, wherever it may redirect to; an empty one forgets the machine's own.
            parts = urlsplit(self.url)
            key = f"credential.{parts.scheme}://{parts.netloc}.helper"
            settings += [(key, ""), (key, f'!f() {{ test "$1" = get && cat {shlex.quote(str(credential))}; }}; f')]
        return {
            **_configured(kept, settings),
            "GIT_ALLOW_PROTOCOL": ":".join(SCHEMES),
            # Nobody is there to be asked.
            "SSH_ASKPASS_REQUIRE": "never",
            "SSH_ASKPASS": "",
        }

    def _away(self, what: str, answer: Answer) -> RemoteAway:
        if what == "read" and "No space left on device" in answer.complaint:
            return DiskFull(f"{self.url} cannot be copied to {self.directory}: the disk is full")
        return RemoteAway(f"{self.url} cannot be {what}: {said_by(answer)}")


def mirror_of(address: Address, state_directory: Path) -> Mirror:
    """With what was typed to reach it."""
    mirror = Mirror(address.url, state_directory)
    mirror.remember(address.credential)
    return mirror


def said_by(answer: Answer) -> str:
    """Git's complaint, without what it says to everyone, and without any password that its settings put there."""
    plain = re.sub(r"\b(fatal|error|remote): ", "", without_user(answer.complaint))
    plain = re.sub(r" *Please make sure you have the correct access rights and the repository exists\.", "", plain)
    return plain or f"exit code {answer.exit_code}"


def _refused(answer: Answer) -> dict[str, str]:
    """From `git push --porcelain`: `!\\tFROM:TO\\t[rejected] (stale info)`."""
    found = {}
    for line in answer.text.splitlines():
        if line.startswith("!\t"):
            _, names, why = line.split("\t", 2)
            found[names.rpartition(":")[2]] = why
    return found


def _configured(environment: Mapping[str, str], settings: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Settings after those that the environment has; not as arguments, which everyone on the machine can read."""
    count = int(environment.get("GIT_CONFIG_COUNT") or 0)
    more: dict[str, str] = {}
    for number, (key, value) in enumerate(settings, count):
        more |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return {**environment, **more, "GIT_CONFIG_COUNT": str(count + len(settings))}


def _unlock(path: str) -> None:
    """A lock that nobody can hold any more: who takes one needs milliseconds."""
    with suppress(OSError):
        if time.time() - os.stat(path).st_mtime > STALE_LOCK_SECONDS:
            os.unlink(path)


def _key(url: str) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]", "", url.rstrip("/").rpartition("/")[2].removesuffix(".git")).lstrip(".")[:40]
    return f"{name or 'repository'}-{hashlib.sha256(url.encode()).hexdigest()[:10]}"


def reason_of(refused: Mapping[str, str]) -> str:
    """The first that says something: with one of them refused, all are."""
    return next((why for why in refused.values() if "atomic" not in why), next(iter(refused.values())))
