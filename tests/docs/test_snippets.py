"""Every snippet that README and docs call executable is executed, and what they print is what is printed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_SNIPPET = re.compile(r"<!-- executed by tests/docs -->\n```(\w+)\n(.*?)```", re.DOTALL)


def snippets(language: str) -> list[tuple[str, str]]:
    return [
        (f"{page.name}:{number}", body)
        for page in PAGES
        for number, (kind, body) in enumerate(_SNIPPET.findall(page.read_text(encoding="utf-8")), 1)
        if kind == language
    ]


def environment() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BULLPEN_")}
    return {**kept, "PATH": path, "NO_COLOR": "1"}


@pytest.mark.parametrize(("name", "body"), snippets("python"), ids=lambda value: value[:40].split("\n")[0])
def test_a_python_snippet_runs(name: str, body: str, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", body], cwd=tmp_path, env=environment(), capture_output=True, text=True
    )
    assert ran.returncode == 0, f"{name}\n{ran.stdout}{ran.stderr}"
    assert ran.stderr == ""


@pytest.mark.parametrize(("name", "body"), snippets("console"), ids=lambda value: value[:40].split("\n")[0])
def test_a_console_snippet_prints_what_it_says(name: str, body: str, tmp_path: Path) -> None:
    for command, expected in _sessions(body):
        ran = subprocess.run(
            shlex.split(command),
            cwd=tmp_path,
            env=environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, f"{name}: {command}\n{ran.stdout}{ran.stderr}"
        if expected:
            assert ran.stdout.strip() == expected, f"{name}: {command}"


def _sessions(body: str) -> list[tuple[str, str]]:
    """Each `$ command` with the lines printed below it; none shown means that they are not compared."""
    parts = re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]
    return [(part.partition("\n")[0], part.partition("\n")[2].strip()) for part in parts]


def test_the_pages_have_executed_snippets() -> None:
    assert len(snippets("python")) >= 2
    assert len(snippets("console")) >= 1


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_links_between_the_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?://)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_page_of_commands_says_what_the_command_says() -> None:
    made = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; sys.path.insert(0, 'docs'); import build; print(build.commands_page(), end='')",
        ],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert made.stdout == (ROOT / "docs" / "commands.md").read_text(encoding="utf-8"), "run `make docs`"
