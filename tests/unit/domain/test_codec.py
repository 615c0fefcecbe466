"""Every record of the domain becomes JSON and comes back the same."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bullpen.domain import event, member, message, request, task, transcript
from bullpen.domain.codec import decode, encode
from tests.unit.domain.strategies import has_default, whole

RECORDS = [
    kind
    for module in (event, member, message, request, task, transcript)
    for kind in vars(module).values()
    if isinstance(kind, type) and dataclasses.is_dataclass(kind) and kind.__module__ == module.__name__
    # What to leave alone is not stored: changes are an argument only.
    if kind is not task.TaskChanges
]


def test_the_records_are_found() -> None:
    assert {kind.__name__ for kind in RECORDS} >= {
        "CheckRun",
        "Event",
        "Evidence",
        "Handover",
        "Member",
        "MemberRef",
        "Message",
        "NewCall",
        "Receipt",
        "Request",
        "Spawned",
        "TakenMail",
        "Task",
        "Team",
        "ToolCall",
        "Turn",
        "Worker",
    }


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: str(kind.__name__))
@settings(max_examples=15)
@given(data=st.data())
def test_a_record_survives_the_way_through_json(kind: type, data: st.DataObject) -> None:
    record = data.draw(whole(kind))
    written = json.dumps(encode(record), ensure_ascii=False)
    assert decode(kind, json.loads(written)) == record
    assert decode(list[kind], json.loads(f"[{written}, {written}]")) == [record, record]  # type: ignore[valid-type]
    assert decode(kind | None, json.loads(written)) == record
    assert decode(kind | None, None) is None


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: str(kind.__name__))
@settings(max_examples=15)
@given(data=st.data())
def test_older_and_newer_versions_read_each_other(kind: type, data: st.DataObject) -> None:
    record = data.draw(whole(kind))
    written = encode(record)
    assert decode(kind, {**written, "from_the_future": [1]}) == record
    optional = [field.name for field in dataclasses.fields(kind) if has_default(field)]
    without = {name: value for name, value in written.items() if name not in optional}
    read = decode(kind, without)
    for field in dataclasses.fields(kind):
        if field.name not in optional:
            assert getattr(read, field.name) == getattr(record, field.name)


@pytest.mark.parametrize("value", [object(), b"bytes", 1 + 2j, {"x": {"y": object()}}])
def test_what_has_no_json_form_is_refused(value: Any) -> None:
    with pytest.raises(TypeError):
        encode(value)
