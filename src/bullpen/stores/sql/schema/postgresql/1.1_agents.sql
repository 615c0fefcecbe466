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
    team_id     bigint NOT NULL,
    id          bigint NOT NULL,
    member      text NOT NULL,
    member_key  text COLLATE "C" NOT NULL,
    incarnation bigint NOT NULL,
    kind        text NOT NULL,
    title       text NOT NULL,
    host        text NOT NULL,
    boot_id     text NOT NULL,
    pid         bigint,
    start_ticks bigint,
    output_path text,
    state       text NOT NULL,
    exit_code   bigint,
    output      text NOT NULL,
    started_at  timestamptz NOT NULL,
    ended_at    timestamptz,
    PRIMARY KEY (team_id, id)
);
CREATE INDEX background_running ON background (team_id, id) WHERE state = 'running';

CREATE TABLE reservation (
    team_id      bigint NOT NULL,
    id           bigint NOT NULL,
    member       text NOT NULL,
    member_key   text COLLATE "C" NOT NULL,
    incarnation  bigint NOT NULL,
    purpose      text NOT NULL,
    provider_key text COLLATE "C" NOT NULL,
    model        text NOT NULL,
    tokens       bigint NOT NULL,
    cost_usd     double precision NOT NULL,
    usage        text,
    spent_usd    double precision,
    created_at   timestamptz NOT NULL,
    settled_at   timestamptz,
    PRIMARY KEY (team_id, id)
);
CREATE INDEX reservation_open ON reservation (team_id, id) WHERE settled_at IS NULL;

CREATE TABLE account (
    team_id            bigint NOT NULL,
    member_key         text COLLATE "C" NOT NULL,
    calls              bigint NOT NULL,
    input_tokens       bigint NOT NULL,
    output_tokens      bigint NOT NULL,
    cache_read_tokens  bigint NOT NULL,
    cache_write_tokens bigint NOT NULL,
    cost_usd           double precision NOT NULL,
    open_calls         bigint NOT NULL CHECK (open_calls >= 0),
    open_tokens        bigint NOT NULL,
    open_cost_usd      double precision NOT NULL,
    told               text NOT NULL,
    PRIMARY KEY (team_id, member_key)
) WITH (fillfactor = 50);

CREATE TABLE provider_gate (
    provider_key  text COLLATE "C" PRIMARY KEY,
    blocked_until timestamptz NOT NULL
);
