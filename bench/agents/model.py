"""What the protocol server answers in these benchmarks: a lead who only spawns, teammates who read files.

It remembers nothing: how many turns a task takes stands in its description (`turns=4`), and how far one has
come is counted in the conversation.
"""

from __future__ import annotations

import re
from typing import Any

from bullpen.domain.prompt import AssistantMessage, CallPart, TextPart, UserMessage
from tests.support.protocol_server import Answer, Heard

FILES = 20
_SPAWN = re.compile(r"Spawn (\d+) teammates")
_TASK = re.compile(r'<task id="(\d+)">.*?turns=(\d+)', re.DOTALL)


def goal_of(teammates: int) -> str:
    """What the lead is told so that it spawns them."""
    return f"Spawn {teammates} teammates."


def names_of(teammates: int) -> list[str]:
    return [f"mate{number}" for number in range(1, teammates + 1)]


def act(heard: Heard) -> Answer | str:
    spoken = sum(isinstance(message, AssistantMessage) for message in heard.request.messages)
    return _lead(heard, spoken) if heard.member == "lead" else _teammate(heard, spoken)


def _lead(heard: Heard, spoken: int) -> Answer | str:
    found = _SPAWN.search(heard.text)
    if found is None:
        return "Noted."
    return _calls(
        spoken, "I spawn them.", *(("Task", {"name": name, "prompt": "Work."}) for name in names_of(int(found[1])))
    )


def _teammate(heard: Heard, spoken: int) -> Answer | str:
    place = _place(heard)
    if place is None:
        return "There is nothing to do."
    task_id, turns, done = place
    if done < turns - 2:
        return _calls(spoken, f"I look at file {spoken}.", ("read_file", {"path": f"{spoken % FILES}.txt"}))
    if done == turns - 2:
        return _calls(
            spoken, "That is all.", ("TaskUpdate", {"taskId": task_id, "status": "completed", "result": "read"})
        )
    return f"Task {task_id} is done: I have read what there was."


def _place(heard: Heard) -> tuple[int, int, int] | None:
    """The task that was handed over last, its turns, and the replies since then."""
    done = 0
    for message in reversed(heard.request.messages):
        if isinstance(message, UserMessage):
            for part in message.parts:
                if isinstance(part, TextPart) and (found := _TASK.search(part.text)):
                    return int(found[1]), int(found[2]), done
        else:
            done += 1
    return None


def _calls(spoken: int, text: str, *calls: tuple[str, dict[str, Any]]) -> Answer:
    parts = [
        CallPart(call_id=f"call_{spoken}_{number}", name=name, arguments=arguments)
        for number, (name, arguments) in enumerate(calls)
    ]
    return Answer(parts=(TextPart(text), *parts))
