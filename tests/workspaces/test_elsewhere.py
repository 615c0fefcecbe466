"""A team that begins in a repository elsewhere, or one line that says what is in the way; no password is shown."""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bullpen.domain.trunk import Trunk
from bullpen.errors import NotFound, UsageError
from bullpen.workspaces import beginning
from bullpen.workspaces.address import parse_address
from bullpen.workspaces.elsewhere import begin_trunk_elsewhere, bring_here, survey_elsewhere
from bullpen.workspaces.mirror import Mirror
from tests.support.git_server import git_server
from tests.support.repository import files_at, git, make_repository, write
from tests.workspaces.conftest import make_bare, open_far_site
from tests.workspaces.test_worktree import gathered

SECRET = "s3cret-t0ken"


async def begun(text: str, state: Path) -> Trunk:
    return await begin_trunk_elsewhere(await survey_elsewhere(parse_address(text), state), "team")


async def refused(text: str, state: Path) -> str:
    """The one line."""
    with pytest.raises(UsageError) as caught:
        await begun(text, state)
    line = str(caught.value)
    assert "\n" not in line
    assert SECRET not in line
    return line


# -- addresses ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "url", "ref"),
    [
        ("git+https://example.org/a/shop.git", "https://example.org/a/shop.git", ""),
        ("git+https://uma:pw@example.org:8443/shop#v1.0", "https://example.org:8443/shop", "v1.0"),
        ("git+https://t0ken@[::1]:8/shop#feature/x", "https://[::1]:8/shop", "feature/x"),
        ("git+ssh://git@example.org/shop.git#main", "ssh://git@example.org/shop.git", "main"),
        ("git+file:///srv/shop.git", "file:///srv/shop.git", ""),
    ],
)
def test_an_address_is_a_url_without_password_and_a_ref(text: str, url: str, ref: str) -> None:
    address = parse_address(text)
    assert (address.url, address.ref) == (url, ref)
    assert "pw" not in repr(address)


