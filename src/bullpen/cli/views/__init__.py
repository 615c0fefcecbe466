"""What people see of a task, a team, mail and the log: pure functions onto a `Page`."""
