"""What is promised only behind walls: hostile commands in a bubblewrap, with real files, sockets and namespaces."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bullpen.sandbox import Sandbox
from bullpen.sandboxes import open_sandbox
from bullpen.sandboxes.paths import is_hidden, secret_places
from tests.support.sandboxes import PYTHON, Ground, Token, fetch, is_alive, require_bubblewrap, serve, until

IDENTITY = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")


@pytest.fixture(autouse=True)
def _walls() -> None:
    require_bubblewrap()


# Files


async def test_nothing_outside_the_workspace_can_be_written(walled: Sandbox, ground: Ground) -> None:
    (ground.workspace / "way").symlink_to(ground.outside)
    places = (
        ground.outside,
        "way",
        ground.home,
        ground.root,
        "/etc",
        "/usr/bin",
        "/var/lib",
        "/opt",
        "/proc/sys/kernel",
        "/sys",
    )
    for place in places:
        result = await walled.run(f"echo evil > {place}/evil || mkdir {place}/evil")
        assert result.exit_code != 0, place
    assert (await walled.run("echo changed > way/file; rm -f way/file; mv way/file way/other")).exit_code != 0
    assert [path.name for path in ground.outside.iterdir()] == ["file"]
    assert (ground.outside / "file").read_text() == "outside"
    assert (await walled.run(f"cat {ground.outside}/file")).output == "outside"


async def test_secrets_and_store_are_not_even_visible(walled: Sandbox, ground: Ground) -> None:
    listed = await walled.run(f"ls -A {ground.home} {ground.home}/.config; cat {ground.home}/.config/tool/settings")
    assert listed.output == f"{ground.home}:\n.config\n.gitconfig\n\n{ground.home}/.config:\ntool\nharmless"
    assert (await walled.run(f"ls -A {ground.store}")).output == "members\n"
    assert (await walled.run(f"ls -A {ground.store}/members/ana")).output == "home\noutput\n"
    found = await walled.run(f"grep -rsl 'SECRET\\|STORED' {ground.root}")
    assert found.output == ""


async def test_a_secret_that_appears_later_is_not_visible_either(walled: Sandbox, ground: Ground) -> None:
    await walled.run("true")
    for place in (".aws/credentials", ".config/gcloud/token", ".npmrc"):
        (ground.home / place).parent.mkdir(exist_ok=True)
        (ground.home / place).write_text("SECRET")
        assert (await walled.run(f"cat {ground.home / place}")).exit_code != 0


async def test_what_the_environment_names_as_a_place_of_credentials_is_hidden(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("cluster", "cloud.json", "settings/gh/hosts.yml"):
        (ground.outside / name).parent.mkdir(parents=True, exist_ok=True)
        (ground.outside / name).write_text("SECRET")
    monkeypatch.setenv("KUBECONFIG", f"{ground.outside}/missing:{ground.outside}/cluster")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(ground.outside / "cloud.json"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(ground.outside / "settings"))
    async with open_sandbox(ground.spec(), kind="required") as sandbox:
        assert (await sandbox.run(f"grep -rsl SECRET {ground.root}")).output == ""
        assert (await sandbox.run(f"cat {ground.outside}/file")).output == "outside"


async def test_a_secret_behind_a_link_and_a_home_as_workspace_are_covered(ground: Ground) -> None:
    kept = ground.outside / "keys"
    kept.mkdir()
    (kept / "key").write_text("SECRET")
    (ground.home / ".gnupg").symlink_to(kept)
    async with open_sandbox(ground.spec(workspace=ground.home), kind="required") as sandbox:
        assert (await sandbox.run("echo mine > file")).exit_code == 0
        assert (await sandbox.run(f"grep -rsl SECRET {ground.root}")).output == ""
        # Nor can it be moved aside, to be read under another name or replaced.
        for command in ("mv .ssh x", "mv .config x", "rm -rf .ssh", "mv .netrc x", "echo > .netrc"):
            assert (await sandbox.run(command)).exit_code != 0, command
    assert (ground.home / ".ssh/id_rsa").read_text() == "SECRET"
    assert (ground.home / ".netrc").read_text() == "SECRET"


async def test_the_store_cannot_be_moved_with_a_directory_above_it(ground: Ground) -> None:
    spec = replace(ground.spec(), hidden=(ground.workspace / "deep/down/store", ground.store))
    (ground.workspace / "deep/down/store").mkdir(parents=True)
    async with open_sandbox(spec, kind="required") as sandbox:
        for command in ("mv deep x", "mv deep/down x", "mv deep/down/store x", "rm -rf deep", "mv .bullpen x"):
            assert (await sandbox.run(command)).exit_code != 0, command
        assert (await sandbox.run("touch deep/file deep/down/file")).exit_code == 0
    assert (ground.workspace / "deep/down/store").is_dir()


async def test_a_workspace_inside_something_hidden_is_shown(ground: Ground) -> None:
    inner = ground.store / "worktrees/ana"
    inner.mkdir(parents=True)
    async with open_sandbox(ground.spec(workspace=inner), kind="required") as sandbox:
        assert (await sandbox.run(f"echo x > file; ls -A {ground.store}")).output == "members\nworktrees\n"
        assert (await sandbox.run(f"touch {ground.store}/worktrees/evil")).exit_code != 0
    assert (inner / "file").exists()


async def test_further_paths_can_be_made_readable_and_writable(ground: Ground) -> None:
    (ground.store / "shared").mkdir()
    (ground.store / "shared/note").write_text("note")
    spec = replace(ground.spec(), writable=(ground.outside,), readable=(ground.store / "shared",))
    async with open_sandbox(spec, kind="required") as sandbox:
        result = await sandbox.run(f"echo x > {ground.outside}/made; cat {ground.store}/shared/note")
        assert result.output == "note"
        assert (await sandbox.run(f"echo x > {ground.store}/shared/note")).exit_code != 0
    assert (ground.outside / "made").exists()


async def test_a_read_only_command_writes_nothing_but_its_own_tmp(walled: Sandbox, ground: Ground) -> None:
    (ground.workspace / "file").write_text("kept")
    await walled.run("echo mine > ~/note; echo mine > /tmp/note")
    for place in ("file", "new", "~/new", "~/note"):
        assert (await walled.run(f"echo evil > {place}", read_only=True)).exit_code != 0
    result = await walled.run("cat file ~/note; echo x > /tmp/x && cat /tmp/x; ls /tmp/note", read_only=True)
    assert result.output.startswith("keptmine\nx\n")
    assert result.exit_code != 0
    assert (await walled.run("ls /tmp/x")).exit_code != 0
    running = await walled.start("touch evil; echo tried", read_only=True)
    assert await running.wait(60) == 0
    assert sorted(path.name for path in ground.workspace.iterdir()) == [".bullpen", "file"]


async def test_what_a_sandbox_hides_a_file_tool_can_refuse(ground: Ground) -> None:
    (ground.workspace / "way").symlink_to(ground.home / ".ssh")
    places = (*secret_places(), *ground.spec().hidden)
    for path in (ground.home / ".ssh/id_rsa", ground.workspace / "way/id_rsa", ground.store / "x", Path("/etc/shadow")):
        assert is_hidden(path, places), path
    for path in (ground.workspace / "file", ground.home / ".sshx", ground.home / ".config/tool/settings"):
        assert not is_hidden(path, places), path


# The kernel


async def test_mounts_cannot_be_changed_from_inside(walled: Sandbox, ground: Ground) -> None:
    for command in (
        "mount -o remount,rw /",
        f"mount -o remount,rw,bind {ground.home}",
        f"umount {ground.store}",
        f"umount -l {ground.store}",
        "mount -t tmpfs none /mnt",
        "mount --bind . /usr",
        f"unshare -Urm sh -c 'umount {ground.store} && cat {ground.store}/bullpen.db'",
        f"unshare -Urm sh -c 'mount -o remount,rw / && touch {ground.outside}/evil'",
        f"unshare -Urm sh -c 'mount -o remount,rw,bind / && touch {ground.outside}/evil'",
        f"unshare -Urm sh -c 'umount -l {ground.store}; grep STORED {ground.store}/bullpen.db'",
    ):
        assert (await walled.run(command)).exit_code != 0, command
    assert not (ground.outside / "evil").exists()


async def test_the_kernel_cannot_be_told_to_run_something(walled: Sandbox) -> None:
    """As root no capability is needed to write these: only that they are read-only helps."""
    for path in (
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/modprobe",
        "/proc/sys/vm/drop_caches",
        "/proc/sysrq-trigger",
    ):
        assert (await walled.run(f": >> {path}")).exit_code != 0, path


async def test_there_are_no_capabilities_and_no_way_to_new_ones(walled: Sandbox) -> None:
    status = (await walled.run("cat /proc/self/status")).output
    assert "CapEff:\t0000000000000000" in status
    assert "CapBnd:\t0000000000000000" in status
    assert "NoNewPrivs:\t1" in status


async def test_processes_of_the_machine_are_not_visible(walled: Sandbox) -> None:
    result = await walled.run(f"ls /proc | grep -c '^[0-9]'; kill -0 {os.getpid()}; cat /proc/{os.getpid()}/environ")
    assert int(result.output.splitlines()[0]) < 10
    assert result.exit_code != 0


async def test_the_supervisor_cannot_be_traced_stopped_or_spoken_to(walled: Sandbox, token: Token) -> None:
    trace = (
        "import ctypes; libc = ctypes.CDLL(None, use_errno=True); import os, sys\n"
        "sys.exit(any(libc.ptrace(16, pid, 0, 0) == 0 for pid in (1, os.getppid())))"
    )
    assert (await walled.run(f'{PYTHON} -I -S -c "{trace}"')).exit_code == 0
    for command in ("ls -l /proc/1/fd/*", "ls -l /proc/$PPID/fd/*", "head -c1 /proc/1/mem", "cat /proc/1/environ"):
        assert (await walled.run(command)).exit_code != 0, command
    assert (await walled.run("ls /proc/self/fd")).output.split() == ["0", "1", "2", "3"]
    for name in ("KILL", "STOP", "TERM", "INT", "HUP", "USR1", "SEGV", "ABRT", "CHLD", "PIPE"):
        await walled.run(f"kill -{name} 1")
    running = await walled.start(f"sleep {token}")
    await token.until(1)
    await running.stop()
    assert not token.processes()


# The network


@pytest.fixture
def host_port() -> Iterator[int]:
    """A port of the host that accepts."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


