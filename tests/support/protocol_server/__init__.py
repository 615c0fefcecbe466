"""A model server of our own on loopback: Anthropic Messages and OpenAI chat completions, plain and SSE.

It checks each request as strictly as the real APIs do (stricter where they are lenient by accident), refuses with
their words, injects faults by plan, and counts. What it answers is up to a *model*: a function of what it heard.

    async with ProtocolServer(lambda heard: "hello") as server:
        provider = open_provider("anthropic:claude-sonnet-5", environ=server.environ)

Or as a process: `python -m tests.support.protocol_server --port 0 --script team.toml`.
"""

from __future__ import annotations

from tests.support.protocol_server.conversation import Answer, Heard, RawCall
from tests.support.protocol_server.fault import Cut, Fault, Garbage, Halt, HangUp, Slow, Status, StreamError
from tests.support.protocol_server.ledger import Ledger
from tests.support.protocol_server.server import ProtocolServer

__all__ = [
    "Answer",
    "Cut",
    "Fault",
    "Garbage",
    "Halt",
    "HangUp",
    "Heard",
    "Ledger",
    "ProtocolServer",
    "RawCall",
    "Slow",
    "Status",
    "StreamError",
]
