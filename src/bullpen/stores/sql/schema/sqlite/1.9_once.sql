-- 1.6 gave SQLite the same index a second time: `member_by_status` of 1.0 has these columns here, in PostgreSQL it has
-- not. Each change of a member's status wrote both. A Bullpen of 1.8 goes on working beside it, by the first.

DROP INDEX member_by_waiting;
