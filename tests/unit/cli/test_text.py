"""No text can steer a terminal."""

from __future__ import annotations

import json
import math
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.cli.text import cut, json_text, lines, one_line, width_of

BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
ANYTHING = st.text(st.characters() | st.sampled_from("\x1b\x9b\x07\r\n\t\x85\u2028" + BIDI))


def steers(text: str) -> bool:
    return any(unicodedata.category(character) in ("Cc", "Zl", "Zp", "Cs") or character in BIDI for character in text)


@given(ANYTHING)
def test_one_line_is_harmless_whatever_it_was(text: str) -> None:
    assert not steers(one_line(text))


@given(ANYTHING)
def test_each_line_of_a_block_is_harmless(text: str) -> None:
    assert not any(steers(line) for line in lines(text))


@given(ANYTHING)
def test_json_is_harmless_and_means_the_same(text: str) -> None:
    written = json_text({"text": text})
    assert not steers(written)
    assert json.loads(written) == {"text": text}


def test_a_number_that_json_has_not_is_null_and_the_rest_is_as_it_was() -> None:
    document = {"a": [math.nan, 1.5, {"b": math.inf, "c": "NaN"}], "d": -math.inf, "e": 10**400}
    assert json.loads(json_text(document), parse_constant=pytest.fail) == {
        "a": [None, 1.5, {"b": None, "c": "NaN"}],
        "d": None,
        "e": 10**400,
    }


@given(ANYTHING, st.integers(1, 100))
def test_what_is_cut_fits_and_shows_that_it_was_cut(text: str, width: int) -> None:
    line = one_line(text)
    short = cut(line, width)
    assert width_of(short) <= width
    assert short == line or short.endswith("…")


def test_what_was_removed_is_shown() -> None:
    assert one_line("a\x1b[31m\u202eb\U000e0041") == "a\\x1b[31m\\u202eb\\U000e0041"
    assert lines("a\tb\r\nc\rd") == ["a   b", "c\\x0dd"]


def test_letters_of_every_script_stay_as_they_are() -> None:
    for text in ("Größe", "設計", "שלום", "👩\u200d💻", "می\u200cشود"):
        assert one_line(text) == text
        assert text in json_text(text)


def test_wide_characters_count_twice_and_accents_not_at_all() -> None:
    assert width_of("設計") == 4
    assert width_of("e\u0301") == 1
    assert cut("設計図", 4) == "設…"
