-- How the tables work.
--
-- A team is its id. Names are unique among live teams only (name_key: regardless
-- of case), so a deleted team stays readable and its name is free again.
--
-- A worker is a process that hosts members. It proves its life by counting
-- `renewals` and by a lock that the operating system frees when it dies (`token`
-- names it). A member names its worker; `incarnation` fences every write of it.
--
-- A task counts its unfinished blockers in `open_blockers`, kept by whoever
-- changes an edge or finishes a blocker. So "claimable" is a property of one row,
-- and the partial index task_claimable holds exactly the claimable, unowned tasks:
-- a claim is one probe for the claimer's role and one for no role, whatever the
-- size of the board. task_assigned does the same for assigned ones. A second
-- unique index allows one task in progress for each owner.
--
-- A message is undelivered until delivered_at is set, in the transaction that also
-- appends the turn that contains it: exactly once into the transcript.
--
-- An operation remembers the first outcome of a verb that was called with an id.
-- An event is a fact; its position grows in the order of commits, because one
-- transaction writes at a time.
--
-- Times are ISO 8601 in UTC, JSON is text, booleans are 0 and 1.

CREATE TABLE team (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    name            TEXT NOT NULL,
    name_key        TEXT NOT NULL,
    generation      INTEGER NOT NULL,
    goal            TEXT NOT NULL,
    next_task_id    INTEGER NOT NULL,
    next_request_id INTEGER NOT NULL,
    settings        TEXT NOT NULL,
    created_at      TEXT NOT NULL,
    deleted_at      TEXT
) STRICT;
CREATE UNIQUE INDEX team_live ON team (name_key) WHERE deleted_at IS NULL;

CREATE TABLE worker (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    token         TEXT NOT NULL UNIQUE,
    host          TEXT NOT NULL,
    boot_id       TEXT NOT NULL,
    pid           INTEGER NOT NULL,
    slots         INTEGER NOT NULL,
    labels        TEXT NOT NULL,
    lease_seconds REAL NOT NULL,
    renewals      INTEGER NOT NULL,
    started_at    TEXT NOT NULL,
    renewed_at    TEXT NOT NULL,
    stopped_at    TEXT,
    stop_reason   TEXT NOT NULL,
    schema_min    INTEGER NOT NULL,
    schema_max    INTEGER NOT NULL
) STRICT;
CREATE INDEX worker_live ON worker (id) WHERE stopped_at IS NULL;

CREATE TABLE member (
    team_id             INTEGER NOT NULL REFERENCES team,
    name_key            TEXT NOT NULL,
    name                TEXT NOT NULL,
    kind                TEXT NOT NULL,
    role                TEXT,
    role_key            TEXT NOT NULL,
    status              TEXT NOT NULL,
    status_reason       TEXT NOT NULL,
    incarnation         INTEGER NOT NULL,
    worker_id           INTEGER REFERENCES worker,
    model               TEXT,
    prompt              TEXT NOT NULL,
    autonomy            TEXT NOT NULL,
    plan_required       INTEGER NOT NULL,
    plan_digest         TEXT,
    shutdown_request_id INTEGER,
    workspace           TEXT,
    counters            TEXT NOT NULL,
    created_at          TEXT NOT NULL,
    status_at           TEXT NOT NULL,
    extra               TEXT NOT NULL,
    PRIMARY KEY (team_id, name_key)
) STRICT, WITHOUT ROWID;
-- The longest idle first, without sorting a thousand of them for each new task.
CREATE INDEX member_by_status ON member (team_id, status, status_at, name_key);
CREATE INDEX member_wanted ON member (status_at) WHERE status = 'wanted';
CREATE INDEX member_hosted ON member (worker_id) WHERE worker_id IS NOT NULL;

CREATE TABLE task (
    team_id        INTEGER NOT NULL REFERENCES team,
    id             INTEGER NOT NULL,
    subject        TEXT NOT NULL,
    description    TEXT NOT NULL,
    active_form    TEXT NOT NULL,
    status         TEXT NOT NULL,
    owner          TEXT,
    owner_key      TEXT,
    role           TEXT,
    role_key       TEXT NOT NULL,
    "check"        TEXT,
    result         TEXT,
    evidence       TEXT,
    attempt        INTEGER NOT NULL,
    verifying      INTEGER NOT NULL,
    open_blockers  INTEGER NOT NULL CHECK (open_blockers >= 0),
    created_by     TEXT NOT NULL,
    created_at     TEXT NOT NULL,
    updated_at     TEXT NOT NULL,
    claimed_at     TEXT,
    finished_at    TEXT,
    reserved_until TEXT,
    handovers      TEXT NOT NULL,
    extra          TEXT NOT NULL,
    PRIMARY KEY (team_id, id)
) STRICT;
CREATE INDEX task_claimable ON task (team_id, role_key, id)
    WHERE status = 'pending' AND open_blockers = 0 AND owner_key IS NULL;
