from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import bullpen
from bullpen.errors import UsageError
from bullpen.providers import check_model, default_model, open_provider
from bullpen.providers.account import Account
from bullpen.providers.limits import limits_of
from bullpen.providers.recording import RecordingProvider

LIBRARIES = ("pydantic_ai", "anthropic", "openai", "httpx", "httpx2", "genai_prices", "pydantic")


def test_no_library_is_imported_before_a_model_is_called() -> None:
    code = (
        "import sys, bullpen.providers as p\n"
        "for model in ('anthropic:x', 'openai:x', 'groq:x'): p.open_provider(model, environ={}).limits\n"
        "p.default_model({})\n"
        f"print([name for name in {LIBRARIES!r} if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_only_the_wire_imports_the_libraries() -> None:
    root = Path(bullpen.__file__).parent
    for path in root.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imported = {
            name.partition(".")[0]
            for node in ast.walk(tree)
            for name in (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
        }
        if path.parent != root / "providers" / "wire":
            assert not imported & {"pydantic_ai", "anthropic", "openai", "httpx2", "genai_prices"}, path


async def test_a_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.support.requests import ask

    monkeypatch.setitem(sys.modules, "bullpen.providers.wire.line", None)
    monkeypatch.setitem(sys.modules, "bullpen.providers.wire.price", None)
    provider = open_provider("anthropic:x", environ={"ANTHROPIC_API_KEY": "k"})
    with pytest.raises(UsageError, match="pip install --force-reinstall bullpen"):
        await provider.reply(ask("hi"))
    with pytest.raises(UsageError, match="pip install --force-reinstall bullpen"):
        await provider.estimate_cost_usd(input_tokens=1, output_tokens=1)


def test_whoever_needs_the_libraries_while_another_thread_imports_them_gets_them_whole() -> None:
    # Fresh, since they are imported once; the models of two members begin while a worker warms up.
    code = """
import asyncio
from bullpen.providers import open_provider, preload

async def price(model):
    provider = open_provider(model, environ={"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"})
    return await provider.estimate_cost_usd(input_tokens=1_000_000, output_tokens=0)

async def main():
    models = ("anthropic:claude-sonnet-5", "openai:gpt-5.5")
    warming = [asyncio.to_thread(preload, model) for model in models]
    prices = [asyncio.to_thread(lambda model=model: asyncio.run(price(model))) for model in models]
    print([found > 0 for found in (await asyncio.gather(*warming, *prices))[2:]])

asyncio.run(main())
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.stdout.strip() == "[True, True]", ran.stderr


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("claude-sonnet-5", "did you mean anthropic:claude-sonnet-5"),
        ("gpt-5", "did you mean openai:gpt-5"),
        ("llama", "PROVIDER:NAME"),
        ("anthropic:", "PROVIDER:NAME"),
        ("record:run.jsonl", "record:run.jsonl:anthropic:NAME"),
        ("scripted:no/such.toml", "cannot be read"),
        ("replay:no/such.jsonl", "cannot be read"),
    ],
)
def test_a_name_that_is_no_model_says_how_to_name_one(name: str, hint: str) -> None:
    with pytest.raises(UsageError, match=hint):
        open_provider(name, environ={})


def test_a_provider_that_nobody_knows_is_told_before_anything_begins() -> None:
    for name in ("nope:foo", "record:run.jsonl:nope:foo"):
        with pytest.raises(UsageError, match="there is no provider 'nope': name a model PROVIDER:NAME"):
            check_model(name, {})
    check_model("deepseek:some-model", {"DEEPSEEK_API_KEY": "k"})


def test_what_is_recorded_is_the_model_behind(tmp_path: Path) -> None:
    provider = open_provider(f"record:{tmp_path}/run.jsonl:openai:gpt-5.5", environ={"OPENAI_API_KEY": "secret"})
    assert isinstance(provider, RecordingProvider)
    assert provider.model == "openai:gpt-5.5"
    assert provider.key_id == open_provider("openai:o3", environ={"OPENAI_API_KEY": "secret"}).key_id


def test_accounts_are_told_apart_without_their_keys() -> None:
    def key_id(provider: str, **environ: str) -> str:
        account = Account.of(provider, environ)
        assert account.key is None or account.key not in account.key_id
        assert account.key is None or account.key not in repr(account)
        return account.key_id

    one = key_id("anthropic", ANTHROPIC_API_KEY="sk-one")
    assert one == key_id("anthropic", ANTHROPIC_API_KEY="sk-one")
    others = [
        key_id("anthropic", ANTHROPIC_API_KEY="sk-two"),
        key_id("anthropic", ANTHROPIC_API_KEY="sk-one", ANTHROPIC_BASE_URL="http://127.0.0.1:1"),
        key_id("openai", OPENAI_API_KEY="sk-one"),
        key_id("anthropic"),
    ]
    assert len({one, *others}) == 5


def test_addresses_are_understood_with_and_without_the_version() -> None:
    for url in ("http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"):
        assert Account.of("anthropic", {"ANTHROPIC_BASE_URL": url}).base_url == "http://h:1"
    assert Account.of("openai", {"OPENAI_BASE_URL": "http://h:1/v1/"}).base_url == "http://h:1/v1"


def test_other_prefixes_have_a_variable_too() -> None:
    assert Account.of("groq", {"GROQ_API_KEY": "k"}).variable == "GROQ_API_KEY"
    assert Account.of("google", {"GEMINI_API_KEY": "k"}).variable == "GEMINI_API_KEY"


def test_the_key_that_is_set_decides() -> None:
    assert default_model({}) is None
    assert default_model({"OPENAI_API_KEY": " "}) is None
    assert default_model({"OPENAI_API_KEY": "k"}) == ("openai:gpt-5.5", "OPENAI_API_KEY is set")
    both = default_model({"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"})
    assert both == ("anthropic:claude-sonnet-5", "ANTHROPIC_API_KEY is set")


@pytest.mark.parametrize(
    ("name", "window"),
    [
        ("claude-sonnet-5", 1_000_000),
        ("claude-opus-5-5", 1_000_000),
        ("claude-opus-4-6", 1_000_000),
        ("claude-sonnet-4-5-20250929", 200_000),
        ("claude-sonnet-4-20250514", 200_000),
        ("claude-haiku-4-5", 200_000),
        ("claude-3-5-haiku-latest", 200_000),
        ("anthropic/claude-haiku-4-5", 200_000),
        ("us.anthropic.claude-haiku-4-5-20251001-v1:0", 200_000),
        ("gpt-4o-mini", 128_000),
        ("gpt-5-mini", 400_000),
        ("gpt-5.4", 1_000_000),
        ("gpt-5.4-mini", 400_000),
        ("gpt-6-sol", 1_000_000),
        ("o3", 200_000),
        ("gemini-3.8-flash", 1_000_000),
        ("our-own", 128_000),
    ],
)
def test_the_window_is_known_by_the_family(name: str, window: int) -> None:
    limits = limits_of(name)
    assert limits.window_tokens == window
    assert limits.max_output_tokens >= 8_000


def test_limits_can_be_overridden() -> None:
    limits = limits_of("claude-sonnet-5", window_tokens=50_000, max_output_tokens=9_000)
    assert (limits.window_tokens, limits.max_output_tokens) == (50_000, 9_000)
    assert limits_of("x", window_tokens=10_000).max_output_tokens == 5_000
