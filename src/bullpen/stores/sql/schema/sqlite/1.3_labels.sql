-- A member may ask for labels: only a worker that has them all hosts it. Only adds: for an older Bullpen nobody asks.

ALTER TABLE member ADD COLUMN labels text NOT NULL DEFAULT '[]';
