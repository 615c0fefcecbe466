"""The law of globs: two overlap exactly if some path is matched by both."""

from __future__ import annotations

import re
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.domain.files import MAX_FILES, covers, do_overlap, parse_files
from bullpen.errors import UsageError

# -- brute force: another way to match, tried on every path of a small world ---------------------------------------


def to_regex(glob: str) -> re.Pattern[str]:
    names = glob.split("/")
    if not re.search(r"[*?\[]", names[-1]):
        names.append("**")
    # Each name with the slash behind it.
    return re.compile("".join("(?:[^/]+/)*" if name == "**" else f"{name_regex(name)}/" for name in names))


def name_regex(name: str) -> str:
    parts = re.findall(r"\[!?[a-c-]+\]|.", name)
    return "(?=[^/])" + "".join({"*": "[^/]*", "?": "[^/]"}.get(part, part.replace("[!", "[^/")) for part in parts)


def matches(glob: str, path: str) -> bool:
    return to_regex(glob).fullmatch(path + "/") is not None


LONG_NAMES = ["".join(letters) for size in range(1, 5) for letters in product("abc", repeat=size)]
DEEP_PATHS = ["/".join(names) for size in range(1, 7) for names in product("ab", repeat=size)]

tokens = st.sampled_from(["a", "b", "*", "?", "[ab]", "[!a]", "[b-c]"])
names = st.lists(tokens, min_size=1, max_size=2).map("".join)
plain = st.sampled_from(["a", "b", "*", "**"])
globs = st.lists(names | st.just("**"), min_size=1, max_size=4).map("/".join)
paths = st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=5).map("/".join)


@given(names, names)
def test_two_names_overlap_exactly_if_some_name_is_matched_by_both(first: str, second: str) -> None:
    shared = [name for name in LONG_NAMES if matches(f"{first}", name) and matches(f"{second}", name)]
    assert do_overlap([first], [second]) == bool(shared)


@given(st.lists(plain, min_size=1, max_size=3).map("/".join), st.lists(plain, min_size=1, max_size=3).map("/".join))
def test_two_globs_overlap_exactly_if_some_path_is_matched_by_both(first: str, second: str) -> None:
    shared = [path for path in DEEP_PATHS if matches(first, path) and matches(second, path)]
    assert do_overlap([first], [second]) == bool(shared)


@given(globs, paths)
def test_a_glob_covers_exactly_what_it_matches(glob: str, path: str) -> None:
    assert covers([glob], path) == matches(glob, path)


@given(globs, globs, paths)
def test_whatever_two_globs_both_cover_shows_that_they_overlap(first: str, second: str, path: str) -> None:
    assert do_overlap([first], [second]) == do_overlap([second], [first])
    if covers([first], path) and covers([second], path):
        assert do_overlap([first], [second])


@given(globs)
def test_a_glob_overlaps_with_itself_and_with_everything(glob: str) -> None:
    assert do_overlap([glob], [glob])
    assert do_overlap([glob], ["**"])
    assert not do_overlap([glob], [])


@pytest.mark.parametrize(
    ("first", "second", "is_shared"),
    [
        ("src/api/*.py", "src/api/users.py", True),
        ("src/api/*.py", "src/web/*.py", False),
        ("src/api", "src/api/users.py", True),
        ("src/*", "src/api/users.py", False),
        ("src/*.py", "src/api/users.py", False),
        ("**/test_*.py", "tests/unit/**", True),
        ("**/*.md", "src/**/*.py", False),
        ("docs/[a-m]*", "docs/[n-z]*", False),
        ("a/b[!c]", "a/b?", True),
        ("README.md", "readme.md", False),
        ("[", "[", True),
    ],
)
def test_what_people_write_is_told_apart(first: str, second: str, is_shared: bool) -> None:
    assert do_overlap([first], [second]) is is_shared


# -- reading -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_", "kept"),
    [
        ("src/a.py", ("src/a.py",)),
        ("src/a.py, ./src//b.py,src/a.py", ("src/a.py", "src/b.py")),
        (["src/", " `docs/*.md` "], ("src/**", "docs/*.md")),
        ("src/{api,web}/*.{py,js}", ("src/api/*.py", "src/api/*.js", "src/web/*.py", "src/web/*.js")),
        (".", ("**",)),
        ("", ()),
        ([], ()),
        (["a\\b"], ("a/b",)),
    ],
)
def test_globs_are_read_generously(given_: str | list[str], kept: tuple[str, ...]) -> None:
    assert parse_files(given_) == kept


@pytest.mark.parametrize("outside", ["/etc/passwd", "~/x", "../x", "src/../../x", "C:\\x"])
def test_what_lies_outside_of_the_workspace_is_refused_in_one_line(outside: str) -> None:
    with pytest.raises(UsageError, match="workspace") as caught:
        parse_files(outside)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "absurd", [[f"{n}.py" for n in range(MAX_FILES + 1)], "{a,b}" * 20, "x" * 1_000, "{a,b}" * 100_000]
)
def test_what_is_absurd_is_refused_at_once(absurd: str | list[str]) -> None:
    with pytest.raises(UsageError, match="too"):
        parse_files(absurd)


@given(st.text(max_size=60) | st.lists(st.text("ab/*?[]!-{},.~\\ ", max_size=20), max_size=4))
def test_whatever_is_read_can_be_compared_with_everything(text: str | list[str]) -> None:
    try:
        files = parse_files(text)
    except UsageError:
        return
    assert all(files)
    assert len(set(files)) == len(files)
    assert do_overlap(files, files) or not do_overlap(files, ["**"])
