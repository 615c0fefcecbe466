"""The sandbox of machines without bubblewrap: the same environment, HOME and way of ending, and no walls."""

from __future__ import annotations

from bullpen.errors import SandboxUnavailable
from bullpen.sandbox import Guarantees, SandboxSpec
from bullpen.sandboxes.cell import Launch
from bullpen.sandboxes.process import kill_trees
from bullpen.sandboxes.supervised import IDLE_SECONDS, SupervisedSandbox


class LocalSandbox(SupervisedSandbox):
    """`reason` is why there is nothing better."""

    def __init__(
        self, spec: SandboxSpec, *, reason: str = "sandbox = 'local'", idle_seconds: float = IDLE_SECONDS
    ) -> None:
        super().__init__(spec, idle_seconds=idle_seconds)
        self._reason = reason
        self._environment = {"TMPDIR": str(self.temporary), **self._environment}

    @property
    def name(self) -> str:
        return "local"

    @property
    def guarantees(self) -> Guarantees:
        return Guarantees(files_confined=False, secrets_hidden=False, network_cut=False, processes_contained=False)

    def describe(self) -> str:
        return (
            f"Commands are NOT confined ({self._reason}): they run as you, and can change files outside the workspace, "
            "read your secrets and the store, use the network, and start processes that outlive the team. "
            "Installing bubblewrap closes this; sandbox = 'required' refuses to run without it."
        )

    def _needs_own_cell(self, *, network: bool, read_only: bool) -> bool:
        if read_only:
            raise SandboxUnavailable(f"a read-only command needs bubblewrap ({self._reason})")
        return False

    def _launch(self, *, network: bool, read_only: bool) -> Launch:
        return Launch(environment=self._environment)

    async def _sweep(self) -> None:
        await kill_trees(self._marked(lambda mark: mark == self._mark))