def knock(port: int) -> str:
    return f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo in"


async def test_the_machines_network_is_reached_only_by_a_call_that_may(walled: Sandbox, host_port: int) -> None:
    assert (await walled.run(knock(host_port))).exit_code != 0
    assert (await walled.run(knock(host_port), network=True)).output == "in\n"
    assert (await walled.run(knock(host_port))).exit_code != 0
    interfaces = await walled.run("tail -n +3 /proc/net/dev | cut -d: -f1")
    assert interfaces.output.split() == ["lo"]


async def test_a_sandbox_with_network_can_run_a_call_without(ground: Ground, host_port: int) -> None:
    async with open_sandbox(ground.spec(network=True), kind="required") as sandbox:
        assert not sandbox.guarantees.network_cut
        assert (await sandbox.run(knock(host_port))).output == "in\n"
        assert (await sandbox.run(knock(host_port), network=False)).exit_code != 0


async def test_a_call_with_network_sees_no_process_of_the_rest_and_leaves_none(walled: Sandbox, token: Token) -> None:
    server = await walled.start(serve(8123, "inside"))
    await until(lambda: "listening" in server.read())
    assert (await walled.run(fetch(8123))).output == "hello from inside"
    assert (await walled.run(fetch(8123), network=True)).exit_code != 0
    result = await walled.run(
        f"setsid sleep {token} & echo shared > /tmp/note; ls /proc | grep -c '^[0-9]'", network=True
    )
    assert int(result.output) < 10
    assert not token.processes()
    assert (await walled.run("cat /tmp/note")).output == "shared\n"


