"""May this call be made? A pure function of the call, the rules and the sandbox.

    deny  >  what the human has granted  >  ask  >  allow  >  what holds without a rule

Without a rule everything is allowed but for this: in a sandbox that confines, a command asks when it leaves the
workspace (`git push`, `npm publish`, `ssh`, …) and when it wants the network while `sandbox.network` is "ask"; "off"
refuses it. Without such a sandbox every command asks, the checks of tasks (the tool `check`) included.

A command line counts as all the programs that it starts (see `shell`): one that is denied or asks is enough, but each
of them must be allowed. A pattern to deny or ask finds its options anywhere behind the program (`git push --force` is
in `git push origin --force`), one to allow must be how the command begins.

This is a guard against accidents, not a wall: who wants to hide a command from it can (`X=push; git $X`). The wall is
the sandbox.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from typing import Any, NamedTuple, Protocol

from bullpen.permissions.pattern import Pattern, quote, read_patterns
from bullpen.permissions.shell import Command, split_commands

NETWORK = "network"
COMMAND_TOOLS = frozenset({"bash", "check"})
# They change nothing outside their own shell, so what they are combined with decides.
HARMLESS = frozenset({"cd", "pwd", "true", "false", ":", "set", "exit"})

_LEAVING = """
git push, git send-email, git lfs push, git subtree push, git svn dcommit, gh, glab, hub
npm publish, npm unpublish, npm deprecate, npm dist-tag, npm owner, npm access
pnpm publish, yarn publish, yarn npm publish, bun publish, lerna publish
twine upload, flit publish, poetry publish, hatch publish, uv publish, pdm publish, maturin publish, maturin upload
python setup.py upload, python3 setup.py upload, cargo publish, cargo yank, gem push, mvn deploy, gradle publish
docker push, docker image push, docker compose push, docker buildx build --push, docker build --push, podman push
buildah push, skopeo copy, helm push, kubectl apply, kubectl create, kubectl delete, kubectl exec, kubectl patch
terraform apply, terraform destroy, pulumi up, pulumi destroy, ansible-playbook, serverless deploy, firebase deploy
aws, gcloud, gsutil, az, heroku, flyctl, fly deploy, vercel, netlify deploy, wrangler deploy, wrangler publish
ssh, scp, sftp, mail, sendmail, mutt
"""
LEAVING: Mapping[str, Sequence[Pattern]] = {
    program: tuple(patterns)
    for program, patterns in groupby(
        sorted(
            read_patterns(f"bash:{words.strip()}" for words in _LEAVING.replace("\n", ",").split(",") if words),
            key=lambda pattern: pattern.words[0],
        ),
        key=lambda pattern: pattern.words[0][0],
    )
}


class Verdict(Enum):
    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class Rules(Protocol):
    """The settings `permissions`."""

    @property
    def allow(self) -> Sequence[str]: ...
    @property
    def ask(self) -> Sequence[str]: ...
    @property
    def deny(self) -> Sequence[str]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    verdict: Verdict
    why: str = ""
    setting: str = ""
    """Which setting says so, or would say otherwise."""
    grant: str = ""
    """Of ASK: what an answer "this team" or "always" remembers. With it among `granted`, the same call is allowed."""


class _Need(NamedTuple):
    """Something that has to be asked."""

    why: str
    pattern: str
    setting: str = ""
    """Which one asks, if it is not the absence of one."""


def decide(
    tool_name: str,
    arguments: Mapping[str, Any],
    *,
    rules: Rules,
    is_confined: bool,
    network: str = "ask",
    granted: Sequence[str] = (),
) -> Decision:
    """Never raises, whatever the tool, its arguments and the patterns are."""
    call = _Call(tool_name, arguments, rules, is_confined, network, granted)
    return call.refusal() or call.question() or Decision(verdict=Verdict.ALLOW)


def grant_pattern(tool_name: str, arguments: Mapping[str, Any]) -> str:
    """What covers this call wherever it is made. `Decision.grant` is narrower: what had to be asked, and no more."""
    call = _Call(tool_name, arguments, _NoRules(), False, "ask", ())
    patterns = [need.pattern for need in call.needs_of_commands()] or [quote(tool_name)]
    return _joined([*patterns, NETWORK] if call.wants_network else patterns)


@dataclass(frozen=True)
class _NoRules:
    allow: Sequence[str] = ()
    ask: Sequence[str] = ()
    deny: Sequence[str] = ()


class _Call:
    def __init__(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        rules: Rules,
        is_confined: bool,
        network: str,
        granted: Sequence[str],
    ) -> None:
        self.tool = tool
        self.allow, self.ask, self.deny = (
            tuple(read_patterns(texts)) for texts in (rules.allow, rules.ask, rules.deny)
        )
        self.granted = tuple(read_patterns(granted))
        self.is_confined = is_confined
        self.network = network
        self.commands: tuple[Command, ...] = ()
        self.wants_network = False
        if tool.lower() in COMMAND_TOOLS:
            text = str(arguments.get("command", ""))
            self.commands = split_commands(text) or (Command((text,)),)
            self.wants_network = _is_yes(arguments.get("network"))

    # -- no ----------------------------------------------------------------------------------

    def refusal(self) -> Decision | None:
        rule = next(self._denying(), None)
        if rule is not None:
            return Decision(verdict=Verdict.DENY, why=f"{rule.text} is denied", setting=_names("deny", rule))
        if self.wants_network and self.network == "off":
            return Decision(verdict=Verdict.DENY, why="the network is off", setting='sandbox.network is "off"')
        return None

    def _denying(self) -> Iterator[Pattern]:
        if not self.commands:
            yield from _naming(self.deny, self.tool)
        for command in self.commands:
            for one in _walk(command):
                yield from self._finding(self.deny, one)
        if self.wants_network:
            yield from _naming(self.deny, NETWORK)

    # -- ask ---------------------------------------------------------------------------------

    def question(self) -> Decision | None:
        needs = [*self.needs_of_tool(), *self.needs_of_commands(), *self.need_of_network()]
        if not needs:
            return None
        return Decision(
            verdict=Verdict.ASK,
            why=", ".join(dict.fromkeys(need.why for need in needs[:5])),
            setting=", ".join(dict.fromkeys(need.setting or _allowing(needs) for need in needs[:5])),
            grant=_joined(need.pattern for need in needs),
        )

    def needs_of_tool(self) -> Iterator[_Need]:
        if self.commands or any(_naming(self.granted, self.tool)):
            return
        for rule in _naming(self.ask, self.tool):
            yield _Need(f"{self.tool} is to be asked", quote(self.tool), _names("ask", rule))
            return

    def need_of_network(self) -> Iterator[_Need]:
        # Where nothing is cut off there is nothing to open.
        is_cut = self.is_confined and self.network != "on"
        if not self.wants_network or not is_cut or any(_naming(self.granted, NETWORK)):
            return
        rule = next(_naming(self.ask, NETWORK), None)
        if rule is not None:
            yield _Need("it wants the network", NETWORK, _names("ask", rule))
        elif not any(_naming(self.allow, NETWORK)):
            yield _Need("it wants the network", NETWORK, 'sandbox.network = "on" would allow it')

    def needs_of_commands(self) -> Iterator[_Need]:
        for command in self.commands:
            yield from self._needs(command, is_allowed=False)

    def _needs(self, command: Command, *, is_allowed: bool) -> Iterator[_Need]:
        """`is_allowed`: what started it is allowed, and so is what it starts unless a rule asks for it."""
        if self._begin(self.granted, command):
            return
        rule = next(self._finding(self.ask, command), None)
        if rule is not None:
            yield _Need(f"{rule.text} is to be asked", self._pattern_of(command), _names("ask", rule))
            return
        is_allowed = is_allowed or self._begin(self.allow, command)
        decides = not is_allowed and not (command.is_transparent and command.runs)
        if decides and (why := self._why_without_rule(command)):
            # A yes to it is one to what it starts.
            yield _Need(why, self._pattern_of(command))
            return
        for started in command.runs:
            yield from self._needs(started, is_allowed=is_allowed)

    def _why_without_rule(self, command: Command) -> str | None:
        if not command.is_clear:
            return "it is nested too deeply to be looked through"
        if not self.is_confined:
            decides = command.named[0] not in HARMLESS or all(one.named[0] in HARMLESS for one in self.commands)
            return "commands are not confined here" if decides else None
        for view in command.views:
            for leaving in LEAVING.get(view[0], ()):
                if leaving.occurs(view):
                    return f"{leaving.text.removeprefix('bash:')} leaves the workspace"
        return None

    # -- patterns ----------------------------------------------------------------------------

    def _finding(self, patterns: Iterable[Pattern], command: Command) -> Iterator[Pattern]:
        return (one for one in patterns if one.names(self.tool) and any(map(one.occurs, command.views)))

    def _begin(self, patterns: Iterable[Pattern], command: Command) -> bool:
        return any(one.names(self.tool) and any(map(one.begins, command.views)) for one in patterns)

    def _pattern_of(self, command: Command) -> str:
        return f"{self.tool.lower()}:{' '.join(map(quote, command.leading))}"


def _naming(patterns: Iterable[Pattern], tool: str) -> Iterator[Pattern]:
    return (one for one in patterns if not one.words and one.names(tool))


def _walk(command: Command) -> Iterator[Command]:
    yield command
    for started in command.runs:
        yield from _walk(started)


def _joined(patterns: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(patterns))


def _allowing(needs: Iterable[_Need]) -> str:
    patterns = list(dict.fromkeys(need.pattern for need in needs if not need.setting))
    return f"permissions.allow = {json.dumps(patterns, ensure_ascii=False)} would allow it"


def _names(which: str, rule: Pattern) -> str:
    return f"permissions.{which} has {json.dumps(rule.text, ensure_ascii=False)}"


def _is_yes(value: Any) -> bool:
    return value.strip().lower() not in ("", "false", "no", "off", "0") if isinstance(value, str) else bool(value)
