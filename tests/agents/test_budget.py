"""SPEC 9, budgets: reserved before each call, settled after it; at the limit the team stops in good order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bullpen.clock import FakeClock
from bullpen.domain.budget import Account
from bullpen.domain.event import EventKind
from bullpen.domain.member import MemberRef, MemberStatus
from bullpen.domain.prompt import Reply, Usage
from bullpen.domain.task import TaskStatus
from bullpen.provider import ModelLimits, ModelRequest
from bullpen.providers.scripted import Fault, Script, Step
from bullpen.stores.sqlite import SqliteStore
from bullpen.team import Outcome, Team
from tests.agents.slow import SlowStore
from tests.agents.stage import Recorder, calls, facts, mail_of, member, play, seeing
from tests.support.troupe import call, done, hosted, settings, troupe, until

EACH = Usage(input_tokens=1_000, output_tokens=100)
MAX_OUTPUT = 1_000


def priced(steps: dict[str, list[Any]]) -> Recorder:
    """Every call reads 1,000 tokens and writes 100 of at most 1,000; a million read or written cost a dollar."""
    named = {name: tuple(map(Step.of, listed)) for name, listed in steps.items()}
    limits = ModelLimits(window_tokens=200_000, max_output_tokens=MAX_OUTPUT)
    return Recorder(Script(steps=named, usage=EACH, input_usd=1.0, output_usd=1.0, limits=limits))


async def account_of(team: Team, name: str = "") -> Account:
    return next(account for account in await team.list_accounts() if account.member_key == name)


async def test_what_a_call_may_cost_is_reserved_before_it_and_settled_after_it(tmp_path: Path, store_url: str) -> None:
    model = priced({"ana": ["Finished."]})
    asked = model.hold("ana", 1)
    async with troupe(model, tmp_path, store=store_url, settings=settings(budget={"max_cost_usd": 100})) as team:
        await team.spawn("ana", prompt="Say it.")
        async with hosted(team):
            await asked.reached()
            during = [await account_of(team), await account_of(team, "ana")]
            asked.release()
            await until(team, EventKind.PHASE_ENDED, member="ana")
        after = [await account_of(team), await account_of(team, "ana")]
    for account in during:
        assert (account.calls, account.open_calls, account.cost_usd) == (0, 1, 0.0)
        assert account.open_tokens > MAX_OUTPUT
        assert account.open_cost_usd == pytest.approx(account.open_tokens / 1_000_000)
    for account in after:
        assert (account.calls, account.open_calls, account.tokens) == (1, 0, 1_100)
        assert account.cost_usd == pytest.approx(0.0011)
        assert account.open_cost_usd == 0


async def test_a_call_that_failed_leaves_nothing_reserved(tmp_path: Path, short_delays: None) -> None:
    model = priced({"ana": [Step(say="Finished.", faults=Step.of({"fault": "overloaded"}).faults)]})
    async with troupe(model, tmp_path) as team:
        await team.spawn("ana", prompt="Say it.")
        async with hosted(team):
            await until(team, EventKind.PHASE_ENDED, member="ana")
        account = await account_of(team)
    assert model.count("ana") == 2
    assert (account.calls, account.open_calls, account.tokens) == (2, 0, 1_100)


async def test_the_human_is_warned_once_at_80_percent(tmp_path: Path) -> None:
    looks = [call("bash", command=f"echo {number}") for number in range(8)]
    model = priced({"ana": [*looks, "Finished."]})
    async with troupe(model, tmp_path, settings=settings(budget={"max_calls": 10, "max_cost_usd": None})) as team:
        await team.spawn("ana", prompt="Look.")
        async with hosted(team):
            await until(team, EventKind.PHASE_ENDED, member="ana")
        warnings = await facts(team, EventKind.BUDGET_WARNED)
        told = [mail.content for mail in await mail_of(team, "user") if "80%" in mail.content]
    assert [(event.data["limit"], event.data["spent"]) for event in warnings] == [("max_calls", 8)]
    assert told == ["the team has spent 8 of max_calls = 10 (80%)."]


@pytest.mark.parametrize(
    ("limits", "larger"),
    [
        ({"max_calls": 3}, {"max_calls": 100}),
        ({"max_tokens": 9_000}, {"max_tokens": 1_000_000}),
        ({"max_cost_usd": 0.009}, {"max_cost_usd": 1.0}),
    ],
    ids=["calls", "tokens", "cost"],
)
async def test_at_the_limit_the_run_ends_in_good_order_says_so_and_a_larger_one_goes_on(
    tmp_path: Path, limits: dict[str, float], larger: dict[str, float]
) -> None:
    looks = [call("bash", command=f"echo {number}") for number in range(8)]
    model = priced(
        {
            "lead": [
                calls(("TaskCreate", {"subject": "Look"}), ("Task", {"name": "ana", "prompt": "Take it."})),
                "She looks.",
                seeing("All tasks are finished", "Done."),
            ],
            "ana": [*looks, done(), "Finished."],
        }
    )
    with_limits = settings(budget={"max_cost_usd": None, **limits})
    async with troupe(model, tmp_path, settings=with_limits) as team:
        report = await play(team)
        spent = await account_of(team)
        [name] = limits
        assert report.outcome is Outcome.BUDGET
        assert name in report.lines[0]
        # Never above it, and nothing is left open or half done.
        assert {"max_calls": spent.calls, "max_tokens": spent.tokens, "max_cost_usd": spent.cost_usd}[name] <= limits[
            name
        ]
        assert spent.open_calls == 0
        assert (await member(team, "ana")).status is MemberStatus.WANTED
        assert any("Raise the limit to go on" in mail.content for mail in await mail_of(team, "user"))
        # What it held is still its own.
        assert ((await team.get_task(1)).owner, (await team.get_task(1)).status) == ("ana", TaskStatus.IN_PROGRESS)

        await team.set_budget(**larger)
        report = await team.run(max_minutes=1)
        assert report.succeeded
        assert report.text == "Done."
    assert model.script.unused_steps() == ()


async def test_the_limit_ends_the_run_also_when_more_could_be_claimed_and_mail_waits(tmp_path: Path) -> None:
    """Nobody can act on either: that is no reason to wait for ever."""
    looks = [call("bash", command=f"echo {number}") for number in range(8)]
    spawns = [("Task", {"name": name, "prompt": "Take it."}) for name in ("ana", "bea")]
    tasks = [("TaskCreate", {"subject": f"Part {number}"}) for number in range(5)]
    write = call("SendMessage", recipient="lead", content="A question to you?")
    # A question that comes while the lead is being asked is read at once.
    model = priced({"lead": [calls(*tasks, *spawns), Step(say="They look.", repeat=True)], "*": [write, *looks]})
    async with troupe(model, tmp_path, settings=settings(budget={"max_calls": 5})) as team:
        report = await play(team)
        assert report.outcome is Outcome.BUDGET
        assert (await account_of(team)).calls == 5


@pytest.fixture
def no_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for leave to ask is woken, or sleeps for ever."""
    monkeypatch.setattr("bullpen.agent.asking.LOOK_AGAIN_SECONDS", 3600.0)


