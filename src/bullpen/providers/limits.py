"""How much a model can read and write, by the family of its name.

Windows are what the providers publish. `max_output_tokens` is what one reply may take, chosen well below what most
models could write: every call reserves it from the budget. Who is not in the table gets what nearly every model of
the day can do.
"""

from __future__ import annotations

import re

from bullpen.provider import ModelLimits

MIN_OUTPUT_TOKENS = 8_000
DEFAULT = ModelLimits(window_tokens=128_000, max_output_tokens=8_192)

# The first that matches counts; a vendor's path before the name (`anthropic/claude-…`) is no part of it.
_FAMILIES: tuple[tuple[str, int, int], ...] = (
    (r"claude-(2|v1|instant)", 100_000, 4_096),
    (r"claude-3-[57]", 200_000, 8_192),
    (r"claude-3", 200_000, 4_096),
    (r"claude-(opus|sonnet|haiku)-4-[0-5]\b|claude-(opus|sonnet|haiku)-4($|-20|@)|claude-4", 200_000, 16_000),
    (r"claude", 1_000_000, 16_000),
    (r"gpt-3\.5", 16_385, 4_096),
    (r"gpt-4\.1", 1_000_000, 16_000),
    (r"gpt-4o|gpt-4-turbo|chatgpt-4o", 128_000, 16_000),
    (r"gpt-4", 8_192, 4_096),
    (r"gpt-5\.[4-9](-pro)?$|gpt-5\.[5-9]|gpt-([6-9]|\d\d)", 1_000_000, 16_000),
    (r"gpt-5", 400_000, 16_000),
    (r"gpt-oss", 131_072, 8_192),
    (r"o[134](-|$)|codex", 200_000, 16_000),
    (r"gemini-1\.0|gemini-pro$", 32_768, 8_192),
    (r"gemini", 1_000_000, 16_000),
    (r"deepseek-v4|deepseek-flash", 1_000_000, 8_192),
    (r"deepseek", 64_000, 8_192),
    (r"grok-4", 256_000, 16_000),
    (r"kimi-k[3-9]", 1_000_000, 16_000),
    (r"kimi-k2", 131_072, 16_000),
)


def limits_of(name: str, *, window_tokens: int | None = None, max_output_tokens: int | None = None) -> ModelLimits:
    """The limits of the model with that name, without its prefix; arguments override what is known."""
    bare = name.rpartition("/")[2].lower().removeprefix("us.").removeprefix("eu.").removeprefix("anthropic.")
    known = next(
        (
            ModelLimits(window_tokens=window, max_output_tokens=output)
            for pattern, window, output in _FAMILIES
            if re.match(pattern, bare)
        ),
        DEFAULT,
    )
    window = window_tokens or known.window_tokens
    return ModelLimits(
        window_tokens=window,
        max_output_tokens=max_output_tokens
        or min(max(known.max_output_tokens, MIN_OUTPUT_TOKENS), max(window // 2, 1)),
    )
