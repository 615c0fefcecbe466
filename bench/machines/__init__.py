"""One team on many workers: how fast another takes over, what a crowd costs, what a task costs the database."""
