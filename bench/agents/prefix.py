"""How much of what is sent was sent before, and what is sent while there is nothing to do."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from bench.agents.model import goal_of, names_of
from bench.agents.schedule import Job
from bench.agents.stage import Stage, stage, troupe
from bench.crew import Child, Crew
from bench.figures import Section, Target
from bench.ground import Ground
from bench.options import Options
from bullpen.domain.member import LEAD

LIMIT = 0.95
# What the lead has reason to be asked for: the goal, what its spawning answered, and that all is finished.
LEAD_REQUESTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """The server's count when everything was done, and again after a while in which nobody had anything to do."""

    done: dict[str, Any]
    later: dict[str, Any]


def work(child: Child, stage: Stage, turns: int, members: int, idle_seconds: float) -> Sent:
    return child.runner.run(_work(stage, turns, members, idle_seconds))


async def _work(stage: Stage, turns: int, members: int, idle_seconds: float) -> Sent:
    async with troupe(stage, [Job(turns=turns)] * members, members) as it:
        await it.team.run(goal_of(members))
        done = await asyncio.to_thread(stage.facts)
        assert it.team.hosting is not None
        async with it.team.hosting.worker(it.team):
            for name in names_of(members):
                await it.team.store.notify(it.team.id, LEAD, f"{name} is idle.", wakes=False)
            await asyncio.sleep(idle_seconds)
        return Sent(done=done, later=await asyncio.to_thread(stage.facts))


def measure(ground: Ground, options: Options, stores: list[str]) -> Section:
    turns, members, idle_seconds = (10, 2, 1.0) if options.quick else (100, 4, 10.0)
    sizes = (500,) if options.quick else (500, 2_000, 6_000)
    section = Section("What is sent")
    section.say(
        f"""{members} members, {turns} model turns each, one `read_file` a turn. The protocol server compares the body
        of each request with the previous one of the same member, character by character: the share is that of all
        characters sent (the first request of each left out) which are an unchanged prefix. Results of different
        length, because old ones are pruned when they have become many, and that changes what was sent before."""
    )
    rows, shares, idle, notices = [], [], 0, 0
    for size in sizes:
        for format in ("anthropic", "openai"):
            print(f"prefix: {format}, results of {size} characters", flush=True)
            with (
                stage(ground, format=format, latency_seconds=0.0, file_characters=size) as place,
                Crew(1) as crew,
            ):
                sent = crew.helpers[0].call(work, place, turns, members, idle_seconds)
            mates = [it for it in sent.done["conversations"] if it["member"] != LEAD]
            lead = sum(it["requests"] for it in sent.later["conversations"] if it["member"] == LEAD)
            share = sum(it["reused_characters"] for it in mates) / sum(it["characters"] for it in mates)
            worst = min(it["share"] for it in mates)
            shares.append(share)
            idle += _tokens(sent.later) - _tokens(sent.done)
            notices += max(lead - LEAD_REQUESTS, 0)
            rows.append(
                [f"{format}, results of {size:,} characters", f"{share:.2%}", f"{worst:.2%}"]
                + [f"{sum(it['characters'] for it in mates) / 1e6:.1f} M"]
                + [f"{_tokens(sent.later) - _tokens(sent.done)}", f"{max(lead - LEAD_REQUESTS, 0)}"]
            )
            assert not sent.later["refusals"], sent.later["refusals"]
    section.table(
        ["", "unchanged prefix", "worst member", "characters", "idle tokens", "requests of the lead for notices"], rows
    )
    section.say(
        f"""*Idle tokens* are what was sent and received in {idle_seconds:g} s after everything was done, with the
        whole team hosted and a notice for each member in the lead's inbox. The lead has reason for {LEAD_REQUESTS}
        requests (the goal, the outcome of its spawning, that all tasks are finished); the last column counts others."""
    )
    section.targets += [
        Target("characters sent that are an unchanged prefix", min(shares), LIMIT, True),
        Target("idle tokens", idle, 0, False),
        Target("requests of the lead for notices", notices, 0, False),
    ]
    return section


def _tokens(facts: dict[str, Any]) -> int:
    return int(facts["input_tokens"] + facts["output_tokens"])
