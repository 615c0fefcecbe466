"""Pages: tables that fit, texts that cannot pose as fields."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from bullpen.cli.page import Column, Page, Painted
from bullpen.cli.terminal import Terminal
from bullpen.cli.text import width_of

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
COLUMNS = (Column("#", min_width=4), Column("STATUS"), Column("OWNER"), Column("SUBJECT", is_flexible=True))


def page(width: int | None = 80, has_colours: bool = False) -> Page:
    return Page(Terminal(width=width, has_colours=has_colours, has_symbols=True, now=NOW))


@given(st.lists(st.tuples(st.text(max_size=6), st.text(max_size=99), st.text(max_size=99), st.text(max_size=300))))
def test_a_table_fits_into_the_terminal(rows: list[tuple[str, str, str, str]]) -> None:
    shown = page(60)
    shown.table(COLUMNS, rows)
    assert all(width_of(line) <= 60 for line in shown.lines)
    assert len(shown.lines) == len(rows) + 1


def test_columns_that_say_nothing_are_left_out() -> None:
    shown = page()
    shown.table(COLUMNS, [("#1", "pending", "", "Analyse"), ("#10", "done", "", "Design")])
    assert shown.lines == ["#    STATUS   SUBJECT", "#1   pending  Analyse", "#10  done     Design"]


def test_the_subject_gives_way_before_the_others() -> None:
    shown = page(40)
    shown.table(COLUMNS, [("#1", "in progress", "ana", "Analyse every endpoint that there is")])
    assert shown.lines[1] == "#1  in progress  ana    Analyse every e…"


def test_nothing_is_cut_when_nobody_looks() -> None:
    shown = page(None)
    shown.table(COLUMNS, [("#1", "pending", "", "x" * 500)])
    assert shown.lines[1].endswith("x" * 500)


def test_colours_surround_the_text_and_never_come_from_it() -> None:
    shown = page(has_colours=True)
    shown.line(Painted("a\x1b[31mb", "green"), " c")
    assert shown.lines == ["\x1b[32ma\\x1b[31mb\x1b[0m c"]


def test_a_block_is_indented_so_that_it_cannot_pose_as_a_field() -> None:
    shown = page()
    shown.field("status", "pending")
    shown.block("status      completed\n\nend")
    assert shown.lines == ["status      pending", "  status      completed", "", "  end"]


def test_a_line_of_a_list_is_cut_as_a_whole() -> None:
    shown = page(20)
    shown.line("0123456789", "  ", "abcdefghijklmnop", is_cut=True)
    assert shown.lines == ["0123456789  abcdefg…"]


def test_a_line_that_was_cut_says_so_once() -> None:
    for subject in ("漢字漢字漢", "two words and more"):
        shown = page(20)
        shown.line("0123456789", "  ", subject, "  ", "more", "  ", is_cut=True)
        assert shown.lines[0].count("…") == 1
        assert shown.lines[0].endswith("…")