async def test_a_background_command_with_network_ends_when_it_is_stopped(walled: Sandbox, token: Token) -> None:
    running = await walled.start(f"setsid sleep {token} & sleep {token}", network=True)
    await token.until(2)
    await running.stop()
    assert not token.processes()


async def test_a_command_with_network_is_stopped_when_the_last_of_it_is_dead(walled: Sandbox, token: Token) -> None:
    """Its cell ends as soon as the command itself does, which takes a moment longer than to hang up."""
    many = 60
    deaf = f"(trap '' TERM; exec setsid sleep {token})"
    running = await walled.start(f"for i in $(seq {many}); do {deaf} & done; exec sleep {token}", network=True)
    sleepers = await token.until(many + 1)
    await running.stop(grace_seconds=30)
    assert not [one for one in sleepers if is_alive(one)]


async def test_a_background_command_with_network_ends_with_its_sandbox(ground: Ground, token: Token) -> None:
    async with open_sandbox(ground.spec(), kind="required") as sandbox:
        await sandbox.start(f"setsid sleep {token} & sleep {token}", network=True)
        await token.until(2)
    assert not token.processes()


async def test_sockets_that_are_files_of_the_machine_are_out_of_reach(
    walled: Sandbox, ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX) as daemon:
        # The whole path would be too long for a socket.
        monkeypatch.chdir(ground.home)
        daemon.bind("daemon.sock")
        daemon.listen()
        assert (await walled.run(f"ls {ground.home}/daemon.sock")).exit_code != 0
    assert (await walled.run("find /run -type s")).output == ""


# Git


def git(directory: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *IDENTITY, *arguments],
        cwd=directory,
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.stdout


@pytest.fixture
def repository(ground: Ground) -> Path:
    main = ground.root / "main"
    main.mkdir()
    git(main, "init", "-q", "-b", "main")
    (main / "file").write_text("one\n")
    git(main, "add", "file")
    git(main, "commit", "-qm", "one")
    return main


