-- How the tables work.
--
-- A team is its id. Names are unique among live teams only (name_key: regardless
-- of case), so a deleted team stays readable and its name is free again.
--
-- A worker is a process that hosts members. It proves its life by counting
-- `renewals` and by an advisory lock that its session holds (`token` names it). A
-- member names its worker; `incarnation` fences every write of it.
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
--
-- An event is a fact. It is placed by a number that its transaction takes right
-- before the commit, and its own (`n`) therein. The system column `xmin` tells when
-- everything up to it is in place: once every transaction with a lower id has ended.
-- Readers stop there, else they would pass over an event that commits late.
--
-- A follower is a process that follows the log of a team until the moment that it
-- renews every few seconds: a NOTIFY for events is sent only if there is one.
--
-- Only members refer to their team and worker by a foreign key. Elsewhere it would
-- lock the team's row for each event of each writer; no row is written there but by
-- a member that has passed its fence.
--
-- Keys sort by their bytes, on every server alike: it is the order of locks.
-- JSON is text: it comes back as it was, key order and large numbers included.

CREATE TABLE team (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name            text NOT NULL,
    name_key        text COLLATE "C" NOT NULL,
    generation      bigint NOT NULL,
    goal            text NOT NULL,
    next_task_id    bigint NOT NULL,
    next_request_id bigint NOT NULL,
    settings        text NOT NULL,
    created_at      timestamptz NOT NULL,
    deleted_at      timestamptz
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX team_live ON team (name_key) WHERE deleted_at IS NULL;

CREATE TABLE worker (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    token         text NOT NULL UNIQUE,
    host          text NOT NULL,
    boot_id       text NOT NULL,
    pid           bigint NOT NULL,
    slots         bigint NOT NULL,
    labels        text NOT NULL,
    lease_seconds double precision NOT NULL,
    renewals      bigint NOT NULL,
    started_at    timestamptz NOT NULL,
    renewed_at    timestamptz NOT NULL,
    stopped_at    timestamptz,
    stop_reason   text NOT NULL,
    schema_min    bigint NOT NULL,
    schema_max    bigint NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX worker_live ON worker (id) WHERE stopped_at IS NULL;

CREATE TABLE member (
    team_id             bigint NOT NULL REFERENCES team,
    name_key            text COLLATE "C" NOT NULL,
    name                text NOT NULL,
    kind                text NOT NULL,
    role                text,
    role_key            text COLLATE "C" NOT NULL,
    status              text NOT NULL,
    status_reason       text NOT NULL,
    incarnation         bigint NOT NULL,
    worker_id           bigint REFERENCES worker,
    model               text,
    prompt              text NOT NULL,
    autonomy            text NOT NULL,
    plan_required       boolean NOT NULL,
    plan_digest         text,
    shutdown_request_id bigint,
    workspace           text,
    counters            text NOT NULL,
    created_at          timestamptz NOT NULL,
    status_at           timestamptz NOT NULL,
    extra               text NOT NULL,
    PRIMARY KEY (team_id, name_key)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX member_by_status ON member (team_id, status, role_key);
CREATE INDEX member_wanted ON member (status_at) WHERE status = 'wanted';
CREATE INDEX member_hosted ON member (worker_id) WHERE worker_id IS NOT NULL;

CREATE TABLE task (
    team_id        bigint NOT NULL,
    id             bigint NOT NULL,
    subject        text NOT NULL,
    description    text NOT NULL,
    active_form    text NOT NULL,
    status         text NOT NULL,
    owner          text,
    owner_key      text COLLATE "C",
    role           text,
    role_key       text COLLATE "C" NOT NULL,
    "check"        text,
    result         text,
    evidence       text,
    attempt        bigint NOT NULL,
    verifying      boolean NOT NULL,
    open_blockers  bigint NOT NULL CHECK (open_blockers >= 0),
    created_by     text NOT NULL,
    created_at     timestamptz NOT NULL,
    updated_at     timestamptz NOT NULL,
    claimed_at     timestamptz,
    finished_at    timestamptz,
    reserved_until timestamptz,
    handovers      text NOT NULL,
    extra          text NOT NULL,
    PRIMARY KEY (team_id, id)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
CREATE INDEX task_claimable ON task (team_id, role_key, id)
    WHERE status = 'pending' AND open_blockers = 0 AND owner_key IS NULL;
CREATE INDEX task_assigned ON task (team_id, owner_key, id)
    WHERE status = 'pending' AND owner_key IS NOT NULL;
CREATE UNIQUE INDEX task_in_progress ON task (team_id, owner_key) WHERE status = 'in_progress';
CREATE INDEX task_open ON task (team_id, role_key) WHERE status = 'pending' AND owner_key IS NULL;
CREATE INDEX task_reserved ON task (reserved_until) WHERE reserved_until IS NOT NULL;

CREATE TABLE task_edge (
    team_id    bigint NOT NULL,
    task_id    bigint NOT NULL,
    blocker_id bigint NOT NULL,
    PRIMARY KEY (team_id, task_id, blocker_id)
);
CREATE INDEX task_edge_by_blocker ON task_edge (team_id, blocker_id, task_id);

CREATE TABLE message (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    team_id        bigint NOT NULL,
    type           text NOT NULL,
    sender         text NOT NULL,
    recipient      text NOT NULL,
    recipient_key  text COLLATE "C" NOT NULL,
    content        text NOT NULL,
    origin         text NOT NULL,
    request_id     bigint,
    reply_to       bigint,
    wakes          boolean NOT NULL,
    sent_at        timestamptz NOT NULL,
    delivered_at   timestamptz,
    delivered_turn bigint,
    answered_at    timestamptz,
    extra          text NOT NULL
);
CREATE INDEX message_undelivered ON message (team_id, recipient_key, id) WHERE delivered_at IS NULL;
CREATE INDEX message_inbox ON message (team_id, recipient_key, id);

CREATE TABLE request (
    team_id     bigint NOT NULL,
    id          bigint NOT NULL,
    kind        text NOT NULL,
    asker       text NOT NULL,
    asker_key   text COLLATE "C" NOT NULL,
    asked       text NOT NULL,
    asked_key   text COLLATE "C" NOT NULL,
    content     text NOT NULL,
    digest      text NOT NULL,
    incarnation bigint,
    payload     text NOT NULL,
    status      text NOT NULL,
    approved    boolean,
    reason      text NOT NULL,
    scope       text,
    created_at  timestamptz NOT NULL,
    open_until  timestamptz,
    closed_at   timestamptz,
    PRIMARY KEY (team_id, id)
);
CREATE INDEX request_open ON request (open_until) WHERE status = 'open';

CREATE TABLE turn (
    team_id     bigint NOT NULL,
    member_key  text COLLATE "C" NOT NULL,
    seq         bigint NOT NULL,
    member      text NOT NULL,
    kind        text NOT NULL,
    content     text NOT NULL,
    incarnation bigint NOT NULL,
    created_at  timestamptz NOT NULL,
    PRIMARY KEY (team_id, member_key, seq)
);

CREATE TABLE tool_call (
    team_id     bigint NOT NULL,
    member_key  text COLLATE "C" NOT NULL,
    call_id     text COLLATE "C" NOT NULL,
    member      text NOT NULL,
    turn_seq    bigint NOT NULL,
    position    bigint NOT NULL,
    name        text NOT NULL,
    arguments   text NOT NULL,
    state       text NOT NULL,
    result      text,
    is_error    boolean NOT NULL,
    incarnation bigint NOT NULL,
    queued_at   timestamptz NOT NULL,
    started_at  timestamptz,
    finished_at timestamptz,
    PRIMARY KEY (team_id, member_key, call_id)
);
CREATE INDEX tool_call_open ON tool_call (team_id, member_key) WHERE state IN ('queued', 'started');

CREATE TABLE operation (
    id      text COLLATE "C" PRIMARY KEY,
    at      timestamptz NOT NULL,
    outcome text NOT NULL
);

CREATE SEQUENCE event_number;
CREATE TABLE event (
    team_id bigint NOT NULL,
    number  bigint NOT NULL,
    n       bigint NOT NULL,
    kind    text NOT NULL,
    at      timestamptz NOT NULL,
    actor   text NOT NULL,
    data    text NOT NULL,
    PRIMARY KEY (team_id, number, n)
);

CREATE TABLE follower (
    team_id bigint NOT NULL,
    process text NOT NULL,
    until   timestamptz NOT NULL,
    PRIMARY KEY (team_id, process)
);
