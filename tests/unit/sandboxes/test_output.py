"""Excerpts of long output, and the file that is limited while it is written."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from bullpen.sandboxes.output import OutputDirectory, excerpt
from bullpen.sandboxes.supervisor import TAIL_BYTES, Sink


def test_short_output_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("é" * 1000)
    assert excerpt(path, 1000) == "é" * 1000


def test_long_output_is_cut_between_characters(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("é" * 10_000 + "ü" * 100_000)
    text = excerpt(path, 1000)
    assert len(text) <= 1000
    assert text.startswith("éé")
    assert text.endswith("üü")
    assert "\ufffd" not in text
    assert "bytes left out" in text


@given(data=st.binary(max_size=3000), limit=st.integers(min_value=300, max_value=1000))
def test_an_excerpt_is_never_longer_than_asked(data: bytes, limit: int) -> None:
    path = (
        Path(f"/dev/shm/bullpen-test-{os.getpid()}")
        if os.path.isdir("/dev/shm")
        else Path(f"/tmp/bullpen-{os.getpid()}")
    )
    try:
        path.write_bytes(data)
        text = excerpt(path, limit)
        assert len(text) <= limit
        whole = data.decode(errors="replace")
        assert text == whole or ("left out" in text and text[:20] == whole[:20] and text[-20:] == whole[-20:])
    finally:
        path.unlink()


def test_files_are_numbered_on_from_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "000041.txt").touch()
    (tmp_path / "notes.txt").touch()
    directory = OutputDirectory(tmp_path)
    names = []
    for _ in range(2):
        descriptor, path = directory.create()
        os.close(descriptor)
        names.append(path.name)
    assert names == ["000042.txt", "000043.txt"]


def written(tmp_path: Path, limit: int, *chunks: bytes) -> bytes:
    path = tmp_path / "sink"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    sink = Sink(descriptor, limit)
    for chunk in chunks:
        sink.write(chunk)
    sink.settle()
    os.close(descriptor)
    return path.read_bytes()


def test_up_to_the_limit_everything_is_written(tmp_path: Path) -> None:
    assert written(tmp_path, 10, b"01234", b"56789") == b"0123456789"


def test_a_little_over_the_limit_is_written_too(tmp_path: Path) -> None:
    assert written(tmp_path, 10, b"0123456789ab", b"cd") == b"0123456789abcd"


def test_far_over_the_limit_head_and_tail_are_kept_and_the_gap_is_told(tmp_path: Path) -> None:
    data = written(tmp_path, 10, b"0123456789", *[b"x" * 65536] * 100, b"the end")
    assert data.startswith(b"0123456789\n[")
    assert data.endswith(b"the end")
    left_out = 100 * 65536 + 7 - TAIL_BYTES
    assert f"[… {left_out:,} bytes were not kept".encode() in data
    assert len(data) < 10 + 200 + TAIL_BYTES


def test_a_full_disk_drops_and_does_not_raise(tmp_path: Path) -> None:
    descriptor = os.open("/dev/full", os.O_WRONLY)
    sink = Sink(descriptor, 100)
    sink.write(b"data")
    sink.settle()
    os.close(descriptor)
