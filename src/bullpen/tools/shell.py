"""Tools of commands: bash, and TaskOutput and TaskStop for what goes on in the background."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bullpen.domain.background import Background, BackgroundKind, BackgroundState, parse_background_id
from bullpen.errors import SandboxUnavailable, ToolError
from bullpen.sandbox import OUTPUT_CHARACTERS, CommandResult
from bullpen.tool import Changes, Kind, Parameter, Tool, ToolContext, ToolOutput
from bullpen.tools.backgrounds import Backgrounds, read_output

DEFAULT_SECONDS = 120.0
MAX_SECONDS = 600.0
MILLISECONDS_FROM = 10_000
"""So many seconds nobody means: other tools take milliseconds here."""
WAIT_SECONDS = 30.0

_GATED = "until your plan is approved, a command may only read"
_READER = "a subagent of this kind only reads"


# -- bash ------------------------------------------------------------------------------


async def _bash(context: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput:
    return await _run(context, arguments, only_reads=_GATED if context.is_gated else None)


async def _look(context: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput:
    return await _run(context, arguments, only_reads=_READER)


async def _run(context: ToolContext, arguments: Mapping[str, Any], *, only_reads: str | None) -> ToolOutput:
    if not arguments["command"].strip():
        raise ToolError("the command is empty")
    try:
        if arguments.get("run_in_background", False):
            return await _start(context, arguments, read_only=only_reads is not None)
        seconds, remarks = _timeout(arguments)
        result = await context.sandbox.run(
            arguments["command"],
            timeout_seconds=seconds,
            network=arguments.get("network"),
            read_only=only_reads is not None,
        )
    except SandboxUnavailable as error:
        if only_reads is None:
            raise
        raise ToolError(
            f"refused: {only_reads}, and that cannot be enforced now ({error}). Use read_file, glob and grep"
        ) from error
    return ToolOutput(text=_told(result, seconds), is_error=result.timed_out, remarks=remarks)


def _timeout(arguments: Mapping[str, Any]) -> tuple[float, tuple[str, ...]]:
    wanted = arguments.get("timeout_seconds", DEFAULT_SECONDS)
    if wanted <= 0:
        return DEFAULT_SECONDS, ()
    remarks: tuple[str, ...] = ()
    if wanted >= MILLISECONDS_FROM:
        wanted, remarks = wanted / 1000, (f"timeout_seconds={wanted:g} was read as milliseconds",)
    if wanted > MAX_SECONDS:
        longest = f"a command may take {MAX_SECONDS:g} s at most: use run_in_background for longer ones"
        return MAX_SECONDS, (*remarks, longest)
    return wanted, remarks


def _told(result: CommandResult, seconds: float) -> str:
    end = f"[exit code {result.exit_code}]"
    if result.timed_out:
        end = (
            f"[killed after {seconds:g} s, with everything that it started; exit code {result.exit_code}. "
            "What takes longer: timeout_seconds, or run_in_background]"
        )
    output = result.output.rstrip("\n")
    return f"{output}\n{end}" if output.strip() else f"(no output)\n{end}"


async def _start(context: ToolContext, arguments: Mapping[str, Any], *, read_only: bool) -> ToolOutput:
    command = await context.sandbox.start(arguments["command"], network=arguments.get("network"), read_only=read_only)
    started = await context.resource(Backgrounds).start_command(context, arguments["command"], command)
    text = (
        f"{started.label} runs in the background. You are told when it ends; until then TaskOutput shows what it "
        f"prints, TaskStop ends it. Its whole output: {started.output_path}"
    )
    ignored = ("a background command has no timeout: end it with TaskStop",) if "timeout_seconds" in arguments else ()
    return ToolOutput(text=text, remarks=ignored)


# -- in the background -----------------------------------------------------------------


async def _output(context: ToolContext, arguments: Mapping[str, Any]) -> str:
    if not str(arguments.get("task_id", "")).strip():
        return await _list(context)
    background = await _own(context, arguments["task_id"])
    if arguments.get("block", False) and background.state is BackgroundState.RUNNING:
        seconds = min(MAX_SECONDS, max(0.0, arguments.get("timeout", WAIT_SECONDS * 1000) / 1000))
        await context.resource(Backgrounds).wait(context.team.id, background.id, seconds)
        background = await _own(context, background.label)
    return f"{_line(context, background)}\n{_printed(background)}"


async def _stop(context: ToolContext, arguments: Mapping[str, Any]) -> str:
    background = await _own(context, arguments["task_id"])
    if background.state is BackgroundState.RUNNING:
        was_here = await context.resource(Backgrounds).stop(context.team.id, background.id)
        background = await _own(context, background.label)
        if not was_here and background.state is BackgroundState.RUNNING:
            raise ToolError(f"{background.label} was started by a process that has died: it does not run any more")
    return f"{_line(context, background)}\n{_printed(background)}"


async def _list(context: ToolContext) -> str:
    own = await context.store.list_backgrounds(context.team.id, name=context.member.name)
    return "\n".join(_line(context, background) for background in own) or "you have started nothing in the background"


async def _own(context: ToolContext, text: str) -> Background:
    number = parse_background_id(text)
    own = await context.store.list_backgrounds(context.team.id, name=context.member.name)
    for background in own:
        if background.id == number:
            return background
    known = ", ".join(background.label for background in own) or "none"
    raise ToolError(f"you have nothing called bg-{number} in the background; yours: {known}")


def _line(context: ToolContext, background: Background) -> str:
    if background.state is BackgroundState.RUNNING:
        seconds = (context.clock.now() - background.started_at).total_seconds()
        state = f"running for {max(0.0, seconds):.0f} s"
    elif background.exit_code is not None:
        state = f"{background.state}, exit code {background.exit_code}"
    else:
        state = str(background.state)
    return f"{background.label} [{state}] {background.title}"


def _printed(background: Background) -> str:
    if background.output_path is not None:
        return read_output(Path(background.output_path)).rstrip("\n") or "(no output yet)"
    if background.kind is BackgroundKind.SUBAGENT and background.state is BackgroundState.RUNNING:
        return "(its answer comes at the end)"
    return background.output[-OUTPUT_CHARACTERS:] or "(no output)"


# -- the tools -------------------------------------------------------------------------

_COMMAND = Parameter(name="command", kind=Kind.TEXT, description="What bash runs.", is_required=True, aliases=("cmd",))
_TIMEOUT = Parameter(
    name="timeout_seconds",
    kind=Kind.NUMBER,
    description=f"After so long it is killed; {DEFAULT_SECONDS:g} if you say nothing, at most {MAX_SECONDS:g}.",
    aliases=("timeout",),
)
_BACKGROUND = Parameter(
    name="run_in_background",
    kind=Kind.BOOLEAN,
    description="Go on at once; you are told when it ends.",
    aliases=("background",),
)
_NETWORK = Parameter(
    name="network", kind=Kind.BOOLEAN, description="It needs the network: the human may be asked for that."
)

BASH = Tool(
    name="bash",
    description="""Run a command in the workspace. You get its output and exit code. Commands share files and \
