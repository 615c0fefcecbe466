"""What a view shows, as options of bubblewrap."""

from __future__ import annotations

from pathlib import Path

import pytest

from bullpen.sandboxes.view import View


def mounts(view: View, *, read_only: bool = False) -> list[tuple[str, str]]:
    """(how, where), in order."""
    options, found = view.options(read_only=read_only), []
    while options:
        how = options.pop(0)
        source = options.pop(0)
        where = source if how in ("--tmpfs", "--remount-ro") else options.pop(0)
        found.append((how.removeprefix("--"), where))
    return found


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    for place in (".ssh", ".config/gh", ".config/tool", "src/project/.store", "link"):
        (home / place).mkdir(parents=True)
    (home / ".netrc").touch()
    (home / "notes").touch()
    (home / "to-ssh").symlink_to(".ssh")
    return home


def hidden(home: Path) -> frozenset[Path]:
    return frozenset(home / place for place in (".ssh", ".netrc", ".aws", ".config/gh"))


def test_a_home_is_rebuilt_from_what_is_not_hidden(home: Path) -> None:
    view = View()
    view.rebuild(home, hidden(home))
    shown = mounts(view)
    assert shown[0] == ("tmpfs", str(home))
    assert set(shown[1:]) == {
        ("tmpfs", str(home / ".config")),
        ("ro-bind", str(home / ".config/tool")),
        ("ro-bind", str(home / "src")),
        ("ro-bind", str(home / "link")),
        ("ro-bind", str(home / "notes")),
        ("symlink", str(home / "to-ssh")),
        ("remount-ro", str(home)),
        ("remount-ro", str(home / ".config")),
    }


def test_the_deeper_path_counts_whatever_was_said_first(home: Path) -> None:
    project = home / "src/project"
    view = View()
    view.write(project)
    view.hide(project / ".store")
    view.rebuild(home, hidden(home))
    shown = mounts(view)
    order = [
        shown.index(mount)
        for mount in (
            ("ro-bind", str(home / "src")),
            ("bind", str(project)),
            ("tmpfs", str(project / ".store")),
            ("remount-ro", str(project / ".store")),
        )
    ]
    assert order == sorted(order)
    assert ("ro-bind", str(project)) in mounts(view, read_only=True)


def test_a_home_that_is_written_keeps_its_secrets_masked(home: Path) -> None:
    view = View()
    view.write(home)
    view.rebuild(home, hidden(home))
    assert mounts(view)[0] == ("bind", str(home))
    assert set(mounts(view)[1:]) == {
        # Between what is written and what is masked: pinned, so that it cannot be moved.
        ("bind", str(home / ".config")),
        ("tmpfs", str(home / ".config/gh")),
        ("tmpfs", str(home / ".ssh")),
        ("ro-bind", str(home / ".netrc")),
        ("remount-ro", str(home / ".config/gh")),
        ("remount-ro", str(home / ".ssh")),
    }


def test_what_lies_below_another_tmp_is_not_there_to_be_hidden(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    view = View()
    view.replace(tmp_path, tmp_path / "other")
    view.hide(tmp_path / "store")
    assert mounts(view) == [("bind", str(tmp_path))]
