-- What one member has handed in, which it asks for at each claim; without it that grew with what the whole team has
-- made. Only adds an index.

CREATE INDEX submission_of_member ON submission (team_id, member_key, id);
