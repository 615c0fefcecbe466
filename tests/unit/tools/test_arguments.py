"""What models write is understood generously, and where that is not possible, told clearly."""

from __future__ import annotations

from typing import Any

import pytest

from bullpen.errors import ToolError
from bullpen.tools.arguments import read_arguments
from bullpen.tools.board import TASK_CREATE, TASK_UPDATE
from bullpen.tools.files import EDIT_FILE, READ_FILE
from bullpen.tools.mail import SEND_MESSAGE


@pytest.mark.parametrize("written", [3, "3", "#3", 3.0, " #3 "])
@pytest.mark.parametrize("name", ["taskId", "task_id", "TASKID", "task-id", "id"])
def test_a_task_is_named_in_many_ways(name: str, written: Any) -> None:
    assert read_arguments(TASK_UPDATE, {name: written})[0] == {"taskId": 3}


@pytest.mark.parametrize("written", ["Completed", "COMPLETED", "completed"])
def test_a_choice_may_have_any_case(written: str) -> None:
    assert read_arguments(TASK_UPDATE, {"taskId": 1, "status": written})[0]["status"] == "completed"


@pytest.mark.parametrize("written", ["in_progress", "in progress", "In-Progress", "inProgress"])
def test_words_of_a_choice_may_be_joined_in_any_way(written: str) -> None:
    assert read_arguments(TASK_UPDATE, {"taskId": 1, "status": written})[0]["status"] == "in_progress"


@pytest.mark.parametrize("written", [[1, 2], ["#1", "2"], "1, 2", "[1, 2]", "#1,#2"])
def test_a_list_of_tasks_is_understood(written: Any) -> None:
    assert read_arguments(TASK_CREATE, {"subject": "x", "blocked_by": written})[0]["blockedBy"] == [1, 2]


def test_an_unknown_argument_is_ignored_with_a_remark() -> None:
    arguments, remarks = read_arguments(READ_FILE, {"file_path": "a", "encoding": "utf-8", "limit": None})
    assert arguments == {"path": "a"}
    assert remarks == ["read_file has no parameter 'encoding'; it was ignored"]


def test_a_missing_argument_is_named_with_the_way_to_call() -> None:
    with pytest.raises(ToolError, match=r"edit_file needs old_text and new_text: call it as edit_file\(path, old_text"):
        read_arguments(EDIT_FILE, {"path": "a"})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"taskId": "the first"}, "taskId must be a task id"),
        ({"taskId": 1, "status": "finished-ish"}, "must be one of pending, in_progress"),
        ({"taskId": 1, "addBlocks": "[1"}, "addBlocks must be a list of task ids"),
    ],
)
def test_what_makes_no_sense_says_what_would(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ToolError, match=said):
        read_arguments(TASK_UPDATE, given)


def test_what_a_name_implies_can_be_overridden_by_what_is_written() -> None:
    implied = {"type": "broadcast"}
    assert read_arguments(SEND_MESSAGE, {"content": "x"}, implied)[0]["type"] == "broadcast"
    assert read_arguments(SEND_MESSAGE, {"content": "x", "type": "message"}, implied)[0]["type"] == "message"
