"""Looking for names and lines without ripgrep: a program of its own, with nothing but the standard library.

It is run as a process, because a regular expression can run for ever and cannot be stopped within one. The order on
standard input is one JSON object; what is found goes to standard output as ripgrep writes it with `--null`, in the
same order. Links are never followed, hidden places and skipped directories never entered.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

BAD_PATTERN = 3
MAX_BYTES = 64 * 1024 * 1024

_POSIX = {
    "[:alpha:]": "a-zA-Z",
    "[:digit:]": "0-9",
    "[:alnum:]": "a-zA-Z0-9",
    "[:upper:]": "A-Z",
    "[:lower:]": "a-z",
    "[:space:]": r"\s",
    "[:word:]": r"\w",
}


def main() -> int:
    order = json.load(sys.stdin)
    out = sys.stdout.buffer
    try:
        pattern = re.compile(_python_pattern(order), re.IGNORECASE if order.get("ignore_case") else 0)
    except (re.error, OverflowError, RecursionError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return BAD_PATTERN
    for path in walk(order):
        if order["mode"] == "glob":
            if pattern.fullmatch(path):
                out.write(os.fsencode(path) + b"\0")
        else:
            _search(order, path, pattern, out)
    return 0


def _python_pattern(order: dict[str, Any]) -> str:
    pattern: str = order["pattern"]
    if order["mode"] == "glob":
        return glob_pattern(pattern)
    for name, members in _POSIX.items():
        pattern = pattern.replace(name, members)
    return pattern


# -- names


def walk(order: dict[str, Any]) -> Iterator[str]:
    """Files below the root, in order of their paths: relative, with `/` between."""
    if file := order.get("file"):
        yield file
        return
    is_wanted = _wanted(order.get("glob") or "")
    hidden, skipped = frozenset(order["hidden"]), frozenset(order["skipped"])
    with_links = order["mode"] == "glob"
    waiting = [""]
    while waiting:
        path = waiting.pop()
        if path and not path.endswith("/"):
            yield path
            continue
        found = []
        for entry in _entries(os.path.join(order["root"], path)):
            inner = path + entry.name
            if os.path.join(order["root"], inner) in hidden or entry.name == ".git":
                continue
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in skipped and is_wanted(inner, True):
                    found.append(inner + "/")
            elif (entry.is_file(follow_symlinks=False) or (with_links and entry.is_symlink())) and is_wanted(
                inner, False
            ):
                found.append(inner)
        waiting += reversed(found)


def _entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entries, key=lambda entry: os.fsencode(entry.name))
    except OSError:
        return []


def _wanted(glob: str) -> Callable[[str, bool], bool]:
    """By path, and whether it is a directory: `*.py` wants these files, `!tests` everything else."""
    if not glob:
        return lambda path, is_directory: True
    pattern = re.compile(glob_pattern(glob.removeprefix("!")))
    if glob.startswith("!"):
        return lambda path, is_directory: not pattern.fullmatch(path)
    return lambda path, is_directory: is_directory or bool(pattern.fullmatch(path))


def glob_pattern(glob: str) -> str:
    """A regular expression for paths. Without a slash the name counts, at any depth."""
    glob = glob.removeprefix("./").strip("/") if glob.strip("/") else glob
    prefix = "" if "/" in glob else "(?:.*/)?"
    return f"(?s:{prefix}{_translated(glob)})"


def _translated(glob: str) -> str:
    parts: list[str] = []
    depth, at = 0, 0
    while at < len(glob):
        rest = glob[at:]
        if rest.startswith("**/"):
            step, part = 3, "(?:.*/)?"
        elif rest.startswith("**"):
            step, part = 2, ".*"
        elif match := re.match(r"\[([!^]?)(\]?[^]/]*)\]", rest):
            inner = match[2].replace("\\", r"\\").replace("[", r"\[").replace("&&", r"\&&").replace("||", r"\||")
            step, part = match.end(), f"[{'^/' if match[1] else ''}{inner}]"
        elif rest[0] == "{" and "}" in rest:
            step, part, depth = 1, "(?:", depth + 1
        elif rest[0] == "}" and depth:
            step, part, depth = 1, ")", depth - 1
        elif rest[0] == "," and depth:
            step, part = 1, "|"
        elif rest[0] == "\\" and len(rest) > 1:
            step, part = 2, re.escape(rest[1])
        else:
            step, part = 1, {"*": "[^/]*", "?": "[^/]"}.get(rest[0]) or re.escape(rest[0])
        parts.append(part)
        at += step
    return "".join(parts) + ")" * depth


# -- lines


def _search(order: dict[str, Any], path: str, pattern: re.Pattern[str], out: BinaryIO) -> None:
    text = _text_of(os.path.join(order["root"], path))
    if text is None:
        return
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    name = os.fsencode(path) + b"\0"
    before: deque[tuple[int, str]] = deque(maxlen=order["context"])
    last, after = 0, 0
    for number, line in enumerate((line.removesuffix("\r") for line in lines), 1):
        if pattern.search(line):
            if order["files_only"]:
                out.write(name)
                return
            if order["context"] and last and number - len(before) > last + 1:
                out.write(b"--\n")
            for earlier, text in before:
                out.write(_shown(name, earlier, "-", text))
            before.clear()
            out.write(_shown(name, number, ":", line))
            last, after = number, order["context"]
        elif after:
            out.write(_shown(name, number, "-", line))
            last, after = number, after - 1
        elif order["context"]:
            before.append((number, line))
    out.flush()


def _shown(name: bytes, number: int, mark: str, line: str) -> bytes:
    return name + f"{number}{mark}{line[:2000]}\n".encode("utf-8", "replace")


def _text_of(path: str) -> str | None:
    """None for what is binary, too large, or cannot be read."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            if os.fstat(file.fileno()).st_size > MAX_BYTES:
                return None
            data = file.read()
    except OSError:
        return None
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace")
    if b"\0" in data:
        return None
    return data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:
        os._exit(0)
