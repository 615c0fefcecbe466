"""What a member may do unasked: a pure policy. It guards against accidents; the wall is the sandbox."""

from bullpen.permissions.policy import Decision, Rules, Verdict, decide, grant_pattern

__all__ = ["Decision", "Rules", "Verdict", "decide", "grant_pattern"]
