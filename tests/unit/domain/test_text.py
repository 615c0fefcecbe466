"""Names, roles, and text that every store can keep."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bullpen.domain.member import MemberRef
from bullpen.domain.task import TaskChanges
from bullpen.domain.text import (
    MAX_TEXT_LENGTH,
    RESERVED_NAMES,
    check_name,
    clean,
    name_key,
    normalise_role,
    storable,
)
from bullpen.errors import UsageError
from tests.unit.domain.strategies import names

# Lone surrogates and NUL included: what models and programs write.
anything = st.text(st.characters(), max_size=50)
short = st.text(st.characters(), max_size=5)


@given(anything)
def test_what_was_cleaned_can_be_written_anywhere_and_comes_back(text: str) -> None:
    kept = clean(text)
    assert kept.encode("utf-8").decode("utf-8") == kept
    assert json.loads(json.dumps(kept, ensure_ascii=False)) == kept
    assert "\x00" not in kept
    assert len(kept) == len(text)
    assert clean(kept) == kept
    assert all(was == now or now == "\ufffd" for was, now in zip(text, kept, strict=True))


def test_a_text_is_as_long_as_it_may_be_and_no_longer() -> None:
    assert len(clean("x" * MAX_TEXT_LENGTH)) == MAX_TEXT_LENGTH
    with pytest.raises(UsageError, match="the plan has 1,000,001 characters"):
        clean("x" * (MAX_TEXT_LENGTH + 1), what="plan")


@settings(max_examples=50)
@given(
    st.recursive(
        short | st.integers() | st.none(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(short, inner, max_size=3),
        max_leaves=6,
    )
)
def test_storable_cleans_however_deep(value: object) -> None:
    kept = storable(value)
    assert json.loads(json.dumps(kept).encode("utf-8")) == kept
    assert storable(kept) == kept


@given(anything)
def test_storable_cleans_inside_records_and_leaves_clean_ones_alone(text: str) -> None:
    ref = MemberRef(1, text, 2)
    assert storable(ref) == MemberRef(1, clean(text), 2)
    changes = TaskChanges(subject=text, add_blocks=(1, 2))
    assert storable(changes) == TaskChanges(subject=clean(text), add_blocks=(1, 2))
    tidy = MemberRef(1, "ana", 2)
    assert storable(tidy) is tidy


@given(names)
def test_a_name_is_safe_as_a_file_name(name: str) -> None:
    assert check_name(name) == name
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name)
    assert not name.startswith(("-", "_", "."))


@given(anything)
def test_a_text_is_a_name_or_is_refused(text: str) -> None:
    is_name = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", text, re.ASCII) is not None
    if is_name:
        assert check_name(text) == text
    else:
        with pytest.raises(UsageError):
            check_name(text)


@given(names)
def test_names_that_differ_only_in_case_are_the_same(name: str) -> None:
    assert name_key(name.upper()) == name_key(name.lower()) == name_key(name)
    assert name_key(name_key(name)) == name_key(name)


@given(anything)
def test_nothing_but_a_name_has_the_key_of_a_name(text: str) -> None:
    """Many letters fold to an ASCII one; none of them may reach somebody's inbox."""
    if re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,63}", name_key(text)):
        check_name(text)


def test_reserved_names_are_keys() -> None:
    assert {name_key(name) for name in RESERVED_NAMES} == RESERVED_NAMES


@given(anything)
def test_normalising_a_role_twice_is_normalising_it_once(role: str) -> None:
    once = normalise_role(role)
    assert normalise_role(once) == once
    assert not once.startswith("-")
    assert not once.endswith("-")
    assert not re.search(r"[\s_]|--", once)


@given(st.lists(st.sampled_from(["back", "end", "DATA", "ops"]), min_size=1), st.data())
def test_a_role_is_one_however_its_words_are_joined(words: list[str], data: st.DataObject) -> None:
    joints = st.sampled_from([" ", "-", "_", "  ", " - ", "\t", "__"])
    written = data.draw(st.sampled_from(["", " ", "-"]))
    for word in words:
        written += data.draw(st.sampled_from([word, word.upper(), word.title()])) + data.draw(joints)
    assert normalise_role(written) == "-".join(word.lower() for word in words)


def test_no_role_is_the_empty_string() -> None:
    assert {normalise_role(role) for role in (None, "", " ", "-", "_ -")} == {""}
