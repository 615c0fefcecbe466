"""Every setting there is: its type, its default, what it means and what is allowed.

The dataclasses are the only place that says so: reading, messages, `bullpen init`, `bullpen config` and
docs/settings.md are made from them. A key is the path of its fields: `idle.timeout_seconds`. An optional setting
(`… | None`) is written "none" where there is no limit or no choice, because TOML has no null.

A setting that is `is_local` says where the state is, so it is not stored with it: see `to_mapping`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from bullpen.domain.codec import encode
from bullpen.domain.member import MAX_SECONDS, Autonomy
from bullpen.domain.text import normalise_role

MAX_COUNT = 10**12


class Allowed(NamedTuple):
    """What a field says of its setting beside type and default."""

    about: str
    minimum: float = 0
    maximum: float = MAX_COUNT
    example: Any = None
    is_local: bool = False
    is_required: bool = False
    kind: Literal["", "store", "model", "name", "variable", "pattern", "command", "label", "inside"] = ""


def setting(default: Any, about: str, **allowed: Any) -> Any:
    metadata = {"allowed": Allowed(about, **allowed)}
    if isinstance(default, dict):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """What a teammate does when there is nothing to do."""

    poll_interval_seconds: float = setting(
        1.0, "The safety net below the doorbell: one look for each process.", minimum=0.05, maximum=3600
    )
    timeout_seconds: float = setting(
        60.0,
        "After so long with nothing that could become its work, `on_timeout` happens; 0: never.",
        maximum=MAX_SECONDS,
    )
    on_timeout: Literal["shutdown", "stay"] = setting(
        "shutdown",
        "`shutdown`: it ends, and mail or a task for it brings it back with its memory. `stay`: it waits on.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """How long a member works without being looked after."""

    checkpoint_turns: int = setting(50, "After so many turns it is asked how far it is, and goes on.", minimum=1)
    max_turns: int = setting(200, "After so many turns it reports to the lead and waits to be told.", minimum=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shutdown:
    """How a member is asked to end."""

    policy: Literal["accept", "ask"] = setting(
        "accept", "`accept`: the runtime answers yes at the next turn boundary. `ask`: the model answers."
    )
    deadline_seconds: float = setting(30.0, "Who has not ended by then is ended.", maximum=MAX_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamSettings:
    """Which team is meant when none is named, and how large a team may be."""

    short_for: ClassVar[str] = "name"

    name: str | None = setting(
        None, "The team that commands speak of when none is named.", example="default", is_local=True
    )
    max_teammates: int = setting(8, "More than this are not spawned.", minimum=0, maximum=100_000)
    takeover_seconds: float = setting(
        30.0, "How long a task stays reserved for a member whose worker died.", maximum=MAX_SECONDS
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberBudget:
    """The same for each member."""

    max_cost_usd: float | None = setting(None, "US dollars.", minimum=0.0001, example=1)
    max_tokens: int | None = setting(None, "Tokens, read and written.", minimum=1, example=1_000_000)
    max_calls: int | None = setting(None, "Calls of the model (turns).", minimum=1, example=200)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a team may spend: set aside before each call of the model; at the limit the team rests in good order."""

    max_cost_usd: float | None = setting(5.0, "US dollars; a warning comes at 80 %.", minimum=0.0001)
    max_tokens: int | None = setting(None, "Tokens, read and written.", minimum=1, example=5_000_000)
    max_minutes: float | None = setting(None, "Minutes of a run.", minimum=0.01, example=60, maximum=MAX_SECONDS / 60)
    max_calls: int | None = setting(None, "Calls of the model (turns) of all members.", minimum=1, example=1000)
    input_price_usd: float | None = setting(
        None, "US dollars for a million tokens read, of a model whose list price is not known.", example=2
    )
    output_price_usd: float | None = setting(None, "The same for a million tokens written.", example=10)
    member: MemberBudget = field(default_factory=MemberBudget)


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSettings:
    """Where everything runs that a model causes to run."""

    short_for: ClassVar[str] = "kind"

    kind: Literal["auto", "required", "bubblewrap", "local"] = setting(
        "auto",
        "`auto`: bubblewrap where it works, else `local`, in which nothing is confined and bash asks. "
        "`required` and `bubblewrap`: bubblewrap or nothing.",
    )
    network: Literal["ask", "on", "off"] = setting(
        "ask", "`ask`: cut off, and a command that needs the network asks you. `on`: open. `off`: cut off."
    )
    env: tuple[str, ...] = setting(
        (),
        "Names of environment variables that commands see, beside PATH and the like.",
        example=["DATABASE_URL"],
        kind="variable",
    )
    writable: tuple[str, ...] = setting(
        (), "Paths outside the workspace that commands may write.", example=["~/.cache/pip"]
    )
    readable: tuple[str, ...] = setting(
        (), "Paths that commands see although they lie in something hidden.", example=["~/.config/tool"]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorktreeSettings:
    """What each new worktree needs beside what git has."""

    setup: str | None = setting(
        None,
        "Run once in each new worktree, in the sandbox but with network; it must exit 0.",
        example="npm ci",
    )
    include: tuple[str, ...] = setting(
        (),
        "Files that git does not have and that are copied into it; never committed.",
        example=[".env"],
        kind="inside",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionSettings:
    """What a member may do unasked.

    A pattern is a tool (`write_file`), the first words of a command (`bash:git push`), `network`, or `*`; a `*` also
    stands for any characters in a word. `bash:` speaks of every command, of the checks of tasks too. `deny` beats
    `ask`, `ask` beats `allow`. Without a pattern, in bubblewrap only what leaves the workspace asks (`git push`,
    `npm publish` and the like); without bubblewrap every command asks.
    """

    allow: tuple[str, ...] = setting((), "Done without asking.", example=["bash:git push origin"], kind="pattern")
    ask: tuple[str, ...] = setting((), "Asked of you.", example=["bash:docker"], kind="pattern")
    deny: tuple[str, ...] = setting((), "Refused.", example=["bash:git push --force"], kind="pattern")
    timeout_seconds: float = setting(
        300.0, "A question that nobody has answered by then is answered with no.", maximum=MAX_SECONDS
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSettings:
    """When a conversation is summarised, so that it fits into the model's window."""

    window_tokens: int | None = setting(
        None, "The model's window, where Bullpen does not know it or less is wanted.", minimum=4_000, example=128_000
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSettings:
    """Which tools are offered."""

    deny: tuple[str, ...] = setting((), "Offered to nobody.", example=["Skill"])
    allow: Mapping[str, tuple[str, ...]] = setting(
        {},
        "By role: only these. A role that is not named has all.",
        example={"reviewer": ["read_file", "glob", "grep"]},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HookSettings:
    """Your own commands that look at a step of a member before it is made, and may refuse it.

    Each gets the step as one JSON object on its standard input, runs outside the sandbox in the project's directory,
    and refuses with an exit code other than 0: what it prints is told to the one concerned. Let it run nothing that
    agents may have written: a test or a linter belongs into the check of a task, which stays in the sandbox.
    """

    task_created: tuple[str, ...] = setting(
        (), "A member creates a task.", example=["~/hooks/has-a-check"], kind="command"
    )
    task_completed: tuple[str, ...] = setting(
        (), "A member completes a task; before its check.", example=["~/hooks/has-a-result"], kind="command"
    )
    teammate_idle: tuple[str, ...] = setting(
        (),
        "A teammate has nothing more to do. Refused, it goes on: at most three times in one piece of work.",
        example=["~/hooks/nothing-left"],
        kind="command",
    )
    timeout_seconds: float = setting(
        60.0,
        "After so long a command is ended with all that it started. The task is refused then; who would idle, idles.",
        minimum=0.1,
        maximum=3600,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RaySettings:
    """The workers of `bullpen run --runner ray`: there are as many as members need."""

    address: str | None = setting(
        None, "HOST:PORT; none: RAY_ADDRESS, or the cluster that runs on this machine.", example="10.0.0.1:6379"
    )
    slots: int = setting(16, "How many teammates a worker hosts.", minimum=1, maximum=100_000)
    min_workers: int = setting(1, "So many there are always.", minimum=0, maximum=100_000)
    max_workers: int = setting(16, "More than this are not started.", minimum=1, maximum=100_000)
    num_cpus: float = setting(1.0, "What Ray sets aside for each.", maximum=10_000)
    idle_seconds: float = setting(30.0, "After so long those that nobody needs leave.", maximum=MAX_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Teammate:
    """A teammate that every new team begins with; any number of these tables."""

    name: str = setting("", "Letters, digits, '-' and '_'.", example="ana", is_required=True, kind="name")
    role: str | None = setting(None, "What tasks it may take, and whose model it has.", example="backend")
    model: str | None = setting(None, "Instead of the role's.", example="openai:gpt-5.5", kind="model")
    prompt: str = setting("", "Its standing instruction.", example="Write tests first.")
    autonomy: Autonomy = setting(Autonomy.AUTO, "`assigned`: it claims nothing by itself.")  # noqa: RUF009
    require_plan: bool = setting(False, "Until its plan is approved it may change nothing.")
    labels: tuple[str, ...] = setting(
        (), "Only a worker that has all of these hosts it.", example=["gpu"], kind="label"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    model: str | None = setting(
        None,
        "The model of everyone for whom nothing else is said, as PROVIDER:NAME; none: the key that is set decides.",
        example="anthropic:claude-sonnet-5",
        kind="model",
    )
    max_output_tokens: int | None = setting(
        None, "What one reply may take; none: what is known of the model.", minimum=1_000, example=16_000
    )
    thinking: Literal["minimal", "low", "medium", "high", "xhigh"] | None = setting(
        None, "How long the model thinks before it answers; none: as the provider has it.", example="medium"
    )
    store: str | None = setting(
        None,
        "Where the state is: sqlite:///PATH, files:DIR or postgresql://…; none: `.bullpen/`, found upwards.",
        example="sqlite:///.bullpen/bullpen.db",
        is_local=True,
        kind="store",
    )
    isolation: Literal["auto", "worktree", "shared"] = setting(
        "auto",
        "`auto`: in a git repository each member works in a worktree of its own, elsewhere all in one directory. "
        "`worktree`: apart or not at all. `shared`: all in one directory.",
    )
    models: Mapping[str, str] = setting(
        {},
        "The model of a role; `lead` is one.",
        example={"lead": "anthropic:claude-opus-5", "tester": "openai:gpt-5.5"},
        kind="model",
    )
    idle: Idle = field(default_factory=Idle)
    work: Work = field(default_factory=Work)
    shutdown: Shutdown = field(default_factory=Shutdown)
    team: TeamSettings = field(default_factory=TeamSettings)
    budget: Budget = field(default_factory=Budget)
    sandbox: SandboxSettings = field(default_factory=SandboxSettings)
    worktree: WorktreeSettings = field(default_factory=WorktreeSettings)
    permissions: PermissionSettings = field(default_factory=PermissionSettings)
    compaction: CompactionSettings = field(default_factory=CompactionSettings)
    tools: ToolSettings = field(default_factory=ToolSettings)
    hooks: HookSettings = field(default_factory=HookSettings)
    ray: RaySettings = field(default_factory=RaySettings)
    teammates: tuple[Teammate, ...] = setting((), "The teammates that every new team begins with.")
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """Where each key comes from that is not the default: a file's path, a variable's name, `flag` or `team`."""

    def model_for(self, role: str | None) -> str | None:
        """The model of that role (`lead` is one)."""
        return self.models.get(normalise_role(role)) or self.model

    def source_of(self, key: str) -> str:
        return self.sources.get(key, "default")

    def values(self) -> Iterator[tuple[str, Any]]:
        """Each dotted key and its value; a mapping has one key for each entry."""
        yield from _values(self, "")

    def to_mapping(self) -> dict[str, Any]:
        """What a team carries, as JSON: all but what says where the state is (a store's URL may hold a password).

        It is about one team, so what stands in `team` here is at the top there, where the store looks for it
        (`max_teammates`, `takeover_seconds`); beside it are `budget`, `model` and the other sections.
        """
        mapping = _without_local(self)
        team = mapping.pop("team")
        return {**team, **mapping}

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Settings:
        """What `to_mapping` wrote, by this version or another: what is missing is the default, what is unknown
        (`paused`, a newer version's setting) is passed over. UsageError for a value that cannot be."""
        from bullpen.config.load import read_stored

        return read_stored(mapping)


def _without_local(section: Any) -> dict[str, Any]:
    mapping: dict[str, Any] = {}
    for one in fields(section):
        allowed: Allowed | None = one.metadata.get("allowed")
        value = getattr(section, one.name)
        if is_dataclass(value):
            mapping[one.name] = _without_local(value)
        elif allowed is not None and not allowed.is_local:
            mapping[one.name] = encode(value)
    return mapping


def _values(section: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for one in fields(section):
        value = getattr(section, one.name)
        if is_dataclass(value):
            yield from _values(value, f"{prefix}{one.name}.")
        elif "allowed" not in one.metadata:
            continue
        elif isinstance(value, Mapping) and value:
            yield from ((f"{prefix}{one.name}.{key}", item) for key, item in value.items())
        else:
            yield f"{prefix}{one.name}", value
