"""How much of what is sent was sent before, and what is sent while there is nothing to do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
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
from bullpen.domain.transcript import Turn, TurnKind

LIMIT = 0.95
IDLE_NOTICE = "is idle."


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """The server's count when everything was done, and again after a while in which nobody had anything to do; the
    lead's requests, and the tokens of those that nothing but notices and results had led to."""

    done: dict[str, Any]
    later: dict[str, Any]
    lead_requests: int
    notice_tokens: int

    @property
    def mates(self) -> list[dict[str, Any]]:
        return [it for it in self.done["conversations"] if it["member"] != LEAD]

    @property
    def characters(self) -> int:
        return sum(it["characters"] for it in self.mates)

    @property
    def share(self) -> float:
        return float(sum(it["reused_characters"] for it in self.mates) / self.characters)

    @property
    def idle_tokens(self) -> int:
        return sum(int(self.later[kind] - self.done[kind]) for kind in ("input_tokens", "output_tokens"))


def work(child: Child, stage: Stage, turns: int, members: int, idle_seconds: float) -> Sent:
    return child.runner.run(_work(stage, turns, members, idle_seconds))


async def _work(stage: Stage, turns: int, members: int, idle_seconds: float) -> Sent:
    async with troupe(stage, [Job(turns=turns)] * members, members) as it:
        await it.team.run(goal_of(members))
        done = await asyncio.to_thread(stage.facts)
        assert it.team.hosting is not None
        async with it.team.hosting.worker(it.team):
            for name in names_of(members):
                await it.team.store.notify(it.team.id, LEAD, f"{name} {IDLE_NOTICE}", wakes=False)
            await asyncio.sleep(idle_seconds)
        turns_of_lead = await it.team.store.list_turns(it.team.id, LEAD)
        return Sent(
            done=done,
            later=await asyncio.to_thread(stage.facts),
            lead_requests=sum(turn.kind == TurnKind.ASSISTANT for turn in turns_of_lead),
            notice_tokens=notice_tokens(turns_of_lead),
        )


def notice_tokens(turns: Sequence[Turn]) -> int:
    """What the replies have cost before which nothing came but idle notices and results of tasks."""
    spent, news = 0, list[str]()
    for turn in turns:
        if turn.kind == TurnKind.ASSISTANT:
            if news and all('type="result"' in text or IDLE_NOTICE in text for text in news):
                spent += turn.content["usage"]["input_tokens"] + turn.content["usage"]["output_tokens"]
            news = []
        elif turn.kind == TurnKind.MAIL:
            news += [entry["text"] for entry in turn.content]
        else:
            news.append("")
    return spent


def measure(ground: Ground, options: Options, stores: list[str]) -> Section:
    turns, members, idle_seconds = (10, 2, 1.0) if options.quick else (100, 4, 5.0)
    sizes = (500,) if options.quick else (500, 2_000, 6_000)
    section = Section("What is sent")
    section.say(
        f"""{members} members, {turns} model turns each, one `read_file` a turn. The protocol server compares the body
        of each request with the previous one of the same member, character by character: the share is that of all
        characters sent (the first request of each left out) which are an unchanged prefix. Results of different
        length, because old ones are pruned when they have become many, and that changes what was sent before."""
    )
    found: dict[str, Sent] = {}
    for size in sizes:
        for protocol in options.protocols:
            what = f"{protocol}, results of {size:,} characters"
            print(f"prefix: {what}", flush=True)
            with stage(ground, format=protocol, latency_seconds=0.0, file_characters=size) as place, Crew(1) as crew:
                found[what] = crew.helpers[0].call(work, place, turns, members, idle_seconds)
            assert not found[what].later["refusals"], found[what].later["refusals"]
    rows = [
        [
            what,
            f"{sent.share:.2%}",
            f"{min(it['share'] for it in sent.mates):.2%}",
            f"{sent.characters / 1e6:.1f} M",
            str(sent.idle_tokens),
            str(sent.lead_requests),
            str(sent.notice_tokens),
        ]
        for what, sent in found.items()
    ]
    header = [
        "",
        "unchanged prefix",
        "worst member",
        "characters",
        "idle tokens",
        "requests of the lead",
        "for notices",
    ]
    section.table(header, rows)
    section.say(
        f"""*Idle tokens* are what was sent and received in {idle_seconds:g} s after everything was done, with the
        whole team hosted and a notice for each member in the lead's inbox. The lead has reason to be asked for
        the goal, for the outcome of its spawning, and when all tasks are finished; *for notices* are the tokens of
        requests before which nothing came but results of tasks and idle notices."""
    )
    section.targets += [
        Target("characters sent that are an unchanged prefix", min(sent.share for sent in found.values()), LIMIT, True),
        Target("idle tokens", sum(sent.idle_tokens for sent in found.values()), 0, False),
        Target("tokens of the lead for notices", sum(sent.notice_tokens for sent in found.values()), 0, False),
    ]
    return section
