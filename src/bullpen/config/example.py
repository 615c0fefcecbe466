"""The settings for people: the file that `bullpen init` writes, and docs/settings.md. Made from the dataclasses."""

from __future__ import annotations

import inspect
import textwrap
import typing
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from bullpen.config.load import PREFIX, SHORT_NAMES
from bullpen.config.read import Described, allowed_words, describe, dotted, to_toml, toml_key
from bullpen.config.settings import Settings, Teammate

WIDTH = 100
_HEAD = """\
# Settings of Bullpen. What is commented out is the default, or an example where there is none.
# Variables win over this file, and flags over both; `bullpen config` shows what is in force and from where.
"""


def write_example() -> str:
    """A commented bullpen.toml that changes nothing until something in it is."""
    return _HEAD + "\n" + "\n".join(_example(Settings, ())) + "\n"


def _example(section: type, path: tuple[str, ...]) -> Iterator[str]:
    known = describe(section)
    tables = [name for name, field in known.items() if _is_table(field)]
    for name in known:
        if name not in tables:
            yield from _example_value(section, name, known[name])
    for name in tables:
        field, here = known[name], (*path, name)
        if is_dataclass(field.hint):
            yield from ("", *_comment(_about(typing.cast(type, field.hint))), f"[{dotted(here)}]")
            yield from _example(typing.cast(type, field.hint), here)
        elif typing.get_origin(field.hint) is Mapping:
            yield from ("", *_comment(field.allowed.about), f"[{dotted(here)}]")
            yield from (f"# {toml_key(key)} = {to_toml(value)}" for key, value in field.allowed.example.items())
        else:
            yield from ("", *_comment(_about(Teammate)), "# [[teammates]]")
            yield from _example(Teammate, ())


def _example_value(section: type, name: str, field: Described) -> Iterator[str]:
    choices = f" ({allowed_words(field)})" if allowed_words(field).startswith("one of") else ""
    yield from _comment(field.allowed.about + choices)
    yield f"# {name} = {to_toml(_shown(section, name))}"


def _shown(section: type, name: str) -> Any:
    """The default where it says something, else the example."""
    example = describe(section)[name].allowed.example
    return _default(section, name) if example is None else example


def _default(section: type, name: str) -> Any:
    one = next(one for one in fields(section) if one.name == name)
    return one.default if one.default_factory is MISSING else one.default_factory()


def _is_table(field: Described) -> bool:
    return (
        is_dataclass(field.hint) or typing.get_origin(field.hint) is Mapping or Teammate in typing.get_args(field.hint)
    )


def _about(section: type) -> str:
    return " ".join((inspect.getdoc(section) or "").split())


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text, WIDTH - 2)]


# -- docs/settings.md ----------------------------------------------------------------------

_PAGE = """\
# Settings

Made from the code by `make docs`.

Settings stand in `bullpen.toml`, or below `[tool.bullpen]` in `pyproject.toml`; the nearest such file upwards from the
working directory counts, and the root of a git repository is the last place that is looked at. `bullpen init` writes a
commented one, `bullpen config` shows what is in force and from where. The environment wins over the file, flags over
both, key by key. Paths in `store` and in a `scripted:` or `replay:` model are relative to the file, or to the working
directory when a variable or flag has them.

Every key has a variable: `idle.timeout_seconds` is `BULLPEN_IDLE__TIMEOUT_SECONDS`, with two underscores for the dot.
A list is written `a,b`, a table `role=value,role=value`, and `models.tester` alone is `BULLPEN_MODELS__TESTER`. An
empty variable counts as absent. Short names, after `BULLPEN_`: {short}.

`"none"` stands for no limit or no choice. `sandbox = "required"` is short for `sandbox.kind`, and `team = "crew"` for
`team.name`. A key that does not exist, or a value that is not allowed, is refused when a command starts. A team carries
the settings that it was started with, so a worker on another machine sees the same ones.
"""


def settings_page() -> str:
    short = ", ".join(f"`{name.removeprefix(PREFIX)}`" for name in SHORT_NAMES)
    known = describe(Settings)
    sections = [(name, typing.cast(type, field.hint)) for name, field in known.items() if is_dataclass(field.hint)]
    plain = [name for name, field in known.items() if not _is_table(field) or typing.get_origin(field.hint) is Mapping]
    parts = [_PAGE.format(short=short), "## At the top of the file", "", *_rows(Settings, (), plain)]
    for name, section in sections:
        parts += ["", f"## [{name}]", "", _about(section), "", *_rows(section, (name,), list(describe(section)))]
    parts += ["", "## [[teammates]]", "", _about(Teammate), "", *_rows(Teammate, (), list(describe(Teammate)))]
    return "\n".join(parts) + "\n"


def _rows(section: type, path: tuple[str, ...], names: list[str]) -> Iterator[str]:
    yield "| key | default | allowed | |"
    yield "| --- | --- | --- | --- |"
    for name in names:
        yield from _row(section, (*path, name))


def _row(section: type, path: tuple[str, ...]) -> Iterator[str]:
    field = describe(section)[path[-1]]
    if is_dataclass(field.hint):
        for name in describe(typing.cast(type, field.hint)):
            yield from _row(typing.cast(type, field.hint), (*path, name))
        return
    key, default, allowed = dotted(path), f"`{to_toml(_default(section, path[-1]))}`", allowed_words(field)
    if typing.get_origin(field.hint) is Mapping:
        key, allowed = f"{key}.ROLE", allowed_words(field._replace(hint=typing.get_args(field.hint)[1]))
    if field.allowed.is_required:
        default = "required"
    yield f"| `{key}` | {default} | {allowed} | {field.allowed.about} |"
