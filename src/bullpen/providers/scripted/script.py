"""A script: who says and calls what, when. Reading one, from a file or from Python objects.

Invariant: what is wrong in a script is told when it is read, with the place, not in the middle of a run.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bullpen.domain.prompt import StopReason, Usage
from bullpen.errors import (
    BadReply,
    BadRequest,
    ContextOverflow,
    Overloaded,
    ProviderError,
    RateLimited,
    Unauthorised,
    UnknownModel,
    UsageError,
)
from bullpen.provider import ModelLimits, ModelRequest

EVERYBODY = "*"
FAULTS: Mapping[str, Callable[[str, float | None], ProviderError]] = {
    "rate_limited": lambda text, after: RateLimited(text, retry_after_seconds=after),
    "overloaded": lambda text, after: Overloaded(text, retry_after_seconds=after),
    "cut": lambda text, _: Overloaded(text),
    "garbage": lambda text, _: BadReply(text),
    "unauthorised": lambda text, _: Unauthorised(text),
    "unknown_model": lambda text, _: UnknownModel(text),
    "context_overflow": lambda text, _: ContextOverflow(text),
    "bad_request": lambda text, _: BadRequest(text),
}


@dataclass(frozen=True, kw_only=True)
class When:
    """What the member must see: all that is given must hold. `newest` is the newest user message, results included."""

    newest: str | None = None
    newest_matches: str | None = None
    context: str | None = None
    context_matches: str | None = None

    def __post_init__(self) -> None:
        if not any((self.newest, self.newest_matches, self.context, self.context_matches)):
            raise UsageError("a `when` without a condition: newest, newest_matches, context or context_matches")
        for pattern in (self.newest_matches, self.context_matches):
            _compiled(pattern or "")

    def match(self, newest: str, context: Callable[[], str]) -> dict[str, str] | None:
        """The groups of the regular expressions, by name and number; None if it does not match."""
        if self.newest is not None and self.newest not in newest:
            return None
        if self.context is not None and self.context not in context():
            return None
        groups: dict[str, str] = {}
        patterns = ((self.newest_matches, newest), (self.context_matches, context() if self.context_matches else ""))
        for pattern, text in patterns:
            if pattern is None:
                continue
            found = _compiled(pattern).search(text)
            if found is None:
                return None
            groups |= {str(number): group or "" for number, group in enumerate(found.groups(), 1)}
            groups |= {name: group or "" for name, group in found.groupdict().items()}
        return groups


@dataclass(frozen=True, kw_only=True)
class Call:
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Raised instead of the reply, for the first `times` attempts of this process at the step.

    `cut` streams half of the text first.
    """

    kind: str
    times: int = 1
    retry_after_seconds: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in FAULTS:
            raise UsageError(f"there is no fault {self.kind!r}: use one of {', '.join(FAULTS)}")

    def error(self) -> ProviderError:
        return FAULTS[self.kind](f"scripted: {self.kind}", self.retry_after_seconds)


@dataclass(frozen=True, kw_only=True)
class Step:
    say: str = ""
    think: str = ""
    calls: tuple[Call, ...] = ()
    when: When | None = None
    repeat: bool = False
    purpose: str = "turn"
    stop: StopReason | None = None
    delay_seconds: float = 0.0
    faults: tuple[Fault, ...] = ()
    usage: Usage | None = None
    cost_usd: float | None = None
    make: Callable[[ModelRequest], Step | str] | None = None
    """For scripts in Python: what the step is, decided when its turn comes."""

    @classmethod
    def of(cls, value: Any) -> Step:
        """A step, its text, a function of the request, or a table as in a file."""
        if isinstance(value, Step):
            return value
        if isinstance(value, str):
            return cls(say=value)
        if callable(value):
            return cls(make=value)
        if not isinstance(value, Mapping):
            raise UsageError(f"a step is a table, not {type(value).__name__}")
        table = dict(value)
        if "fault" in table:
            table["faults"] = [{"kind": table.pop("fault")}, *table.get("faults", ())]
        readers: Mapping[str, Callable[[Any], Any]] = {
            "calls": lambda items: tuple(_read(Call, item, "a call") for item in items),
            "faults": lambda items: tuple(_read(Fault, item, "a fault") for item in items),
            "when": lambda item: _read(When, item, "a `when`"),
            "usage": lambda item: _read(Usage, item, "a `usage`"),
            "stop": _stop,
        }
        step: Step = _read(cls, {name: readers.get(name, _same)(item) for name, item in table.items()}, "a step")
        return step


