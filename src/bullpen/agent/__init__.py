"""What a member does: its context, its turns, its loop."""
