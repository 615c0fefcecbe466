"""Whose key and which address a provider's prefix stands for, as the environment says.

The key itself is kept out of every representation; `key_id` tells accounts apart without it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

KEY_VARIABLES: Mapping[str, tuple[str, ...]] = {
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    "openai": ("OPENAI_API_KEY",),
    "openai-chat": ("OPENAI_API_KEY",),
    "openai-responses": ("OPENAI_API_KEY",),
    "google": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    "bedrock": ("AWS_BEARER_TOKEN_BEDROCK", "AWS_ACCESS_KEY_ID", "AWS_PROFILE"),
    "huggingface": ("HF_TOKEN",),
    "github": ("GITHUB_API_KEY",),
    "vercel": ("VERCEL_AI_GATEWAY_API_KEY", "VERCEL_OIDC_TOKEN"),
}
BASE_URL_VARIABLES: Mapping[str, str] = {
    "anthropic": "ANTHROPIC_BASE_URL",
    "openai": "OPENAI_BASE_URL",
    "openai-chat": "OPENAI_BASE_URL",
    "openai-responses": "OPENAI_BASE_URL",
    "ollama": "OLLAMA_BASE_URL",
    "litellm": "LITELLM_BASE_URL",
}

# Only what can be called without another package; the first key that is set decides.
DEFAULT_MODELS: Mapping[str, str] = {
    "ANTHROPIC_API_KEY": "anthropic:claude-sonnet-5",
    "ANTHROPIC_AUTH_TOKEN": "anthropic:claude-sonnet-5",
    "OPENAI_API_KEY": "openai:gpt-5.5",
    "OPENROUTER_API_KEY": "openrouter:anthropic/claude-sonnet-5",
    "DEEPSEEK_API_KEY": "deepseek:deepseek-chat",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    provider: str
    variables: tuple[str, ...]
    variable: str | None
    key: str | None = field(repr=False)
    base_url: str | None

    @classmethod
    def of(cls, provider: str, environ: Mapping[str, str]) -> Account:
        variables = KEY_VARIABLES.get(provider) or (f"{provider.upper().replace('-', '_')}_API_KEY",)
        variable = next((name for name in variables if environ.get(name, "").strip()), None)
        base_url = environ.get(BASE_URL_VARIABLES.get(provider, ""), "").strip().rstrip("/") or None
        if provider == "anthropic" and base_url:
            # Its client adds the version itself, others want it in the address: both spellings are understood.
            base_url = base_url.removesuffix("/v1")
        return cls(
            provider=provider,
            variables=variables,
            variable=variable,
            key=environ[variable].strip() if variable else None,
            base_url=base_url,
        )

    @property
    def key_id(self) -> str:
        digest = hashlib.sha256((self.key or "").encode("utf-8", "surrogateescape")).hexdigest()[:12]
        return f"{self.provider}|{self.base_url or 'default'}|{digest if self.key else 'no-key'}"

    @property
    def how_to_set(self) -> str:
        return f"set {' or '.join(self.variables)}, or choose another model"

    def without_key(self, text: str) -> str:
        """The text of a server, which may quote the key back."""
        return text.replace(self.key, "…") if self.key and len(self.key) >= 4 else text


def default_model(environ: Mapping[str, str]) -> tuple[str, str] | None:
    """The model to take when none is named, and why: the first key that is set decides. None if no key is."""
    for variable, model in DEFAULT_MODELS.items():
        if environ.get(variable, "").strip():
            return model, f"{variable} is set"
    return None
