"""`bullpen config` and `bullpen init`: the settings that are in force, and a file to begin with."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from bullpen.cli import completion
from bullpen.cli.call import Call
from bullpen.cli.views.config import InForce, config_document, draw_config
from bullpen.config import Settings, find_settings_file, load_settings, write_example
from bullpen.config.file import FILE
from bullpen.config.load import environment_name
from bullpen.config.read import find_near
from bullpen.errors import Conflict, UsageError


def config(
    ctx: typer.Context,
    key: Annotated[
        str | None,
        typer.Argument(
            metavar="KEY",
            help="Only this one, or this section, such as budget.",
            autocompletion=completion.settings,
        ),
    ] = None,
    changed: Annotated[bool, typer.Option("--changed", help="Only what is not the default.")] = False,
) -> None:
    """Which settings are in force, and from where."""
    call = Call.of(ctx)
    settings = load_settings(".", environment=os.environ, flags=call.flags)
    wanted = {name: value for name, value in settings.values() if key is None or _is_in(name, key)}
    if not wanted and key is not None:
        raise UsageError(f"there is no setting {key[:80]!r}: {_instead(key, settings)}")
    file = find_settings_file()
    in_force = InForce(
        file=None if file is None else str(file),
        values={name: value for name, value in wanted.items() if not changed or name in settings.sources},
        sources=settings.sources,
        variables={name: environment_name(tuple(name.split("."))) for name in wanted},
        default_model=None if settings.model else _default_model(),
    )
    call.show(config_document(in_force), lambda page: draw_config(page, in_force))


def _instead(key: str, settings: Settings) -> str:
    names = [name for name, _ in settings.values()]
    sections = dict.fromkeys(name.partition(".")[0] for name in names)
    wanted = key.lower().replace("-", "_")
    near = find_near(wanted, wanted, list(dict.fromkeys([*names, *sections])))
    return f"did you mean {' or '.join(near)}?" if near else "`bullpen config` shows all of them"


def _is_in(name: str, key: str) -> bool:
    return name == key or name.startswith(f"{key}.")


def _default_model() -> str | None:
    from bullpen.providers import default_model

    found = default_model(os.environ)
    return None if found is None else f"{found[0]}, because {found[1]}"


def init(ctx: typer.Context) -> None:
    """Write a commented bullpen.toml."""
    call = Call.of(ctx)
    path, other = os.path.join(os.getcwd(), FILE), find_settings_file()
    try:
        # Exclusively: what somebody has written there is never lost.
        with open(path, "x", encoding="utf-8") as file:
            file.write(write_example())
    except FileExistsError:
        raise Conflict(f"{path} is there already; `bullpen config` shows what is in force") from None
    except OSError as error:
        raise Conflict(f"{path} cannot be written: {error.strerror}") from error
    if other is not None:
        call.note(f"{other} no longer counts here: of several files only the nearest does")
    call.show({"file": path}, lambda page: page.line(f"wrote {FILE}: everything in it is commented out, so change it"))