async def test_a_budget_raised_in_place_lets_those_who_wait_go_on_at_once(tmp_path: Path, no_second_look: None) -> None:
    looks = [call("bash", command=f"echo {number}") for number in range(4)]
    model = priced({"ana": [*looks, "Finished."]})
    async with troupe(model, tmp_path, settings=settings(budget={"max_calls": 2})) as team:
        await team.spawn("ana", prompt="Look.")
        async with hosted(team):
            await until(team, EventKind.BUDGET_REFUSED, member="ana")
            await until(team, EventKind.MEMBER_STATUS_CHANGED, member="ana", status="waiting")
            assert model.count("ana") == 2
            await team.set_budget(max_calls=100)
            await until(team, EventKind.PHASE_ENDED, member="ana")
            assert (await member(team, "ana")).status is MemberStatus.IDLE


class Counting(SqliteStore):
    reserved = 0

    async def reserve(self, by: MemberRef, **wish: Any) -> Any:
        self.reserved += 1
        return await super().reserve(by, **wish)


async def test_two_who_wait_for_the_same_budget_do_not_wake_each_other(tmp_path: Path) -> None:
    looks = [call("bash", command=f"echo {number}") for number in range(4)]
    model = priced({"*": [*looks, "Finished."]})
    async with (
        Counting("sqlite:///:memory:", None, FakeClock()) as store,
        troupe(model, tmp_path, store=store, settings=settings(budget={"max_calls": 2})) as team,
    ):
        for name in ("ana", "bea"):
            await team.spawn(name, prompt="Look.")
        async with hosted(team):
            for name in ("ana", "bea"):
                await until(team, EventKind.MEMBER_STATUS_CHANGED, member=name, status="waiting")
            tried = store.reserved
            while store.reserved < tried + 6:
                # Whatever happens, they look whether there is room again.
                await team.send("lead", "Are you there?")
            refused = await facts(team, EventKind.BUDGET_REFUSED)
            await team.set_budget(max_calls=100)
            for name in ("ana", "bea"):
                await until(team, EventKind.PHASE_ENDED, member=name)
    assert sorted(event.data["member"] for event in refused) == ["ana", "bea"]


