"""A lead and teammates played by functions of what they see.

They remember nothing between requests, so they go on in any process, after any kill, in either wire format. Each
effect carries a token of its own: who made it, and in which of its replies.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bullpen.domain.prompt import AssistantMessage, CallPart, ResultPart, TextPart, UserMessage
from bullpen.domain.transcript import INTERRUPTED_TEXT
from bullpen.provider import ModelRequest
from bullpen.providers.scripted import Call, Script, ScriptedProvider, Step

DONE = "All done."
SIGNS = "signs.txt"
_TASK = re.compile(r'<task id="(\d+)">')
_PLAN = re.compile(r'type="plan_approval_request"[^>]*request_id="(\d+)"')
_FAILED = re.compile(r"#(\d+)[^\n]*failed", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A task of the play. `fails`: its first owner gives it up, and the lead tries it again."""

    subject: str
    blocked_by: tuple[int, ...] = ()
    fails: bool = False


class View:
    """What a member sees when it is asked."""

    def __init__(self, request: ModelRequest) -> None:
        self.me = request.member
        newest = request.messages[-1]
        assert isinstance(newest, UserMessage)
        self.results = [part for part in newest.parts if isinstance(part, ResultPart)]
        self.text = "\n".join(part.text for part in newest.parts if isinstance(part, TextPart))
        spoken = [message for message in request.messages if isinstance(message, AssistantMessage)]
        self.calls = [part for part in spoken[-1].parts if isinstance(part, CallPart)] if spoken else []
        self.token = f"{self.me}-{len(spoken)}"
        self.is_first = not spoken
        parts = [part for message in request.messages for part in message.parts]
        everything = [part.text for part in parts if isinstance(part, TextPart | ResultPart)]
        seen = [found for text in everything for found in _TASK.findall(text)]
        self.task = int(seen[-1]) if seen else None
        self.plan_is_approved = any('type="plan_approval_response"' in text for text in everything)

    @property
    def has_lost_its_task(self) -> bool:
        return "You hold no task" in self.text

    def has_called(self, name: str) -> bool:
        return any(call.name == name for call in self.calls)


def call(name: str, /, **arguments: Any) -> Call:
    return Call(name=name, arguments=arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """`jobs` are the board, in order. `planners`: those who hand in a plan before they begin."""

    jobs: Sequence[Job]
    teammates: Sequence[str]
    planners: frozenset[str] = frozenset()
    uses_bash: bool = True
    writes_mail: bool = True
    delay_seconds: float = 0.0
    command_seconds: float = 0.0
    signs: bool = False
    """Commands say when they begin and end, and on which machine."""

    def provider(self) -> ScriptedProvider:
        steps = {
            name: (Step(make=make, repeat=True, delay_seconds=self.delay_seconds),)
            for name, make in (("lead", self.lead), ("*", self.teammate))
        }
        return ScriptedProvider(Script(steps=steps))

    # -- the lead ------------------------------------------------------------------------------------------

    def lead(self, request: ModelRequest) -> Step:
        view = View(request)
        if view.is_first:
            return Step(say="I split the goal.", calls=(*self._creations(), *map(self._spawn, self.teammates)))
        interrupted = {result.call_id for result in view.results if result.text == INTERRUPTED_TEXT}
        lost = [made for made in view.calls if made.call_id in interrupted and made.name == "Task"]
        if lost:
            return Step(say="Once more.", calls=tuple(call("Task", **made.arguments) for made in lost))
        answers = [
            call("SendMessage", type="plan_approval_response", request_id=number, approve=True, content="Go on.")
            for number in _PLAN.findall(view.text)
        ]
        retries = [call("TaskUpdate", taskId=number, status="pending") for number in _FAILED.findall(view.text)]
        if answers or retries:
            return Step(say="I see to it.", calls=(*answers, *retries))
        return Step(say=DONE if "All tasks are finished" in view.text else f"Noted, {view.token}.")

    def _creations(self) -> list[Call]:
        return [
            call("TaskCreate", subject=job.subject, description=f"Job of {job.subject}", blockedBy=list(job.blocked_by))
            for job in self.jobs
        ]

    def _spawn(self, name: str) -> Call:
        return call("Task", name=name, prompt="Take what you find.", require_plan=name in self.planners)

    # -- a teammate ----------------------------------------------------------------------------------------

    def teammate(self, request: ModelRequest) -> Step:
        view = View(request)
        if view.me in self.planners and not view.plan_is_approved:
            return Step(say="My plan.", calls=(call("submit_plan", plan=f"What I will do, {view.token}"),))
        if view.has_lost_its_task:
            return Step(say=f"It was taken from me, {view.token}.")
        if view.results:
            return self._go_on(view)
        if "<task id=" in view.text or "Your task is still open" in view.text or "Current task: #" in view.text:
            return self._begin(view)
        if 'type="plan_approval_response"' in view.text and view.task is not None:
            return self._begin(view)
        return Step(say=f"Noted, {view.token}.")

    def _begin(self, view: View) -> Step:
        assert view.task is not None
        if self.jobs[view.task - 1].fails and "<handover" not in view.text:
            return Step(calls=(call("TaskUpdate", taskId=view.task, status="failed", result="no way"),))
        calls = []
        if self.uses_bash:
            effect = f"echo {view.task} {view.token} >> effects.txt"
            sign = f"; echo $MACHINE {view.me} $(date +%s.%N) >> {SIGNS}" if self.signs else ""
            calls.append(call("bash", command=f"{effect}{sign}; sleep {self.command_seconds}{sign}"))
        if self.writes_mail:
            other = self.teammates[(list(self.teammates).index(view.me) + 1) % len(self.teammates)]
            calls.append(call("SendMessage", recipient=other, content=f"about {view.task}, {view.token}"))
        calls.append(call("TaskList", status="in_progress"))
        return Step(say=f"I begin #{view.task}.", calls=tuple(calls))

    def _go_on(self, view: View) -> Step:
        if view.has_called("TaskUpdate"):
            return Step(say=f"#{view.task} is off my hands, {view.token}.")
        if view.has_called("write_file") or not self.uses_bash:
            result = f"did it, {view.token}"
            return Step(calls=(call("TaskUpdate", taskId=view.task, status="completed", result=result),))
        if view.has_called("TaskList"):
            return Step(calls=(call("write_file", path=f"out/{view.token}.txt", content=f"{view.task} {view.token}"),))
        return Step(say=f"Noted, {view.token}.")


def layered(count: int, width: int) -> tuple[Job, ...]:
    """A board in layers: each task waits for two of the layer before it."""
    jobs = []
    for number in range(1, count + 1):
        first = ((number - 1) // width - 1) * width + 1
        place = (number - 1) % width
        blockers = {first + place, first + (place + 1) % width} if first > 0 else set()
        jobs.append(Job(subject=f"job {number}", blocked_by=tuple(sorted(blockers))))
    return tuple(jobs)