CREATE INDEX task_assigned ON task (team_id, owner_key, id)
    WHERE status = 'pending' AND owner_key IS NOT NULL;
CREATE UNIQUE INDEX task_in_progress ON task (team_id, owner_key) WHERE status = 'in_progress';
CREATE INDEX task_open ON task (team_id, role_key) WHERE status = 'pending' AND owner_key IS NULL;
CREATE INDEX task_reserved ON task (reserved_until) WHERE reserved_until IS NOT NULL;

CREATE TABLE task_edge (
    team_id    INTEGER NOT NULL,
    task_id    INTEGER NOT NULL,
    blocker_id INTEGER NOT NULL,
    PRIMARY KEY (team_id, task_id, blocker_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX task_edge_by_blocker ON task_edge (team_id, blocker_id, task_id);

CREATE TABLE message (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    team_id        INTEGER NOT NULL REFERENCES team,
    type           TEXT NOT NULL,
    sender         TEXT NOT NULL,
    recipient      TEXT NOT NULL,
    recipient_key  TEXT NOT NULL,
    content        TEXT NOT NULL,
    origin         TEXT NOT NULL,
    request_id     INTEGER,
    reply_to       INTEGER,
    wakes          INTEGER NOT NULL,
    sent_at        TEXT NOT NULL,
    delivered_at   TEXT,
    delivered_turn INTEGER,
    answered_at    TEXT,
    extra          TEXT NOT NULL
) STRICT;
CREATE INDEX message_undelivered ON message (team_id, recipient_key, id) WHERE delivered_at IS NULL;
CREATE INDEX message_inbox ON message (team_id, recipient_key, id);

CREATE TABLE request (
    team_id     INTEGER NOT NULL REFERENCES team,
    id          INTEGER NOT NULL,
    kind        TEXT NOT NULL,
    asker       TEXT NOT NULL,
    asker_key   TEXT NOT NULL,
    asked       TEXT NOT NULL,
    asked_key   TEXT NOT NULL,
    content     TEXT NOT NULL,
    digest      TEXT NOT NULL,
    incarnation INTEGER,
    payload     TEXT NOT NULL,
    status      TEXT NOT NULL,
    approved    INTEGER,
    reason      TEXT NOT NULL,
    scope       TEXT,
    created_at  TEXT NOT NULL,
    open_until  TEXT,
    closed_at   TEXT,
    PRIMARY KEY (team_id, id)
) STRICT;
CREATE INDEX request_open ON request (open_until) WHERE status = 'open';

CREATE TABLE turn (
    team_id     INTEGER NOT NULL REFERENCES team,
    member_key  TEXT NOT NULL,
    seq         INTEGER NOT NULL,
    member      TEXT NOT NULL,
    kind        TEXT NOT NULL,
    content     TEXT NOT NULL,
    incarnation INTEGER NOT NULL,
    created_at  TEXT NOT NULL,
    PRIMARY KEY (team_id, member_key, seq)
) STRICT;

CREATE TABLE tool_call (
    team_id     INTEGER NOT NULL REFERENCES team,
    member_key  TEXT NOT NULL,
    call_id     TEXT NOT NULL,
    member      TEXT NOT NULL,
    turn_seq    INTEGER NOT NULL,
    position    INTEGER NOT NULL,
    name        TEXT NOT NULL,
    arguments   TEXT NOT NULL,
    state       TEXT NOT NULL,
    result      TEXT,
    is_error    INTEGER NOT NULL,
    incarnation INTEGER NOT NULL,
    queued_at   TEXT NOT NULL,
    started_at  TEXT,
    finished_at TEXT,
    PRIMARY KEY (team_id, member_key, call_id)
) STRICT;
CREATE INDEX tool_call_open ON tool_call (team_id, member_key) WHERE state IN ('queued', 'started');

CREATE TABLE operation (
    id      TEXT PRIMARY KEY,
    at      TEXT NOT NULL,
    outcome TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE event (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    team_id  INTEGER NOT NULL REFERENCES team,
    kind     TEXT NOT NULL,
    at       TEXT NOT NULL,
    actor    TEXT NOT NULL,
    data     TEXT NOT NULL
) STRICT;
CREATE INDEX event_by_team ON event (team_id, position);
