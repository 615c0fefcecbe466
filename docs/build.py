"""Makes the pages that are generated: `commands.md` from the command's own help, `settings.md` from the settings'
own descriptions, `terminal.svg` and `demo.svg` from the command's output.

Run by `make docs`; tests compare the first two with what the code says now.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from bullpen.cli.root import COMMANDS
from bullpen.config import settings_page

DOCS = Path(__file__).parent
BULLPEN = str(Path(sys.executable).parent / "bullpen")
BRANCHES = ("task", "team")

SCENE = """
task add "Analyse the REST endpoints" --description "List every route of api/ with its parameters."
task add "Design the GraphQL schema" --blocked-by 1 --check "graphql-schema-linter schema.graphql"
task add "Implement the resolvers" --blocked-by 2
task claim 1
task done 1 --result "14 routes in docs/endpoints.md; counted again with grep"
task list
task show 2
team show
"""
DEMO = "demo --chaos"
SHOWN = ("task list", "task show 2", "team show")


def commands_page() -> str:
    parts = [
        "# Commands",
        "",
        "Made from the command's own help by `make docs`. `--store`, `--team` and `--json` are understood before and",
        "after every command. Exit codes: 0 done, 1 refused or not reached, 2 usage, 3 store or model unavailable,",
        "4 the human is asked something, 130 Ctrl-C, 141 nobody reads the pipe any more.",
    ]
    for words in _commands():
        help_text = _run([*words, "--help"], cwd=DOCS).strip()
        parts += ["", f"## {' '.join(('bullpen', *words))}", "", "```text", help_text, "```"]
    return "\n".join(parts) + "\n"


def _commands() -> Iterator[tuple[str, ...]]:
    yield ()
    for name, entry in COMMANDS.items():
        yield (name,)
        if name in BRANCHES:
            yield from ((name, below) for below in entry.build().commands)


def terminal_picture() -> str:
    with tempfile.TemporaryDirectory() as directory:
        outputs = {line: _run_line(line, Path(directory)) for line in SCENE.strip().splitlines()}
    return _picture((line, outputs[line]) for line in SHOWN)


def demo_picture() -> str:
    """A real run, without the report: that is a page of its own."""
    with tempfile.TemporaryDirectory() as directory:
        output = _run_line(f"{DEMO} --speed fast </dev/null", Path(directory))
    story, _, rest = output.partition("\n\n\x1b[1mrest-to-graphql")
    proof = rest[rest.index("\x1b[1m$ ") : rest.index("\x1b[2mnext")]
    return _picture([(DEMO, f"{story}\n\n{proof}")])


def _picture(scenes: Iterable[tuple[str, str]]) -> str:
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=88, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
    for line, output in scenes:
        console.print(Text(f"$ bullpen {line}", style="bold"))
        console.print(Text.from_ansi(output.rstrip()))
        console.print()
    picture = console.export_svg(title="bullpen")
    # The reader's own monospace font, and nothing fetched from anywhere.
    picture = re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL)
    # Some viewers would fold the spaces that align the columns.
    picture = picture.replace("<svg ", '<svg xml:space="preserve" ', 1)
    return "\n".join(line.rstrip() for line in picture.replace("Fira Code, ", "").splitlines()) + "\n"


def _run_line(line: str, directory: Path) -> str:
    """In a pseudo-terminal, so that it prints as it does for people."""
    ran = subprocess.run(
        ["script", "-qec", f"{BULLPEN} {line}", "/dev/null"],
        cwd=directory,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "88"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout.replace("\r\n", "\n")


def _run(words: list[str], cwd: Path) -> str:
    ran = subprocess.run(
        [BULLPEN, *words],
        cwd=cwd,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "80", "TERM": "dumb"},
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout


if __name__ == "__main__":
    (DOCS / "commands.md").write_text(commands_page(), encoding="utf-8")
    (DOCS / "settings.md").write_text(settings_page(), encoding="utf-8")
    (DOCS / "demo.svg").write_text(demo_picture(), encoding="utf-8")
    (DOCS / "terminal.svg").write_text(terminal_picture(), encoding="utf-8")
