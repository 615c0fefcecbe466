"""What of this process's environment its workers on other machines need: keys, addresses and settings, nothing else.

It travels as an argument of the actor, not as Ray's `runtime_env`: that one is shown by `ray list`, by its dashboard
and in the logs of every node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bullpen.providers.account import BASE_URL_VARIABLES, KEY_VARIABLES
from bullpen.sandboxes.environment import PROVIDER_KEYS, SANDBOX_MARK, WORKER_MARK

_NAMES = PROVIDER_KEYS.union(BASE_URL_VARIABLES.values(), *KEY_VARIABLES.values())
# Bullpen's settings, what libpq reads (PGPASSWORD, PGSSLMODE), and providers that want more than one variable.
_PREFIXES = ("BULLPEN_", "PG", "AWS_", "AZURE_OPENAI_", "OPENAI_", "ANTHROPIC_", "GOOGLE_CLOUD_")
_SUFFIXES = ("_API_KEY", "_BASE_URL")
# What this process itself is, and where it found its store: the workers have theirs.
_OWN = frozenset({SANDBOX_MARK, WORKER_MARK, "BULLPEN_STORE", "BULLPEN_TEAM"})


def taken_along(environ: Mapping[str, str], wanted: Iterable[str] = ()) -> dict[str, str]:
    """`wanted`: names that the settings pass on to commands (`sandbox.env`)."""
    names = _NAMES.union(wanted)
    return {
        name: value
        for name, value in environ.items()
        if name not in _OWN and (name in names or name.startswith(_PREFIXES) or name.endswith(_SUFFIXES))
    }