def test_what_was_typed_for_a_web_address_is_its_credential() -> None:
    found = parse_address("git+https://uma:p%40ss@example.org/shop").credential
    assert found is not None
    assert (found.user, found.password) == ("uma", "p@ss")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("git+git@example.org:shop.git", "written git+ssh://"),
        (f"git+ext::sh -c {SECRET}", "is no address"),
        ("git+ext::sh", "with a URL of https, http, ssh, git or file"),
        ("git+/srv/shop.git", "with a URL of"),
        (f"git+ftp://uma:{SECRET}@example.org/x", "with a URL of"),
        (f"git+ssh://git:{SECRET}@example.org/x", "ssh takes no password"),
        (f"git+https://uma:{SECRET}@/x", "a host and the path"),
        ("git+https://example.org", "a host and the path"),
        ("git+https://example.org:port/x", "is no address"),
        ("git+file://host/x", "git+file:///srv/shop.git"),
        ("git+file:///x#-evil", "no branch, tag or commit"),
        ("git+file:///x#a..b", "no branch, tag or commit"),
        ("git+file:///x#", "no branch, tag or commit"),
    ],
)
def test_what_is_no_address_is_said_without_a_password(text: str, line: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_address(text)
    assert line in str(caught.value)
    assert f":{SECRET}@" not in str(caught.value)


# -- beginning ---------------------------------------------------------------------------------------------------------


async def test_a_branch_a_tag_a_commit_or_none_of_them_is_where_it_begins(tmp_path: Path) -> None:
    bare = make_bare(tmp_path, {"a": "1\n"})
    first = git(bare, "rev-parse", "main")
    seed = tmp_path / "seed"
    git(seed, "tag", "-am", "first", "v1")
    write(seed, {"a": "2\n"})
    git(seed, "commit", "-qam", "second")
    git(seed, "push", "-q", str(bare), "HEAD:feature/two", "v1")
    expected = {"": (first, "main"), "feature/two": (git(seed, "rev-parse", "HEAD"), "feature/two"), "v1": (first, "")}
    for ref, begins in {**expected, first: (first, "")}.items():
        start = await survey_elsewhere(parse_address(f"git+file://{bare}#{ref}".removesuffix("#")), tmp_path / "state")
        assert (start.head, start.branch) == begins
        trunk = await begin_trunk_elsewhere(start, "team")
        assert git(bare, "rev-parse", trunk.ref) == start.head == trunk.base


async def test_teams_of_the_same_name_get_branches_of_their_own(tmp_path: Path) -> None:
    bare = make_bare(tmp_path)
    start = await survey_elsewhere(parse_address(f"git+file://{bare}"), tmp_path / "state")
    names = [(await begin_trunk_elsewhere(start, name)).branch for name in ("crew", "Crew", "crew")]
    assert names == ["bullpen/crew", "bullpen/Crew-2", "bullpen/crew-3"]


async def test_what_is_not_there_is_said_in_one_line(tmp_path: Path) -> None:
    bare, state = make_bare(tmp_path), tmp_path / "state"
    assert "does not appear to be a git repository" in await refused(f"git+file://{tmp_path}/none", state)
    line = await refused(f"git+file://{bare}#nowhere", state)
    assert line.endswith("has no branch, tag or commit 'nowhere': say with #BRANCH where to begin (main)")
    git(tmp_path, "init", "-q", "--bare", "empty.git")
    assert "has no commit yet: push one" in await refused(f"git+file://{tmp_path}/empty.git", state)
    assert "has no commit" in await refused(f"git+file://{bare}#{'0' * 40}", state)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        line = await refused(f"git+http://uma:{SECRET}@127.0.0.1:{port}/x.git", state)
    assert f"http://127.0.0.1:{port}/x.git cannot be read" in line
    assert f"`git ls-remote http://127.0.0.1:{port}/x.git` must work on this machine" in line


async def test_a_repository_that_takes_no_pushes_is_said_before_anything_begins(tmp_path: Path) -> None:
    bare = make_bare(tmp_path)
    hook = bare / "hooks/update"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text('#!/bin/sh\ncase "$1" in refs/heads/bullpen/*) exit 1;; esac\n')
    hook.chmod(0o755)
    assert "takes no pushes of bullpen/team" in await refused(f"git+file://{bare}", tmp_path / "state")
    # Branches only.
    hook.write_text('#!/bin/sh\ncase "$1" in refs/bullpen/*) exit 1;; esac\n')
    assert "and refs/bullpen/team/* from here" in await refused(f"git+file://{bare}", tmp_path / "state")
    assert git(bare, "for-each-ref", "--format=%(refname)") == "refs/heads/main"


async def test_a_copy_that_does_not_fit_on_the_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = make_bare(tmp_path, {"a": "x" * 1_000_000})
    monkeypatch.setattr(beginning, "WORKTREES", 10**12)
    assert "MB of disk are free" in await refused(f"git+file://{bare}", tmp_path / "state")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte."""
    directory = tmp_path / "small"
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(directory)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("nothing can be mounted here")
    yield directory
    subprocess.run(["umount", "--lazy", str(directory)], check=True)


async def test_a_disk_that_fills_up_while_it_is_copied_is_said(tmp_path: Path, small: Path) -> None:
    bare = make_bare(tmp_path)
    write(tmp_path / "seed", {"big": "".join(random.Random(1).choices("abcdefgh", k=4_000_000))})
    git(tmp_path / "seed", "add", "big")
    git(tmp_path / "seed", "commit", "-qm", "big")
    git(tmp_path / "seed", "push", "-q", str(bare), "main")
    assert (await refused(f"git+file://{bare}", small)).endswith("the disk is full")


async def test_submodules_and_lfs_are_said(tmp_path: Path) -> None:
    inner = make_repository(tmp_path / "inner")
    bare = make_bare(tmp_path, {".gitattributes": "*.bin filter=lfs\n"})
    seed = tmp_path / "seed"
    git(seed, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner), "inner")
    git(seed, "commit", "-qm", "submodule")
    git(seed, "push", "-q", str(bare), "main")
    start = await survey_elsewhere(parse_address(f"git+file://{bare}"), tmp_path / "state")
    notes = " ".join(start.notes)
    assert "submodules are not checked out" in notes
    assert "git-lfs are only pointers" in notes


# -- looking at it afterwards ------------------------------------------------------------------------------------------


async def test_the_work_of_a_team_is_brought_to_any_machine_to_look_at_it(tmp_path: Path) -> None:
    async with open_far_site(make_bare(tmp_path), tmp_path / "here") as site:
        await site.integrate(site.submission("ana", await gathered(site, "ana", {"a": "1\n"})))
        await gathered(site, "ben", {"b": "2\n"})
        local = await bring_here(site.trunk, tmp_path / "there")
        assert not local.is_remote
        assert files_at(Path(local.repository), local.branch)["a"] == "1"
        assert files_at(Path(local.repository), local.member_ref("ben"))["b"] == "2"
        git(site.repository, "branch", "-qD", "bullpen/team")
        with pytest.raises(NotFound, match="bullpen/team is gone from file://"):
            await bring_here(site.trunk, tmp_path / "there")


# -- over HTTP, with a password ----------------------------------------------------------------------------------------


async def test_a_password_of_the_address_opens_the_door_and_is_seen_nowhere(tmp_path: Path) -> None:
    bare, state = make_bare(tmp_path), tmp_path / "state"
    with git_server(tmp_path, password=SECRET) as server:
        assert "cannot be read" in await refused(f"git+{server.url}/far.git", tmp_path / "other")
        assert "cannot be read" in await refused(f"git+{server.with_user('uma:wrong')}/far.git", tmp_path / "other")
        address = f"{server.with_user(f'uma:{SECRET}')}/far.git"
        async with open_far_site(bare, state, url=address) as site:
            assert site.trunk.repository == f"{server.url}/far.git"
            ana = await site.worktree("ana")
            write(ana.root, {"a": "1\n"})
            work = await ana.gather("one\n")
            assert work is not None
            await site.integrate(site.submission("ana", work))
            assert files_at(bare, "bullpen/team")["a"] == "1"
            mirror = Mirror(site.trunk.repository, state)
            for path in (*mirror.git.directory.rglob("*"), *ana.root.rglob("*")):
                assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path
            held = mirror.directory / "credential"
            assert held.stat().st_mode & 0o777 == 0o600
        assert "the password of the address stays on this machine" in " ".join(
            (await survey_elsewhere(parse_address(f"git+{address}"), state)).notes
        )


async def test_the_machines_own_credential_helper_is_asked_where_no_password_was_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_bare(tmp_path)
    helper = tmp_path / "config"
    helper.write_text(f'[credential]\n\thelper = "!f() {{ echo username=uma; echo password={SECRET}; }}; f"\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(helper))
    with git_server(tmp_path, password=SECRET) as server:
        assert (await begun(f"git+{server.url}/far.git", tmp_path / "state")).branch == "bullpen/team"


async def test_a_password_in_the_settings_of_the_machines_git_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_bare(tmp_path)
    with git_server(tmp_path, password="another") as server:
        rewritten = f"{server.with_user(f'uma:{SECRET}')}/"
        config = tmp_path / "config"
        config.write_text(f'[url "{rewritten}"]\n\tinsteadOf = {server.url}/\n')
        monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
        line = await refused(f"git+{server.url}/far.git", tmp_path / "state")
        assert "cannot be read" in line


async def test_a_password_is_not_among_the_arguments_or_the_environment_of_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_bare(tmp_path)
    seen = tmp_path / "seen"
    fake = tmp_path / "bin/git"
    write(tmp_path, {"bin/git": f'#!/bin/sh\n{{ echo "$@"; env; }} >> {seen}\nexec {shutil.which("git")} "$@"\n'})
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    with git_server(tmp_path, password=SECRET) as server:
        address = parse_address(f"git+{server.with_user(f'uma:{SECRET}')}/far.git")
        await survey_elsewhere(address, tmp_path / "state")
    assert "fetch" in seen.read_text()
    assert SECRET not in seen.read_text()
