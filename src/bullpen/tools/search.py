"""Tools that find: glob (names) and grep (lines).

Both are processes that only read, follow no link, enter nothing hidden and are ended after a while. grep is ripgrep
where it is installed; `scan.py` finds the same without it, and what its kind of pattern cannot say.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bullpen.errors import ToolError
from bullpen.sandbox import OUTPUT_CHARACTERS
from bullpen.tool import Kind, Parameter, Tool, ToolContext
from bullpen.tools import scan
from bullpen.tools.fence import Fence, Place, told

TIMEOUT_SECONDS = 30.0
LINE_CHARACTERS = 300
MAX_PATHS = 1_000
MAX_CONTEXT = 20

SKIPPED = (
    ".git",
    ".hg",
    ".svn",
    "node_modules",
    "__pycache__",
    ".venv",
    "venv",
    ".tox",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
)
"""Entered only if the path names one: nobody looks for what is in them."""


@dataclass(frozen=True, slots=True)
class _Ground:
    """Where is looked: a directory, or one file in it. `prefix` leads from the workspace to it."""

    directory: Path
    prefix: str
    hidden: tuple[str, ...]
    file: str | None = None


@dataclass(frozen=True, slots=True)
class _Found:
    output: bytes
    is_whole: bool
    timed_out: bool
    exit_code: int
    error: str


def _ground(context: ToolContext, path: str) -> _Ground:
    fence = context.resource(Fence)
    place = fence.to_read(path)
    with told(place):
        mode = os.stat(place.path, follow_symlinks=False).st_mode
    file = None if stat.S_ISDIR(mode) else place.path.name
    directory = place.path if file is None else place.path.parent
    hidden = tuple(str(path) for path in fence.hidden if path.is_relative_to(directory))
    return _Ground(directory, _prefix(place, file), hidden, file)


def _prefix(place: Place, file: str | None) -> str:
    shown = place.shown if file is None else str(Path(place.shown).parent)
    return "" if shown == "." else f"{shown}/"


# -- names -----------------------------------------------------------------------------


async def _glob(context: ToolContext, arguments: Mapping[str, Any]) -> str:
    fence = context.resource(Fence)
    pattern = arguments["pattern"].removeprefix(f"{fence.root}/")
    if pattern.startswith(("/", "~")) or ".." in pattern.split("/"):
        raise ToolError(f"{pattern[:200]} leads out of the workspace: write the pattern relative to it, or give a path")
    ground = _ground(context, arguments.get("path") or ".")
    if ground.file is not None:
        raise ToolError(f"{ground.prefix}{ground.file} is a file: path must be a directory")
    found = await _scan(ground, {"mode": "glob", "pattern": pattern})
    paths = [part.decode("utf-8", "replace") for part in found.output.split(b"\0")[:-1]]
    return _listed([f"{ground.prefix}{path}" for path in paths], found, f"no file matches {pattern}")


def _listed(paths: list[str], found: _Found, nothing: str) -> str:
    if not paths:
        return _stopped() if found.timed_out else nothing
    shown: list[str] = []
    room = OUTPUT_CHARACTERS
    for path in paths[:MAX_PATHS]:
        room -= len(path) + 1
        if room < 0:
            break
        shown.append(path)
    if len(shown) < len(paths) or not found.is_whole:
        more = f"{len(paths) - len(shown):,} more" if found.is_whole else "and more"
        shown.append(f"[… {more}: narrow the pattern or give a path]")
    if found.timed_out:
        shown.append(_stopped())
    return "\n".join(shown)


def _stopped() -> str:
    return f"[stopped after {TIMEOUT_SECONDS:g} s: give a path or a simpler pattern]"


# -- lines -----------------------------------------------------------------------------


async def _grep(context: ToolContext, arguments: Mapping[str, Any]) -> str:
    order = {
        "mode": "grep",
        "pattern": arguments["pattern"],
        "glob": arguments.get("glob") or "",
        "ignore_case": arguments.get("ignore_case", False),
        "context": min(MAX_CONTEXT, max(0, arguments.get("context", 0))),
        "files_only": arguments.get("files_only", False),
    }
    if not order["pattern"] or "\0" in order["pattern"]:
        raise ToolError("the pattern is empty: say what to look for")
    ground = _ground(context, arguments.get("path") or ".")
    found = await _ripgrep(ground, order) or await _scan(ground, order)
    nothing = f"no line matches {order['pattern']}{_advice(order['pattern'])}"
    if order["files_only"]:
        paths = [part.decode("utf-8", "replace").removeprefix("./") for part in found.output.split(b"\0")[:-1]]
        return _listed([f"{ground.prefix}{path}" for path in paths], found, nothing)
    return _grouped(ground, found) or (_stopped() if found.timed_out else nothing)


def _advice(pattern: str) -> str:
    return r" (`\|` means the character |: write a|b for one or the other)" if r"\|" in pattern else ""


def _grouped(ground: _Ground, found: _Found) -> str:
    """Lines below the name of their file."""
    shown: list[str] = []
    room, current, files, matches = OUTPUT_CHARACTERS - 200, b"", 0, 0
    is_cut = not found.is_whole
    for path, number, mark, line in _parsed(found.output):
        text = f"{number}{mark}{line}" if path else "--"
        new = bool(path) and path != current
        heading = f"{ground.prefix}{path.decode('utf-8', 'replace').removeprefix('./')}" if new else ""
        room -= len(text) + 1 + len(heading) + 2 * new
        if room < 0:
            is_cut = True
            break
        if new:
            current, files = path, files + 1
            if shown and shown[-1] == "--":
                shown.pop()
            shown += ["", heading] if shown else [heading]
        shown.append(text)
        matches += mark == ":"
    if not shown:
        return ""
    if is_cut:
        shown.append("[… there is more: narrow the pattern, give a path or a glob, or set files_only]")
    else:
        shown.append(
            f"[{matches:,} {'line' if matches == 1 else 'lines'} in {files:,} {'file' if files == 1 else 'files'}]"
        )
    return "\n".join([*shown, _stopped()] if found.timed_out else shown)


_LINE = re.compile(rb"(\d+)([:-])(.*)", re.DOTALL)


def _parsed(output: bytes) -> list[tuple[bytes, int, str, str]]:
    """Path, number, mark and text of each line; an empty path where lines were left out between."""
    found: list[tuple[bytes, int, str, str]] = []
    pending = b""
    for raw in (line.removesuffix(b"\r") for line in output.split(b"\n")[:-1]):
        if b"\0" not in raw:
            # A name may hold a line break.
            pending = b"" if raw == b"--" else pending + raw + b"\n"
            found += [(b"", 0, "", "")] if raw == b"--" else []
            continue
        path, _, rest = (pending + raw).partition(b"\0")
        pending = b""
        if match := _LINE.fullmatch(rest):
            line = match[3].decode("utf-8", "replace")
            cut = f"{line[:LINE_CHARACTERS]} […]" if len(line) > LINE_CHARACTERS else line
            found.append((path, int(match[1]), match[2].decode(), cut))
    return found


async def _ripgrep(ground: _Ground, order: Mapping[str, Any]) -> _Found | None:
    """None if there is none, or if it does not understand the pattern."""
    program = shutil.which("rg")
    if program is None:
        return None
    options = ["--no-config", "--no-ignore", "--hidden", "--no-messages", "--color=never", "--no-heading", "--crlf"]
    options += ["--null", "--with-filename", "--sort=path", f"--max-filesize={scan.MAX_BYTES}"]
    options += ["--max-columns=2000", "--max-columns-preview", f"--context={order['context']}"]
    options += ["--files-with-matches"] if order["files_only"] else ["--line-number"]
    options += ["--ignore-case"] if order["ignore_case"] else ["--case-sensitive"]
    globs = [order["glob"].removeprefix("./")] if order["glob"] else []
    globs += [f"!{name}" for name in SKIPPED]
    globs += [f"!/{_escaped(Path(path).relative_to(ground.directory))}" for path in ground.hidden]
    options += [f"--glob={glob}" for glob in globs]
    where = f"./{ground.file or ''}"
    found = await _run([program, *options, f"--regexp={order['pattern']}", "--", where], ground.directory)
    return None if found.exit_code == 2 and found.error else found


def _escaped(path: Path) -> str:
    return re.sub(r"([*?\[\]{}\\])", r"\\\1", str(path))


# -- processes -------------------------------------------------------------------------


async def _scan(ground: _Ground, order: Mapping[str, Any]) -> _Found:
    whole = {
        **order,
        "root": str(ground.directory),
        "hidden": ground.hidden,
        "skipped": SKIPPED,
        "file": ground.file,
    }
    program = [sys.executable, "-I", "-S", "-X", "utf8", "-W", "ignore", str(scan.__file__)]
    found = await _run(program, ground.directory, json.dumps(whole).encode())
    if found.exit_code == scan.BAD_PATTERN:
        raise ToolError(
            f"{order['pattern'][:200]!r} is no pattern: {found.error}. Escape ( ) [ ] {{ }} . * + ? with \\"
        )
    if found.exit_code > 0 and not found.output:
        raise ToolError(f"the search failed: {found.error[-500:] or found.exit_code}")
    return found


async def _run(program: list[str], directory: Path, order: bytes = b"") -> _Found:
    process = await asyncio.create_subprocess_exec(
        *program,
        cwd=directory,
        env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8"},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
    assert stdin is not None
    assert stdout is not None
    assert stderr is not None
    output, error = bytearray(), b""
    timed_out = is_cut = False
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            stdin.write(order)
            stdin.close()
            while not is_cut and (chunk := await stdout.read(65_536)):
                output += chunk
                is_cut = len(output) > 16 * OUTPUT_CHARACTERS
            if not is_cut:
                error = await stderr.read()
                await process.wait()
    except TimeoutError:
        timed_out = True
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        # What is still in the pipes is waited for, else they stay open.
        await asyncio.gather(process.wait(), stdout.read(), stderr.read())
    is_whole = not (is_cut or timed_out)
    return _Found(bytes(output), is_whole, timed_out, process.returncode or 0, error.decode(errors="replace").strip())


# -- the tools -------------------------------------------------------------------------

_PATH = Parameter(
    name="path", kind=Kind.TEXT, description="Where to look; without it the whole workspace.", aliases=("directory",)
)

GLOB = Tool(
    name="glob",
    description=f"""Find files by name, in order of their paths. `*.py` finds at any depth, `src/**/test_*.py` from \