async def test_a_members_limit_holds_that_member_and_not_the_others(tmp_path: Path) -> None:
    looks = [call("bash", command=f"echo {number}") for number in range(4)]
    model = priced({"ana": [*looks, "Finished."], "bea": [call("bash", command="echo once"), "Finished."]})
    async with troupe(model, tmp_path, settings=settings(budget={"member": {"max_calls": 2}})) as team:
        await team.spawn("ana", prompt="Look.")
        await team.spawn("bea", prompt="Look.")
        async with hosted(team):
            refused = await until(team, EventKind.BUDGET_REFUSED)
            await until(team, EventKind.PHASE_ENDED, member="bea")
        assert refused.data["member"] == "ana"
        assert "member ana has spent 2 of max_calls = 2" in refused.data["why"]
    assert (model.count("ana"), model.count("bea")) == (2, 2)


async def test_many_at_once_never_pass_the_limit_together(tmp_path: Path) -> None:
    model = priced({"*": [Step(calls=call("bash", command="echo x >> log; wc -l < log").calls, repeat=True)]})
    async with troupe(model, tmp_path, settings=settings(budget={"max_calls": 20})) as team:
        for number in range(6):
            await team.spawn(f"member-{number}", prompt="Look.")
        async with hosted(team):
            async with asyncio.timeout(60):
                waiting: set[str] = set()
                async for event in team.follow_events():
                    if event.kind == EventKind.BUDGET_REFUSED:
                        waiting.add(event.data["member"])
                    if len(waiting) == 6:
                        break
        assert (await account_of(team)).calls == 20
    assert len(model.requests) == 20


async def test_minutes_end_the_run_in_good_order_and_it_can_be_resumed(tmp_path: Path) -> None:
    # Asked long before the minutes are over, on a busy machine too, and answered while what is under way may finish.
    slow = Step(say="One.", calls=call("bash", command="echo one").calls, delay_seconds=4.0)
    model = priced({"lead": [slow, "Finished."]})
    async with troupe(model, tmp_path, settings=settings(budget={"max_minutes": 0.05})) as team:
        report = await team.run("Take your time.")
        assert report.outcome is Outcome.TIME
        assert report.lines == ("0.05 minutes are over",)
        # What was under way was finished, and nothing begun after it.
        assert (model.count("lead"), report.text) == (1, "One.")
        assert (await account_of(team)).open_calls == 0
        report = await team.run(max_minutes=1)
        assert report.outcome is Outcome.DONE
        assert report.text == "Finished."
    assert model.count("lead") == 2


async def test_a_paused_team_asks_no_model_and_goes_on_where_it_was(
    tmp_path: Path, store_url: str, no_second_look: None
) -> None:
    model = priced({"ana": [call("bash", command="echo one"), call("bash", command="echo two"), "Finished."]})
    first = model.hold("ana", 1)
    async with troupe(model, tmp_path, store=store_url) as team:
        await team.spawn("ana", prompt="Count.")
        async with hosted(team):
            await first.reached()
            await team.pause()
            first.release()
            # What was under way is finished, its calls too.
            await until(team, EventKind.TOOL_CALL_FINISHED, tool="bash")
            await team.spawn("bea", prompt="Do not begin.")
            await until(team, EventKind.MEMBER_HOSTED, member="bea")
            assert model.count("ana") == 1
            await team.unpause()
            await until(team, EventKind.PHASE_ENDED, member="ana")
    assert model.count("ana") == 3


async def test_what_a_subagent_and_a_summary_cost_counts_too(tmp_path: Path) -> None:
    answer = Step(say="Nothing there.", purpose="subagent")
    summary = Step(say="I looked.", purpose="compaction")
    model = priced(
        {"lead": [call("Task", prompt="Look.", agent_type="explore"), call("compact"), "Done.", answer, summary]}
    )
    async with troupe(model, tmp_path) as team:
        await play(team)
        team_account, lead = await account_of(team), await account_of(team, "lead")
        purposes = [event.data["purpose"] for event in await facts(team, EventKind.MODEL_ANSWERED)]
    assert sorted(purposes) == ["compaction", "subagent", "turn", "turn", "turn"]
    assert team_account.calls == lead.calls == 5
    assert team_account.cost_usd == pytest.approx(5 * 0.0011)


async def test_a_run_whose_budget_is_spent_by_a_subagent_beside_its_lead_ends(tmp_path: Path) -> None:
    look = Step(calls=call("glob", pattern="*").calls, purpose="subagent", repeat=True)
    beside = call("Task", prompt="Look.", agent_type="explore", run_in_background=True)
    model = priced({"lead": [beside, "It looks.", look]})
    async with troupe(model, tmp_path, settings=settings(budget={"max_calls": 6, "max_cost_usd": None})) as team:
        report = await play(team)
        assert (await member(team, "lead")).status is not MemberStatus.WORKING
    assert report.outcome is Outcome.BUDGET
    assert model.count("lead") == 6


