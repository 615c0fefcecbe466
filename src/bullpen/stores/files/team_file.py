"""`config.json`: a team, its counters and its members, ours or found.

A directory without our record (`"bullpen"` in its config) was made by another
program. It is read as a team whose id follows from its name, so that it stays the
same until somebody writes; the first write stores it as ours. Its members, and those
whom other programs enter afterwards, are teammates at rest: they are brought back by
being spawned.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from bullpen.domain.codec import decode, encode
from bullpen.domain.member import LEAD, USER, Member, MemberKind, MemberStatus, Team
from bullpen.domain.text import name_key
from bullpen.errors import SchemaTooNew, StoreUnavailable
from bullpen.stores.files.foreign import check_path_name, moment_of, moment_of_ns, name_of, pick, text_of, text_or_none
from bullpen.stores.files.form import file_bytes, parse_foreign, parse_object, whole
from bullpen.stores.files.inbox import FIRST_FOREIGN_ID as FIRST_FOREIGN_MESSAGE_ID
from bullpen.stores.files.layout import DEFAULT_TASKS, INBOX_FILE, TASK_FILE, Home
from bullpen.stores.files.roster import member_object
from bullpen.stores.files.view import SETTLED_NS, View

SCHEMA = 1
_MESSAGE_ID = re.compile(rb'^\{"id": ([0-9]{1,15}),', re.MULTILINE)
FIRST_FOREIGN_ID = 1 << 32
_TEAM_KEYS = (
    "id",
    "name",
    "generation",
    "goal",
    "next_task_id",
    "next_request_id",
    "settings",
    "created_at",
    "deleted_at",
)
_OWN_KEYS = frozenset({"bullpen", "next_message_id", "open_requests", "open_submissions", "members", *_TEAM_KEYS})


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamFile:
    home: Home
    team: Team
    listed: Mapping[str, Member]
    """Those that stand in the config."""
    members: Mapping[str, Member]
    """As they are: of a large team, many have a file of their own."""
    next_message_id: int = 1
    open_requests: tuple[int, ...] = ()
    open_submissions: tuple[int, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    is_ours: bool = True


def load_team(view: View, home: Home, name: str) -> TeamFile | None:
    """None if there is no such team. StoreUnavailable if its record cannot be read: it is not overwritten."""
    if view.is_directory(home.directory):
        found = view.decode(home.config, lambda data: _decode(data, home))
        if found is not None:
            return found
    return _found_team(view, home, name)


def team_bytes(file: TeamFile) -> bytes:
    config: dict[str, Any] = {"bullpen": SCHEMA, **encode(file.team), "next_message_id": file.next_message_id}
    config["open_requests"] = list(file.open_requests)
    if file.open_submissions:
        config["open_submissions"] = list(file.open_submissions)
    config.update(file.extra)
    config["members"] = [member_object(member) for member in file.listed.values()]
    return file_bytes(config)


# -- ours ----------------------------------------------------------------------------------


def _decode(data: bytes, home: Home) -> TeamFile | None:
    config = parse_object(data)
    if config is not None and not isinstance(config.get("bullpen"), int):
        config = parse_foreign(data)
    if config is None:
        raise StoreUnavailable(f"{home.config} is not readable: repair it, nothing is written over it")
    version = config.get("bullpen")
    if not isinstance(version, int):
        return None
    if version > SCHEMA:
        raise SchemaTooNew(f"{home.config} was written by a newer Bullpen (schema {version}); upgrade this one")
    with whole(home.config):
        team = decode(Team, {key: config[key] for key in _TEAM_KEYS if key in config})
        members = [_decode_member(entry, team) for entry in config.get("members") or []]
        for name in (team.name, *(member.name for member in members if member is not None)):
            check_path_name(name)
        next_message_id = decode(int, config.get("next_message_id", 1))
        open_requests, open_submissions = (
            decode(tuple[int, ...], config.get(key) or ()) for key in ("open_requests", "open_submissions")
        )
    listed = {member.key: member for member in members if member is not None}
    return TeamFile(
        home=home,
        team=team,
        listed=listed,
        members=listed,
        next_message_id=next_message_id,
        open_requests=open_requests,
        open_submissions=open_submissions,
        extra={key: value for key, value in config.items() if key not in _OWN_KEYS},
    )


def _decode_member(entry: Any, team: Team) -> Member | None:
    if isinstance(entry, dict) and "kind" in entry:
        member: Member = decode(Member, {**entry, "team_id": team.id})
        return member
    return _foreign_member(entry, team.id, team.created_at)


# -- found ---------------------------------------------------------------------------------


def foreign_id(name: str) -> int:
    return FIRST_FOREIGN_ID + int.from_bytes(hashlib.sha256(name_key(name).encode()).digest()[:4])


def _found_team(view: View, home: Home, name: str) -> TeamFile | None:
    sources = [directory for directory in (home.directory, home.foreign) if view.is_directory(directory)]
    has_board = home.tasks == DEFAULT_TASKS and any(TASK_FILE.fullmatch(name) for name in view.names(DEFAULT_TASKS))
    if not sources and not has_board:
        return None
    configs = [view.settled(f"{directory}/config.json", parse_foreign) or {} for directory in sources]
    since = min(_made_at(view, directory) for directory in [*sources, *([home.tasks] if has_board else [])])
    team = Team(
        id=foreign_id(name),
        name=name,
        goal=next((text_of(config["goal"]) for config in configs if "goal" in config), ""),
        next_task_id=1,
        created_at=since,
    )
    members = {LEAD: _reserved(team, LEAD, MemberKind.LEAD), USER: _reserved(team, USER, MemberKind.USER)}
    for member in [*_roster(configs, team), *_recipients(view, home, team)]:
        members.setdefault(member.key, member)
    # What it says beside that is not ours to lose: this is the file that we write when we take the team up.
    own = (view.object(home.config) or {}) if home.directory in sources else {}
    extra = {key: value for key, value in own.items() if key not in _OWN_KEYS}
    number = _next_message_id(view, home)
    return TeamFile(
        home=home, team=team, listed=members, members=members, next_message_id=number, extra=extra, is_ours=False
    )


def foreign_signature(view: View, home: Home) -> tuple[tuple[int, int], ...] | None:
    """Another one as soon as another program has entered somebody; None if that could be just now."""
    paths = (home.directory, f"{home.foreign}/config.json", f"{home.foreign}/inbox")
    try:
        stats = [found for path in paths if (found := view.stat(path)) is not None]
    except PermissionError:
        return ()
    if any(time.time_ns() - found.st_mtime_ns < SETTLED_NS for found in stats):
        return None
    return tuple((found.st_mtime_ns, found.st_ino) for found in stats)


def find_newcomers(view: View, file: TeamFile, known: Container[str]) -> dict[str, Member]:
    """Whom other programs have entered, or given an inbox, since the team is ours."""
    try:
        roster = view.settled(f"{file.home.foreign}/config.json", parse_foreign) or {}
        found = [*_roster([roster], file.team), *_recipients(view, file.home, file.team, known)]
    except PermissionError:
        # Another user's: no part of our team.
        return {}
    members: dict[str, Member] = {}
    for member in found:
        members.setdefault(member.key, member)
    return members


def _next_message_id(view: View, home: Home) -> int:
    """1, unless the team was ours before another program wrote its own record over ours: a letter with the number of
    one that was delivered would be taken for that one."""
    if not view.exists(home.events):
        return 1
    paths = [f"{home.directory}/{name}" for name in view.names(home.directory) if INBOX_FILE.fullmatch(name)]
    paths += [f"{home.directory}/mail/{name}" for name in view.names(f"{home.directory}/mail")]
    found = (int(number) for path in paths for number in _MESSAGE_ID.findall(view.slice(path, 0)))
    return max((number for number in found if number < FIRST_FOREIGN_MESSAGE_ID), default=0) + 1


def _made_at(view: View, directory: str) -> datetime:
    """A directory's time changes with its content; the oldest file in it is the best guess that stays the same."""
    paths = [f"{directory}/{name}" for name in view.names(directory) if not name.startswith(".")]
    stats = [found for path in [*paths[:1], directory] if (found := view.stat(path)) is not None]
    return min(moment_of_ns(found.st_mtime_ns) for found in stats)


