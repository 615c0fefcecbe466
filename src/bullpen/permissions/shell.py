"""Which programs a command line would start, as far as it says so itself.

Split at `;`, `&`, `|`, newlines and parentheses; what stands in `$(…)`, backticks, `bash -c '…'` or behind `env`,
`sudo`, `xargs` and the like is found too. What is quoted, a comment or the text of a here-document is data and starts
nothing: `grep "git push"` runs grep. Nothing is expanded: `$X push` stays what it is. So this finds what somebody wrote
without thinking of it, and not what somebody hides.

Never raises, whatever the text is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

MAX_DEPTH = 6
# Read in all, what is read again at another depth included: texts that are nested in themselves grow without bound.
MAX_LENGTH = 200_000

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(\[[^\]]*\])?\+?=")
_PLAIN_TEXT = re.compile(r"[^\s\\'\"$`;&|()<>#]+")
_LEADING_WORDS = frozenset(
    {"if", "then", "elif", "else", "fi", "do", "done", "while", "until", "esac", "coproc", "!", "{", "}"}
)
# They begin a list of words or patterns, not a program.
_LISTS = frozenset({"for", "select", "case", "function"})
_REDIRECTIONS = ("<<<", "<<-", "<<", "<>", "<&", "<(", "<", ">>", ">&", ">|", ">(", ">")
_SHELLS = frozenset({"bash", "sh", "dash", "zsh", "ksh", "ash", "fish"})
_SHELL_VALUES = frozenset({"-o", "+o", "-O", "+O", "--rcfile", "--init-file"})


@dataclass(frozen=True)
class Command:
    """One program and its arguments (at least one word), and what it starts in turn.

    `is_transparent`: it does nothing but start those (`env`, `bash -c`), so they decide. `is_clear` is False where the
    text is nested too deeply to be looked through.
    """

    words: tuple[str, ...]
    runs: tuple[Command, ...] = ()
    is_transparent: bool = False
    is_clear: bool = True
    offset: int = 0
    """Where in its own words those of the program begin that it starts; 0 if they are not among them."""

    @cached_property
    def named(self) -> tuple[str, ...]:
        """As people name it: without the program's directory, without options before its verb (`git -C dir push`)."""
        return _without_options(self.views[0])

    @property
    def leading(self) -> tuple[str, ...]:
        """The program, and what comes behind it up to the first word that is no option: `git push`, `rm -rf build`."""
        words = self.views[0] if self.offset else self.named
        return words[: self._end_of_leading(words)]

    def _end_of_leading(self, words: tuple[str, ...]) -> int:
        if self.offset:
            return self.offset + self.runs[0]._end_of_leading(self.runs[0].words)
        return _after_options(words, 1, _VERB_OPTIONS.get(_program(words[0]), frozenset())) + 1

    @cached_property
    def views(self) -> tuple[tuple[str, ...], ...]:
        """Every way to name it."""
        if not self.is_clear:
            return (self.words,)
        views = [(_program(self.words[0]), *self.words[1:])]
        views.append(_without_options(views[0]))
        if re.fullmatch(r"python[\d.]*|pypy[\d.]*", views[0][0]) and "-m" in views[0][:-1]:
            views.append(views[0][views[0].index("-m") + 1 :])
        return tuple(dict.fromkeys(views))


def split_commands(text: str) -> tuple[Command, ...]:
    """Each command once."""
    return _Splitter().split(text, 0)


# -- from words to commands ----------------------------------------------------------------


@dataclass(frozen=True)
class _Wrapper:
    values: frozenset[str] = frozenset()
    """Options that take the next word."""
    positionals: int = 0
    is_transparent: bool = True


def _wrapper(values: str = "", positionals: int = 0, *, is_transparent: bool = True) -> _Wrapper:
    return _Wrapper(frozenset(values.split()), positionals, is_transparent)


