"""The strict server itself: what it must refuse, what it counts, and that it runs as a process of its own."""

from __future__ import annotations

import asyncio
import copy
import http.client
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.protocol_server import ProtocolServer, anthropic_format
from tests.support.protocol_server.server import KEY

ANTHROPIC: dict[str, Any] = {
    "model": "m",
    "max_tokens": 100,
    "system": [{"type": "text", "text": "You are 'ana'."}],
    "tools": [{"name": "bash", "description": "d", "input_schema": {"type": "object"}}],
    "messages": [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": anthropic_format.sign("hm")},
                {"type": "tool_use", "id": "t1", "name": "bash", "input": {}},
                {"type": "tool_use", "id": "t2", "name": "bash", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "a"},
                {"type": "tool_result", "tool_use_id": "t2", "content": [{"type": "text", "text": "b"}]},
                {"type": "text", "text": "mail"},
            ],
        },
    ],
}
OPENAI: dict[str, Any] = {
    "model": "m",
    "max_completion_tokens": 100,
    "tools": [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}],
    "messages": [
        {"role": "system", "content": "You are 'ana'."},
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": "{}"}},
                {"id": "c2", "type": "function", "function": {"name": "bash", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "a"},
        {"role": "tool", "tool_call_id": "c2", "content": "b"},
        {"role": "user", "content": "mail"},
    ],
}
Change = Callable[[dict[str, Any]], Any]

ANTHROPIC_ILLEGAL: dict[str, Change] = {
    "max_tokens: Field required": lambda b: b.pop("max_tokens"),
    "greater than or equal to 1": lambda b: b.update(max_tokens=0),
    "colour: Extra inputs": lambda b: b.update(colour=1),
    "at least one message": lambda b: b.update(messages=[]),
    "first message must use": lambda b: b.update(messages=[{"role": "assistant", "content": "x"}]),
    "Unexpected role": lambda b: b["messages"].insert(0, {"role": "system", "content": "x"}),
    "roles must alternate": lambda b: b["messages"].append({"role": "user", "content": "x"}),
    "must end with a user": lambda b: b["messages"].append({"role": "assistant", "content": "x"}),
    "must have non-empty content": lambda b: b["messages"][0].update(content=[]),
    "must be non-empty": lambda b: b["messages"][0].update(content=[{"type": "text", "text": ""}]),
    "non-whitespace": lambda b: b["messages"][0].update(content=" \n"),
    "without `tool_result` blocks immediately after: t1": lambda b: b["messages"][2]["content"].pop(0),
    "unexpected `tool_use_id`": lambda b: b["messages"][2]["content"][0].update(tool_use_id="t9"),
    "single result": lambda b: b["messages"][2]["content"].insert(1, b["messages"][2]["content"][0]),
    "come before other content": lambda b: b["messages"][2]["content"].reverse(),
    "ids must be unique": lambda b: b["messages"][1]["content"][2].update(id="t1"),
    "id: String should match": lambda b: b["messages"][1]["content"][2].update(id="t 2"),
    "name: String should match": lambda b: b["messages"][1]["content"][2].update(name="a.b"),
    "valid dictionary": lambda b: b["messages"][1]["content"][2].update(input="x"),
    "Invalid `signature`": lambda b: b["messages"][1]["content"][0].update(thinking="other"),
    "cannot be `thinking`": lambda b: b["messages"][1].update(content=b["messages"][1]["content"][:1]),
    "must define tools": lambda b: b.pop("tools"),
    "Tool names must be unique": lambda b: b["tools"].append(b["tools"][0]),
    "input_schema.type: Field": lambda b: b["tools"][0].update(input_schema={}),
    "should be 'object'": lambda b: b["tools"][0].update(input_schema={"type": "string"}),
    "maximum of 4 blocks": lambda b: b.update(
        system=[{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}] * 5
    ),
    "lone surrogate": lambda b: b["messages"][0].update(content="x\ud800"),
}
OPENAI_ILLEGAL: dict[str, Change] = {
    "Missing required parameter: 'model'": lambda b: b.pop("model"),
    "Unrecognized request argument supplied: colour": lambda b: b.update(colour=1),
    "at the same time": lambda b: b.update(max_tokens=5),
    "only allowed when 'stream'": lambda b: b.update(stream_options={"include_usage": True}),
    "'tool_choice' is only allowed": lambda b: (b.pop("tools"), b.update(tool_choice="auto")),
    "empty array": lambda b: b.update(tools=[]),
    "did not have response messages: c2": lambda b: b["messages"].pop(4),
    "must be a response to a preceeding": lambda b: b["messages"][3].update(tool_call_id="c9"),
    "content': expected a string": lambda b: b["messages"][1].update(content=None),
    "tool_calls': empty": lambda b: b["messages"][2].update(tool_calls=[]),
    "not a JSON object": lambda b: b["messages"][2]["tool_calls"][0]["function"].update(arguments="{"),
    "string too long": lambda b: b["messages"][2]["tool_calls"][0].update(id="x" * 41),
    "Duplicate value": lambda b: b["messages"][2]["tool_calls"][1].update(id="c1"),
    "function.name": lambda b: b["messages"][2]["tool_calls"][0]["function"].update(name="a.b"),
    "ends with a user or tool": lambda b: b["messages"].append({"role": "assistant", "content": "x"}),
    "two assistant messages": lambda b: b["messages"].__setitem__(
        slice(1, 6), [{"role": "user", "content": "x"}, *[{"role": "assistant", "content": "x"}] * 2]
    ),
    "Invalid value: 'robot'": lambda b: b["messages"][1].update(role="robot"),
    "lone surrogate": lambda b: b["messages"][1].update(content="x\x00"),
}


