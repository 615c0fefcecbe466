-- Whom a task wakes is the one of a team who has waited longest. Read in this order, the first few are enough, however
-- many members there are; without it all of them were looked at for each claim. Only adds an index.

CREATE INDEX member_by_waiting ON member (team_id, status, status_at, name_key);
