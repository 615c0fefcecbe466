"""Where secrets really lie."""

from __future__ import annotations

from pathlib import Path

from bullpen.sandboxes.paths import secret_places, with_real


def test_a_place_is_found_through_every_link_on_the_way(tmp_path: Path) -> None:
    real = tmp_path / "real"
    (real / "ssh").mkdir(parents=True)
    (tmp_path / "home").symlink_to(real)
    (real / ".aws").symlink_to("ssh")
    (real / ".loop").symlink_to(".loop")
    (real / ".gone").symlink_to("nowhere")
    places = [tmp_path / "home" / name for name in ("ssh", ".aws", "missing", ".gone", ".config/missing")]
    assert with_real(places) == {str(found) for place in places for found in (place, place.resolve())}
    assert str(real / ".loop") in with_real([tmp_path / "home" / ".loop"])


def test_of_this_machine_the_same_is_found_as_by_looking_at_each_alone() -> None:
    places = secret_places()
    assert with_real(places) == {str(found) for place in places for found in (place, place.resolve())}