def _roster(configs: list[dict[str, Any]], team: Team) -> list[Member]:
    found: list[Member] = []
    for config in configs:
        entries = pick(config, "members", "teammates") or []
        if isinstance(entries, dict):
            entries = [{"name": name, **(entry if isinstance(entry, dict) else {})} for name, entry in entries.items()]
        if not isinstance(entries, list):
            continue
        members = [_foreign_member(entry, team.id, team.created_at) for entry in entries]
        found.extend(member for member in members if member is not None)
    return found


def _recipients(view: View, home: Home, team: Team, known: Container[str] = ()) -> list[Member]:
    """Whoever has an inbox was a member, even if no roster says so."""
    inboxes = [match[1] for name in view.names(home.directory) if (match := INBOX_FILE.fullmatch(name))]
    inboxes += [name.removesuffix(".jsonl") for name in view.names(f"{home.foreign}/inbox") if name.endswith(".jsonl")]
    members = [_foreign_member(name, team.id, team.created_at) for name in inboxes if name_key(name) not in known]
    return [member for member in members if member is not None]


def _foreign_member(entry: Any, team_id: int, since: datetime) -> Member | None:
    raw = {"name": entry} if isinstance(entry, str) else entry
    if not isinstance(raw, dict):
        return None
    name = name_of(raw.get("name"))
    if name is None or name_key(name) in (LEAD, USER, "system"):
        return None
    return Member(
        team_id=team_id,
        name=name,
        kind=MemberKind.TEAMMATE,
        role=text_or_none(raw.get("role")),
        status=MemberStatus.SHUTDOWN,
        status_reason="found in files",
        prompt=text_of(raw.get("prompt")),
        created_at=moment_of(raw.get("created_at")) or since,
        status_at=since,
        extra={key: value for key, value in raw.items() if key not in ("name", "role", "prompt", "created_at")},
    )


def _reserved(team: Team, name: str, kind: MemberKind) -> Member:
    return Member(
        team_id=team.id,
        name=name,
        kind=kind,
        role=name,
        status=MemberStatus.IDLE,
        created_at=team.created_at,
        status_at=team.created_at,
    )
