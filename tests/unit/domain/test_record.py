"""Changed copies of records: as `dataclasses.replace` makes them, only sooner."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from bullpen.domain.prompt import TextPart
from bullpen.domain.record import maker, replace
from bullpen.domain.task import Task, TaskStatus
from bullpen.stores.sql.tables import TABLES

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TASK = Task(team_id=1, id=7, subject="Design the schema", created_at=NOW, updated_at=NOW)


def test_a_changed_copy_is_what_the_dataclass_itself_would_make() -> None:
    changes = {"status": TaskStatus.COMPLETED, "owner": "ana", "blocked_by": (1, 2), "result": "done"}
    changed = replace(TASK, **changes)
    assert changed == dataclasses.replace(TASK, **changes)  # type: ignore[arg-type]
    assert hash(changed.blocked_by) == hash((1, 2))
    assert TASK.status is TaskStatus.PENDING, "the original stays as it was"


def test_a_copy_is_as_frozen_as_its_original() -> None:
    copy = replace(TASK)
    assert copy == TASK
    with pytest.raises(dataclasses.FrozenInstanceError):
        copy.owner = "ben"  # type: ignore[misc]


def test_a_field_that_is_not_there_is_refused() -> None:
    with pytest.raises(TypeError, match="Task has no field 'onwer'"):
        replace(TASK, onwer="ana")


@dataclass(frozen=True, slots=True)
class Checked:
    low: int
    high: int

    def __post_init__(self) -> None:
        raise AssertionError("passed over")


def test_a_record_that_checks_itself_cannot_be_made_past_its_checks() -> None:
    with pytest.raises(TypeError, match="Checked"):
        maker(Checked, ["low", "high"])


def test_a_record_of_one_field_is_copied_too() -> None:
    assert replace(TextPart("a"), text="b") == TextPart("b")


def test_a_record_is_made_of_all_its_fields_or_not_at_all() -> None:
    with pytest.raises(TypeError, match="Task is not made of"):
        maker(Task, ["team_id", "id"])


@pytest.mark.parametrize("kind", TABLES)
def test_every_record_of_a_store_can_be_made(kind: type) -> None:
    names = [field.name for field in dataclasses.fields(kind)]
    made: object = maker(kind, names)(range(len(names)))
    assert [getattr(made, name) for name in names] == list(range(len(names)))
