"""docs/promises.md names the test of each promise: every one of them exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
_ROW = re.compile(r"^\| (?!what must|prompt|---)(.+?) \| (`tests/.*`) \|$", re.MULTILINE)
PROMISES = {found[1]: re.findall(r"`([^`]+)`", found[2]) for found in _ROW.finditer(PAGE)}


@cache
def functions_of(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize("promise", PROMISES)
def test_each_promise_is_tied_to_tests_that_exist(promise: str) -> None:
    assert PROMISES[promise]
    for proof in PROMISES[promise]:
        path, _, name = proof.partition("::")
        assert (ROOT / path).is_file(), f"{promise}: there is no {path}"
        assert name in functions_of(path), f"{promise}: there is no {name} in {path}"


def test_no_row_of_the_page_is_without_its_proof() -> None:
    rows = [
        line
        for line in PAGE.splitlines()
        if line.startswith("| ") and not line.startswith(("| ---", "| what", "| prompt"))
    ]
    assert len(rows) == len(PROMISES)
    assert len(rows) > 50