where you look, `*.{{ts,tsx}}` either. Not looked into unless path names it: {", ".join(SKIPPED[3:7])} and the like.

Good: glob(pattern="**/schema.*"). Bad: glob(pattern="*") on a large project: it only fills your context.""",
    parameters=(Parameter(name="pattern", kind=Kind.TEXT, description="The pattern.", is_required=True), _PATH),
    run=_glob,
    is_read_only=True,
    is_repeatable=True,
)

GREP = Tool(
    name="grep",
    description=r"""Find lines by a regular expression, below the name of their file. Links and binary files are \
passed over.

Good: grep(pattern="def get_user\(", glob="*.py", context=3). Many hits expected: files_only first.
Bad: reading ten files to find where a function is used.""".replace("\\\n", ""),
    parameters=(
        Parameter(
            name="pattern",
            kind=Kind.TEXT,
            description="A regular expression, matched in each line; a|b for either.",
            is_required=True,
            aliases=("regex", "query"),
        ),
        Parameter(
            name="path",
            kind=Kind.TEXT,
            description="A directory or file; without it the whole workspace.",
            aliases=("directory", "file_path"),
        ),
        Parameter(
            name="glob",
            kind=Kind.TEXT,
            description="Only files like this, `*.py`; or all but these, `!*.min.js`.",
            aliases=("include", "file_pattern"),
        ),
        Parameter(name="ignore_case", kind=Kind.BOOLEAN, aliases=("case_insensitive", "i")),
        Parameter(name="context", kind=Kind.INTEGER, description="How many lines to show around each.", aliases=("C",)),
        Parameter(name="files_only", kind=Kind.BOOLEAN, description="Only the names of the files.", aliases=("l",)),
    ),
    run=_grep,
    is_read_only=True,
    is_repeatable=True,
)

TOOLS = (GLOB, GREP)
