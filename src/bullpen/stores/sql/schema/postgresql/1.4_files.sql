-- Who touches what: the files of a task, as globs. Only adds: a Bullpen of 1.3 goes on working beside it.
--
-- A list in JSON. Whether two tasks could touch the same file is decided by the claim
-- (domain/files.py), among the tasks in progress: as many as there are members, and an
-- index of them is there already.

ALTER TABLE task ADD COLUMN files text NOT NULL DEFAULT '[]';
