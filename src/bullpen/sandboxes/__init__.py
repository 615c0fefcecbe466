"""The sandboxes, behind one function."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bullpen.errors import SandboxUnavailable, UsageError

if TYPE_CHECKING:
    from bullpen.sandbox import Sandbox, SandboxSpec

__all__ = ["SANDBOX_KINDS", "open_sandbox"]

SANDBOX_KINDS = ("auto", "required", "bubblewrap", "local")


def open_sandbox(spec: SandboxSpec, *, kind: str = "auto") -> Sandbox:
    """The sandbox of a member, to be entered with `async with`.

    `auto`: bubblewrap wherever it works, else local, whose `describe()` must be shown to the human.
    `required`, `bubblewrap`: bubblewrap, or SandboxUnavailable. `local`: no walls at all.
    """
    from bullpen.sandboxes.bubblewrap import BubblewrapSandbox, probe
    from bullpen.sandboxes.local import LocalSandbox

    if kind not in SANDBOX_KINDS:
        raise UsageError(f"{kind!r} is not a sandbox: use {', '.join(SANDBOX_KINDS)}")
    if kind == "local":
        return LocalSandbox(spec)
    found = probe()
    if found.works:
        return BubblewrapSandbox(spec)
    if kind == "auto":
        return LocalSandbox(spec, reason=found.reason)
    raise SandboxUnavailable(f"{found.reason}: install it (apt install bubblewrap), or set sandbox = 'local'")
