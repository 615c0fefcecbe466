-- The queue in which the work of a team comes together. Only adds: a Bullpen of 1.1 goes on working beside it.
--
-- A submission is what a member made, as a commit, in the order of its number. One
-- that is 'taken' is being integrated under the lease of its worker; a unique index
-- allows one of those for each team, whatever two workers do at once. While one of its
-- submissions is open, the task names it and stays in progress; then it names the
-- commit of the trunk.

ALTER TABLE task ADD COLUMN submission INTEGER;
ALTER TABLE task ADD COLUMN "commit" TEXT;

CREATE TABLE submission (
    team_id      INTEGER NOT NULL REFERENCES team,
    id           INTEGER NOT NULL,
    member       TEXT NOT NULL,
    member_key   TEXT NOT NULL,
    task_id      INTEGER,
    attempt      INTEGER NOT NULL,
    base         TEXT NOT NULL,
    "commit"     TEXT NOT NULL,
    result       TEXT NOT NULL,
    "check"      TEXT,
    has_passed   INTEGER NOT NULL,
    state        TEXT NOT NULL,
    worker_id    INTEGER,
    integrated   TEXT,
    note         TEXT NOT NULL,
    submitted_at TEXT NOT NULL,
    ended_at     TEXT,
    PRIMARY KEY (team_id, id)
) STRICT;
CREATE INDEX submission_waiting ON submission (submitted_at, team_id, id) WHERE state = 'queued';
CREATE INDEX submission_queued ON submission (team_id, id) WHERE state = 'queued';
CREATE UNIQUE INDEX submission_taken ON submission (team_id) WHERE state = 'taken';
