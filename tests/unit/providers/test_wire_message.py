from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import messages as wire

from bullpen.domain.prompt import AssistantMessage, CallPart, ThinkingPart
from bullpen.providers.wire.message import incoming, outgoing, read_arguments, wire_id, wire_name


@pytest.mark.parametrize(
    ("raw", "arguments"),
    [
        ('{"a": 1}', {"a": 1}),
        ({"a": 1}, {"a": 1}),
        ("", {}),
        (None, {}),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ('{"a": "line\nbreak"}', {"a": "line\nbreak"}),
    ],
)
def test_arguments_are_read_generously(raw: Any, arguments: dict[str, Any]) -> None:
    assert read_arguments(raw, cut=False) == (arguments, None)


@pytest.mark.parametrize("raw", ["[1]", "3", "{", '"text"', "null", ["x"]])
def test_what_is_no_object_is_a_problem(raw: Any) -> None:
    arguments, problem = read_arguments(raw, cut=False)
    assert arguments == {}
    assert problem is not None
    assert "not a JSON object" in problem


@pytest.mark.parametrize("raw", ["", None, '{"a": ', {"a": 1}, {}])
def test_a_cut_call_is_a_problem_unless_its_text_is_whole(raw: Any) -> None:
    assert "output limit" in (read_arguments(raw, cut=True)[1] or "")
    assert read_arguments('{"a": 1}', cut=True) == ({"a": 1}, None)


def test_names_and_ids_are_kept_where_they_are_legal() -> None:
    assert wire_name("read_file") == "read_file"
    assert wire_name("") == "unknown"
    assert wire_name("a" * 100) == "a" * 64
    assert wire_id("toolu_01") == "toolu_01"
    assert wire_id("x" * 41) == wire_id("x" * 41) != wire_id("y" * 41)
    assert len(wire_id("x" * 41)) <= 40


def test_a_signature_on_a_call_goes_back_with_the_call() -> None:
    response = wire.ModelResponse(
        parts=[
            wire.ToolCallPart(
                "bash",
                {"command": "ls"},
                tool_call_id="c1",
                id="fc_1",
                provider_name="google",
                provider_details={"thought_signature": "abc"},
            ),
            wire.ToolCallPart("bash", {"command": "pwd"}, tool_call_id="c2"),
        ]
    )
    parts = incoming(response, provider="google", cut=False, taken_ids=())
    assert [type(part) for part in parts] == [ThinkingPart, CallPart, CallPart]
    message = AssistantMessage(parts)
    (back,) = outgoing([message], provider="google", system="google")
    assert back.parts == response.parts
    (elsewhere,) = outgoing([message], provider="anthropic", system="anthropic")
    assert [(part.id, part.provider_details) for part in elsewhere.parts if isinstance(part, wire.ToolCallPart)] == [
        (None, None),
        (None, None),
    ]
