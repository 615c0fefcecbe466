"""From tables to settings: every value is checked against the type and the bounds of its field.

What is read becomes leaves (path, value), so that file, environment and flags are laid over each other key by key;
`build` makes the settings of them. Whatever is wrong is one UsageError in one line: where, which key, what is there,
what is allowed.
"""

from __future__ import annotations

import os
import re
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, NamedTuple, TypeVar

from bullpen.config.settings import MAX_COUNT, Allowed, Settings, Teammate
from bullpen.domain.member import LABEL_PATTERN
from bullpen.domain.text import NAME_PATTERN, RESERVED_NAMES, name_key, normalise_role
from bullpen.errors import UsageError

Path = tuple[str, ...]
S = TypeVar("S")

_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")
_PLAIN = Allowed("")
_PATTERN = re.compile(r"[A-Za-z_*][\w*-]*|(bash|check):\s*\S.*", re.ASCII | re.DOTALL | re.IGNORECASE)
_LISTS = {
    "variable": "a list of names of variables",
    "pattern": 'a list of patterns such as "bash:git push"',
    "command": "a command or a list of commands",
    "label": 'a list of labels such as "gpu"',
    "inside": 'a list of paths in the repository such as ".env" or "conf/*.ini" (no "/" or "~" in front, no "..")',
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Whose words are read."""

    name: str
    directory: str | None = None
    """Paths in a file are relative to where it lies."""
    is_text: bool = False
    """Every value is a text: `60`, `true`, `a,b`."""
    is_stored: bool = False
    """Written by some version of Bullpen: what this one does not know or does not store is passed over."""

    @property
    def prefix(self) -> str:
        return "" if self.name == "flag" else f"{self.name}: "


class Described(NamedTuple):
    hint: Any
    allowed: Allowed
    is_optional: bool


@cache
def describe(section: type) -> Mapping[str, Described]:
    """The fields of a section that are settings or sections."""
    hints = typing.get_type_hints(section)
    described = {}
    for one in fields(section):
        hint, is_optional = _without_none(hints[one.name])
        if "allowed" in one.metadata or is_dataclass(hint):
            described[one.name] = Described(hint, one.metadata.get("allowed", _PLAIN), is_optional)
    return described


def dotted(path: Path) -> str:
    return ".".join(path)


def list_keys(section: type = Settings, path: Path = ()) -> Iterator[Path]:
    for name, (hint, _, _) in describe(section).items():
        if is_dataclass(hint):
            yield from list_keys(typing.cast(type, hint), (*path, name))
        else:
            yield (*path, name)


# -- tables --------------------------------------------------------------------------------


def read_table(
    table: Mapping[str, Any], origin: Origin, section: type = Settings, path: Path = ()
) -> Iterator[tuple[Path, Any]]:
    known = describe(section)
    for key, value in table.items():
        if key in known:
            if not (origin.is_stored and known[key].allowed.is_local):
                yield from _read_field(known[key], value, origin, (*path, key))
        elif not origin.is_stored:
            raise UsageError(f"{origin.prefix}there is no setting {dotted((*path, key))}{_instead(section, path, key)}")


def _read_field(field: Described, value: Any, origin: Origin, path: Path) -> Iterator[tuple[Path, Any]]:
    hint, arguments = field.hint, typing.get_args(field.hint)
    if is_dataclass(hint):
        short_for = getattr(hint, "short_for", None)
        if isinstance(value, str) and short_for is not None:
            value = {short_for: value}
        if not isinstance(value, Mapping):
            raise _refuse(origin, path, value, "a table is allowed" + (" or a text" if short_for else ""))
        yield from read_table(value, origin, typing.cast(type, hint), path)
    elif typing.get_origin(hint) is Mapping:
        for key, item in _entries(value, origin, path).items():
            here = (*path, normalise_role(key))
            yield here, _read_value(Described(arguments[1], field.allowed, False), item, origin, here)
    elif arguments and arguments[0] is Teammate:
        yield path, _read_teammates(value, origin, path)
    else:
        yield path, _read_value(field, value, origin, path)


def _entries(value: Any, origin: Origin, path: Path) -> Mapping[str, Any]:
    if origin.is_text and isinstance(value, str):
        pairs = [pair.partition("=") for pair in _split(value)]
        if all(key.strip() and equals for key, equals, _ in pairs):
            return {key.strip(): item.strip() for key, _, item in pairs}
    if isinstance(value, Mapping) and all(normalise_role(key) for key in value):
        return value
    raise _refuse(origin, path, value, "a table of roles is allowed (as a text: ROLE=VALUE,ROLE=VALUE)")


def _read_teammates(value: Any, origin: Origin, path: Path) -> tuple[Teammate, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(one, Mapping) for one in value):
        raise _refuse(origin, path, value, "a list of tables is allowed: [[teammates]] in a file")
    read: dict[str, Teammate] = {}
    for number, table in enumerate(value, 1):
        name = table.get("name")
        here = (f"teammates[{name if isinstance(name, str) else number}]",)
        if name is None:
            raise UsageError(f"{origin.prefix}{dotted(here)} has no name")
        teammate = build(Teammate, {key[1:]: item for key, item in read_table(table, origin, Teammate, here)})
        if name_key(teammate.name) in read:
            raise UsageError(f"{origin.prefix}two teammates are named {teammate.name}: a name is unique in its team")
        read[name_key(teammate.name)] = teammate
    return tuple(read.values())


def build(section: type[S], leaves: Mapping[Path, Any], **more: Any) -> S:
    """The section in which these leaves are set and the others are at their defaults."""
    values: dict[str, Any] = dict(more)
    for name, (hint, _, _) in describe(typing.cast(Any, section)).items():
        below = {path[1:]: value for path, value in leaves.items() if path[0] == name}
        if is_dataclass(hint):
            values[name] = build(typing.cast(type, hint), below)
        elif typing.get_origin(hint) is Mapping:
            values[name] = {path[0]: value for path, value in below.items()}
        elif () in below:
            values[name] = below[()]
    return section(**values)


# -- values --------------------------------------------------------------------------------


def _read_value(field: Described, value: Any, origin: Origin, path: Path) -> Any:
    if field.is_optional and (value is None or value == "none"):
        return None
    given = value
    if field.allowed.kind == "command" and isinstance(value, str):
        # A comma is part of it, also where lists are written with commas.
        value = [value]
    elif origin.is_text and isinstance(value, str):
        value = _from_text(field.hint, value)
    read = _accept(field, value)
    if read is None:
        raise _refuse(origin, path, given, f"{allowed_words(field)} is allowed", field.allowed)
    return _anchor(read, field.allowed.kind, origin.directory)


def _accept(field: Described, value: Any) -> Any:
    """The value as the field's type has it; None if it is not allowed."""
    hint, allowed = field.hint, field.allowed
    if hint is bool:
        return value if isinstance(value, bool) else None
    if hint in (int, float):
        fits = isinstance(value, int if hint is int else int | float) and not isinstance(value, bool)
        return hint(value) if fits and allowed.minimum <= value <= allowed.maximum else None
    if typing.get_origin(hint) is tuple:
        fits = isinstance(value, list | tuple) and all(_is_text(item, allowed) for item in value)
        return tuple(value) if fits else None
    if choices := choices_of(hint):
        return next((choice for choice in choices if choice == value), None)
    # A text that may be absent is not empty.
    return value if _is_text(value, allowed) or (value == "" and not field.is_optional and not allowed.kind) else None


def _is_text(value: Any, allowed: Allowed) -> bool:
    if not isinstance(value, str) or not value.strip():
        return False
    if allowed.kind == "name":
        return bool(NAME_PATTERN.fullmatch(value)) and name_key(value) not in RESERVED_NAMES
    if allowed.kind == "variable":
        return value.isascii() and value.isidentifier()
    if allowed.kind == "pattern":
        return bool(_PATTERN.fullmatch(value))
    if allowed.kind == "label":
        return bool(LABEL_PATTERN.fullmatch(value))
    if allowed.kind == "inside":
        return _is_inside(value)
    return True


def _is_inside(pattern: str) -> bool:
    """Does it stay below the directory that it is looked for in?"""
    parts = pattern.split("/")
    # Before Python 3.13, `**` is a part of its own or a mistake.
    sound = all(part != ".." and ("**" not in part or part == "**") for part in parts)
    return sound and not pattern.startswith(("/", "~")) and any(part not in ("", ".") for part in parts)


def _from_text(hint: Any, text: str) -> Any:
    """What a variable's text means; the text itself where it means nothing, so that the message shows it."""
    word = text.strip()
    if hint is bool:
        return True if word.lower() in _TRUE else False if word.lower() in _FALSE else text
    if hint in (int, float):
        try:
            return hint(word)
        except ValueError:
            return text
    if typing.get_origin(hint) is tuple:
        return _split(text)
    return word if choices_of(hint) else text


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def choices_of(hint: Any) -> tuple[Any, ...]:
    if typing.get_origin(hint) is typing.Literal:
        return typing.get_args(hint)
    return tuple(hint) if isinstance(hint, type) and issubclass(hint, Enum) else ()


def _without_none(hint: Any) -> tuple[Any, bool]:
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return hint, False
    kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)]
    return kinds[0], True