@asynccontextmanager
async def in_worktree(ground: Ground, main: Path) -> AsyncIterator[Sandbox]:
    tree = ground.root / "tree"
    git(main, "worktree", "add", "-q", "-b", "work", str(tree))
    async with open_sandbox(ground.spec(workspace=tree), kind="required") as sandbox:
        yield sandbox


async def test_a_commit_in_a_worktree_reaches_its_repository(ground: Ground, repository: Path) -> None:
    async with in_worktree(ground, repository) as sandbox:
        result = await sandbox.run("echo two >> file && git commit -qam two && git status -s")
        assert (result.exit_code, result.output) == (0, "")
        result = await sandbox.run(
            "git checkout -qb side HEAD~1 && echo x > x && git add x && git commit -qm side && "
            "git checkout -q work && git merge -q --no-edit side && git rebase -q HEAD~1"
        )
        assert result.exit_code == 0, result.output
    assert git(repository, "log", "--format=%s %an", "work").splitlines()[0].startswith("side")
    assert git(repository, "fsck").count("error") == 0


async def test_no_hook_or_setting_can_be_planted_from_a_worktree(ground: Ground, repository: Path) -> None:
    common = repository / ".git"
    hook = f"#!/bin/sh\ntouch {ground.root}/evil\n"
    async with in_worktree(ground, repository) as sandbox:
        for command in (
            f"printf '{hook}' > {common}/hooks/post-commit",
            f"mv {common}/hooks {common}/old",
            "git config core.hooksPath /tmp/hooks",
            f"echo '[core]' >> {common}/config",
            f"mv {common} {common}.old",
            f"mv {common}/worktrees/tree {common}/worktrees/old",
            f"echo /tmp > {common}/worktrees/tree/commondir",
            f"mv /tmp/x {common}/worktrees/tree/commondir",
            f"echo . > {common}/commondir",
            "echo 'gitdir: /tmp' > .git",
            "mv .git old",
            "rm .git",
        ):
            assert (await sandbox.run(command)).exit_code != 0, command
        assert (await sandbox.run("git commit -q --allow-empty -m two")).exit_code == 0
    git(repository, "commit", "-q", "--allow-empty", "-m", "outside")
    git(ground.root / "tree", "commit", "-q", "--allow-empty", "-m", "outside")
    assert not (ground.root / "evil").exists()


async def test_no_hook_or_setting_can_be_planted_in_a_repository_that_is_the_workspace(
    ground: Ground, repository: Path
) -> None:
    async with open_sandbox(ground.spec(workspace=repository), kind="required") as sandbox:
        result = await sandbox.run("echo two >> file && git commit -qam two && git branch side && git branch -qD side")
        assert result.exit_code == 0, result.output
        for command in (
            "echo x > .git/hooks/post-commit",
            "mv .git/hooks .git/old",
            "rm -rf .git/hooks",
            "git config core.hooksPath /tmp/hooks",
            "cp .git/config /tmp/config && mv /tmp/config .git/config",
            "mv .git old",
        ):
            assert (await sandbox.run(command)).exit_code != 0, command
        # Git must be able to make files here, so this one is removed afterwards.
        await sandbox.run("cp -r .git /tmp/evil; echo /tmp/evil > .git/commondir")
        assert not (repository / ".git/commondir").exists()
        running = await sandbox.start("echo /tmp/evil > .git/commondir")
        await running.wait(60)
    assert not (repository / ".git/commondir").exists()
    assert git(repository, "log", "--format=%s").splitlines() == ["two", "one"]


async def test_a_pointer_that_nobody_points_back_to_opens_nothing(ground: Ground, repository: Path) -> None:
    """A member can write `.git` with a file tool, and a fake repository too."""
    fake = ground.workspace / "fake/worktrees/x"
    fake.mkdir(parents=True)
    (fake / "commondir").write_text(f"{repository}/.git\n")
    (fake / "gitdir").write_text(f"{ground.workspace}/.git\n")
    for target in (repository / ".git", fake):
        (ground.workspace / ".git").write_text(f"gitdir: {target}\n")
        async with open_sandbox(ground.spec(), kind="required") as sandbox:
            for place in ("objects", "refs", "logs", "hooks", "."):
                assert (await sandbox.run(f"touch {repository}/.git/{place}/evil")).exit_code != 0, place


async def test_many_members_have_their_own(ground: Ground) -> None:
    async def work(name: str) -> str:
        spec = replace(ground.spec(), member=name, private_directory=ground.store / "members" / name)
        async with open_sandbox(spec, kind="required") as sandbox:
            await sandbox.run(f"echo {name} > /tmp/who; echo {name} > ~/who")
            return (await sandbox.run(f"cat /tmp/who ~/who; ls {ground.store}/members")).output

    names = ("ana", "ben", "cat")
    assert await asyncio.gather(*map(work, names)) == [f"{name}\n{name}\n{name}\n" for name in names]
