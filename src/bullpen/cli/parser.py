"""Typer, with commands that are built when they are used and words that are left as they are.

- To build a command costs a few milliseconds and the imports of its module; of the
  dozen that there are, one is used. Names and help lines are known without that.
- Newer versions of Typer import pydantic (150 ms) to make a string out of a string.
  Every parameter here is a text, a list of texts or a flag, and what a text means is
  the business of the domain's parsers, so that step is left out. If Typer changes
  there, the command becomes slow again, never wrong, and a test notices.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any, NamedTuple, TypeVar, cast

import typer
from typer.core import TyperCommand, TyperGroup

EVERYWHERE = "Everywhere: --store URL, --team NAME, --json, --version; see `bullpen -h`."

F = TypeVar("F", bound=Callable[..., Any])


class _AsItIs:
    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        return () if value is None and (param.multiple or param.nargs == -1) else value


def _untouched(params: list[Any]) -> list[Any]:
    for param in params:
        param.get_runtime_param = _AsItIs
    return params


class PlainCommand(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _untouched(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            # Of an option without its value Typer does not say whose it is, and so whose help would help.
            if getattr(error, "ctx", ctx) is None:
                cast(Any, error).ctx = ctx
            raise


class Entry(NamedTuple):
    line: str
    """Its line in the help."""
    build: Callable[[], Any]


class LazyGroup(TyperGroup):
    """`sections`: the commands under the titles that the help shows them with."""

    def __init__(self, *, sections: Mapping[str, Mapping[str, Entry]], **settings: Any) -> None:
        super().__init__(**{**settings, "commands": {}})
        self.sections = sections
        self.commands = _Built({name: entry for entries in sections.values() for name, entry in entries.items()})

    def get_params(self, ctx: Any) -> list[Any]:
        return _untouched(super().get_params(ctx))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """What one can do comes first."""
        self.format_commands(ctx, formatter)
        PlainCommand.format_options(cast(Any, self), ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        # The same width for all of them: the eye goes down one column.
        width = max(len(name) for name in self.commands)
        for title, entries in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<{width}}", entry.line) for name, entry in entries.items()])


class _Built(MutableMapping[str, Any]):
    """Names that cost nothing; a command is built when it is asked for."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self._entries = entries
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            command = self._entries[name].build()
            command.name = name
            self._built[name] = command
        return self._built[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._built[name] = command

    def __delitem__(self, name: str) -> None:
        del self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


class Branch:
    """A word with commands under it, such as `task`."""

    def __init__(self, help: str) -> None:
        self.help = help
        self.functions: dict[str, Callable[..., Any]] = {}

    def command(self, name: str) -> Callable[[F], F]:
        def register(function: F) -> F:
            self.functions[name] = function
            return function

        return register

    def build(self) -> Any:
        entries = {name: Entry(line_of(function), _builder(function)) for name, function in self.functions.items()}
        return LazyGroup(sections={"Commands": entries}, help=self.help, rich_markup_mode=None)


def line_of(function: Callable[..., Any]) -> str:
    return (inspect.getdoc(function) or "").partition("\n")[0]


def imported(target: str) -> Callable[[], Any]:
    """Builds `module:name`, a `Branch` or the function of a single command."""

    def build() -> Any:
        module, _, name = target.partition(":")
        found = getattr(import_module(module), name)
        return found.build() if isinstance(found, Branch) else _builder(found)()

    return build


def _builder(function: Callable[..., Any]) -> Callable[[], Any]:
    def build() -> Any:
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(cls=PlainCommand, epilog=EVERYWHERE)(function)
        return typer.main.get_command(app)

    return build