def _anchor(value: Any, kind: str, directory: str | None) -> Any:
    """A path in a file is relative to where the file lies, not to where the command was called."""
    if directory is None or kind not in ("store", "model"):
        return value
    starts = ("sqlite:///", "files:") if kind == "store" else ("scripted:", "replay:")
    for start in starts:
        path = value.removeprefix(start)
        if path != value and path not in ("", ":memory:") and not path.startswith(("~", "/")):
            return start + os.path.join(directory, path)
    return value


# -- words ---------------------------------------------------------------------------------


def allowed_words(field: Described) -> str:
    hint, allowed = field.hint, field.allowed
    words = "a text"
    if hint is bool:
        words = "true or false"
    elif hint in (int, float):
        what = "a whole number" if hint is int else "a number"
        least, most = f"{allowed.minimum:,.12g}", f"{allowed.maximum:,.12g}"
        words = f"{what} of at least {least}" if allowed.maximum == MAX_COUNT else f"{what} from {least} to {most}"
    elif choices := choices_of(hint):
        words = "one of " + ", ".join(f'"{choice}"' for choice in choices)
    elif typing.get_origin(hint) is tuple:
        words = _LISTS.get(allowed.kind, "a list of texts")
    elif allowed.kind == "name":
        words = f"a name of letters, digits, '-' and '_' other than {', '.join(sorted(RESERVED_NAMES))}"
    return f'{words} or "none"' if field.is_optional else words


