"""The commands, and the options that all of them have."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bullpen.cli import completion
from bullpen.cli.options import Globals
from bullpen.cli.parser import Entry, LazyGroup, imported

COMMANDS = {
    "run": Entry("Give a new team a goal, and watch it work.", imported("bullpen.cli.commands.run:run")),
    "resume": Entry("Go on with a team that rests or crashed.", imported("bullpen.cli.commands.run:resume")),
    "task": Entry("The board: add, list, show, update, claim, done.", imported("bullpen.cli.commands.task:branch")),
    "send": Entry("Write to a member, or to everyone.", imported("bullpen.cli.commands.mail:send")),
    "inbox": Entry("Look at the mail of a member; looking never drains.", imported("bullpen.cli.commands.mail:inbox")),
    "team": Entry("Teams: list, show, delete.", imported("bullpen.cli.commands.team:branch")),
    "events": Entry("The team's log: what happened, in order.", imported("bullpen.cli.commands.event:events")),
}


class RootGroup(LazyGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, entries=COMMANDS)


app = typer.Typer(
    cls=RootGroup,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="The options --store, --team, --json and --version are understood before and after a command.",
)


@app.callback()
def root(
    store: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Where the state is: sqlite:///PATH, files:DIR, postgresql://HOST/DB (or BULLPEN_STORE); "
            "without it .bullpen/bullpen.db, here or above.",
        ),
    ] = None,
    team: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Which team (or BULLPEN_TEAM); without it the only live one.",
            autocompletion=completion.teams,
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, errors too.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Teams of agents on a shared board, with mail, that lose nothing."""
    # Declared for the help and for completion: `hoist` has taken them out of the words before.


def invoke(words: list[str], chosen: Globals) -> int:
    command = typer.main.get_command(app)
    try:
        with command.make_context("bullpen", words, obj=chosen) as context:
            command.invoke(context)
    except typer.Exit as done:
        return done.exit_code
    return 0
