-- What agents need beside board, mail and memory. Only adds: a Bullpen of 1.0 goes on working beside it.
--
-- A background is a command or a subagent that a member started and that goes on
-- beside it. It belongs to the incarnation that started it; `state` is 'running'
-- until its end is told, or until a successor finds it lost. Numbered in each team,
-- with the team locked.
--
-- A reservation is leave to ask a model, made before the request and settled with
-- its reply. An account sums up what was spent and what is still reserved, for each
-- member and, under the empty key, for the team. Whoever reserves or settles holds the
-- team's account first, so it alone decides what there is room for, and the limit is
-- never passed. What an incarnation that is over left open is written off as spent.
-- Calls and open calls of the team's account together number its reservations.
--
-- A provider_gate says until when nobody asks a provider with this key, in any team.

CREATE TABLE background (
    team_id     INTEGER NOT NULL REFERENCES team,
    id          INTEGER NOT NULL,
    member      TEXT NOT NULL,
    member_key  TEXT NOT NULL,
    incarnation INTEGER NOT NULL,
    kind        TEXT NOT NULL,
    title       TEXT NOT NULL,
    host        TEXT NOT NULL,
    boot_id     TEXT NOT NULL,
    pid         INTEGER,
    start_ticks INTEGER,
    output_path TEXT,
    state       TEXT NOT NULL,
    exit_code   INTEGER,
    output      TEXT NOT NULL,
    started_at  TEXT NOT NULL,
    ended_at    TEXT,
    PRIMARY KEY (team_id, id)
) STRICT;
CREATE INDEX background_running ON background (team_id, id) WHERE state = 'running';

CREATE TABLE reservation (
    team_id      INTEGER NOT NULL REFERENCES team,
    id           INTEGER NOT NULL,
    member       TEXT NOT NULL,
    member_key   TEXT NOT NULL,
    incarnation  INTEGER NOT NULL,
    purpose      TEXT NOT NULL,
    provider_key TEXT NOT NULL,
    model        TEXT NOT NULL,
    tokens       INTEGER NOT NULL,
    cost_usd     REAL NOT NULL,
    usage        TEXT,
    spent_usd    REAL,
    created_at   TEXT NOT NULL,
    settled_at   TEXT,
    PRIMARY KEY (team_id, id)
) STRICT;
CREATE INDEX reservation_open ON reservation (team_id, id) WHERE settled_at IS NULL;

CREATE TABLE account (
    team_id            INTEGER NOT NULL REFERENCES team,
    member_key         TEXT NOT NULL,
    calls              INTEGER NOT NULL,
    input_tokens       INTEGER NOT NULL,
    output_tokens      INTEGER NOT NULL,
    cache_read_tokens  INTEGER NOT NULL,
    cache_write_tokens INTEGER NOT NULL,
    cost_usd           REAL NOT NULL,
    open_calls         INTEGER NOT NULL CHECK (open_calls >= 0),
    open_tokens        INTEGER NOT NULL,
    open_cost_usd      REAL NOT NULL,
    told               TEXT NOT NULL,
    PRIMARY KEY (team_id, member_key)
) STRICT, WITHOUT ROWID;

CREATE TABLE provider_gate (
    provider_key  TEXT PRIMARY KEY,
    blocked_until TEXT NOT NULL
) STRICT, WITHOUT ROWID;
