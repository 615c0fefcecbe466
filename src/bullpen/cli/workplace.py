"""`--workspace`: a directory of this machine, or a repository elsewhere of which each member gets a clone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bullpen.cli.call import Call
from bullpen.errors import UsageError
from bullpen.workspaces.address import Address, is_address, parse_address


@dataclass(frozen=True, slots=True)
class Workplace:
    """`directory`: where settings and hooks are at home; where all work, unless there is an `address`."""

    directory: Path
    address: Address | None = None

    @property
    def text(self) -> str:
        """What the team remembers of it."""
        return str(self.directory) if self.address is None else self.address.text


def workplace_of(workspace: str | None) -> Workplace:
    if workspace is not None and is_address(workspace):
        return Workplace(directory_of(None), parse_address(workspace))
    return Workplace(directory_of(workspace))


def directory_of(workspace: str | None) -> Path:
    directory = Path(workspace).expanduser().absolute() if workspace else Path.cwd()
    if not directory.is_dir():
        raise UsageError(f"{directory} is not a directory: --workspace names where the team works")
    return directory


def say_what_is_shared(call: Call, directory: Path) -> None:
    """Where workers of other machines could be involved: what a directory does not guarantee."""
    if call.place.url.startswith(("postgresql:", "postgres:")):
        call.note(
            f"a worker on another machine needs {directory} there, too, on a file system that both share: nothing "
            "keeps two machines from writing it at once, and what is not handed in stays on its machine; "
            "--workspace git+URL gives each member a clone of its own instead"
        )
