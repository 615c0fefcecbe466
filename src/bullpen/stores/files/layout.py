"""Where everything lies: the seeds' layout, and our own files beside it.

    .tasks/task_N.json                  the board of team `default`
    .team/inbox/NAME.jsonl              mail as seed s09 writes it, read as the default team's
    .teams/.lock .journal .store.json   the gate, the redo journal, the next team and worker id
    .teams/.providers.json              until when nobody asks a provider
    .teams/.workers/                    one file for each worker, and the locks that prove their lives
    .teams/.operations/HH.jsonl         outcomes by operation id, spread by its hash
    .teams/.deleted/NAME-ID/            a deleted team whose name was taken by a new one
    .teams/NAME/config.json             the team, its counters and its members
    .teams/NAME/members/MEMBER.json     in a large team, members as they are now: these count, not the config's
    .teams/NAME/tasks/task_N.json       the board of every other team
    .teams/NAME/MEMBER_inbox.jsonl      mail, only ever appended to
    .teams/NAME/mail/MEMBER.json        how far it was taken; MEMBER_receipts.jsonl: when, in which turn, answered when
    .teams/NAME/transcripts/MEMBER.jsonl
    .teams/NAME/calls/MEMBER.jsonl      closed tool calls; MEMBER_open.json: queued and started ones
    .teams/NAME/requests/request_N.json
    .teams/NAME/backgrounds/bg_N.json   commands and subagents; running.json: which of them still run
    .teams/NAME/submissions/submission_N.json   work that waits to be integrated, or waited
    .teams/NAME/budget/team.json        what the team has spent and reserved; budget/members/MEMBER.json: each member
    .teams/NAME/budget/settled.jsonl    reservations; budget/open.json: those of calls under way
    .teams/NAME/events.jsonl
    .teams/NAME/.index/                 derived, may be removed: markers of open tasks, what reconcile has seen

Invariant: a path is made only of names that passed `check_name`, of numbers and of
words written here, and is relative to the store's directory; so nothing escapes it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from bullpen.domain.text import NAME_PATTERN, name_key

TEAMS = ".teams"
LOCK = ".teams/.lock"
JOURNAL = ".teams/.journal"
STORE = ".teams/.store.json"
PROVIDERS = ".teams/.providers.json"
WORKERS = ".teams/.workers"
STOPPED_WORKERS = ".teams/.workers/stopped"
OPERATIONS = ".teams/.operations"
DELETED = ".teams/.deleted"

DEFAULT = "default"
DEFAULT_TASKS = ".tasks"
DEFAULT_FOREIGN = ".team"

TASK_FILE = re.compile(r"task_([0-9]+)\.json")
REQUEST_FILE = re.compile(r"request_([0-9]+)\.json")
SUBMISSION_FILE = re.compile(r"submission_([0-9]+)\.json")
BACKGROUND_FILE = re.compile(r"bg_([0-9]+)\.json")
WORKER_FILE = re.compile(r"worker_([0-9]+)\.json")
MEMBER_FILE = re.compile(rf"{NAME_PATTERN.pattern}\.json")
INBOX_FILE = re.compile(r"(.+)_inbox\.jsonl")


@dataclass(frozen=True, slots=True)
class Home:
    """Where one team's files are."""

    directory: str
    tasks: str
    foreign: str
    """A directory of s09's kind: `config.json` and `inbox/NAME.jsonl`."""

    @property
    def config(self) -> str:
        return f"{self.directory}/config.json"

    @property
    def events(self) -> str:
        return f"{self.directory}/events.jsonl"

    @property
    def index(self) -> str:
        return f"{self.directory}/.index"

    @property
    def requests(self) -> str:
        return f"{self.directory}/requests"

    @property
    def members(self) -> str:
        return f"{self.directory}/members"

    @property
    def backgrounds(self) -> str:
        return f"{self.directory}/backgrounds"

    @property
    def running_backgrounds(self) -> str:
        return f"{self.backgrounds}/running.json"

    @property
    def submissions(self) -> str:
        return f"{self.directory}/submissions"

    @property
    def accounts(self) -> str:
        return f"{self.directory}/budget/members"

    @property
    def open_reservations(self) -> str:
        return f"{self.directory}/budget/open.json"

    @property
    def reservations(self) -> str:
        return f"{self.directory}/budget/settled.jsonl"

    def background(self, number: int) -> str:
        return f"{self.backgrounds}/bg_{number}.json"

    def submission(self, number: int) -> str:
        return f"{self.submissions}/submission_{number}.json"

    def account(self, key: str) -> str:
        return f"{self.accounts}/{key}.json" if key else f"{self.directory}/budget/team.json"

    def member(self, name: str) -> str:
        return f"{self.members}/{name}.json"

    def task(self, number: int) -> str:
        return f"{self.tasks}/task_{number}.json"

    def request(self, number: int) -> str:
        return f"{self.requests}/request_{number}.json"

    def inbox(self, name: str) -> str:
        return f"{self.directory}/{name}_inbox.jsonl"

    def foreign_inbox(self, name: str) -> str:
        return f"{self.foreign}/inbox/{name}.jsonl"

    def mail(self, name: str) -> str:
        return f"{self.directory}/mail/{name}.json"

    def receipts(self, name: str) -> str:
        return f"{self.directory}/mail/{name}_receipts.jsonl"

    def transcript(self, name: str) -> str:
        return f"{self.directory}/transcripts/{name}.jsonl"

    def calls(self, name: str) -> str:
        return f"{self.directory}/calls/{name}.jsonl"

    def open_calls(self, name: str) -> str:
        return f"{self.directory}/calls/{name}_open.json"


def live_home(name: str) -> Home:
    directory = f"{TEAMS}/{name}"
    if name_key(name) == DEFAULT:
        return Home(directory, DEFAULT_TASKS, DEFAULT_FOREIGN)
    return Home(directory, f"{directory}/tasks", f"{directory}/team")


def deleted_home(name: str, team_id: int) -> Home:
    directory = f"{DELETED}/{name}-{team_id}"
    return Home(directory, f"{directory}/tasks", f"{directory}/team")


def worker_file(worker_id: int, *, stopped: bool) -> str:
    return f"{STOPPED_WORKERS if stopped else WORKERS}/worker_{worker_id}.json"
