-- Events and turns lie in the order in which they are read, each in one tree instead of two or three: every page that
-- a verb touches is written and flushed with it. A Bullpen of 1.4 goes on working beside it, through the view.
--
-- A position counts within its team. Nothing is ever deleted from the log, so the last one is the highest given out.

CREATE TABLE event_log (
    team_id  INTEGER NOT NULL,
    position INTEGER NOT NULL,
    kind     TEXT NOT NULL,
    at       TEXT NOT NULL,
    actor    TEXT NOT NULL,
    data     TEXT NOT NULL,
    PRIMARY KEY (team_id, position)
) STRICT, WITHOUT ROWID;

INSERT INTO event_log (team_id, position, kind, at, actor, data)
    SELECT team_id, position, kind, at, actor, data FROM event ORDER BY team_id, position;
DROP TABLE event;

CREATE VIEW event AS SELECT position, team_id, kind, at, actor, data FROM event_log;
CREATE TRIGGER event_recorded INSTEAD OF INSERT ON event BEGIN
    INSERT INTO event_log (team_id, position, kind, at, actor, data) VALUES (
        NEW.team_id, (SELECT coalesce(max(position), 0) + 1 FROM event_log WHERE team_id = NEW.team_id),
        NEW.kind, NEW.at, NEW.actor, NEW.data);
END;

CREATE TABLE turn_by_member (
    team_id     INTEGER NOT NULL REFERENCES team,
    member_key  TEXT NOT NULL,
    seq         INTEGER NOT NULL,
    member      TEXT NOT NULL,
    kind        TEXT NOT NULL,
    content     TEXT NOT NULL,
    incarnation INTEGER NOT NULL,
    created_at  TEXT NOT NULL,
    PRIMARY KEY (team_id, member_key, seq)
) STRICT, WITHOUT ROWID;

INSERT INTO turn_by_member (team_id, member_key, seq, member, kind, content, incarnation, created_at)
    SELECT team_id, member_key, seq, member, kind, content, incarnation, created_at FROM turn
    ORDER BY team_id, member_key, seq;
DROP TABLE turn;
ALTER TABLE turn_by_member RENAME TO turn;
