"""What must be true of a team whatever was killed: read from its log, its transcripts and what it left behind."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bullpen.agent.context import build_context
from bullpen.domain.budget import TEAM_ACCOUNT
from bullpen.domain.event import Event, EventKind
from bullpen.domain.member import LEAD, USER
from bullpen.domain.message import Message, MessageType
from bullpen.domain.prompt import AssistantMessage, CallPart, ChatMessage, ResultPart, TextPart
from bullpen.domain.task import Task, TaskStatus
from bullpen.domain.transcript import INTERRUPTED_TEXT, CallState, ToolCall, Turn, TurnKind
from bullpen.store import Store
from tests.support.protocol_server import anthropic_format
from tests.support.stores import all_events

NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """All that is known of a team that has ended."""

    events: list[Event]
    turns: dict[str, list[Turn]]
    calls: dict[str, list[ToolCall]]
    mail: list[Message]

    def of(self, *kinds: EventKind) -> list[Event]:
        return [event for event in self.events if event.kind in kinds]

    @property
    def interrupted(self) -> list[ToolCall]:
        return [call for calls in self.calls.values() for call in calls if call.state is CallState.INTERRUPTED]


async def past_of(store: Store, team_id: int) -> Past:
    names = [member.name for member in await store.list_members(team_id)]
    return Past(
        events=await all_events(store, team_id),
        turns={name: await store.list_turns(team_id, name) for name in names},
        calls={name: await store.list_calls(team_id, name) for name in names},
        mail=[message for name in names for message in await store.list_mail(team_id, name, limit=100_000)],
    )


async def check_invariants(store: Store, team_id: int, workspace: Path) -> Past:
    past = await past_of(store, team_id)
    try:
        await _check_all(store, team_id, workspace, past)
    except AssertionError as error:
        # Seen once in a thousand runs, on a machine that is gone by then: all that is left is what is said here.
        error.add_note(
            "\n".join(f"{event.at:%H:%M:%S.%f} {event.actor} {event.kind} {event.data}" for event in past.events)
        )
        raise
    return past


async def _check_all(store: Store, team_id: int, workspace: Path, past: Past) -> None:
    await check_tasks(store, team_id, past)
    check_holders(past)
    check_deaths(past)
    check_mail(past)
    check_calls(past)
    check_effects(past, workspace)
    check_incarnations(past)
    for turns in past.turns.values():
        check_legal(turns)
    check_results(past)
    await check_accounts(store, team_id, past)


async def check_crowd(store: Store, team_id: int) -> dict[str, int]:
    """Of a team without a lead at work, too large to look at everything in every way; what was counted."""
    past = await past_of(store, team_id)
    check_done_once(await store.list_tasks(team_id), past)
    check_holders(past)
    check_mail(past)
    check_calls(past)
    check_incarnations(past)
    check_results(past)
    await check_accounts(store, team_id, past)
    completed = Counter(event.data["task"] for event in past.of(EventKind.TASK_COMPLETED))
    return {
        "tasks completed": len(completed),
        "done twice": sum(number > 1 for number in completed.values()),
        "claims": len(past.of(EventKind.TASK_CLAIMED)),
        "events": len(past.events),
        "members who worked": len({event.actor for event in past.of(EventKind.TASK_COMPLETED)}),
    }


# -- the board and the mail ---------------------------------------------------------------------------------


async def check_tasks(store: Store, team_id: int, past: Past) -> None:
    tasks = await store.list_tasks(team_id)
    check_done_once(tasks, past)
    created = Counter(event.data["task"] for event in past.of(EventKind.TASK_CREATED))
    assert created == {task.id: 1 for task in tasks}, "a TaskCreate was done twice"
    order = {event.data["task"]: place for place, event in enumerate(past.of(EventKind.TASK_COMPLETED))}
    for task in tasks:
        assert all(order[blocker] < order[task.id] for blocker in task.blocked_by)


def check_done_once(tasks: Sequence[Task], past: Past) -> None:
    assert {task.status for task in tasks} == {TaskStatus.COMPLETED}
    completed = Counter(event.data["task"] for event in past.of(EventKind.TASK_COMPLETED))
    assert completed == {task.id: 1 for task in tasks}


def check_mail(past: Past) -> None:
    sent = Counter(event.data["message"] for event in past.of(EventKind.MESSAGE_SENT))
    taken = [event.data for event in past.of(EventKind.MESSAGE_DELIVERED)]
    delivered = Counter(data["message"] for data in taken if data.get("turn") is not None)
    withdrawn = {data["message"] for data in taken if data.get("turn") is None}
    assert set(sent.values()) <= {1}
    assert set(delivered.values()) <= {1}, "a message was delivered twice"
    asked_to_stop = {message.id for message in past.mail if message.type is MessageType.SHUTDOWN_REQUEST}
    assert withdrawn <= asked_to_stop - set(delivered), "only a shutdown that is over is withdrawn unread"
    shown = Counter(
        entry["message"]
        for turns in past.turns.values()
        for turn in turns
        if turn.kind == TurnKind.MAIL
        for entry in turn.content
    )
    assert shown == delivered, "what was delivered stands in a transcript once, and nothing else does"
    lost = [
        message for message in past.mail if message.recipient != USER and message.wakes and message.delivered_at is None
    ]
    assert not lost, lost
    assert sorted(message.id for message in past.mail) == sorted(sent)
    check_order(past)
    written = Counter((message.sender, message.content) for message in past.mail if message.type is MessageType.MESSAGE)
    asked = Counter(
        (name, call.arguments["content"])
        for name, calls in past.calls.items()
        for call in calls
        if call.name == "SendMessage" and call.state is CallState.FINISHED and not call.is_error
        # Answers to requests are written by the runtime.
        if call.arguments.get("type", MessageType.MESSAGE) == MessageType.MESSAGE
    )
    assert all(written[key] == count for key, count in asked.items()), "a message was lost, or sent twice"


def check_order(past: Past) -> None:
    """What one sender wrote to one member stands there in the order in which it was written."""
    senders = {message.id: message.sender for message in past.mail}
    for turns in past.turns.values():
        shown = [entry["message"] for turn in turns if turn.kind == TurnKind.MAIL for entry in turn.content]
        for sender in set(senders.values()):
            theirs = [number for number in shown if senders[number] == sender]
            assert theirs == sorted(theirs)


def check_deaths(past: Past) -> None:
    """The lead is told once of each worker that died with teammates; what they held was kept for them or returned."""
    told = Counter(
        message.content for message in past.mail if message.recipient == LEAD and " died; " in message.content
    )
    died = [event for event in past.of(EventKind.WORKER_LAPSED) if event.data["members"] != [LEAD]]
    assert sum(told.values()) == len(died)
    assert set(told.values()) <= {1}


def check_holders(past: Past) -> None:
    """In the order of the log: a task is held by one member at a time, and finished by the one who holds it."""
    holders: dict[int, str | None] = {}
    for event in past.of(
        EventKind.TASK_CLAIMED, EventKind.TASK_RELEASED, EventKind.TASK_COMPLETED, EventKind.TASK_FAILED
    ):
        number = event.data["task"]
        match event.kind:
            case EventKind.TASK_CLAIMED:
                assert holders.get(number) is None, f"#{number} was claimed while {holders[number]} held it"
                assert event.actor not in holders.values(), f"{event.actor} holds two tasks"
                holders[number] = event.actor
            case EventKind.TASK_RELEASED:
                assert holders[number] == event.data["owner"]
                holders[number] = None
            case EventKind.TASK_COMPLETED | EventKind.TASK_FAILED:
                assert holders[number] == event.actor, f"#{number} was finished by {event.actor}, who did not hold it"
                holders[number] = None


def check_results(past: Past) -> None:
    """What a work phase ends with goes to the lead once."""
    ended = Counter(
        event.data["member"]
        for event in past.of(EventKind.PHASE_ENDED)
        if event.data["member"] != "lead" and event.data["result"].strip()
    )
    told = Counter(message.sender for message in past.mail if message.type is MessageType.RESULT)
    assert told == ended


# -- calls and what they did --------------------------------------------------------------------------------


def check_calls(past: Past) -> None:
    for name, calls in past.calls.items():
        asked = [
            part["call_id"]
            for turn in past.turns[name]
            if turn.kind == TurnKind.ASSISTANT
            for part in turn.content["parts"]
            if part["type"] == "call"
        ]
        answered = {
            turn.content["call_id"]: turn.content["text"]
            for turn in past.turns[name]
            if turn.kind == TurnKind.TOOL_RESULT
        }
        count = sum(turn.kind == TurnKind.TOOL_RESULT for turn in past.turns[name])
        assert sorted(asked) == sorted(answered) == sorted(call.call_id for call in calls)
        assert count == len(answered), "a call has two results"
        for call in calls:
            assert call.state in (CallState.FINISHED, CallState.INTERRUPTED)
            assert answered[call.call_id] == call.result
            assert (call.state is CallState.INTERRUPTED) == (call.result == INTERRUPTED_TEXT)
        ended = [event for event in past.of(EventKind.TOOL_CALL_FINISHED) if event.actor == name]
        assert Counter(event.data["call"] for event in ended) == dict.fromkeys(asked, 1)


def check_effects(past: Past, workspace: Path) -> None:
    file = workspace / "effects.txt"
    # It is not there if each command was cut off before it did anything.
    lines = Counter(file.read_text().splitlines() if file.exists() else ())
    for call in [call for calls in past.calls.values() for call in calls]:
        if call.name == "bash":
            effect = call.arguments["command"].removeprefix("echo ").partition(" >> effects.txt")[0]
            done = lines.pop(effect, 0)
            assert done == 1 if call.state is CallState.FINISHED else done <= 1, (call, done)
        elif call.name == "write_file" and call.state is CallState.FINISHED:
            assert (workspace / call.arguments["path"]).read_text() == call.arguments["content"]
    assert not lines, "something was done that nobody asked for"


# -- who wrote ----------------------------------------------------------------------------------------------


def check_incarnations(past: Past) -> None:
    """In the order of the log: whoever writes is the incarnation that was hosted last, and has not lapsed since."""
    by_seq = {(name, turn.seq): turn for name, turns in past.turns.items() for turn in turns}
    living: dict[str, int | None] = {}
    for event in past.events:
        match event.kind:
            case EventKind.MEMBER_HOSTED:
                before = living.get(event.data["member"])
                assert before is None, "hosted although somebody hosted it"
                living[event.data["member"]] = event.data["incarnation"]
            case EventKind.MEMBER_JOINED:
                living[event.data["member"]] = 1
            case EventKind.MEMBER_LAPSED | EventKind.MEMBER_SHUT_DOWN:
                living[event.data["member"]] = None
            case EventKind.TURN_RECORDED:
                turn = by_seq[event.data["member"], event.data["seq"]]
                assert turn.incarnation == living[event.data["member"]]
            case EventKind.TOOL_CALL_STARTED | EventKind.TASK_COMPLETED | EventKind.PHASE_ENDED:
                assert living[event.actor] is not None
    for turns in past.turns.values():
        assert [turn.seq for turn in turns] == list(range(1, len(turns) + 1))


# -- what was done elsewhere than in the store ---------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """A model that was asked, a command that ran: for whom, on which machine, and when."""

    what: str
    member: str
    machine: str
    at: datetime


def check_deeds(past: Past, deeds: Sequence[Deed], machines: Mapping[int, str]) -> None:
    """Nothing is done for a member but where it is hosted at that moment. `machines`: where each worker ran."""
    stays = list_stays(past)
    for deed in deeds:
        known = [stay for stay in stays if stay.member == deed.member and machines[stay.worker] == deed.machine]
        assert any(stay.begun_at <= deed.at <= stay.ended_at for stay in known), (deed, known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """A member on a worker."""

    member: str
    worker: int
    begun_at: datetime
    ended_at: datetime = NEVER


def list_stays(past: Past) -> list[Stay]:
    open_ones: dict[str, Stay] = {}
    over: list[Stay] = []
    for event in past.of(EventKind.MEMBER_HOSTED, EventKind.MEMBER_LAPSED, EventKind.MEMBER_SHUT_DOWN):
        name = event.data["member"]
        if name in open_ones:
            over.append(replace(open_ones.pop(name), ended_at=event.at))
        if event.kind == EventKind.MEMBER_HOSTED:
            open_ones[name] = Stay(member=name, worker=event.data["worker"], begun_at=event.at)
    return [*over, *open_ones.values()]


# -- what was sent to the model -----------------------------------------------------------------------------


def check_legal(turns: Sequence[Turn]) -> None:
    """Every request that led to a reply was legal, and so is the next one."""
    for place, turn in enumerate(turns):
        if turn.kind == TurnKind.ASSISTANT:
            check_request(build_context(turns[:place]))
    if turns:
        messages = build_context(turns)
        is_over = isinstance(messages[-1], AssistantMessage)
        check_request(messages[:-1] if is_over else messages)


def check_request(messages: Sequence[ChatMessage]) -> None:
    body: dict[str, Any] = {
        "model": "m",
        "max_tokens": 1,
        "tools": [{"name": "any", "input_schema": {"type": "object"}}],
        "messages": [
            {
                "role": "assistant" if isinstance(message, AssistantMessage) else "user",
                "content": [block for part in message.parts if (block := _block(part)) is not None],
            }
            for message in messages
        ],
    }
    anthropic_format.hear(body, json.dumps(body))


def _block(part: Any) -> dict[str, Any] | None:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case CallPart():
            return {"type": "tool_use", "id": part.call_id, "name": part.name, "input": dict(part.arguments)}
        case ResultPart():
            return {"type": "tool_result", "tool_use_id": part.call_id, "content": part.text, "is_error": part.is_error}
    return None


# -- money --------------------------------------------------------------------------------------------------


async def check_accounts(store: Store, team_id: int, past: Past) -> None:
    """What was spent is what the log says of each reservation: answered, or written off after a death."""
    team, *members = await store.list_accounts(team_id)
    assert team.member_key == TEAM_ACCOUNT
    answered, written_off = past.of(EventKind.MODEL_ANSWERED), past.of(EventKind.BUDGET_WRITTEN_OFF)
    settled = [event.data["reservation"] for event in (*answered, *written_off)]
    assert len(settled) == len(set(settled)), "a reservation was settled twice"
    assert team.calls == len(settled)
    assert team.open_calls == 0, "a reservation was neither settled nor written off"
    assert team.input_tokens == sum(event.data["input_tokens"] for event in answered) + sum(
        event.data["tokens"] for event in written_off
    )
    assert team.output_tokens == sum(event.data["output_tokens"] for event in answered)
    for field in ("calls", "input_tokens", "output_tokens", "open_calls", "open_tokens"):
        assert getattr(team, field) == sum(getattr(member, field) for member in members), field
