"""read_file, write_file, edit_file."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

import pytest

from bullpen.errors import ToolError
from bullpen.tools.fence import Fence, parent_of, read_bytes
from bullpen.tools.files import EDIT_FILE, READ_FILE, WRITE_FILE
from bullpen.tools.seen import Ledger
from tests.unit.tools.conftest import MakeHands

pytestmark = pytest.mark.anyio


# -- reading


async def test_lines_are_numbered_and_offset_and_limit_count_lines(hands: MakeHands, workspace: Path) -> None:
    (workspace / "a.txt").write_text("".join(f"line {n}\n" for n in range(1, 11)))
    ana = hands()
    assert (await ana.text(READ_FILE, path="a.txt")).startswith("     1\tline 1\n     2\tline 2\n")
    part = await ana.text(READ_FILE, path="a.txt", offset="3", limit=2)
    assert part == "     3\tline 3\n     4\tline 4\n[a.txt has 10 lines: go on with offset=5]"
    assert await ana.text(READ_FILE, path="a.txt", offset=-1) == "    10\tline 10"


async def test_a_path_may_be_absolute_and_has_its_aliases(hands: MakeHands, workspace: Path) -> None:
    (workspace / "a.txt").write_text("x")
    assert await hands().text(READ_FILE, file_path=str(workspace / "a.txt")) == "     1\tx"


async def test_a_long_file_keeps_head_and_tail_and_says_how_to_go_on(hands: MakeHands, workspace: Path) -> None:
    (workspace / "long").write_text("".join(f"{n} {'x' * 60}\n" for n in range(1, 2001)))
    text = await hands().text(READ_FILE, path="long")
    assert len(text) <= 30_000
    assert text.startswith("     1\t1 x")
    assert text.splitlines()[-1].startswith("  2000\t2000 x")
    (gap,) = [line for line in text.splitlines() if line.startswith("[…")]
    offset = int(gap.partition("offset=")[2].split()[0])
    assert f"{offset - 1:>6}\t" in text
    assert f"{offset:>6}\t" not in text


async def test_a_long_line_is_cut(hands: MakeHands, workspace: Path) -> None:
    (workspace / "wide").write_text("y" * 5_000)
    assert await hands().text(READ_FILE, path="wide") == f"     1\t{'y' * 2_000} [… 3,000 more characters in this line]"


@pytest.mark.parametrize(
    ("data", "said"),
    [(b"\x89PNG\0\0", "is binary (6 bytes)"), ("hi".encode("utf-16"), "is binary"), (b"", "is empty")],
)
async def test_what_is_no_text_is_said_clearly(hands: MakeHands, workspace: Path, data: bytes, said: str) -> None:
    (workspace / "f").write_bytes(data)
    try:
        text = await hands().text(READ_FILE, path="f")
    except ToolError as error:
        text = str(error)
    assert said in text


@pytest.mark.parametrize(("path", "said"), [("gone.py", "there is no gone.py"), (".", "directory"), ("", "not a path")])
async def test_what_cannot_be_read_says_what_to_do(hands: MakeHands, path: str, said: str) -> None:
    with pytest.raises(ToolError, match=said):
        await hands().call(READ_FILE, path=path)


async def test_a_pipe_is_refused_and_not_waited_for(hands: MakeHands, workspace: Path) -> None:
    os.mkfifo(workspace / "pipe")
    async with asyncio.timeout(60):
        with pytest.raises(ToolError, match="no file"):
            await hands().call(READ_FILE, path="pipe")


async def test_an_offset_behind_the_end_is_told(hands: MakeHands, workspace: Path) -> None:
    (workspace / "a").write_text("1\n2\n")
    with pytest.raises(ToolError, match="has only 2 lines"):
        await hands().call(READ_FILE, path="a", offset=3)


# -- where they may go

OUTSIDE = ("../secret", "/etc/passwd", "~/x", "link", "dir/../../secret", "linkdir/secret")


@pytest.mark.parametrize("path", OUTSIDE)
async def test_nothing_outside_the_workspace_is_read_or_written(hands: MakeHands, workspace: Path, path: str) -> None:
    secret = workspace.parent / "secret"
    secret.write_text("SECRET")
    (workspace / "dir").mkdir()
    (workspace / "link").symlink_to(secret)
    (workspace / "linkdir").symlink_to(workspace.parent)
    ana = hands()
    with pytest.raises(ToolError, match="outside the workspace"):
        await ana.call(READ_FILE, path=path)
    with pytest.raises(ToolError, match="outside the workspace"):
        await ana.call(WRITE_FILE, path=path, content="mine")
    assert secret.read_text() == "SECRET"


async def test_a_link_within_the_workspace_is_followed_and_stays_a_link(hands: MakeHands, workspace: Path) -> None:
    (workspace / "real.txt").write_text("a\n")
    (workspace / "link.txt").symlink_to("real.txt")
    ana = hands()
    await ana.call(READ_FILE, path="link.txt")
    await ana.call(EDIT_FILE, path="link.txt", old_text="a", new_text="b")
    assert (workspace / "link.txt").is_symlink()
    assert (workspace / "real.txt").read_text() == "b\n"


@pytest.mark.parametrize(
    "path", [".git", ".git/config", ".git/hooks/pre-commit", "sub/.git", "sub/.GIT/config", "a/alias/hooks/x"]
)
async def test_the_insides_of_git_are_refused(hands: MakeHands, workspace: Path, path: str) -> None:
    (workspace / ".git").mkdir()
    (workspace / "a").mkdir()
    (workspace / "a/alias").symlink_to("../.git")
    ana = hands()
    for call in (ana.call(READ_FILE, path=path), ana.call(WRITE_FILE, path=path, content="x")):
        with pytest.raises(ToolError, match="belongs to git"):
            await call
    assert list((workspace / ".git").iterdir()) == []


async def test_gitignore_is_a_file_like_any_other(hands: MakeHands, workspace: Path) -> None:
    await hands().call(WRITE_FILE, path=".gitignore", content="*.pyc\n")
    assert (workspace / ".gitignore").read_text() == "*.pyc\n"


async def test_the_store_and_secrets_in_the_workspace_are_hidden(
    hands: MakeHands, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(workspace))
    (workspace / ".bullpen").mkdir()
    (workspace / ".bullpen/bullpen.db").write_text("STORED")
    (workspace / ".ssh").mkdir()
    (workspace / ".ssh/id_rsa").write_text("SECRET")
    (workspace / "door").symlink_to(".ssh")
    ana = hands(settings={"hidden_paths": (workspace / ".bullpen",)})
    for path in (".bullpen/bullpen.db", ".ssh/id_rsa", "door/id_rsa", "~/.ssh/id_rsa"):
        with pytest.raises(ToolError, match="is hidden"):
            await ana.call(READ_FILE, path=path)
        with pytest.raises(ToolError, match="is hidden"):
            await ana.call(WRITE_FILE, path=path, content="x")
    with pytest.raises(ToolError, match="is hidden"):
        await ana.call(WRITE_FILE, path=".netrc", content="not there yet")


async def test_a_workspace_inside_something_hidden_is_still_a_workspace(hands: MakeHands, workspace: Path) -> None:
    ana = hands(settings={"hidden_paths": (workspace.parent,)})
    await ana.call(WRITE_FILE, path="a", content="x")
    assert (workspace / "a").read_text() == "x"


async def test_the_output_of_ones_own_commands_can_be_read_but_not_written(hands: MakeHands, workspace: Path) -> None:
    store = workspace / ".bullpen"
    own, other = store / "members/ana/output", store / "members/ben/output"
    for directory in (own, other):
        directory.mkdir(parents=True)
        (directory / "000001.txt").write_text("printed")
    (own / "link.txt").symlink_to(other / "000001.txt")
    ana = hands(settings={"hidden_paths": (store,), "readable_paths": (own,)})
    assert await ana.text(READ_FILE, path=str(own / "000001.txt")) == "     1\tprinted"
    for path in (other / "000001.txt", own / "link.txt", own / "../../ben/output/000001.txt"):
        with pytest.raises(ToolError, match="is hidden"):
            await ana.call(READ_FILE, path=str(path))
    with pytest.raises(ToolError, match="is hidden"):
        await ana.call(WRITE_FILE, path=str(own / "000001.txt"), content="forged")


async def test_a_link_planted_after_the_judgement_leads_nowhere(hands: MakeHands, workspace: Path) -> None:
    (workspace.parent / "secret").write_text("SECRET")
    (workspace / "dir").mkdir()
    (workspace / "dir/secret").write_text("harmless")
    place = Fence(hands()).to_read("dir/secret")
    (workspace / "dir/secret").unlink()
    (workspace / "dir/secret").symlink_to("../../secret")
    with pytest.raises(OSError):
        read_bytes(place)
    (workspace / "dir/secret").unlink()
    (workspace / "dir").rmdir()
    (workspace / "dir").symlink_to("..")
    with pytest.raises(OSError):
        read_bytes(place)
    with pytest.raises(OSError), parent_of(place, make=True):
        pass


# -- stale writes


async def test_an_existing_file_is_not_covered_unread(hands: MakeHands, workspace: Path) -> None:
    (workspace / "a").write_text("theirs")
    ana = hands()
    with pytest.raises(ToolError, match="you have not read it"):
        await ana.call(WRITE_FILE, path="a", content="mine")
    with pytest.raises(ToolError, match="you have not read it"):
        await ana.call(EDIT_FILE, path="a", old_text="theirs", new_text="mine")
    await ana.call(READ_FILE, path="a")
    assert await ana.text(WRITE_FILE, path="a", content="mine") == "wrote a (1 lines, 4 bytes)"
    await ana.call(WRITE_FILE, path="a", content="mine again")
    assert (workspace / "a").read_text() == "mine again"


async def test_who_changed_it_since_is_said(hands: MakeHands, workspace: Path) -> None:
    ledger: Ledger = {}
    ana, ben = hands(settings={"file_ledger": ledger}), hands("ben", settings={"file_ledger": ledger})
    await ana.call(WRITE_FILE, path="a", content="one")
    await ben.call(READ_FILE, path="a")
    await ben.call(EDIT_FILE, path="a", old_text="one", new_text="two")
    with pytest.raises(ToolError, match=r"changed since you read it: ben wrote it at .* UTC\. Nothing was written"):
        await ana.call(WRITE_FILE, path="a", content="three")
    with pytest.raises(ToolError, match="ben wrote it"):
        await ana.call(EDIT_FILE, path="a", old_text="two", new_text="three")
    assert (workspace / "a").read_text() == "two"
    await ana.call(READ_FILE, path="a")
    await ana.call(EDIT_FILE, path="a", old_text="two", new_text="three")


async def test_a_command_that_changes_a_file_is_noticed_even_with_the_same_size_and_time(
    hands: MakeHands, workspace: Path
) -> None:
    ana = hands(settings={"file_ledger": {}})
    await ana.call(WRITE_FILE, path="a", content="one")
    before = (workspace / "a").stat()
    (workspace / "a").write_text("two")
    os.utime(workspace / "a", ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(ToolError, match="changed since you read it"):
        await ana.call(WRITE_FILE, path="a", content="three")
    (workspace / "a").write_text("one")
    await ana.call(WRITE_FILE, path="a", content="three")


async def test_a_command_after_another_member_is_told_apart(hands: MakeHands, workspace: Path) -> None:
    ledger: Ledger = {}
    ana, ben = hands(settings={"file_ledger": ledger}), hands("ben", settings={"file_ledger": ledger})
    await ben.call(WRITE_FILE, path="a", content="one")
    (workspace / "a").write_text("formatted")
    os.utime(workspace / "a", (1, 1))
    with pytest.raises(ToolError, match=r"ben wrote it at .*, and by somebody else or a command since"):
        await ana.call(WRITE_FILE, path="a", content="x")


async def test_of_many_who_read_the_same_one_writes_and_the_others_are_told(hands: MakeHands, workspace: Path) -> None:
    (workspace / "a").write_text("0")
    everyone = [hands() for _ in range(20)]
    for one in everyone:
        await one.call(READ_FILE, path="a")
    writes = (one.call(WRITE_FILE, path="a", content=f"by {n}") for n, one in enumerate(everyone))
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    assert sum(not isinstance(outcome, ToolError) for outcome in outcomes) == 1


async def test_a_file_that_is_gone_may_be_written_again(hands: MakeHands, workspace: Path) -> None:
    ana = hands()
    await ana.call(WRITE_FILE, path="a", content="one")
    (workspace / "a").unlink()
    assert (await ana.text(WRITE_FILE, path="a", content="two")).startswith("created a")


# -- writing


async def test_parents_are_made_the_mode_is_kept_and_nothing_else_is_left(hands: MakeHands, workspace: Path) -> None:
    ana = hands()
    assert await ana.text(WRITE_FILE, path="deep/er/run.sh", content="#!/bin/sh\n") == (
        "created deep/er/run.sh (1 lines, 10 bytes)"
    )
    (workspace / "deep/er/run.sh").chmod(0o754)
    await ana.call(EDIT_FILE, path="deep/er/run.sh", old_text="sh\n", new_text="bash\n")
    assert stat.S_IMODE((workspace / "deep/er/run.sh").stat().st_mode) == 0o754
    assert [path.name for path in (workspace / "deep/er").iterdir()] == ["run.sh"]


async def test_a_reader_never_sees_half_a_file(hands: MakeHands, workspace: Path) -> None:
    ana = hands()
    await ana.call(WRITE_FILE, path="a", content="a" * 1000)
    with (workspace / "a").open() as before:
        await ana.call(WRITE_FILE, path="a", content="b" * 1000)
        assert before.read() == "a" * 1000


async def test_a_directory_is_not_written_over(hands: MakeHands, workspace: Path) -> None:
    (workspace / "d").mkdir()
    for path in ("d", "."):
        with pytest.raises(ToolError, match="is a directory"):
            await hands().call(WRITE_FILE, path=path, content="x")


async def test_a_file_on_the_way_is_told(hands: MakeHands, workspace: Path) -> None:
    (workspace / "f").write_text("x")
    with pytest.raises(ToolError, match="part of this path is a file"):
        await hands().call(WRITE_FILE, path="f/g", content="x")


# -- editing


async def edited(hands: MakeHands, workspace: Path, data: bytes, old: str, new: str, **more: object) -> bytes:
    (workspace / "f").write_bytes(data)
    ana = hands()
    await ana.call(READ_FILE, path="f")
    await ana.call(EDIT_FILE, path="f", old_string=old, new_string=new, **more)
    return (workspace / "f").read_bytes()


@pytest.mark.parametrize(
    ("data", "old", "new", "after"),
    [
        (b"a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\n", b"x\r\ny\r\nc\r\n"),
        (b"a\nb\r\nc\n", "c", "d", b"a\nb\r\nd\n"),
        (b"\xef\xbb\xbfa = 1\n", "a = 1", "a = 2", b"\xef\xbb\xbfa = 2\n"),
        (b"caf\xe9\nb\n", "b", "\u00e9", b"caf\xe9\n\xc3\xa9\n"),
        (b"no end", "end", "end\n", b"no end\n"),
        (b"a\\1b", "\\1", "\\2", b"a\\2b"),
        (b"gone here", "gone ", "", b"here"),
    ],
    ids=["crlf", "mixed", "bom", "latin-1", "no newline", "no pattern", "to nothing"],
)
async def test_what_an_edit_does_not_mean_stays_as_it_is(
    hands: MakeHands, workspace: Path, data: bytes, old: str, new: str, after: bytes
) -> None:
    assert await edited(hands, workspace, data, old, new) == after


async def test_an_edit_shows_what_it_did(hands: MakeHands, workspace: Path) -> None:
    (workspace / "f").write_text("".join(f"{n}\n" for n in range(1, 21)))
    ana = hands()
    await ana.call(READ_FILE, path="f")
    assert await ana.text(EDIT_FILE, path="f", old_text="10\n", new_text="ten\n") == (
        "edited f, it now reads\n     7\t7\n     8\t8\n     9\t9\n    10\tten\n    11\t11\n    12\t12\n    13\t13\n"
        "    14\t14"
    )


async def test_an_ambiguous_text_says_how_many_places_and_where(hands: MakeHands, workspace: Path) -> None:
    data = b"x = 1\ny = 2\nx = 1\n"
    with pytest.raises(ToolError, match="matches 2 places in f, at lines 1, 3: add lines around it"):
        await edited(hands, workspace, data, "x = 1", "x = 2")
    assert await edited(hands, workspace, data, "x = 1", "x = 2", replace_all="true") == b"x = 2\ny = 2\nx = 2\n"


@pytest.mark.parametrize(
    ("old", "said"),
    [
        ("def f():\n  return 1", "Only whitespace differs at line 1"),
        ("def  f()", "Only whitespace differs at line 1"),
        ("     1\tdef f():", "leave them out"),
        ("    return 11", "most alike is line 2"),
        ("something else entirely", "Nothing like it"),
    ],
)
async def test_what_is_not_found_says_what_was_probably_meant(
    hands: MakeHands, workspace: Path, old: str, said: str
) -> None:
    with pytest.raises(ToolError, match="was not found in f") as raised:
        await edited(hands, workspace, b"def f():\n    return 1\n", old, "x")
    assert said in str(raised.value)
    assert (workspace / "f").read_bytes() == b"def f():\n    return 1\n"


@pytest.mark.parametrize(("old", "new", "said"), [("a", "a", "the same"), ("", "a", "is empty")])
async def test_an_edit_that_means_nothing_is_refused(
    hands: MakeHands, workspace: Path, old: str, new: str, said: str
) -> None:
    with pytest.raises(ToolError, match=said):
        await edited(hands, workspace, b"a", old, new)


async def test_an_edit_of_nothing_makes_nothing(hands: MakeHands, workspace: Path) -> None:
    with pytest.raises(ToolError, match="there is no"):
        await hands().call(EDIT_FILE, path="new/f", old_text="a", new_text="b")
    assert list(workspace.iterdir()) == []


async def test_half_a_character_is_refused(hands: MakeHands) -> None:
    with pytest.raises(ToolError, match="lone surrogate"):
        await hands().call(WRITE_FILE, path="f", content="\ud800")
