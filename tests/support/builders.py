"""A team that builds a small real project, each member in a worktree of its own, with every task in the others' way.

Members remember nothing between requests: they go on in any process, after any kill.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from bullpen.domain.member import USER, MemberRef
from bullpen.domain.prompt import AssistantMessage, CallPart, ResultPart, TextPart
from bullpen.provider import ModelRequest
from bullpen.providers.scripted import Call, ScriptedProvider, Step
from bullpen.team import Team, open_team
from tests.support.processes import Line
from tests.support.repository import make_repository, write

CHECK = "python3 -m unittest -q"
PROJECT = {
    "shop/__init__.py": "",
    # Every task adds a line at the same place.
    "shop/prices.py": "PRICES = [\n]\n",
    "shop/names.txt": "",
    "tests/__init__.py": "",
    "tests/test_shop.py": """\
import importlib
import pathlib
import unittest

from shop.prices import PRICES


class TestShop(unittest.TestCase):
    def test_each_item_has_one_price_a_name_and_a_module(self):
        numbers = [number for _, number in PRICES]
        self.assertEqual(len(numbers), len(set(numbers)))
        names = pathlib.Path("shop/names.txt").read_text().split()
        self.assertEqual(sorted(names), sorted(name for name, _ in PRICES))
        for name, number in PRICES:
            self.assertEqual(importlib.import_module(f"shop.{name}").NUMBER, number)
""",
    # What a member does: the edit, and after a conflict both sides of it.
    "build.py": """\
import pathlib
import sys

number = int(sys.argv[1])
prices, names = pathlib.Path("shop/prices.py"), pathlib.Path("shop/names.txt")
entry, name = f'    ("item{number}", {number}),', f"item{number}"
entries = {line for line in prices.read_text().splitlines() if line.startswith("    (")} | {entry}
prices.write_text("\\n".join(["PRICES = [", *sorted(entries), "]", ""]))
known = {line for line in names.read_text().splitlines() if line.startswith("item")} | {name}
names.write_text("".join(f"{line}\\n" for line in sorted(known)))
pathlib.Path(f"shop/{name}.py").write_text(f"NUMBER = {number}\\n")
""",
}
_TASK = re.compile(r'<task id="(\d+)">|Current task: #(\d+)')


def make_project(directory: Path) -> Path:
    """With unsaved work of the user's in it."""
    project = make_repository(directory, PROJECT)
    write(project, {"shop/names.txt": "not a name yet", "untracked.txt": "mine\n"})
    return project


async def prepare(team: Team, members: Sequence[str], tasks: int) -> None:
    for number in range(1, tasks + 1):
        await team.create_task(f"Add item {number}", check=CHECK)
    user = MemberRef(team.id, USER, 0)
    for name in members:
        await team.store.spawn_member(user, name)


def provider() -> ScriptedProvider:
    return ScriptedProvider(
        {"lead": (Step(make=_lead, repeat=True),), "*": (Step(make=_builder, repeat=True),)},
    )


def _lead(request: ModelRequest) -> Step:
    return Step(say="All done.")


def _builder(request: ModelRequest) -> Step:
    parts = [part for message in request.messages for part in message.parts]
    texts = [part.text for part in parts if isinstance(part, TextPart | ResultPart)]
    tasks = [match[1] or match[2] for text in texts for match in _TASK.finditer(text)]
    newest = [part.text for part in request.messages[-1].parts if isinstance(part, TextPart | ResultPart)]
    if not tasks or any("[completed" in text for text in newest) or "You hold no task" in newest[0]:
        return Step(say="I am done with it.")
    spoken = [message for message in request.messages if isinstance(message, AssistantMessage)]
    last = [part.name for part in spoken[-1].parts if isinstance(part, CallPart)] if spoken else []
    if last == ["bash"] and any("[exit code 0]" in text for text in newest):
        done = {"taskId": tasks[-1], "status": "completed", "result": f"item {tasks[-1]} added, the tests pass"}
        return Step(calls=(Call(name="TaskUpdate", arguments=done),))
    return Step(calls=(Call(name="bash", arguments={"command": f"python3 build.py {tasks[-1]}"}),))


async def build(line: Line, url: str, name: str, workspace: str, has_room: bool = True) -> None:
    """Host the team until it is done; says `up` when it begins and `over` with how it ended."""
    script = provider()
    async with open_team(
        name, store=url, create=False, model="scripted:build", open_model=lambda model, **_: script, workspace=workspace
    ) as team:
        await line.say("up")
        report = await team.run()
        await line.say("over", outcome=report.outcome, text=report.text, lines=report.lines)
