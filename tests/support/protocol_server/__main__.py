"""`python -m tests.support.protocol_server --port 0`: says `{"port": N}` on a line of its own, serves until killed.

`--script FILE` plays a script (see docs/scripted.md; who speaks is read from the system prompt), `--model
MODULE:FUNCTION` calls a function of `Heard`; without either it answers "ok". `GET /ledger` tells what was counted.
`--chaos 0.1 --seed 7` makes every tenth request, by chance, a 429, 500, 529, a hang-up or a broken stream, and
with `--latency 0.2` an answer comes so many seconds after its request.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from importlib import import_module
from pathlib import Path

from bullpen.providers.scripted import ScriptedProvider
from tests.support.protocol_server.conversation import Heard, Model
from tests.support.protocol_server.fault import Cut, Fault, HangUp, Plan, Status
from tests.support.protocol_server.server import KEY, ProtocolServer, scripted


class Chaos(Plan):
    def __init__(self, share: float, seed: int) -> None:
        super().__init__()
        self._share = share
        self._random = random.Random(seed)

    def take(self, heard: Heard) -> Fault | None:
        if self._random.random() >= self._share:
            return None
        faults: list[Fault] = [
            Status(status=429, retry_after="0"),
            Status(status=500),
            Status(status=529),
            HangUp(),
            Cut(),
        ]
        return self._random.choice(faults)


def main() -> None:
    parser = argparse.ArgumentParser(prog="protocol_server")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--script", type=Path)
    parser.add_argument("--model")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--key", default=KEY)
    parser.add_argument("--chaos", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    asyncio.run(serve(options))


async def serve(options: argparse.Namespace) -> None:
    model: Model = lambda heard: "ok"  # noqa: E731
    if options.script:
        model = scripted(ScriptedProvider.from_file(options.script))
    elif options.model:
        module, _, name = options.model.partition(":")
        model = getattr(import_module(module), name)
    async with ProtocolServer(model, keys=(options.key,), port=options.port, latency_seconds=options.latency) as server:
        server.keep_heard = False
        if options.chaos:
            server.follow(Chaos(options.chaos, options.seed))
        print(json.dumps({"port": server.port}), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    main()
