"""A deterministic model, for demos, tests and replays of a story: `scripted:FILE`.

FILE is TOML or JSON; `docs/scripted.md` shows it by example. In short:

    [model]                                 # all of it optional
    window_tokens = 200000
    max_output_tokens = 8000
    usage = { input_tokens = 900, output_tokens = 40 }            # of each step that has none of its own
    price = { input_usd = 3.0, output_usd = 15.0 }                # for a million tokens; without: free

    [[members.ana]]                         # a step of ana; `*` is for everybody without a step left
    say = "I take #{{task_id}}."
    calls = [{ name = "bash", arguments = { command = "make test" } }]

    [[members.ana]]
    when = { newest_matches = 'from="(?P<who>\\w+)"' }            # before ana's steps in order, once
    say = "Thank you, {{who}}."
    repeat = true                                                 # as often as it matches

**Which step.** A step without `when` stands in order: each is taken once, one after the other. A step with `when`
is taken before them, as soon as it matches what the member sees, once or (`repeat`) always. Own steps come before
those of `*`. Steps with a `purpose` (`compaction`, `subagent`) are for such requests only, all others for turns; of
those for compactions the first that fits is taken every time.

**Nothing is remembered between requests.** Each reply carries, as a thinking part without text, how far its script
has come; the newest of these in the conversation says which steps are left. So a member goes on at the right step
in another process, after a resume and after a compaction that keeps some turn. Where there is none, the number of
assistant messages is the number of steps in order that are behind. Only what `faults` counts, and what
`unused_steps` reports, is the memory of this process.
"""

from __future__ import annotations

from bullpen.providers.scripted.provider import ScriptedProvider
from bullpen.providers.scripted.script import Call, Fault, Script, Step, When

__all__ = ["Call", "Fault", "Script", "ScriptedProvider", "Step", "When"]
