"""What goes wrong between a team and its models: waited for and tried again, or told once; nothing is ever lost."""

from __future__ import annotations

import asyncio
import math
import time
from pathlib import Path

import pytest

from bullpen.agent import governor
from bullpen.domain.event import EventKind
from bullpen.domain.message import Message, MessageType
from bullpen.domain.task import TaskStatus
from bullpen.provider import ModelRequest
from bullpen.providers.scripted import Step
from bullpen.team import Outcome, Team
from tests.support.cast import Job, Play, View, call
from tests.support.company import Wire, acting, company, in_turn, playing
from tests.support.invariants import check_invariants
from tests.support.protocol_server import Answer, Cut, Fault, Garbage, HangUp, Heard, Slow, Status, StreamError
from tests.support.protocol_server.fault import Plan
from tests.support.troupe import events_of, settings

WHOLE = [Wire("anthropic", False), Wire("openai", False)]
PLAY = Play(
    jobs=(Job(subject="read"), Job(subject="write", blocked_by=(1,)), Job(subject="test", blocked_by=(2,))),
    teammates=("ana", "ben"),
)


@pytest.fixture
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries come at once: what is tested is that they come, and how often."""
    monkeypatch.setattr(governor, "FIRST_DELAY_SECONDS", 0.01)
    monkeypatch.setattr(governor, "MAX_DELAY_SECONDS", 0.01)


@pytest.fixture(params=WHOLE, ids=lambda wire: wire.format)
def whole(request: pytest.FixtureRequest) -> Wire:
    found: Wire = request.param
    return found


async def errors_of(team: Team, name: str) -> list[Message]:
    return [message for message in await team.list_mail(name) if message.type is MessageType.ERROR]


# -- for a while ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("short_delays")
async def test_what_goes_wrong_for_a_while_is_tried_again_and_the_board_is_finished(wire: Wire, tmp_path: Path) -> None:
    faults: list[Fault] = [
        Status(status=429),
        Status(status=429, retry_after="0"),
        Status(status=500),
        Status(status=529),
        HangUp(),
        Garbage(),
        Garbage(body="", content_type="text/html"),
        Cut(events=2),
    ]
    if wire.is_streamed:
        faults += [Cut(events=3, clean=True), StreamError()]
    async with company(wire, playing(PLAY), tmp_path) as here:
        for number, fault in enumerate(faults):
            # Spread over the run: each of these conversations meets some of them.
            length = 1 + 2 * (number // 3)
            here.server.inject(fault, when=lambda heard, length=length: len(heard.request.messages) == length)  # type: ignore[misc]
        report = await here.run()
        assert report.outcome is Outcome.DONE
        await check_invariants(here.team.store, here.team.id, tmp_path)
        assert await errors_of(here.team, "user") == []
    here.check_legal()
    assert sum(here.server.ledger.faults.values()) == len(faults)


@pytest.mark.usefixtures("short_delays")
async def test_an_answer_that_does_not_come_in_time_is_asked_for_again(wire: Wire, tmp_path: Path) -> None:
    # The second answer must come in time, on a busy machine, too.
    async with company(wire, acting({"lead": in_turn("Done.")}), tmp_path, timeout_seconds=3.0) as here:
        here.server.inject(Slow())
        report = await here.run()
    assert (report.outcome, report.text) == (Outcome.DONE, "Done.")
    assert len(here.server.heard) == 2


class Wave(Plan):
    """The first `size` requests of teammates are held until all are there, then each is told to wait."""

    def __init__(self, size: int, retry_after: str) -> None:
        super().__init__()
        self.all_there = asyncio.Event()
        self.arrivals: list[float] = []
        self._size = size
        self._fault = Status(status=429, retry_after=retry_after, until=self.all_there)

    def take(self, heard: Heard) -> Fault | None:
        if heard.member == "lead":
            return None
        self.arrivals.append(time.monotonic())
        if len(self.arrivals) == self._size:
            self.all_there.set()
        return self._fault if len(self.arrivals) <= self._size else None


async def test_twenty_who_are_told_to_wait_do_so_and_come_back_one_after_the_other(whole: Wire, tmp_path: Path) -> None:
    names = [f"mate{number}" for number in range(20)]
    peaks: list[int] = []
    inside = 0

    async def teammate(heard: Heard) -> Answer | str:
        nonlocal inside
        inside += 1
        peaks.append(inside)
        # As long as a model thinks, others could come.
        await asyncio.sleep(0.05)
        inside -= 1
        return "Here."

    lead = in_turn(
        Step(calls=tuple(call("Task", name=name, prompt="Say that you are here.") for name in names)), "I wait."
    )

    def answer(heard: Heard) -> Answer | str | object:
        if heard.member != "lead":
            return teammate(heard)
        return acting({"lead": lambda request: "Noted." if len(request.messages) > 3 else lead(request)})(heard)

    wave = Wave(len(names), retry_after="1")
    crowded = settings(max_teammates=len(names), budget={"max_cost_usd": 100})
    async with company(whole, answer, tmp_path, settings=crowded) as here:  # type: ignore[arg-type]
        here.server.follow(wave)
        report = await here.run()
        spoke = {event.data["member"] for event in await events_of(here.team, EventKind.PHASE_ENDED)}
    here.check_legal()
    assert report.outcome is Outcome.DONE
    assert spoke == {"lead", *names}
    assert len(wave.arrivals) == 2 * len(names), "each was refused once and answered once"
    assert wave.arrivals[len(names)] - wave.arrivals[len(names) - 1] >= 1.0, "nobody came before the time"
    for place, peak in enumerate(peaks):
        assert peak <= 2 + math.sqrt(2 * place), f"a stampede: {peaks}"


# -- for good --------------------------------------------------------------------------------------------------

REFUSALS: dict[str, tuple[dict[str, object], str]] = {
    "key": ({"keys": ("another",)}, "refuses the key"),
    "model": ({"models": ("another",)}, "there is no model"),
    "window": ({"window_tokens": 1_000}, "longer than the window"),
}


@pytest.mark.parametrize("kind", REFUSALS)
async def test_a_refusal_for_good_is_told_once_and_the_next_run_goes_on_with_the_goal(
    whole: Wire, tmp_path: Path, kind: str
) -> None:
    options, words = REFUSALS[kind]
    async with company(whole, acting({}), tmp_path, **options) as here:  # type: ignore[arg-type]
        report = await here.run("Say hello.")
        assert report.outcome is Outcome.ERROR
        [line] = report.lines
        assert words in line
        [told] = await errors_of(here.team, "user")
        assert told.content == line
        assert here.server.ledger.requests <= 3, "asking again does not help; once with less, if it was too long"
    async with company(whole, acting({"lead": in_turn("Hello.", "Hello again.")}), tmp_path) as here:
        report = await here.team.run(max_minutes=1)
        assert (report.outcome, report.text) == (Outcome.DONE, "Hello.")
        assert len(await errors_of(here.team, "user")) == 1
    here.check_legal()
    assert "Say hello." in str(here.server.heard[0].request.messages)


async def test_teammates_whose_model_is_not_there_are_told_of_once_and_their_tasks_go_to_others(
    whole: Wire, tmp_path: Path
) -> None:
    names = ("ana", "ben", "cy")
    missing = f"{whole.format}:no-such-model"

    def lead(request: ModelRequest) -> Step | str:
        view = View(request)
        if view.is_first:
            tasks = [call("TaskCreate", subject=f"part {number}") for number in range(1, 4)]
            return Step(calls=(*tasks, *(call("Task", name=name, prompt="Work.", model=missing) for name in names)))
        if 'type="error"' in view.text:
            return Step(calls=(call("Task", name="dee", prompt="Work."),))
        return "Noted."

    def dee(request: ModelRequest) -> Step | str:
        view = View(request)
        if "<task" in view.text:
            return Step(calls=(call("TaskUpdate", taskId=view.task, status="completed", result="done"),))
        return "Finished."

    known = whole.model.partition(":")[2]
    async with company(whole, acting({"lead": lead, "dee": dee}), tmp_path, models=(known,)) as here:
        report = await here.run()
        assert report.outcome is Outcome.DONE
        assert {(task.status, task.owner) for task in report.tasks} == {(TaskStatus.COMPLETED, "dee")}
        for name in ("lead", "user"):
            [told] = await errors_of(here.team, name)
            assert missing in told.content
    assert all("model" in refusal for refusal in here.server.ledger.refusals)
    assert len(here.server.ledger.refusals) == len(names)


@pytest.mark.usefixtures("short_delays")
async def test_after_an_outage_that_outlasts_everyones_patience_the_next_run_finishes_the_board(
    whole: Wire, tmp_path: Path
) -> None:
    async with company(whole, playing(PLAY), tmp_path) as here:
        here.server.inject(Status(status=503), times=1_000, when=_in_the_middle)
        report = await here.run()
        assert report.outcome is Outcome.ERROR
        assert len(await errors_of(here.team, "user")) == 1
        assert "Service unavailable" in report.lines[0]
    async with company(whole, playing(PLAY), tmp_path) as here:
        report = await here.team.run(max_minutes=1)
        assert report.outcome is Outcome.DONE, report
        await check_invariants(here.team.store, here.team.id, tmp_path)
    here.check_legal()


def _in_the_middle(heard: Heard) -> bool:
    """The team is formed and the first task is taken up; then nobody is answered any more."""
    return len(heard.request.messages) > 3 or (heard.member == "lead" and len(heard.request.messages) > 1)


async def test_a_conversation_that_the_server_finds_too_long_is_compacted_and_goes_on(
    whole: Wire, tmp_path: Path
) -> None:
    def lead(request: ModelRequest) -> Step | str:
        view = View(request)
        if "<summary>" in str(request.messages[0]):
            return "Done."
        number = int(view.token.partition("-")[2])
        return Step(calls=(call("bash", command=f"head -c 29000 /dev/zero | tr '\\0' {number % 10}"),))

    rich = settings(budget={"max_cost_usd": 100})
    async with company(whole, acting({"lead": lead}), tmp_path, settings=rich, window_tokens=40_000) as here:
        report = await here.run("Read much.")
    assert (report.outcome, report.text) == (Outcome.DONE, "Done.")
    assert len(here.server.ledger.refusals) == 2, "the turn, and the summary of so much"
    assert all("too long" in refusal or "maximum context" in refusal for refusal in here.server.ledger.refusals)
    assert "<identity>" in str(here.server.heard[-1].request.messages[0])
