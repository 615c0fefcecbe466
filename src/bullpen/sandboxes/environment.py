"""The environment of commands: built from a list of what is known to be harmless, never copied."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from bullpen.errors import UsageError
from bullpen.sandbox import SandboxSpec

PASSED_ON = frozenset(
    {
        "PATH",
        "LANG",
        "LANGUAGE",
        "TERM",
        "COLORTERM",
        "TZ",
        # where certificates are
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        "NODE_EXTRA_CA_CERTS",
        "PIP_CERT",
        "GIT_SSL_CAINFO",
        "NIX_SSL_CERT_FILE",
        # where compilers are
        "JAVA_HOME",
        "GOROOT",
        "DOTNET_ROOT",
        "ANDROID_HOME",
    }
)

# Programs on PATH that look for the rest of themselves below HOME, which here is another one.
TOOLCHAINS = {
    "PYENV_ROOT": ".pyenv",
    "RUSTUP_HOME": ".rustup",
    "NVM_DIR": ".nvm",
    "VOLTA_HOME": ".volta",
    "RBENV_ROOT": ".rbenv",
    "ASDF_DATA_DIR": ".asdf",
    "MISE_DATA_DIR": ".local/share/mise",
    "SDKMAN_DIR": ".sdkman",
}

PROVIDER_KEYS = frozenset(
    {
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "AZURE_OPENAI_API_KEY",
        "CEREBRAS_API_KEY",
        "CLAUDE_CODE_OAUTH_TOKEN",
        "CO_API_KEY",
        "DEEPSEEK_API_KEY",
        "FIREWORKS_API_KEY",
        "GEMINI_API_KEY",
        "GOOGLE_API_KEY",
        "GROQ_API_KEY",
        "HF_TOKEN",
        "MISTRAL_API_KEY",
        "OPENAI_API_KEY",
        "OPENROUTER_API_KEY",
        "TOGETHER_API_KEY",
        "XAI_API_KEY",
    }
)

SANDBOX_MARK = "BULLPEN_SANDBOX"
"""The private directory: whose command a process is."""
WORKER_MARK = "BULLPEN_WORKER"
"""The worker process that started it."""


def clean_environment(spec: SandboxSpec, *, home: Path, worker: str, ours: Mapping[str, str]) -> dict[str, str]:
    """`ours` is the worker's own environment."""
    if refused := sorted(PROVIDER_KEYS & spec.environment.keys()):
        raise UsageError(f"{refused[0]} is a provider's key: it never enters a sandbox; take it out of sandbox.env")
    passed = {name: value for name, value in ours.items() if name in PASSED_ON or name.startswith("LC_")}
    user = ours.get("USER") or ours.get("LOGNAME") or spec.member
    return {
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        **passed,
        **_toolchains(ours),
        "HOME": str(home),
        "USER": user,
        "LOGNAME": user,
        "SHELL": "/bin/bash",
        # Nobody is there to type a password or to leave a pager.
        "GIT_TERMINAL_PROMPT": "0",
        "PAGER": "cat",
        "GIT_PAGER": "cat",
        **spec.environment,
        SANDBOX_MARK: str(spec.private_directory),
        WORKER_MARK: worker,
    }


def _toolchains(ours: Mapping[str, str]) -> dict[str, str]:
    places = {name: Path(ours.get(name) or Path.home() / place) for name, place in TOOLCHAINS.items()}
    return {name: str(place) for name, place in places.items() if os.path.isdir(place)}