def _post(port: int, path: str, body: Any, headers: dict[str, str]) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    try:
        connection.request("POST", path, json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


HEADERS = {
    "/v1/messages": {"x-api-key": KEY, "anthropic-version": "2023-06-01"},
    "/v1/chat/completions": {"authorization": f"Bearer {KEY}"},
}


async def post(server: ProtocolServer, path: str, body: Any, **changes: str) -> tuple[int, Any]:
    return await asyncio.to_thread(_post, server.port, path, body, {**HEADERS[path], **changes})


@pytest.mark.parametrize(
    ("path", "legal", "illegal"),
    [("/v1/messages", ANTHROPIC, ANTHROPIC_ILLEGAL), ("/v1/chat/completions", OPENAI, OPENAI_ILLEGAL)],
    ids=["anthropic", "openai"],
)
async def test_a_legal_request_is_answered_and_every_illegal_one_refused(
    path: str, legal: dict[str, Any], illegal: dict[str, Change]
) -> None:
    async with ProtocolServer(lambda heard: f"{heard.member} {len(heard.results)}") as server:
        status, answer = await post(server, path, legal)
        assert status == 200
        assert "ana 2" in json.dumps(answer)
        for words, change in illegal.items():
            body = copy.deepcopy(legal)
            change(body)
            status, answer = await post(server, path, body)
            assert (status, words in answer["error"]["message"]) == (400, True), (words, answer)
        assert len(server.ledger.refusals) == len(illegal)
        assert len(server.heard) == 1


async def test_without_a_key_nobody_is_served() -> None:
    async with ProtocolServer(lambda heard: "x") as server:
        for path, body, name in (
            ("/v1/messages", ANTHROPIC, "x-api-key"),
            ("/v1/chat/completions", OPENAI, "authorization"),
        ):
            assert (await post(server, path, body, **{name: ""}))[0] == 401
            assert (await post(server, path, body, **{name: "wrong"}))[0] == 401
        assert (await post(server, "/v1/messages", ANTHROPIC, **{"anthropic-version": ""}))[0] == 400


@contextmanager
def process(*arguments: str) -> Iterator[int]:
    command = [sys.executable, "-m", "tests.support.protocol_server", "--port", "0", *arguments]
    started = subprocess.Popen(command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True)
    try:
        assert started.stdout is not None
        yield json.loads(started.stdout.readline())["port"]
    finally:
        started.kill()
        started.communicate()


def test_it_runs_as_a_process_and_plays_a_script(tmp_path: Path) -> None:
    script = tmp_path / "team.toml"
    script.write_text(
        "[[members.ana]]\nsay = 'first'\ncalls = [{ name = 'bash' }]\n[[members.ana]]\nsay = 'second'\n"
        "[[members.ana]]\nwhen = { newest = 'mail' }\nsay = 'thanks'\n",
        encoding="utf-8",
    )
    with process("--script", str(script)) as port:
        body = {**OPENAI, "messages": OPENAI["messages"][:2]}
        _, answer = _post(port, "/v1/chat/completions", body, HEADERS["/v1/chat/completions"])
        message = answer["choices"][0]["message"]
        assert message["content"] == "first"
        message.pop("refusal")
        (call,) = message["tool_calls"]
        result = {"role": "tool", "tool_call_id": call["id"], "content": "x"}
        body["messages"] = [*body["messages"], message, result]
        _, answer = _post(port, "/v1/chat/completions", body, HEADERS["/v1/chat/completions"])
        assert answer["choices"][0]["message"]["content"] == "second"
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("GET", "/ledger")
        facts = json.loads(connection.getresponse().read())
        connection.close()
        assert facts["requests"] == 2
        assert facts["conversations"][0]["member"] == "ana"
        assert facts["conversations"][0]["share"] > 0.3


def test_chaos_breaks_some_requests_and_the_same_ones_each_time() -> None:
    def statuses() -> list[int]:
        with process("--chaos", "0.5", "--seed", "4") as port:
            found = []
            for _ in range(12):
                try:
                    found.append(_post(port, "/v1/messages", ANTHROPIC, HEADERS["/v1/messages"])[0])
                except (http.client.HTTPException, ConnectionError):
                    found.append(0)
            return found

    first = statuses()
    assert first == statuses()
    assert {200} < set(first)
