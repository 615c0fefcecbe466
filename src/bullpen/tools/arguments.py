"""Reading what a model wrote into what a tool takes: generously, and with a clear word where that is not possible.

Names in any case and any of their aliases, `3`, `"3"` and `#3` for a task, `"true"` for
true, a single value where a list is meant, `"1, 2"` for a list of tasks, choices in any
case. An unknown argument is passed over with a remark. A missing one is a `ToolError`
that names it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from bullpen.domain.task import parse_task_id
from bullpen.errors import ToolError, UsageError
from bullpen.tool import Kind, Parameter, Tool

_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0", ""})


def read_arguments(
    tool: Tool, given: Mapping[str, Any], implied: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], list[str]]:
    """The arguments by their real names, and remarks about what was passed over."""
    names = _names(tool.parameters)
    values: dict[str, Any] = dict(implied or {})
    remarks: list[str] = []
    for written, value in given.items():
        parameter = names.get(_fold(written))
        if parameter is None:
            remarks.append(f"{tool.name} has no parameter {str(written)[:60]!r}; it was ignored")
        elif value is not None:
            values[parameter.name] = _read(tool, parameter, value)
    missing = [
        parameter.name for parameter in tool.parameters if parameter.is_required and parameter.name not in values
    ]
    if missing:
        raise ToolError(f"{tool.name} needs {' and '.join(missing)}: {_usage(tool)}")
    return values, remarks


def _names(parameters: Sequence[Parameter]) -> dict[str, Parameter]:
    names = {_fold(alias): parameter for parameter in parameters for alias in parameter.aliases}
    names.update({_fold(parameter.name): parameter for parameter in parameters})
    return names


def _fold(name: Any) -> str:
    """`taskId`, `task_id` and `TaskID` are one name."""
    return str(name).replace("_", "").replace("-", "").casefold()


def _usage(tool: Tool) -> str:
    written = ", ".join(f"{parameter.name}{'' if parameter.is_required else '?'}" for parameter in tool.parameters)
    return f"call it as {tool.name}({written})"


def _read(tool: Tool, parameter: Parameter, value: Any) -> Any:
    try:
        read = _READERS[parameter.kind](value)
    except (ValueError, TypeError, UsageError) as error:
        raise ToolError(
            f"{tool.name}: {parameter.name} must be a {parameter.kind.value}, not {str(value)[:60]!r} ({error})"
        ) from None
    if parameter.choices:
        return _choose(tool, parameter, read)
    return read


def _choose(tool: Tool, parameter: Parameter, value: Any) -> str:
    folded = {_fold(choice): choice for choice in parameter.choices}
    choice = folded.get(_fold(value).replace(" ", ""))
    if choice is None:
        raise ToolError(
            f"{tool.name}: {parameter.name} must be one of {', '.join(parameter.choices)}, not {str(value)[:60]!r}"
        )
    return choice


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool | Mapping | list):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def _integer(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError("that is a yes or no")
    number = float(value)
    if number != int(number):
        raise ValueError("that is not a whole number")
    return int(number)


def _number(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError("that is a yes or no")
    return float(value)


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).strip().casefold()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError("write true or false")


def _task_id(value: Any) -> int:
    return parse_task_id(int(value) if isinstance(value, float) and value.is_integer() else value)


def _list(value: Any) -> list[Any]:
    """A list, or what models write instead of one: JSON in a text, a text with commas, one value."""
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, str):
        if value.strip().startswith("["):
            # Or a glob: `[a-c]*.py`.
            with suppress(ValueError):
                return list(json.loads(value))
        return [part.strip() for part in value.split(",") if part.strip()]
    return [value]


_READERS: dict[Kind, Callable[[Any], Any]] = {
    Kind.TEXT: _text,
    Kind.INTEGER: _integer,
    Kind.NUMBER: _number,
    Kind.BOOLEAN: _boolean,
    Kind.TASK_ID: _task_id,
    Kind.TASK_IDS: lambda value: [_task_id(entry) for entry in _list(value)],
    Kind.TEXTS: lambda value: [_text(entry) for entry in _list(value)],
}
