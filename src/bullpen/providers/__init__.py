"""The models, behind one function.

Nothing of a provider's library is imported here: that costs seconds and happens when a model is first called.
One object serves any number of members at the same time and keeps its connections, so a process opens each
model once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from bullpen.errors import UsageError
from bullpen.providers.account import Account, default_model
from bullpen.providers.limits import limits_of

if TYPE_CHECKING:
    from bullpen.provider import Provider

__all__ = ["check_model", "default_model", "open_provider", "preload"]

REQUEST_TIMEOUT_SECONDS = 600.0


def open_provider(
    model: str,
    *,
    environ: Mapping[str, str] | None = None,
    window_tokens: int | None = None,
    max_output_tokens: int | None = None,
    thinking: str | None = None,
    timeout_seconds: float = REQUEST_TIMEOUT_SECONDS,
) -> Provider:
    """The model of that name.

    `anthropic:NAME`, `openai:NAME` (chat completions, of any server at OPENAI_BASE_URL), every other prefix of
    pydantic-ai, `scripted:FILE`, `record:FILE:MODEL` and `replay:FILE`. Keys and addresses are read from `environ`
    now; that a key is missing or refused is told by the first reply. `window_tokens` and `max_output_tokens`
    override what is known of the model; `thinking` is `minimal`, `low`, `medium`, `high` or `xhigh`.
    """
    prefix, colon, name = model.partition(":")
    if not colon or not name:
        raise UsageError(_how_to_name(model))
    match prefix:
        case "scripted":
            from bullpen.providers.scripted import ScriptedProvider

            return ScriptedProvider.from_file(
                Path(name), window_tokens=window_tokens, max_output_tokens=max_output_tokens
            )
        case "replay":
            from bullpen.providers.recording import ReplayProvider

            return ReplayProvider(Path(name), window_tokens=window_tokens, max_output_tokens=max_output_tokens)
        case "record":
            from bullpen.providers.recording import RecordingProvider

            file, _, recorded = name.partition(":")
            if not file or not recorded:
                raise UsageError("to record, name a file and a model: record:run.jsonl:anthropic:NAME")
            inner = open_provider(
                recorded,
                environ=environ,
                window_tokens=window_tokens,
                max_output_tokens=max_output_tokens,
                thinking=thinking,
                timeout_seconds=timeout_seconds,
            )
            return RecordingProvider(inner, Path(file))
        case _:
            from bullpen.providers.wire import WireProvider

            return WireProvider(
                model,
                Account.of(prefix, os.environ if environ is None else environ),
                limits_of(name, window_tokens=window_tokens, max_output_tokens=max_output_tokens),
                thinking=thinking,
                timeout_seconds=timeout_seconds,
            )


def preload(model: str) -> None:
    """Import what the first reply of this model needs. It takes seconds: best before anybody waits for it."""
    prefix, _, name = model.partition(":")
    if prefix == "record":
        preload(name.partition(":")[2])
    elif prefix not in ("scripted", "replay"):
        from bullpen.providers.wire.importing import import_libraries

        # What is missing is told by the first reply.
        with suppress(UsageError):
            import_libraries(prefix)


def check_model(model: str, environ: Mapping[str, str] | None = None) -> None:
    """UsageError for a model that could never be asked: a wrong name, no such script, no key, no library.

    What only a server knows (is the key right, is there such a model) is told by the first reply.
    """
    open_provider(model, environ=environ)
    prefix, _, name = model.partition(":")
    if prefix == "record":
        check_model(name.partition(":")[2], environ)
    elif prefix not in ("scripted", "replay"):
        from importlib.util import find_spec

        from bullpen.providers.wire.importing import INSTALL, importing

        account = Account.of(prefix, os.environ if environ is None else environ)
        # Other providers know better themselves what they want.
        needs_key = prefix == "anthropic" or (prefix.startswith("openai") and account.base_url is None)
        if needs_key and account.key is None:
            raise UsageError(f"there is no key for {model}: {account.how_to_set}; `bullpen demo` needs none")
        if find_spec("pydantic_ai") is None:
            raise UsageError(INSTALL)
        if prefix not in ("anthropic", "openai", "openai-chat"):
            with importing():
                from bullpen.providers.wire.client import check_prefix

                check_prefix(prefix)


def _how_to_name(model: str) -> str:
    known = (("claude", "anthropic"), ("gpt", "openai"), ("o1", "openai"), ("o3", "openai"), ("o4", "openai"))
    guess = next((f"{prefix}:{model}" for start, prefix in known if model.startswith(start)), None)
    return f"{model!r} is not the name of a model: " + (
        f"did you mean {guess}?" if guess else "name it PROVIDER:NAME, such as anthropic:NAME or openai:NAME"
    )
