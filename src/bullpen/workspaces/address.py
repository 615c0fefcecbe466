"""`git+URL[#ref]`: a repository that lies elsewhere, as somebody typed it.

Invariant: a password that was typed is in `Address.credential` and nowhere else; `url` can be shown, stored and passed
to git.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from bullpen.errors import UsageError

MARK = "git+"
SCHEMES = ("https", "http", "ssh", "git", "file")
_WEB = ("http", "https")
_REF = re.compile(r"(?![-/.])(?!.*(?:\.\.|//|@\{|/\.|\.lock$|[/.]$))[^\s\x00-\x20\x7f~^:?*\[\\]+")
_USER = re.compile(r"(?<=://)[^/@\s]*@")


@dataclass(frozen=True, slots=True)
class Credential:
    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Address:
    """`ref` is a branch, a tag or a commit; empty for the branch that HEAD names there."""

    url: str
    ref: str = ""
    credential: Credential | None = None

    @property
    def text(self) -> str:
        return f"{MARK}{self.url}{f'#{self.ref}' if self.ref else ''}"


def is_address(text: str) -> bool:
    return text.startswith(MARK)


def parse_address(text: str) -> Address:
    """UsageError, without what could be a password, if that names no repository."""
    url, _, ref = text.removeprefix(MARK).partition("#")
    shown = without_user(url)[:200]
    if re.search(r"[\s\x00-\x1f\x7f]", url):
        raise UsageError(f"{shown!r} is no address: there is a space or a control character in it")
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise UsageError(f"{shown!r} is no address: {error}") from error
    if parts.scheme not in SCHEMES or "://" not in url:
        hint = "git@HOST:PATH is written git+ssh://git@HOST/PATH" if "@" in url and "://" not in url else "see --help"
        raise UsageError(
            f"{MARK}{shown}: an address is {MARK}URL[#REF] with a URL of {', '.join(SCHEMES[:-1])} or {SCHEMES[-1]}; "
            f"{hint}"
        )
    if parts.scheme == "file":
        _check_file(parts.netloc, parts.path, shown)
    elif not parts.hostname or not parts.path.strip("/"):
        raise UsageError(f"{MARK}{shown}: a host and the path of a repository there are needed")
    if "#" in text and not _REF.fullmatch(ref):
        raise UsageError(f"{ref[:80]!r} is no branch, tag or commit")
    credential = None
    if parts.username is not None and parts.scheme in _WEB:
        credential = Credential(unquote(parts.username), unquote(parts.password or ""))
        url = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    elif parts.password is not None:
        raise UsageError(f"{MARK}{shown}: ssh takes no password from an address; give this machine a key for it")
    return Address(url, ref, credential)


def _check_file(host: str, path: str, shown: str) -> None:
    if host not in ("", "localhost") or not path.strip("/"):
        raise UsageError(f"{MARK}{shown}: the path of a repository is needed, such as {MARK}file:///srv/shop.git")


def without_user(text: str) -> str:
    """Nothing in it that could be a password."""
    return _USER.sub("", text)
