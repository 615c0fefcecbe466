"""An error as the user is told of it: one line, or one JSON object, on stderr."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from bullpen.cli.options import FLAGS, VALUES
from bullpen.cli.stream import remark_beside
from bullpen.cli.text import json_text, one_line
from bullpen.errors import BullpenError

# More names than these are no help in one line.
MAX_NAMES = 80


@dataclass(frozen=True)
class Fault:
    text: str
    kind: str
    exit_code: int


def explain(error: Exception) -> Fault | None:
    """None: nobody expected this, its traceback is worth more than a line."""
    if isinstance(error, BullpenError):
        return Fault(str(error), type(error).__name__, error.exit_code)
    # Typer's own, which come from click or, in newer versions, from a copy of it: known by what they can do.
    if hasattr(error, "format_message"):
        return Fault(_usage(error), "UsageError", 2)
    if isinstance(error, OSError):
        return Fault(error.strerror or str(error), type(error).__name__, 1)
    return None


def _usage(error: Any) -> str:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "bullpen"
    message = str(error.message).rstrip(".") or error.format_message().rstrip(".")
    names = _commands(context)
    if message == "Missing command":
        return f"{path.removeprefix('bullpen ')} needs one of {names}"
    if message.startswith("No such command"):
        there = f"{path} has {names}" if len(names) <= MAX_NAMES else f"`{path} --help` shows which there are"
        return f"{message[0].lower()}{message[1:]}" + ("" if "Did you mean" in message else f": {there}")
    if getattr(error, "option_name", None) and hasattr(error, "possibilities"):
        return _unknown_option(path, error.option_name, error.possibilities or ())
    if getattr(error, "option_name", None) and message.endswith("requires an argument"):
        return f"{error.option_name} needs a value: {error.option_name} {_metavar(context, error.option_name)}"
    if getattr(error, "option_name", None) and message.endswith("does not take a value"):
        return f"{error.option_name} takes no value"
    message = error.format_message().rstrip(".")
    return f"{message[:1].lower()}{message[1:]}; see `{path} --help`"


def _unknown_option(path: str, name: str, near: Sequence[str]) -> str:
    # Typer finds --help near to almost anything, and that is named in any case. Those of every command it never sees.
    known = {*near, *get_close_matches(name, (*FLAGS, *VALUES), n=1, cutoff=0.75)} - {"--help"}
    hint = ", ".join(sorted(known))
    advice = f"did you mean {hint}?" if hint else f"`{path} --help` shows which there are"
    return f"{path} has no option {name}: {advice}"


def _metavar(context: Any, name: str) -> str:
    options = () if context is None else context.command.params
    return next((option.metavar for option in options if name in option.opts and option.metavar), "VALUE")


def _commands(context: Any) -> str:
    if context is None or not hasattr(context.command, "list_commands"):
        return ""
    return ", ".join(context.command.list_commands(context))


def report(fault: Fault, *, as_json: bool) -> None:
    line = one_line(fault.text)
    remark_beside(json_text({"error": line, "kind": fault.kind}) if as_json else f"bullpen: {line}")
