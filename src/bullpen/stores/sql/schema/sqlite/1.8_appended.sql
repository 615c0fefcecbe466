-- Events lie in the order in which they come: the id of one is its team's, times 2^40, and its position. SQLite fills the
-- last page of such a table to its end and begins a new one. In the tree of 1.5, whose key was made of two columns, it
-- shared what was in the last three pages out among four again and again: every second verb wrote a page more.
--
-- A Bullpen of 1.4 or 1.7 goes on working beside it, through the views; it reads the log more slowly.

CREATE TABLE event_line (
    id    INTEGER PRIMARY KEY,
    kind  TEXT NOT NULL,
    at    TEXT NOT NULL,
    actor TEXT NOT NULL,
    data  TEXT NOT NULL
) STRICT;

INSERT INTO event_line (id, kind, at, actor, data)
    SELECT (team_id << 40) + position, kind, at, actor, data FROM event_log ORDER BY team_id, position;
DROP VIEW event;
DROP TABLE event_log;

CREATE VIEW event_log AS
    SELECT id >> 40 AS team_id, id & 1099511627775 AS position, kind, at, actor, data FROM event_line;
CREATE TRIGGER event_logged INSTEAD OF INSERT ON event_log BEGIN
    INSERT INTO event_line (id, kind, at, actor, data)
        VALUES ((NEW.team_id << 40) + NEW.position, NEW.kind, NEW.at, NEW.actor, NEW.data);
END;

CREATE VIEW event AS SELECT position, team_id, kind, at, actor, data FROM event_log;
CREATE TRIGGER event_recorded INSTEAD OF INSERT ON event BEGIN
    INSERT INTO event_line (id, kind, at, actor, data) VALUES (
        (SELECT coalesce(max(id), NEW.team_id << 40) + 1 FROM event_line
         WHERE id BETWEEN NEW.team_id << 40 AND (NEW.team_id << 40) + 1099511627775),
        NEW.kind, NEW.at, NEW.actor, NEW.data);
END;