async def test_a_subagent_beside_a_resting_lead_goes_on_when_its_budget_is_raised(tmp_path: Path) -> None:
    look, answer = call("glob", pattern="*").calls, Step(say="src/auth", purpose="subagent")
    beside = call("Task", prompt="Look.", agent_type="explore", run_in_background=True)
    model = priced({"lead": [beside, "It looks.", "I see.", Step(calls=look, purpose="subagent"), answer]})
    async with troupe(model, tmp_path, settings=settings(budget={"max_calls": 3, "max_cost_usd": None})) as team:
        await team.send("lead", "Find auth.")
        await team.store.want_member(team._me, "lead")
        async with hosted(team):
            first = await until(team, EventKind.PHASE_ENDED, member="lead")
            await until(team, EventKind.BUDGET_REFUSED, member="lead")
            await team.set_budget(max_calls=10)
            await until(team, EventKind.PHASE_ENDED, member="lead", after=first.position)
        notices = [mail.content for mail in await mail_of(team, "lead") if "src/auth" in mail.content]
    assert len(notices) == 1


# -- cut off while it is written ---------------------------------------------------------------------------------


async def test_a_member_that_is_interrupted_while_it_reserves_leaves_nothing_reserved(tmp_path: Path) -> None:
    model = priced({"ana": ["Finished."]})
    async with SlowStore("reserve") as store, troupe(model, tmp_path, store=store) as team:
        await team.spawn("ana", prompt="Say it.")
        async with hosted(team):
            await store.cut_in(team)
            await until(team, EventKind.PHASE_ENDED, member="ana")
        account = await account_of(team)
    assert (account.calls, account.open_calls, account.tokens) == (2, 0, 1_100)


class Unpriced(Recorder):
    """A model in no price list."""

    async def reply(self, request: ModelRequest, *, on_text: Callable[[str], None] | None = None) -> Reply:
        return replace(await super().reply(request, on_text=on_text), cost_usd=None)

    async def estimate_cost_usd(self, *, input_tokens: int, output_tokens: int) -> float | None:
        return None


async def test_a_model_without_a_known_price_is_told_once_to_the_human(tmp_path: Path, store_url: str) -> None:
    model = Unpriced({"ana": [call("TaskList"), call("TaskList", status="pending"), "Finished."]})
    async with troupe(model, tmp_path, store=store_url, settings=settings(budget={"max_cost_usd": 1})) as team:
        await team.spawn("ana", prompt="Say it.")
        async with hosted(team):
            await until(team, EventKind.PHASE_ENDED, member="ana")
        told = [message.content for message in await mail_of(team, "user") if "no price is known" in message.content]
    assert len(told) == 1
    assert "--max-tokens" in told[0]


async def test_without_a_limit_in_dollars_an_unknown_price_is_nobodys_concern(tmp_path: Path) -> None:
    model = Unpriced({"ana": ["Finished."]})
    async with troupe(model, tmp_path, settings=settings(budget={"max_cost_usd": None})) as team:
        await team.spawn("ana", prompt="Say it.")
        async with hosted(team):
            await until(team, EventKind.PHASE_ENDED, member="ana")
        assert not [one for one in await mail_of(team, "user") if "no price" in one.content]


async def test_the_settings_price_a_model_that_no_list_has(tmp_path: Path) -> None:
    model = Unpriced(Script(steps={"ana": (Step.of("Finished."),)}, usage=EACH))
    prices = {"max_cost_usd": 100, "input_price_usd": 2, "output_price_usd": 10}
    async with troupe(model, tmp_path, settings=settings(budget=prices)) as team:
        await team.spawn("ana", prompt="Say it.")
        async with hosted(team):
            await until(team, EventKind.PHASE_ENDED, member="ana")
        assert (await account_of(team, "ana")).cost_usd == pytest.approx(0.003)
        assert not [one for one in await mail_of(team, "user") if "no price" in one.content]


async def test_a_model_of_a_longer_name_than_a_key_may_have_asks_and_waits_like_any_other(tmp_path: Path) -> None:
    steps = [Step(say="Finished.", faults=(Fault(kind="rate_limited", retry_after_seconds=0.01),))]
    model = Recorder({"ana": steps}, model=f"scripted:{'long/' * 100}script.json")
    async with troupe(model, tmp_path) as team:
        await team.spawn("ana", prompt="Do it.")
        async with hosted(team):
            ended = await until(team, EventKind.PHASE_ENDED, member="ana")
        assert (ended.data["why"], ended.data["result"]) == ("no_tool_use", "Finished.")
        assert model.count("ana") == 2