@dataclass(frozen=True, kw_only=True)
class Script:
    steps: Mapping[str, tuple[Step, ...]]
    limits: ModelLimits = field(default_factory=lambda: ModelLimits(window_tokens=200_000, max_output_tokens=8_192))
    usage: Usage | None = None
    input_usd: float = 0.0
    output_usd: float = 0.0

    @classmethod
    def of(cls, members: Mapping[str, Sequence[Any] | Callable[[ModelRequest], Step | str]]) -> Script:
        """From Python: for each member its steps, or one function that answers every request of it."""
        return cls(
            steps={
                name: (Step(make=steps, repeat=True),) if callable(steps) else tuple(Step.of(step) for step in steps)
                for name, steps in members.items()
            }
        )

    @classmethod
    def from_file(cls, path: Path) -> Script:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"the script {path} cannot be read: {error}") from error
        try:
            data = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
        except ValueError as error:
            raise UsageError(
                f"the script {path} is not {'JSON' if path.suffix == '.json' else 'TOML'}: {error}"
            ) from error
        try:
            return cls.from_data(data)
        except UsageError as error:
            raise UsageError(f"the script {path}: {error}") from error

    @classmethod
    def from_data(cls, data: Any) -> Script:
        if not isinstance(data, Mapping) or not isinstance(data.get("members"), Mapping):
            raise UsageError("a script has a table `members` with the steps of each")
        if unknown := set(data) - {"members", "model"}:
            raise UsageError(f"{_list(unknown)} is not known: a script has `members` and `model`")
        steps: dict[str, tuple[Step, ...]] = {}
        for name, entries in data["members"].items():
            if not isinstance(entries, Sequence) or isinstance(entries, str):
                raise UsageError(f"members.{name} is a list of steps: write [[members.{name}]]")
            read = []
            for number, entry in enumerate(entries, 1):
                try:
                    read.append(Step.of(entry))
                except UsageError as error:
                    raise UsageError(f"step {number} of {name}: {error}") from error
            steps[name] = tuple(read)
        return cls(steps=steps, **_model(data.get("model", {})))


def _model(table: Mapping[str, Any]) -> dict[str, Any]:
    if unknown := set(table) - {"window_tokens", "max_output_tokens", "usage", "price"}:
        raise UsageError(f"{_list(unknown)} is not known in `model`")
    settings: dict[str, Any] = {
        "limits": ModelLimits(
            window_tokens=table.get("window_tokens", 200_000), max_output_tokens=table.get("max_output_tokens", 8_192)
        )
    }
    if "usage" in table:
        settings["usage"] = _read(Usage, table["usage"], "a `usage`")
    price = table.get("price", {})
    if unknown := set(price) - {"input_usd", "output_usd"}:
        raise UsageError(f"{_list(unknown)} is not known in `price`")
    return {**settings, **price}


def _read(cls: Any, table: Any, what: str) -> Any:
    if isinstance(table, cls):
        return table
    if not isinstance(table, Mapping):
        raise UsageError(f"{what} is a table, not {type(table).__name__}")
    known = {name for name in cls.__dataclass_fields__ if name != "make" or callable(table.get(name))}
    if unknown := set(table) - known:
        raise UsageError(f"{_list(unknown)} is not known in {what}: it has {', '.join(sorted(known - {'make'}))}")
    try:
        return cls(**table)
    except TypeError as error:
        raise UsageError(f"{what}: {error}") from error


def _stop(value: Any) -> StopReason:
    try:
        return StopReason(value)
    except ValueError:
        raise UsageError(f"`stop` is one of {', '.join(StopReason)}, not {value!r}") from None


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern, re.DOTALL)
    except re.error as error:
        raise UsageError(f"{pattern!r} is not a regular expression: {error}") from error


def _same(value: Any) -> Any:
    return value


def _list(names: set[Any]) -> str:
    return ", ".join(sorted(f"`{name}`" for name in names))