_WRAPPERS = {
    "bunx": _wrapper(),
    "builtin": _wrapper(),
    "caffeinate": _wrapper("-t -w"),
    "command": _wrapper(),
    "doas": _wrapper("-u -C -a", is_transparent=False),
    "env": _wrapper("-u --unset -C --chdir"),
    "exec": _wrapper("-a"),
    "flock": _wrapper("-w --timeout -E", 1),
    "ionice": _wrapper("-c -n -p"),
    "nice": _wrapper("-n"),
    "nohup": _wrapper(),
    "npx": _wrapper("-p --package -w --workspace"),
    "setsid": _wrapper(),
    "stdbuf": _wrapper("-i -o -e"),
    "strace": _wrapper("-o -e -p -s"),
    "sudo": _wrapper("-u -g -h -p -C -D -R -T -r -t -U --user --group --host --chdir", is_transparent=False),
    "taskset": _wrapper("", 1),
    "time": _wrapper("-f -o"),
    "timeout": _wrapper("-s -k --signal --kill-after", 1),
    "unbuffer": _wrapper(),
    "unshare": _wrapper(),
    "uvx": _wrapper("--from --with -p --python"),
    "xargs": _wrapper("-I -n -P -L -d -E -a -s --max-args --max-procs --max-lines --delimiter --arg-file"),
}
_RUNNERS = {
    "bun": ("x",),
    "bundle": ("exec",),
    "hatch": ("run",),
    "npm": ("exec",),
    "pdm": ("run",),
    "pipenv": ("run",),
    "pipx": ("run",),
    "pnpm": ("exec", "dlx"),
    "poetry": ("run",),
    "uv": ("run",),
    "yarn": ("exec", "dlx"),
}
# Options before the verb that take the next word.
_VERB_OPTIONS = {
    "cargo": frozenset({"--config", "-Z", "--color"}),
    "docker": frozenset({"--config", "-c", "--context", "-H", "--host", "-l", "--log-level"}),
    "gh": frozenset({"-R", "--repo"}),
    "git": frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--super-prefix", "--config-env"}),
    "kubectl": frozenset({"-n", "--namespace", "--context", "--kubeconfig", "--cluster", "--user", "-s", "--server"}),
    "npm": frozenset({"--prefix", "-C", "-w", "--workspace", "--registry"}),
    "pnpm": frozenset({"--dir", "-C", "--filter", "-F"}),
    "yarn": frozenset({"--cwd"}),
}


class _Splitter:
    def __init__(self) -> None:
        self._left = MAX_LENGTH

    def split(self, text: str, depth: int) -> tuple[Command, ...]:
        self._left -= len(text) + 1
        if depth > MAX_DEPTH or self._left < 0:
            return (Command((text,), is_clear=False),)
        scan = _Scan(text, depth)
        scan.scan_commands()
        found = (command for simple in scan.found for command in self.commands(simple.words, simple.given, depth))
        return tuple(dict.fromkeys(found))

    def commands(self, words: Sequence[str], given: Sequence[str], depth: int) -> Iterator[Command]:
        """The command of these words; `given` is what it gets on standard input."""
        start = 0
        while start < len(words) and (words[start] in _LEADING_WORDS or _ASSIGNMENT.match(words[start])):
            start += 1
        words = tuple(words[start:])
        if not words or words[0] in _LISTS:
            return
        name = _program(words[0])
        yield self._command(name, words, given, depth)
        if name == "find":
            yield from self._executed_by_find(words, depth)
        elif name == "trap" and len(words) > 2:
            yield from self.split(words[1], depth + 1)

    def _command(self, name: str, words: tuple[str, ...], given: Sequence[str], depth: int) -> Command:
        if name in _SHELLS:
            return Command(words, self._run_by_shell(words, given, depth), is_transparent=True)
        if name in ("eval", "watch"):
            start = _after_options(words, 1, frozenset({"-n", "--interval"}))
            return Command(words, self.split(" ".join(words[start:]), depth + 1), is_transparent=True)
        if name in ("su", "script", "runuser") and "-c" in words[:-1]:
            return Command(words, self.split(words[words.index("-c") + 1], depth + 1))
        if name == "env" and len(words) > 2 and words[1] in ("-S", "--split-string"):
            return Command(words, self.split(" ".join(words[2:]), depth + 1), is_transparent=True)
        if name == "command" and words[1:2] and words[1] in ("-v", "-V"):
            return Command(words)
        wrapper = _WRAPPERS.get(name)
        start = 1
        if wrapper is None and words[1:2] and words[1] in _RUNNERS.get(name, ()):
            wrapper, start = _Wrapper(), 2
        if wrapper is None:
            return Command(words)
        start = _after_options(words, start, wrapper.values) + wrapper.positionals
        if depth >= MAX_DEPTH:
            return Command(words, is_clear=False)
        runs = tuple(self.commands(words[start:], given, depth + 1))
        offset = len(words) - len(runs[0].words) if runs else 0
        return Command(words, runs, is_transparent=wrapper.is_transparent, offset=offset)

    def _run_by_shell(self, words: tuple[str, ...], given: Sequence[str], depth: int) -> tuple[Command, ...]:
        start, reads_text = 1, False
        while start < len(words) and words[start][:1] in ("-", "+") and len(words[start]) > 1:
            reads_text = reads_text or ("c" in words[start][1:] and not words[start].startswith("--"))
            start += 2 if words[start] in _SHELL_VALUES else 1
        if start < len(words):
            return self.split(words[start], depth + 1) if reads_text else ()
        return tuple(command for text in given for command in self.split(text, depth + 1))

    def _executed_by_find(self, words: tuple[str, ...], depth: int) -> Iterator[Command]:
        position = 0
        while position < len(words):
            position += 1
            if words[position - 1] in ("-exec", "-execdir", "-ok", "-okdir"):
                end = position
                while end < len(words) and words[end] not in (";", "+"):
                    end += 1
                if depth < MAX_DEPTH:
                    yield from self.commands(words[position:end], (), depth + 1)
                position = end


