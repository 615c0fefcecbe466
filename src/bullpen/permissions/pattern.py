"""Patterns: `write_file`, `bash`, `bash:git push`, `network`, `*`.

Before the colon the tool, behind it the first words of a command. `*` stands for any characters in a word (`Task*`,
`bash:git push*`), and alone at the end for any further words, also none. Quotes make a text one word and its `*` an
ordinary sign. A tool's name counts in any case. Patterns for `bash` hold for every command: in the foreground, in the
background, and for the checks of tasks; `check` is about checks only. Several patterns may stand in one text, with `;`
between them. Every text is some pattern; one that makes no sense fits nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

Glob = tuple[str, ...]
"""The texts between the stars."""

_PART = re.compile(r"'([^']*)'|\"([^\"]*)\"|(\s+)|(\*)|(;)|([^\s'\"*;]+|.)", re.DOTALL)
_BARE = re.compile(r"[\w@%+=:,./~^-]+", re.ASCII)
_ANY: Glob = ("", "")
# A pattern for the first holds for the second too.
_COVERS = {"bash": "check"}


@dataclass(frozen=True)
class Pattern:
    text: str
    tool: Glob
    words: tuple[Glob, ...] = ()

    def names(self, tool: str) -> bool:
        tool = tool.lower()
        return fits(self.tool, tool) or any(fits(self.tool, wide) for wide, narrow in _COVERS.items() if narrow == tool)

    def begins(self, words: Sequence[str]) -> bool:
        """The command begins with the words of the pattern."""
        return len(words) >= len(self.words) and all(map(fits, self.words, words))

    def occurs(self, words: Sequence[str]) -> bool:
        """The same, but options stand where they like: `git push --force` is in `git push origin --force`."""
        if self.begins(words):
            return True
        options = [word for word in words if word.startswith("-")]
        plain = [word for word in words if not word.startswith("-")]
        wanted = [glob for glob in self.words if glob[0].startswith("-")]
        first = [glob for glob in self.words if not glob[0].startswith("-")]
        return (
            len(plain) >= len(first)
            and all(map(fits, first, plain))
            and all(any(fits(glob, option) for option in options) for glob in wanted)
        )


def fits(glob: Glob, word: str) -> bool:
    first, last = glob[0], glob[-1]
    if len(glob) == 1:
        return word == first
    if len(word) < len(first) + len(last) or not word.startswith(first) or not word.endswith(last):
        return False
    position, end = len(first), len(word) - len(last)
    for part in glob[1:-1]:
        found = word.find(part, position, end)
        if found < 0:
            return False
        position = found + len(part)
    return True


def read_patterns(texts: Iterable[str]) -> Iterator[Pattern]:
    for text in texts:
        yield from _read(text)


@lru_cache(maxsize=512)
def _read(text: str) -> tuple[Pattern, ...]:
    return tuple(_pattern(part) for part in _separate(text) if part.strip())


def _separate(text: str) -> list[str]:
    ends = [match.start() for match in _PART.finditer(text) if match.group() == ";"]
    return [text[start:end] for start, end in zip([0, *(end + 1 for end in ends)], [*ends, len(text)], strict=True)]


def _pattern(text: str) -> Pattern:
    tool, _, command = text.strip().partition(":")
    words = list(_globs(command))
    if words and words[-1] == _ANY:
        words.pop()
    return Pattern(text.strip(), next(_globs(tool.lower()), ("",)), tuple(words))


def _globs(text: str) -> Iterator[Glob]:
    glob: list[str] = []
    for single, double, space, star, _, plain in _PART.findall(text):
        if space:
            if glob:
                yield tuple(glob)
            glob = []
        elif star:
            glob = [*(glob or [""]), ""]
        else:
            glob = glob or [""]
            glob[-1] += single or double or plain
    if glob:
        yield tuple(glob)


def quote(word: str) -> str:
    """As one literal word of a pattern."""
    if _BARE.fullmatch(word):
        return word
    if "'" not in word:
        return f"'{word}'"
    return "".join(f'"{part}"' if part.startswith("'") else f"'{part}'" for part in re.findall(r"'+|[^']+", word))
