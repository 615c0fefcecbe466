-- The queue in which the work of a team comes together. Only adds: a Bullpen of 1.1 goes on working beside it.
--
-- A submission is what a member made, as a commit, in the order of its number. One
-- that is 'taken' is being integrated under the lease of its worker; a unique index
-- allows one of those for each team, whatever two workers do at once. While one of its
-- submissions is open, the task names it and stays in progress; then it names the
-- commit of the trunk.

ALTER TABLE task ADD COLUMN submission bigint;
ALTER TABLE task ADD COLUMN "commit" text;

CREATE TABLE submission (
    team_id      bigint NOT NULL,
    id           bigint NOT NULL,
    member       text NOT NULL,
    member_key   text COLLATE "C" NOT NULL,
    task_id      bigint,
    attempt      bigint NOT NULL,
    base         text NOT NULL,
    "commit"     text NOT NULL,
    result       text NOT NULL,
    "check"      text,
    has_passed   boolean NOT NULL,
    state        text NOT NULL,
    worker_id    bigint,
    integrated   text,
    note         text NOT NULL,
    submitted_at timestamptz NOT NULL,
    ended_at     timestamptz,
    PRIMARY KEY (team_id, id)
);
CREATE INDEX submission_waiting ON submission (submitted_at, team_id, id) WHERE state = 'queued';
CREATE INDEX submission_queued ON submission (team_id, id) WHERE state = 'queued';
CREATE UNIQUE INDEX submission_taken ON submission (team_id) WHERE state = 'taken';