def _after_options(words: Sequence[str], start: int, values: frozenset[str]) -> int:
    while start < len(words) and words[start].startswith("-"):
        if words[start] == "--":
            return start + 1
        start += 2 if words[start] in values else 1
    return start


def _without_options(words: tuple[str, ...]) -> tuple[str, ...]:
    values = _VERB_OPTIONS.get(words[0])
    return words if values is None else (words[0], *words[_after_options(words, 1, values) :])


def _program(word: str) -> str:
    return word.rpartition("/")[2] or word


# -- from text to words --------------------------------------------------------------------


@dataclass
class _Simple:
    """The words of one command, and the texts that it gets on standard input."""

    words: list[str] = field(default_factory=list)
    given: list[str] = field(default_factory=list)


@dataclass
class _Document:
    """A here-document whose text begins at the next line."""

    command: _Simple
    end: str
    strips_tabs: bool
    is_literal: bool


class _Scan:
    def __init__(self, text: str, depth: int) -> None:
        self.text = text
        self.depth = depth
        self.at = 0
        self.found: list[_Simple] = []
        self._documents: list[_Document] = []

    def scan_commands(self, closing: str = "") -> None:
        """Up to the closing parenthesis, or the end."""
        simple = self._begin()
        while self.at < len(self.text):
            sign = self.text[self.at]
            if sign == closing:
                self.at += 1
                return
            if sign in " \t\r":
                self.at += 1
            elif self.text.startswith("\\\n", self.at):
                self.at += 2
            elif sign == "\n":
                self.at += 1
                self._read_documents()
                simple = self._begin()
            elif sign == "#":
                self._skip_line()
            elif sign == "&" and self.text.startswith("&>", self.at):
                self.at += 1
            elif sign in ";&|()":
                self.at += 1
                if sign == "(":
                    self._nest()
                simple = self._begin()
            elif sign in "<>":
                self._redirect(simple)
            else:
                self._take_word(simple)

    def _begin(self) -> _Simple:
        self.found.append(_Simple())
        return self.found[-1]

    def _nest(self) -> None:
        """What stands in parentheses, from here to where they close."""
        if self.depth >= MAX_DEPTH:
            self.found.append(_Simple(words=["eval", self.text[self.at :]]))
            self.at = len(self.text)
            return
        self.depth += 1
        self.scan_commands(")")
        self.depth -= 1

    def _skip_line(self) -> None:
        end = self.text.find("\n", self.at)
        self.at = len(self.text) if end < 0 else end

    def _take_word(self, simple: _Simple) -> None:
        word = self._word()
        # `2>file`: the number belongs to the sign behind it.
        if not (word.isdigit() and self.text[self.at : self.at + 1] in ("<", ">") and self.text[self.at - 1].isdigit()):
            simple.words.append(word)

    def _word(self) -> str:
        parts: list[str] = []
        while self.at < len(self.text):
            sign = self.text[self.at]
            if sign in " \t\r\n;&|()<>":
                break
            parts.append(self._part(sign))
        return "".join(parts)

    def _part(self, sign: str) -> str:
        plain = _PLAIN_TEXT.match(self.text, self.at)
        if plain:
            self.at = plain.end()
            return plain.group()
        self.at += 1
        if sign == "\\":
            self.at += 1
            return self.text[self.at - 1 : self.at].replace("\n", "")
        if sign == "'":
            return self._until("'")
        if sign == '"':
            return self._quoted('"')
        if sign in "$`":
            return self._expansion(sign)
        return sign

    def _until(self, end: str) -> str:
        start = self.at
        stop = self.text.find(end, start)
        self.at = len(self.text) if stop < 0 else stop + 1
        return self.text[start:] if stop < 0 else self.text[start:stop]

    def _quoted(self, end: str) -> str:
        """Up to the closing sign (or the end of the text): data, but for what is to be run in it."""
        parts: list[str] = []
        while self.at < len(self.text):
            sign = self.text[self.at]
            self.at += 1
            if sign == end:
                break
            if sign == "\\":
                following = self.text[self.at : self.at + 1]
                self.at += 1
                parts.append(following.replace("\n", "") if following in '$`"\\\n' else f"\\{following}")
            elif sign in "$`":
                parts.append(self._expansion(sign))
            else:
                parts.append(sign)
        return "".join(parts)

    def _expansion(self, sign: str) -> str:
        """Its text as it stands there; what it runs is found. The sign itself is read already."""
        start = self.at - 1
        following = self.text[self.at : self.at + 1]
        if sign == "`":
            self._backticks()
        elif following == "(":
            self.at += 1
            self._nest()
        elif following == "{":
            self.at += 1
            self._quoted("}")
        elif following == "'":
            self.at += 1
            self._ansi()
        return self.text[start : self.at]

    def _backticks(self) -> None:
        parts = []
        while self.at < len(self.text) and self.text[self.at] != "`":
            if self.text[self.at] == "\\" and self.text[self.at + 1 : self.at + 2] in ("`", "\\", "$"):
                self.at += 1
            parts.append(self.text[self.at : self.at + 1])
            self.at += 1
        self.at += 1
        self.found.append(_Simple(words=["eval", "".join(parts)]))

    def _ansi(self) -> None:
        while self.at < len(self.text) and self.text[self.at] != "'":
            self.at += 2 if self.text[self.at] == "\\" else 1
        self.at += 1

    # -- redirections ----------------------------------------------------------------------

    def _redirect(self, simple: _Simple) -> None:
        """`>file` and the like are no arguments; here-documents are no commands."""
        start = self.at
        sign = next(sign for sign in _REDIRECTIONS if self.text.startswith(sign, start))
        self.at += len(sign)
        if sign in ("<(", ">("):
            self._nest()
            simple.words.append(self.text[start : self.at])
            return
        while self.text[self.at : self.at + 1] in (" ", "\t"):
            self.at += 1
        start = self.at
        word = self._word()
        if sign == "<<<":
            simple.given.append(word)
        elif sign in ("<<", "<<-"):
            is_literal = any(quote in self.text[start : self.at] for quote in "'\"\\")
            self._documents.append(_Document(simple, word, sign == "<<-", is_literal))

    def _read_documents(self) -> None:
        for document in self._documents:
            lines: list[str] = []
            while self.at < len(self.text):
                line = self._until("\n")
                if (line.lstrip("\t") if document.strips_tabs else line) == document.end:
                    break
                lines.append(line)
            text = "\n".join(lines)
            document.command.given.append(text)
            if not document.is_literal:
                self._scan_data(text)
        self._documents = []

    def _scan_data(self, text: str) -> None:
        """What is run to fill a here-document in."""
        inner = _Scan(text, self.depth)
        inner._quoted("")
        self.found += inner.found
