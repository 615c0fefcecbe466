"""`bullpen migrate`: the one command for which the owner of the tables is needed."""

from __future__ import annotations

import typer

from bullpen.cli.call import Call
from bullpen.stores import migrate_store


def migrate(ctx: typer.Context) -> None:
    """Bring the tables of the store up to date.

    Only needed where those who work with it may not change them: a PostgreSQL with roles of its own. Steps that only
    add may be taken while older workers run; any other is refused until they have left.
    """
    call = Call.of(ctx)
    version = call.run(migrate_store(call.place.url))
    words = (
        "this store brings itself up to date" if version is None else f"the tables are those of schema {_text(version)}"
    )
    call.show({"schema": None if version is None else _text(version)}, lambda page: page.line(words))


def _text(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
