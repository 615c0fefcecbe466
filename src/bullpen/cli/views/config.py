"""The settings in force, as TOML has them, each with where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bullpen.cli.page import Column, Page, Painted
from bullpen.config.read import to_toml
from bullpen.domain.codec import encode
from bullpen.stores import without_password

COLUMNS = (Column("SETTING", min_width=20), Column("VALUE", is_flexible=True, min_width=12), Column("FROM"))


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """`sources` names where each value comes from that is not the default; `variables` the one that would set it."""

    file: str | None
    values: Mapping[str, Any]
    sources: Mapping[str, str]
    variables: Mapping[str, str]
    default_model: str | None

    def shown(self, key: str) -> Any:
        """A store's address may hold a password."""
        value = encode(self.values[key])
        return without_password(value) if key == "store" and isinstance(value, str) else value


def draw_config(page: Page, in_force: InForce) -> None:
    page.field("file", in_force.file or Painted("none here or above; `bullpen init` writes one", "dim"))
    if in_force.default_model is not None:
        page.field("model", in_force.default_model)
    page.gap()
    rows = [
        (
            Painted(key, "bold" if key in in_force.sources else ""),
            to_toml(in_force.shown(key)),
            _source(in_force, key),
        )
        for key in in_force.values
    ]
    if rows:
        page.table(COLUMNS, rows)
    else:
        page.line("everything is at its default")


def _source(in_force: InForce, key: str) -> Painted:
    source = in_force.sources.get(key)
    if source is None:
        return Painted("default", "dim")
    return Painted("file" if source == in_force.file else source, "green")


def config_document(in_force: InForce) -> Mapping[str, Any]:
    return {
        "file": in_force.file,
        "default_model": in_force.default_model,
        "settings": {
            key: {
                "value": in_force.shown(key),
                "source": in_force.sources.get(key, "default"),
                "variable": in_force.variables[key],
            }
            for key in in_force.values
        },
    }
