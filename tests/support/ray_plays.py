"""A team for other machines: played by a script in a file, because its members are asked in processes of their own.

Nobody begins the same task twice, so each effect has a name of its own, as `invariants` wants it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.cast import Job

_STEPS = """
[[members.lead]]
when = {{ context = "All tasks are finished" }}
say = "All done."
repeat = true

[[members.lead]]
calls = [{calls}]

[[members.lead]]
say = "I wait."
repeat = true

[[members."*"]]
when = {{ newest_matches = "did it|interrupted, outcome unknown" }}
repeat = true
calls = [{{ name = "TaskUpdate", arguments = {{ taskId = "{{{{task_id}}}}", status = "completed", result = "done" }} }}]

[[members."*"]]
when = {{ newest_matches = "<task id=|Current task: #" }}
repeat = true
calls = [{{ name = "bash", arguments = {{ command = "{command}" }} }}]

[[members."*"]]
say = "Nothing more to do for {{{{member}}}}."
repeat = true
"""


def script(jobs: Sequence[Job], teammates: Sequence[str], *, seconds: float = 0.2) -> str:
    """Each task is a command that takes so long and leaves a line behind."""
    calls = [
        f'{{ name = "TaskCreate", arguments = {{ subject = "{job.subject}", blockedBy = {list(job.blocked_by)} }} }}'
        for job in jobs
    ]
    calls += [
        f'{{ name = "Task", arguments = {{ name = "{name}", prompt = "Take what you find." }} }}' for name in teammates
    ]
    command = f"echo {{{{task_id}}}} {{{{member}}}} >> effects.txt; sleep {seconds}; echo did it"
    return _STEPS.format(calls=", ".join(calls), command=command)
