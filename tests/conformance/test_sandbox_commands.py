"""Running commands, in every sandbox: output, exit codes, what persists and what the environment holds."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psutil
import pytest

from bullpen.errors import SandboxUnavailable, UsageError
from bullpen.sandbox import Sandbox
from bullpen.sandboxes import open_sandbox
from bullpen.sandboxes.bubblewrap import BubblewrapSandbox
from bullpen.sandboxes.local import LocalSandbox
from tests.support.ports import free_port
from tests.support.sandboxes import Ground, Token, fetch, serve, until, until_true


async def test_a_command_runs_in_the_workspace_and_reports_output_and_exit_code(
    sandbox: Sandbox, ground: Ground
) -> None:
    result = await sandbox.run("pwd; echo wrong >&2; echo made > file; exit 3")
    assert (result.exit_code, result.timed_out) == (3, False)
    assert result.output == f"{ground.workspace}\nwrong\n"
    assert result.output_path.read_text() == result.output
    assert (ground.workspace / "file").read_text() == "made\n"


async def test_a_command_that_is_killed_reports_128_and_the_signal(sandbox: Sandbox) -> None:
    assert (await sandbox.run("kill -9 $$")).exit_code == 137
    assert (await sandbox.run("kill -TERM $$")).exit_code == 143


async def test_standard_input_is_empty(sandbox: Sandbox) -> None:
    assert (await sandbox.run("cat; echo read", timeout_seconds=30)).output == "read\n"


async def test_a_broken_pipe_ends_a_command_as_in_any_shell(sandbox: Sandbox) -> None:
    result = await sandbox.run("yes | head -1; echo ${PIPESTATUS[0]}")
    assert result.output == "y\n141\n"


async def test_output_that_is_not_text_is_replaced(sandbox: Sandbox) -> None:
    result = await sandbox.run(r"printf 'a\377\000b\303'")
    assert result.output == "a\ufffd\0b\ufffd"
    assert result.output_path.read_bytes() == b"a\xff\0b\xc3"


async def test_long_output_keeps_head_and_tail_and_says_where_the_whole_is(sandbox: Sandbox) -> None:
    result = await sandbox.run("seq 1 100000")
    assert len(result.output) <= 30_000
    assert result.output.startswith("1\n2\n")
    assert result.output.endswith("99999\n100000\n")
    assert f"left out; the whole output is in {result.output_path}" in result.output
    assert result.output_path.read_text() == "".join(f"{number}\n" for number in range(1, 100_001))
    assert (await sandbox.run(f"tail -1 {result.output_path}")).output == "100000\n"


async def test_huge_output_is_limited_on_disk_and_its_end_is_kept(sandbox: Sandbox) -> None:
    before = psutil.Process().memory_info().rss
    result = await sandbox.run("head -c 300000000 /dev/zero | tr '\\0' x; echo; echo the end", timeout_seconds=120)
    assert result.exit_code == 0
    assert result.output_path.stat().st_size < 51_000_000
    assert result.output.endswith("\nthe end\n")
    with result.output_path.open("rb") as file:
        file.seek(50_000_000)
        assert "bytes were not kept: output is limited to 50,000,000" in file.read(200).decode()
    assert psutil.Process().memory_info().rss - before < 20_000_000


async def test_a_directory_in_the_workspace_can_be_chosen_and_one_that_is_not_there_is_refused(
    sandbox: Sandbox, ground: Ground
) -> None:
    (ground.workspace / "part").mkdir()
    assert (await sandbox.run("pwd", directory=ground.workspace / "part")).output == f"{ground.workspace}/part\n"
    with pytest.raises(UsageError, match="no such directory"):
        await sandbox.run("pwd", directory=ground.workspace / "nowhere")


@pytest.mark.parametrize("command", [": " + "x" * 200_000, "echo \0", "echo \ud800"])
async def test_a_command_that_no_system_would_take_is_refused(sandbox: Sandbox, command: str) -> None:
    with pytest.raises(UsageError):
        await sandbox.run(command)
    assert (await sandbox.run("echo still here")).output == "still here\n"


async def test_home_and_tmp_are_the_members_own_and_persist(sandbox_kind: str, ground: Ground) -> None:
    async with open_sandbox(ground.spec(), kind=sandbox_kind) as sandbox:
        assert (
            await sandbox.run("echo kept > ~/file; echo kept > ${TMPDIR:-/tmp}/file; mkdir -p ~/.cache/x")
        ).exit_code == 0
        assert (await sandbox.run("cat ~/file ${TMPDIR:-/tmp}/file; echo $HOME")).output == (
            f"kept\nkept\n{ground.store}/members/ana/home\n"
        )
    async with open_sandbox(ground.spec(), kind=sandbox_kind) as sandbox:
        assert (await sandbox.run("cat ~/file ${TMPDIR:-/tmp}/file")).output == "kept\nkept\n"
    assert not (ground.home / "file").exists()


async def test_output_files_of_an_earlier_sandbox_are_kept(sandbox_kind: str, ground: Ground) -> None:
    paths: list[Path] = []
    for word in ("first", "second"):
        async with open_sandbox(ground.spec(), kind=sandbox_kind) as sandbox:
            paths.append((await sandbox.run(f"echo {word}")).output_path)
    assert [path.read_text() for path in paths] == ["first\n", "second\n"]


async def test_no_key_or_token_of_the_worker_is_in_the_environment(
    sandbox_kind: str, ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "ANTHROPIC_API_KEY",
        "OPENAI_API_KEY",
        "GITHUB_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "SSH_AUTH_SOCK",
        "PGPASSWORD",
    ):
        monkeypatch.setenv(name, "SECRET")
    monkeypatch.setenv("LC_TIME", "C")
    async with open_sandbox(ground.spec(COLOUR="blue"), kind=sandbox_kind) as sandbox:
        lines = (await sandbox.run("env; tr '\\0' '\\n' < /proc/$PPID/environ 2>/dev/null; true")).output.splitlines()
    assert not [line for line in lines if "SECRET" in line]
    assert {"COLOUR=blue", "LC_TIME=C"} <= set(lines)


async def test_git_commits_in_the_humans_name_and_without_credentials(sandbox: Sandbox) -> None:
    result = await sandbox.run(
        "git init -q sub && cd sub && git commit -q --allow-empty -m x && git log --format='%an <%ae>' && "
        "git config --get-all credential.helper"
    )
    assert result.output == 'Ada "L" Byron <ada@example.org>\n\n'


async def test_commands_run_side_by_side(sandbox: Sandbox, ground: Ground) -> None:
    (ground.workspace / "meet").mkdir()
    # Each ends only when it has seen all others.
    command = "touch meet/{}; until [ $(ls meet | wc -l) = 5 ]; do :; done; echo {}"
    results = await asyncio.gather(*(sandbox.run(command.format(i, i), timeout_seconds=60) for i in range(5)))
    assert [result.output for result in results] == [f"{i}\n" for i in range(5)]


async def test_a_background_command_is_read_while_it_runs_and_tells_its_exit_code(
    sandbox: Sandbox, ground: Ground
) -> None:
    running = await sandbox.start("echo begun; until [ -e go ]; do :; done; echo done; exit 4")
    await until(lambda: running.read() == "begun\n")
    assert running.poll() is None
    assert await running.wait(timeout_seconds=0.01) is None
    assert psutil.Process(running.identity.pid).is_running()
    (ground.workspace / "go").touch()
    assert await running.wait(timeout_seconds=60) == 4
    assert (running.poll(), running.read()) == (4, "begun\ndone\n")
    await running.stop()


async def test_a_server_in_the_background_is_reached_by_the_next_command_and_stop_frees_its_port(
    sandbox: Sandbox,
) -> None:
    port = free_port()
    for word in ("one", "two"):
        server = await sandbox.start(serve(port, word))
        await until(lambda server=server: "listening" in server.read())  # type: ignore[misc]
        assert (await sandbox.run(fetch(port))).output == f"hello from {word}"
        await server.stop()
        assert server.poll() == 143
        assert (await sandbox.run(fetch(port))).exit_code != 0


async def test_what_a_finished_command_left_in_the_background_goes_on_until_the_sandbox_ends(
    sandbox_kind: str, ground: Ground, token: Token
) -> None:
    async with open_sandbox(ground.spec(), kind=sandbox_kind) as sandbox:
        port = free_port()
        result = await sandbox.run(f"({serve(port, 'left')}) & sleep {token} & echo started", timeout_seconds=60)
        assert result.exit_code == 0

        async def is_reached() -> bool:
            return (await sandbox.run(fetch(port))).output == "hello from left"

        await until_true(is_reached)
        # The server may be there before the sleeper has become one.
        await token.until(1)
    assert not token.processes()


async def test_an_idle_sandbox_has_no_process_and_the_next_command_starts_one(
    sandbox_kind: str, ground: Ground
) -> None:
    make = {"bubblewrap": BubblewrapSandbox, "local": LocalSandbox}[sandbox_kind]
    async with make(ground.spec(), idle_seconds=0.05) as sandbox:
        for _ in range(2):
            running = await sandbox.start("echo hello; read < pipe || mkfifo pipe; read < pipe")
            supervisor = psutil.Process(running.identity.pid).parent()
            assert supervisor is not None
            await running.stop()
            await until(lambda supervisor=supervisor: not supervisor.is_running())  # type: ignore[misc]
        assert (await sandbox.run("echo again")).output == "again\n"


async def test_a_workspace_that_is_gone_makes_the_sandbox_unavailable(sandbox_kind: str, ground: Ground) -> None:
    async with open_sandbox(ground.spec(workspace=ground.root / "gone"), kind=sandbox_kind) as sandbox:
        with pytest.raises(SandboxUnavailable, match="is gone"):
            await sandbox.run("true")


async def test_what_is_not_guaranteed_is_said(sandbox: Sandbox) -> None:
    holds = (sandbox.guarantees.files_confined, sandbox.guarantees.secrets_hidden, sandbox.guarantees.network_cut)
    if sandbox.name == "bubblewrap":
        assert holds == (True, True, True)
        assert "NOT" not in sandbox.describe()
    else:
        assert holds == (False, False, False)
        assert "NOT confined" in sandbox.describe()
        with pytest.raises(SandboxUnavailable, match="needs bubblewrap"):
            await sandbox.run("true", read_only=True)