processes: a server started in the background is reachable by the next command. Only commands see /tmp. There is no \
terminal and no input.

Good: bash(command="pytest tests/test_users.py -q"); a server: bash(command="npm run dev", run_in_background=true).
Bad: cat, sed -i or echo > for files (use read_file, edit_file, write_file: they protect the work of others); \
`sleep 60` to wait for something (end your turn, you are woken); commands that ask questions.""",
    parameters=(_COMMAND, _TIMEOUT, _BACKGROUND, _NETWORK),
    run=_bash,
    changes=Changes.WORKSPACE,
    aliases={"background_run": {"run_in_background": True}},
)

SUBAGENT_BASH = replace(
    BASH,
    description="""Run a command in the workspace. You get its output and exit code. Only commands see /tmp. There is \
no terminal and no input, and what it leaves running is not waited for.

Good: bash(command="pytest tests/test_users.py -q").
Bad: cat, sed -i or echo > for files: use read_file, edit_file, write_file, which protect the work of others.""",
    parameters=(_COMMAND, _TIMEOUT, _NETWORK),
    aliases={},
)
"""Whoever ends with its answer leaves nothing running behind it."""

READING_BASH = Tool(
    name="bash",
    description="""Run a command that only reads, in the workspace: nothing can be written but /tmp.

Good: bash(command="git log --oneline -20 -- src/api"). Bad: installing, building or formatting anything.""",
    parameters=(_COMMAND, _TIMEOUT),
    run=_look,
)

TASK_OUTPUT = Tool(
    name="TaskOutput",
    description="""Show what a background command has printed so far, or what a background subagent has answered; \
without an id, list what you have started.

Good: once, to see whether a server is up. Bad: again and again until it ends: you are told when it does.""",
    parameters=(
        Parameter(name="task_id", kind=Kind.TEXT, description="As in bg-3.", aliases=("id", "bash_id")),
        Parameter(name="block", kind=Kind.BOOLEAN, description="Wait for its end first."),
        Parameter(
            name="timeout",
            kind=Kind.NUMBER,
            description=f"How long to wait, in milliseconds; {WAIT_SECONDS * 1000:g} if you say nothing.",
            aliases=("timeout_ms",),
        ),
    ),
    run=_output,
    is_read_only=True,
    is_repeatable=True,
    aliases={"check_background": {}, "BashOutput": {}},
)

TASK_STOP = Tool(
    name="TaskStop",
    description="End something that you have started in the background, with all that it started.",
    parameters=(
        Parameter(
            name="task_id",
            kind=Kind.TEXT,
            description="As in bg-3.",
            is_required=True,
            aliases=("id", "bash_id", "shell_id"),
        ),
    ),
    run=_stop,
    changes=Changes.WORKSPACE,
    is_repeatable=True,
    aliases={"KillShell": {}, "KillBash": {}},
)

TOOLS = (BASH, TASK_OUTPUT, TASK_STOP)
