"""The policy: what is allowed, asked and denied; what a command line really starts; what an answer remembers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bullpen.config.settings import PermissionSettings
from bullpen.permissions import Decision, Verdict, decide, grant_pattern
from bullpen.permissions.pattern import fits, quote, read_patterns
from bullpen.permissions.shell import MAX_LENGTH, Command, split_commands

ALLOW, ASK, DENY = Verdict.ALLOW, Verdict.ASK, Verdict.DENY


def judge(
    command: str,
    *,
    tool: str = "bash",
    allow: tuple[str, ...] = (),
    ask: tuple[str, ...] = (),
    deny: tuple[str, ...] = (),
    is_confined: bool = True,
    network: str = "ask",
    granted: tuple[str, ...] = (),
    **arguments: Any,
) -> Decision:
    return decide(
        tool,
        {"command": command, **arguments},
        rules=PermissionSettings(allow=allow, ask=ask, deny=deny),
        is_confined=is_confined,
        network=network,
        granted=granted,
    )


def verdict(command: str, **settings: Any) -> Verdict:
    return judge(command, **settings).verdict


# -- what holds without a rule ---------------------------------------------------------------

LEAVES = [
    "git push",
    "git push origin main",
    "cd x && git push",
    "cd x; git push",
    "make test || git push",
    "git status\ngit push",
    "git status | git push",
    "git add . & git push",
    "(cd x; git push)",
    "{ git push; }",
    "if make; then git push; fi",
    "while true; do git push; done",
    "! git push",
    "f() { git push; }; f",
    "case $x in a) git push;; esac",
    "echo $(git push)",
    "echo `git push`",
    'echo "done: $(git push)"',
    'echo "`git push`"',
    "X=$(git push)",
    "echo ${X:-$(git push)}",
    "diff <(git push) file",
    "cat <<EOF\n$(git push)\nEOF",
    "bash -c 'git push'",
    "bash -lc 'cd x && git push'",
    "sh -ec 'git push'",
    "bash -o pipefail -c 'git push'",
    "bash <<EOF\ngit push\nEOF",
    "bash <<'EOF'\ngit push\nEOF",
    "bash <<< 'git push'",
    "bash -c \"bash -c 'git push'\"",
    "eval git push",
    "eval 'git push'",
    "env X=1 git push",
    "env -u HOME X=1 git push",
    "env -S 'git push'",
    "X=1 Y='a b' git push",
    "sudo git push",
    "sudo -u bob git push",
    "su bob -c 'git push'",
    "nohup git push &",
    "timeout 60 git push",
    "timeout -k 5 60 git push",
    "nice -n 10 git push",
    "time git push",
    "exec git push",
    "command git push",
    "xargs -n 1 git push < remotes",
    "flock /tmp/lock git push",
    "find . -name x -exec git push {} \\;",
    "trap 'git push' EXIT",
    "git -C dir push",
    "git -c user.name=x --git-dir y push",
    "git --no-pager push",
    "/usr/bin/git push",
    "\\git push",
    "'git' \"push\"",
    "gi't' push",
    "git \\\n push",
    "2>/dev/null git push",
    "git push >/dev/null 2>&1",
    "git push &> log",
    "gh pr create",
    "npm publish",
    "npm --prefix web publish",
    "npx -p twine twine upload x",
    "python -m twine upload dist/*",
    "uv run twine upload dist/*",
    "poetry publish --build",
    "docker build . --push",
    "ssh host true",
]


@pytest.mark.parametrize("command", LEAVES)
def test_what_leaves_the_workspace_asks_however_it_is_wrapped(command: str) -> None:
    decision = judge(command)
    assert decision.verdict is ASK
    assert "leaves the workspace" in decision.why
    assert "permissions.allow" in decision.setting


STAYS = [
    'grep "git push" file',
    "grep 'git push' -r .",
    "grep shutdown /etc/inittab",
    "rg 'gh pr create' | head",
    "echo git push",
    "echo 'cd x && git push'",
    "# git push",
    "make # && git push",
    "cat > notes.md <<'EOF'\ngit push\nEOF",
    "cat > notes.md <<EOF\nthen git push\nEOF\nmake",
    "cat <<-EOF\n\tgit push\n\tEOF\nls",
    "git commit -m 'git push'",
    'git commit -m "now; git push"',
    "git log --grep push",
    "git stash push",
    "git pull && git fetch",
    "for x in git push; do echo $x; done",
    "command -v gh",
    "which gh git",
    "npm run publish",
    "npm install && npm test",
    "python -c 'print(\"git push\")'",
    "ls > git push",
    "rm -rf ~",
    "docker build .",
    "X='git push'",
    "",
    "   ",
]


@pytest.mark.parametrize("command", STAYS)
def test_in_a_sandbox_that_confines_all_else_is_allowed(command: str) -> None:
    assert judge(command) == Decision(verdict=ALLOW)


@pytest.mark.parametrize("command", ["ls", "rm -rf ~", "cd x", "", "git push", "# nothing", "bash -c 'ls'"])
@pytest.mark.parametrize("tool", ["bash", "check"])
def test_without_such_a_sandbox_every_command_asks(command: str, tool: str) -> None:
    assert verdict(command, tool=tool, is_confined=False) is ASK
    assert verdict(command, tool=tool, is_confined=False, run_in_background=True) is ASK


@pytest.mark.parametrize("tool", ["write_file", "SendMessage", "TaskCreate", "read_file"])
def test_tools_that_run_nothing_are_allowed_without_a_rule(tool: str) -> None:
    assert verdict("", tool=tool, is_confined=False) is ALLOW


# -- the network -----------------------------------------------------------------------------


def test_a_need_of_the_network_is_asked_refused_or_none_as_the_setting_says() -> None:
    assert verdict("pip install x") is ALLOW
    asked = wants_network("ask")
    assert (asked.verdict, asked.why, asked.grant) == (ASK, "it wants the network", "network")
    assert asked.setting == 'sandbox.network = "on" would allow it'
    assert wants_network("off").verdict is DENY
    assert wants_network("off").setting == 'sandbox.network is "off"'
    assert wants_network("on").verdict is ALLOW


def wants_network(
    network: str,
    *,
    wish: Any = True,
    is_confined: bool = True,
    allow: tuple[str, ...] = (),
    deny: tuple[str, ...] = (),
) -> Decision:
    return decide(
        "bash",
        {"command": "pip install x", "network": wish},
        rules=PermissionSettings(allow=allow, deny=deny),
        is_confined=is_confined,
        network=network,
    )


def test_the_first_need_of_the_network_is_asked_once_for_all_commands() -> None:
    grant = wants_network("ask").grant
    other = {"command": "npm ci", "network": True}
    assert decide("bash", other, rules=PermissionSettings(), is_confined=True, granted=[grant]).verdict is ALLOW


def test_rules_speak_of_the_network_too() -> None:
    assert wants_network("ask", allow=("network",)).verdict is ALLOW
    assert wants_network("on", deny=("network",)).verdict is DENY
    assert wants_network("ask", allow=("bash",)).verdict is ASK
    assert wants_network("ask", allow=("*",)).verdict is ALLOW


@pytest.mark.parametrize("wish", [False, None, "", "false", "No", 0])
def test_who_does_not_want_the_network_is_not_asked(wish: Any) -> None:
    assert wants_network("ask", wish=wish).verdict is ALLOW
    assert wants_network("off", wish=wish).verdict is ALLOW


def test_where_nothing_is_cut_off_only_the_command_asks() -> None:
    assert wants_network("ask", is_confined=False).why == "commands are not confined here"
    assert wants_network("off", is_confined=False).verdict is DENY


# -- rules -----------------------------------------------------------------------------------


def test_deny_beats_ask_beats_allow() -> None:
    every = {"allow": ("bash:git push",), "ask": ("bash:git push",), "deny": ("bash:git push",)}
    assert verdict("git push", **every) is DENY
    assert verdict("git push", **{**every, "deny": ()}) is ASK
    assert verdict("git push", **{**every, "deny": (), "ask": ()}) is ALLOW


def test_what_the_human_granted_beats_ask_and_not_deny() -> None:
    assert verdict("git push", ask=("bash",), granted=("bash:git push",)) is ALLOW
    assert verdict("git push", deny=("bash:git push",), granted=("bash:git push",)) is DENY


def test_a_decision_names_the_rule() -> None:
    denied = judge("cd x && docker run y", deny=("bash:docker",))
    assert (denied.why, denied.setting) == ("bash:docker is denied", 'permissions.deny has "bash:docker"')
    asked = judge("docker run y", ask=("bash:docker",))
    assert asked.setting == 'permissions.ask has "bash:docker"'
    assert judge("gh pr view; git push").setting == 'permissions.allow = ["bash:gh pr", "bash:git push"] would allow it'
    assert judge("git push").setting == 'permissions.allow = ["bash:git push"] would allow it'


@pytest.mark.parametrize(
    ("pattern", "command", "is_denied"),
    [
        ("bash", "ls", True),
        ("*", "ls", True),
        ("BASH", "ls", True),
        ("b*", "ls", True),
        ("bash:*", "ls", True),
        ("bash:git push", "git push", True),
        ("bash:git push", "git push origin", True),
        ("bash:git push", "git pushx", False),
        ("bash:git push", "git", False),
        ("bash:git push*", "git pushx", True),
        ("bash:git push*", "git push", True),
        ("bash:git push *", "git push", True),
        ("bash:git push *", "git push a b", True),
        ("bash:git push *", "git pushx", False),
        ("bash:git push --force", "git push origin main --force", True),
        ("bash:git push --force", "git push origin main", False),
        ("bash:git push --force*", "git push --force-with-lease", True),
        ("bash:git push --force", "git -C d push -q --force", True),
        ("bash:rm -rf", "rm -rf x", True),
        ("bash:rm -rf", "rm x -rf", True),
        ("bash:rm -rf", "rm x", False),
        ("bash:sudo", "sudo ls", True),
        ("bash:ls", "sudo ls", True),
        ("bash:bash", "bash -c ls", True),
        ("bash:python -c 'a b'", 'python -c "a b"', True),
        ("bash:python -c 'a b'", "python -c a b", False),
        ("bash:cat '*'", "cat x", False),
        ("bash:cat '*'", "cat \\*", True),
        ("bash:twine", "python3.12 -m twine check", True),
        ("check", "ls", False),
        ("write_file", "ls", False),
        ("", "ls", False),
        (":", "ls", False),
        ("bash:'", "ls", False),
    ],
)
def test_a_pattern_is_a_tool_and_the_first_words_of_a_command(pattern: str, command: str, is_denied: bool) -> None:
    assert (verdict(command, deny=(pattern,)) is DENY) == is_denied


def test_patterns_for_bash_hold_for_checks_and_not_the_other_way_round() -> None:
    assert verdict("make test", tool="check", deny=("bash:make",)) is DENY
    assert verdict("make test", tool="check", is_confined=False, allow=("bash:make",)) is ALLOW
    assert verdict("make test", tool="check", is_confined=False, allow=("check",)) is ALLOW
    assert verdict("make test", tool="bash", is_confined=False, allow=("check",)) is ASK


def test_tools_that_run_nothing_are_ruled_by_their_name() -> None:
    assert verdict("", tool="SendMessage", deny=("sendmessage",)) is DENY
    assert verdict("", tool="TaskCreate", ask=("Task*",)) is ASK
    assert verdict("", tool="TaskCreate", ask=("Task*",), granted=("TaskCreate",)) is ALLOW
    assert verdict("", tool="write_file", deny=("write_file:x", "bash")) is ALLOW


def test_every_part_of_a_command_must_be_allowed() -> None:
    local = {"is_confined": False, "allow": ("bash:make", "bash:git status")}
    assert verdict("cd x && make test && git status", **local) is ALLOW
    assert verdict("env CI=1 timeout 60 make test", **local) is ALLOW
    assert verdict("bash -c 'make; git status'", **local) is ALLOW
    assert verdict("make test && rm -rf ~", **local) is ASK
    assert verdict("make $(rm -rf ~)", **local) is ASK
    assert verdict("bash -c 'make; rm -rf ~'", **local) is ASK
    assert verdict("sudo make", **local) is ASK
    assert verdict("find . -exec rm {} +", is_confined=False, allow=("bash:find",)) is ASK


def test_what_is_allowed_is_how_the_command_begins() -> None:
    assert verdict("rm -rf ~ -i", is_confined=False, allow=("bash:rm -i",)) is ASK
    assert verdict("rm -i x", is_confined=False, allow=("bash:rm -i",)) is ALLOW


def test_who_is_allowed_may_start_what_it_starts_unless_a_rule_asks() -> None:
    assert verdict("sudo make", is_confined=False, allow=("bash:sudo make",)) is ALLOW
    assert verdict("sudo git push", allow=("bash:sudo",)) is ALLOW
    assert verdict("sudo git push", allow=("bash:sudo",), ask=("bash:git push",)) is ASK


# -- what an answer remembers ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "grant"),
    [
        ("git push origin main", "bash:git push"),
        ("cd x && git -C y push", "bash:git push"),
        ("make && git push && gh pr create --fill", "bash:git push; bash:gh pr"),
        ("sudo -u bob git -C y push origin", "bash:git push"),
        ("bash -c 'git push origin'", "bash:git push"),
    ],
)
def test_an_answer_remembers_what_had_to_be_asked(command: str, grant: str) -> None:
    assert judge(command).grant == grant


@pytest.mark.parametrize(
    ("tool", "arguments", "pattern"),
    [
        ("bash", {"command": "git push origin main"}, "bash:git push"),
        ("bash", {"command": "cd web && npm test -- -q"}, "bash:npm test"),
        ("bash", {"command": "rm -rf build dist"}, "bash:rm -rf build"),
        ("bash", {"command": "python -c 'a; b'"}, "bash:python -c 'a; b'"),
        ("bash", {"command": "ls *"}, "bash:ls '*'"),
        ("bash", {"command": "pip install x", "network": True}, "bash:pip install; network"),
        ("bash", {"command": "sudo -u bob git -C y push z"}, "bash:sudo -u bob git -C y push"),
        ("check", {"command": "pytest -q"}, "check:pytest -q"),
        ("write_file", {"path": "x"}, "write_file"),
    ],
)
def test_a_grant_is_named_by_the_leading_words(tool: str, arguments: dict[str, Any], pattern: str) -> None:
    assert grant_pattern(tool, arguments) == pattern


def test_a_grant_does_not_reach_another_command() -> None:
    granted = (judge("git push").grant,)
    assert verdict("git push origin", granted=granted) is ALLOW
    assert verdict("gh pr create", granted=granted) is ASK
    assert verdict("git push && gh pr create", granted=granted) is ASK
    assert verdict("git status", granted=granted, is_confined=False) is ASK


# -- laws ------------------------------------------------------------------------------------

PIECES = [
    *(
        "git",
        "push",
        "gh",
        "sudo",
        "env",
        "X=1",
        "bash",
        "-c",
        "eval",
        "find",
        "-exec",
        "xargs",
        "npm",
        "cd",
        "ls",
        "-C",
    ),
    *(
        "'",
        '"',
        "`",
        "$(",
        ")",
        "${",
        "}",
        "\\",
        ";",
        "&&",
        "|",
        "\n",
        "<<EOF",
        "\nEOF\n",
        "<(",
        ">",
        "2>&1",
        "#",
        "*",
        " ",
    ),
    *(
        "-m",
        "python",
        "if",
        "then",
        "{",
        "!",
        "timeout",
        "--",
        "/",
        "''",
        "\x00",
        "\ud800",
        "é",
        "((",
        "npx",
        "uv",
        "run",
    ),
]
commands = st.lists(st.sampled_from(PIECES), max_size=25).map(" ".join) | st.lists(
    st.sampled_from(PIECES), max_size=25
).map("".join)
texts = commands | st.text(max_size=60)
patterns = texts | texts.map(lambda text: f"bash:{text}")
lists = st.lists(patterns, max_size=3).map(tuple)
tools = st.sampled_from(["bash", "check", "write_file"]) | st.text(max_size=5)


@given(tools, texts, lists, lists, lists, lists, st.booleans(), st.booleans(), st.sampled_from(["ask", "on", "off"]))
def test_a_decision_is_made_for_any_text(
    tool: str,
    command: str,
    allow: tuple[str, ...],
    ask: tuple[str, ...],
    deny: tuple[str, ...],
    granted: tuple[str, ...],
    is_confined: bool,
    wants: bool,
    network: str,
) -> None:
    rules = PermissionSettings(allow=allow, ask=ask, deny=deny)
    arguments = {"command": command, "network": wants}
    decision = decide(tool, arguments, rules=rules, is_confined=is_confined, network=network, granted=granted)
    assert (decision.verdict is ALLOW) == (not decision.why)
    # Once granted, the same call is not asked again.
    if decision.verdict is ASK:
        for grant in (decision.grant, grant_pattern(tool, arguments)):
            again = decide(
                tool, arguments, rules=rules, is_confined=is_confined, network=network, granted=[*granted, grant]
            )
            if grant == decision.grant or not ask:
                assert again.verdict is ALLOW
    # A rule that denies wins over everything.
    denying = PermissionSettings(allow=allow, ask=ask, deny=(*deny, "*"))
    refused = decide(tool, arguments, rules=denying, is_confined=is_confined, network=network, granted=granted)
    assert refused.verdict is DENY


@given(texts, lists, lists, st.booleans())
def test_a_grant_of_the_denied_stays_denied(
    command: str, allow: tuple[str, ...], ask: tuple[str, ...], is_confined: bool
) -> None:
    pattern = grant_pattern("bash", {"command": command})
    decision = judge(
        command, allow=(*allow, pattern), ask=ask, deny=(pattern,), granted=(pattern,), is_confined=is_confined
    )
    assert decision.verdict is DENY


@given(texts)
@example("it's \"so\" *; '' ")
def test_a_quoted_word_fits_itself_and_only_itself(word: str) -> None:
    (pattern,) = read_patterns([f"bash:{quote(word)}"])
    assert pattern.words == ((word,),)
    assert fits(pattern.words[0], word)
    assert not fits(pattern.words[0], word + "x")


@given(st.sampled_from(LEAVES), st.sampled_from(LEAVES + STAYS))
def test_what_asks_alone_asks_in_company(first: str, second: str) -> None:
    if "#" not in second and "<<" not in second:
        assert verdict(f"{second}\n{first}") is ASK
    assert verdict(f"{first}\n{second}") is ASK


# -- limits ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "$(" * 1000 + "git push" + ")" * 1000,
        "(" * 5000,
        "`" * 5001,
        "env " * 3000 + "git push",
        "sudo " * 300 + "ls",
        "eval " * 3000 + "ls",
        "x" * (MAX_LENGTH + 1),
    ],
)
def test_what_cannot_be_looked_through_asks(command: str) -> None:
    decision = judge(command)
    if command[0] != "`":
        assert decision.verdict is ASK
        assert "too deeply" in decision.why or "leaves" in decision.why
    assert verdict(command, granted=(decision.grant,)) is ALLOW


def test_a_command_knows_its_names() -> None:
    (command,) = split_commands("/usr/bin/git -C x push origin")
    assert isinstance(command, Command)
    assert command.named == ("git", "push", "origin")
    assert command.leading == ("git", "push")
