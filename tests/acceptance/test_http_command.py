"""The command with models behind HTTP: whole runs, what cannot be asked, and what is imported."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bullpen.stores import open_store
from tests.acceptance.command import BOUND_SECONDS, Bullpen, Ran
from tests.support.cast import Job, Play
from tests.support.company import MODELS, Wire, acting, in_turn, playing
from tests.support.invariants import check_invariants
from tests.support.protocol_server import ProtocolServer
from tests.support.protocol_server.server import KEY

PLAY = Play(
    jobs=(
        Job(subject="read"),
        Job(subject="design", blocked_by=(1,)),
        Job(subject="server", blocked_by=(2,), fails=True),
        Job(subject="client", blocked_by=(2,)),
        Job(subject="test", blocked_by=(3, 4)),
    ),
    teammates=("ana", "ben"),
)
SETTINGS = """
[sandbox]
kind = "local"
[permissions]
allow = ["*"]
"""


@pytest.fixture(params=["anthropic", "openai"])
def whole(request: pytest.FixtureRequest) -> Wire:
    return Wire(request.param, False)


@pytest.fixture
def project(bullpen: Bullpen) -> Bullpen:
    (bullpen.directory / "bullpen.toml").write_text(SETTINGS)
    return bullpen


async def command(bullpen: Bullpen, *words: str, code: int, **environment: Any) -> Ran:
    return await asyncio.to_thread(bullpen, *words, code=code, **environment)


def documents(ran: Ran) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ran.lines]


@pytest.mark.parametrize("wire", [Wire("anthropic", False), Wire("openai", True)], ids=["whole", "streamed"])
async def test_a_run_of_the_command_finishes_a_board_over_http(wire: Wire, project: Bullpen) -> None:
    if wire.is_streamed:
        # So long a reply is streamed, whoever watches.
        (project.directory / "bullpen.toml").write_text(f"max_output_tokens = 24_000\n{SETTINGS}")
    async with ProtocolServer(playing(PLAY)) as server:
        ran = await command(project, "run", "Migrate it", "--model", wire.model, "--json", code=0, **server.environ)
    assert server.ledger.refusals == []
    assert {(heard.format, heard.stream) for heard in server.heard} == {(wire.format, wire.is_streamed)}
    report = documents(ran)[-1]["report"]
    assert report["succeeded"]
    assert [task["status"] for task in report["tasks"]] == ["completed"] * len(PLAY.jobs)
    assert report["tokens"] == server.ledger.usage.input_tokens + server.ledger.usage.output_tokens
    assert KEY not in ran.out + ran.err
    async with open_store(project.store) as store:
        [team] = await store.list_teams()
        await check_invariants(store, team.id, project.directory)


# -- what cannot be asked ------------------------------------------------------------------------------------


async def test_a_refused_key_is_one_line_and_exit_3_and_the_goal_waits_for_the_right_one(project: Bullpen) -> None:
    model = MODELS["anthropic"]
    async with ProtocolServer(acting({"lead": in_turn("Hello.")})) as server:
        wrong = {**server.environ, "ANTHROPIC_API_KEY": "sk-wrong-key"}
        ran = await command(project, "run", "Say hello", "--model", model, code=3, **wrong)
        check_told(ran, "refuses the key", "say-hello")
        assert "sk-wrong-key" not in ran.out + ran.err
        told = await asyncio.to_thread(project.read, "inbox")
        assert [message["type"] for message in told] == ["error"]
        await command(project, "resume", code=0, **server.environ)
    assert "Say hello" in server.heard[-1].text


async def test_a_model_that_is_not_there_is_one_line_and_exit_3(project: Bullpen) -> None:
    async with ProtocolServer(acting({}), models=("another",)) as server:
        ran = await command(project, "run", "Say hello", "--model", MODELS["openai"], code=3, **server.environ)
    check_told(ran, f"there is no model {MODELS['openai']}", "say-hello")
    assert ran.err.endswith("`bullpen resume say-hello` goes on, --model MODEL with another\n")


def check_told(ran: Ran, why: str, team: str) -> None:
    """Once as it happens, and once at the end, with what to do."""
    [line] = [line for line in ran.err.splitlines() if "NOT confined" not in line]
    assert line.startswith("bullpen: lead cannot ask its model: ")
    assert why in line
    assert f"`bullpen resume {team}` goes on" in line
    assert ran.out.count("cannot ask its model") == 1


# -- what is imported ----------------------------------------------------------------------------------------

LIBRARIES = ("pydantic_ai", "anthropic", "openai", "httpx", "httpx2", "genai_prices", "google", "mcp")
HOSTING = """
import asyncio, json, sys
from bullpen import open_team
from bullpen.domain.event import EventKind

def loaded():
    return sorted(set({libraries!r}) & set(sys.modules))

async def main():
    async with open_team("t", store="sqlite:///:memory:", model={model!r}) as team:
        await team.create_task("later", role="tester")
        await team.spawn("ana", role="tester", require_plan=False, prompt="Work.", task_id=None)
        await team.set_task_status(1, "deleted")
        await team.shut_down("ana")
        async with team.hosting.worker(team):
            async for event in team.follow_events():
                if event.kind == EventKind.MEMBER_SHUT_DOWN:
                    break
        print(json.dumps(loaded()), flush=True)
        await team.send("lead", "Hello?")
        await team.run()
        print(json.dumps(loaded()), flush=True)

asyncio.run(main())
"""


async def test_no_library_of_a_provider_is_imported_before_a_model_is_asked(whole: Wire, tmp_path: Path) -> None:
    async with ProtocolServer(acting({"lead": in_turn("Yes.")})) as server:
        program = HOSTING.format(libraries=LIBRARIES, model=whole.model)
        ran = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", program],
            cwd=tmp_path,
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **server.environ},
            capture_output=True,
            text=True,
            timeout=BOUND_SECONDS,
            check=False,
        )
    assert ran.returncode == 0, ran.stderr
    before, after = map(json.loads, ran.stdout.splitlines())
    assert before == []
    assert "pydantic_ai" in after