def to_toml(value: Any) -> str:
    """A value as TOML has it, on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return '"none"'
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{toml_key(key)} = {to_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(to_toml, value)) + "]"
    if isinstance(value, float):
        return f"{value:.12g}"
    if isinstance(value, str):
        import json

        return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value)


def toml_key(key: str) -> str:
    return key if NAME_PATTERN.fullmatch(key) else to_toml(key)


def _refuse(origin: Origin, path: Path, value: Any, allowed: str, rules: Allowed = _PLAIN) -> UsageError:
    if rules.kind == "variable" and isinstance(value, list | tuple):
        # Somebody may have written the secret beside its name.
        value = [item.partition("=")[0] + "=…" if isinstance(item, str) and "=" in item else item for item in value]
    shown = to_toml(value)
    return UsageError(f"{origin.prefix}{dotted(path)} is {shown[:80] + '…' * (len(shown) > 80)}: {allowed}")


def _instead(section: type, path: Path, key: str) -> str:
    from difflib import get_close_matches

    wanted = key.replace("-", "_")
    longer = [name for name in describe(section) if name.startswith(f"{wanted}_")]
    near = longer or get_close_matches(wanted, describe(section), n=1, cutoff=0.6)
    if near:
        return f"; did you mean {dotted((*path, near[0]))}?"
    if section is not Teammate:
        every = [dotted(one) for one in list_keys()]
        if near := find_near(wanted, dotted((*path, wanted)).replace("_", "."), every):
            return f"; did you mean {' or '.join(near[:3])}?"
    return f"; {f'[{dotted(path)}]' if path else 'the file'} may have {', '.join(describe(section))}"


def find_near(last: str, whole: str, names: list[str]) -> list[str]:
    """The names that end with that part, else the one that is most like the whole."""
    from difflib import get_close_matches

    same = [name for name in names if name.rpartition(".")[2] == last]
    return same or get_close_matches(whole, names, n=1, cutoff=0.7)
