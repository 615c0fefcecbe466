"""Logs of lines: read from either end, they are the same."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.stores.files import log
from bullpen.stores.files.view import View


@given(st.binary(max_size=60).map(lambda data: data.replace(b"\0", b"\n")), st.integers(1, 20))
def test_lines_from_the_end_are_those_from_the_beginning(data: bytes, chunk: int) -> None:
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "_CHUNK", chunk)
        (Path(directory) / "log").write_bytes(data)
        view = View(directory)
        forwards = [line for _, line in log.lines(view, "log")]
        assert list(log.lines_backwards(view, "log")) == forwards[::-1]
        assert forwards == data.split(b"\n")[:-1]
