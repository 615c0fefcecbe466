"""glob and grep: with ripgrep and without it, the same."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from bullpen.errors import ToolError
from bullpen.tools import search
from bullpen.tools.search import GLOB, GREP
from tests.unit.tools.conftest import MakeHands

pytestmark = pytest.mark.anyio

FILES = {
    "a.py": "import os\n\ndef alpha():\n    return 1\n",
    "a/b.py": "def beta():\n    return alpha()\n",
    "a-b/c.txt": "alpha\r\nbeta\r\n",
    "a/deep/er/d.py": "x = 1\n" * 10 + "ALPHA = 2\n" + "x = 1\n" * 10 + "alpha = 3\n",
    "z.md": "caf\u00e9 alpha\n",
    ".hidden/e.py": "alpha\n",
    "node_modules/dep/index.js": "alpha\n",
    ".git/config": "alpha\n",
    "sub/.git": "gitdir: alpha\n",
    ".bullpen/bullpen.txt": "alpha STORED\n",
    "with space/[odd]{name}.py": "alpha\n",
}


@pytest.fixture
def project(workspace: Path) -> Path:
    for name, text in FILES.items():
        path = workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    (workspace / "binary").write_bytes(b"alpha\0alpha\n")
    (workspace / "latin").write_bytes(b"caf\xe9 alpha\n")
    (workspace.parent / "outside").mkdir()
    (workspace.parent / "outside/secret.py").write_text("alpha SECRET\n")
    (workspace / "leak").symlink_to(workspace.parent / "outside")
    (workspace / "leak.py").symlink_to(workspace.parent / "outside/secret.py")
    return workspace


@pytest.fixture(params=["ripgrep", "python"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "python":
        monkeypatch.setattr(shutil, "which", lambda name: None)
    elif shutil.which("rg") is None:
        pytest.skip("ripgrep is not installed")
    return str(request.param)


async def grep(hands: MakeHands, project: Path, **arguments: Any) -> str:
    return await hands(settings={"hidden_paths": (project / ".bullpen",)}).text(GREP, **arguments)


async def test_lines_stand_below_their_file_in_order_of_the_paths(hands: MakeHands, project: Path, engine: str) -> None:
    text = await grep(hands, project, pattern="alpha")
    files = [line for line in text.splitlines() if line in FILES or line == "latin"]
    assert files == [
        ".hidden/e.py",
        "a/b.py",
        "a/deep/er/d.py",
        "a-b/c.txt",
        "a.py",
        "latin",
        "with space/[odd]{name}.py",
        "z.md",
    ]
    assert "a.py\n3:def alpha():\n" in text
    assert text.endswith("[8 lines in 8 files]")


@pytest.mark.parametrize("place", [".", "leak", "leak.py", ".bullpen", ".git"])
async def test_nothing_outside_hidden_or_of_git_is_found(
    hands: MakeHands, project: Path, engine: str, place: str
) -> None:
    try:
        text = await grep(hands, project, pattern="SECRET|STORED|gitdir|repositoryformatversion", path=place)
    except ToolError as error:
        assert place != "."
        text = str(error)
    assert "SECRET" not in text.replace("SECRET|STORED", "")
    assert "alpha" not in text


@pytest.mark.parametrize(
    "arguments",
    [
        {"pattern": "alpha", "ignore_case": True, "context": 2},
        {"pattern": "^beta$", "path": "a-b"},
        {"pattern": r"def \w+\(", "glob": "*.py"},
        {"pattern": "alpha", "glob": "a/**/*.py", "ignore_case": True},
        {"pattern": "alpha", "glob": "!*.py"},
        {"pattern": "alpha", "glob": "!a"},
        {"pattern": "alpha", "glob": "*.{md,txt}"},
        {"pattern": "alpha", "glob": "er/*.py", "path": "a/deep"},
        {"pattern": "alpha", "path": "a.py", "context": 1},
        {"pattern": "alpha", "path": "node_modules"},
        {"pattern": "alpha", "path": "node_modules/dep/index.js"},
        {"pattern": "alpha", "files_only": True},
        {"pattern": "caf\u00e9? "},
        {"pattern": "return", "context": 5},
        {"pattern": "x", "path": "a/deep", "context": 1},
        {"pattern": "^[[:digit:]]|[[:alpha:]] = 3"},
        {"pattern": "(?<=def )alpha"},
        {"pattern": "-alpha"},
        {"pattern": "nowhere at all"},
    ],
    ids=str,
)
async def test_it_finds_the_same_with_and_without_ripgrep(
    hands: MakeHands, project: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any]
) -> None:
    if shutil.which("rg") is None:
        pytest.skip("ripgrep is not installed")
    with_it = await grep(hands, project, **arguments)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert await grep(hands, project, **arguments) == with_it


async def test_context_is_shown_with_gaps(hands: MakeHands, project: Path, engine: str) -> None:
    text = await grep(hands, project, pattern="alpha", ignore_case=True, path="a/deep", context=1)
    assert text == ("a/deep/er/d.py\n10-x = 1\n11:ALPHA = 2\n12-x = 1\n--\n21-x = 1\n22:alpha = 3\n[2 lines in 1 file]")


async def test_a_bad_pattern_says_what_is_wrong_with_it(hands: MakeHands, project: Path, engine: str) -> None:
    with pytest.raises(ToolError, match=r"is no pattern: .*unterminated"):
        await grep(hands, project, pattern="def get(")


async def test_nothing_found_is_no_error_and_hints_at_the_usual_mistake(
    hands: MakeHands, project: Path, engine: str
) -> None:
    assert await grep(hands, project, pattern="nothing here") == "no line matches nothing here"
    assert "write a|b" in await grep(hands, project, pattern=r"foo\|bar")


async def test_much_is_cut_and_said_to_be(hands: MakeHands, project: Path, engine: str) -> None:
    (project / "big").write_text("".join(f"needle {n} {'y' * 1000}\n" for n in range(3_000)))
    text = await grep(hands, project, pattern="needle")
    assert len(text) <= 30_000
    assert text.endswith("[… there is more: narrow the pattern, give a path or a glob, or set files_only]")
    assert max(map(len, text.splitlines())) < 400


async def test_a_pattern_that_runs_for_ever_is_ended(
    hands: MakeHands, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "TIMEOUT_SECONDS", 1.0)
    (project / "trap").write_text("a" * 60 + "!\n")
    assert "[stopped after 1 s" in await grep(hands, project, pattern=r"^(?=(a+)+$)b", path="trap")


async def test_output_of_ones_own_commands_can_be_searched(hands: MakeHands, project: Path, engine: str) -> None:
    own = project / ".bullpen/members/ana/output"
    own.mkdir(parents=True)
    (own / "000001.txt").write_text("noise\nError: 7\n")
    ana = hands(settings={"hidden_paths": (project / ".bullpen",), "readable_paths": (own,)})
    text = await ana.text(GREP, pattern="Error", path=str(own / "000001.txt"))
    assert text == f"{own}/000001.txt\n2:Error: 7\n[1 line in 1 file]"


# -- glob


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.py", [".hidden/e.py", "a/b.py", "a/deep/er/d.py", "a.py", "leak.py", "with space/[odd]{name}.py"]),
        ("**/*.py", [".hidden/e.py", "a/b.py", "a/deep/er/d.py", "a.py", "leak.py", "with space/[odd]{name}.py"]),
        ("a/*.py", ["a/b.py"]),
        ("./a/**", ["a/b.py", "a/deep/er/d.py"]),
        ("a/**/d.py", ["a/deep/er/d.py"]),
        ("?.{md,txt}", ["a-b/c.txt", "z.md"]),
        ("[!a-y].md", ["z.md"]),
        (r"with space/\[odd\]\{name\}.py", ["with space/[odd]{name}.py"]),
        ("nothing*", []),
    ],
)
async def test_names_are_found_in_order(hands: MakeHands, project: Path, pattern: str, found: list[str]) -> None:
    text = await hands(settings={"hidden_paths": (project / ".bullpen",)}).text(GLOB, pattern=pattern)
    assert text == ("\n".join(found) or f"no file matches {pattern}")


async def test_a_glob_looks_below_its_path(hands: MakeHands, project: Path) -> None:
    ana = hands()
    assert await ana.text(GLOB, pattern="*.py", path="a/deep") == "a/deep/er/d.py"
    assert await ana.text(GLOB, pattern=f"{project}/a/*.py") == "a/b.py"
    assert await ana.text(GLOB, pattern="*.js", path="node_modules") == "node_modules/dep/index.js"


@pytest.mark.parametrize("arguments", [{"pattern": "/etc/*"}, {"pattern": "../*"}, {"pattern": "*", "path": "leak"}])
async def test_a_glob_stays_in_the_workspace(hands: MakeHands, project: Path, arguments: dict[str, Any]) -> None:
    with pytest.raises(ToolError, match="workspace"):
        await hands().call(GLOB, **arguments)


async def test_many_names_are_cut_and_counted(hands: MakeHands, workspace: Path) -> None:
    for number in range(1_500):
        (workspace / f"{number:04}.txt").touch()
    lines = (await hands().text(GLOB, pattern="*.txt")).splitlines()
    assert lines[0] == "0000.txt"
    assert lines[-1] == "[… 500 more: narrow the pattern or give a path]"
