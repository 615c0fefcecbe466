"""The commands, and the options that all of them have."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bullpen.cli import completion
from bullpen.cli.options import Globals
from bullpen.cli.parser import Entry, LazyGroup, imported

SECTIONS = {
    "Work": {
        "demo": Entry("See a team at work: no key, no network.", imported("bullpen.cli.commands.demo:demo")),
        "run": Entry("Give a new team a goal, and watch it work.", imported("bullpen.cli.commands.run:run")),
        "chat": Entry("Talk with the lead while the team works.", imported("bullpen.cli.commands.chat:chat")),
        "resume": Entry("Go on with a team that rests or crashed.", imported("bullpen.cli.commands.run:resume")),
        "worker": Entry(
            "Host members of a shared store on this machine.", imported("bullpen.cli.commands.worker:worker")
        ),
    },
    "Look": {
        "watch": Entry("Look on while a team works.", imported("bullpen.cli.commands.watch:watch")),
        "log": Entry("What a member said, did and was told.", imported("bullpen.cli.commands.log:log")),
        "cost": Entry("What was spent, by whom, against the budget.", imported("bullpen.cli.commands.cost:cost")),
        "events": Entry("The team's log: what happened, in order.", imported("bullpen.cli.commands.event:events")),
    },
    "Bring it home": {
        "diff": Entry("What a team made.", imported("bullpen.cli.commands.diff:diff")),
        "apply": Entry("Take what a team made, or give it back.", imported("bullpen.cli.commands.apply:apply")),
        "clean": Entry("Remove what finished teams left in git.", imported("bullpen.cli.commands.clean:clean")),
    },
    "Take part": {
        "task": Entry("The board: add, list, show, update, claim, done.", imported("bullpen.cli.commands.task:branch")),
        "send": Entry("Write to a member, or to everyone.", imported("bullpen.cli.commands.mail:send")),
        "inbox": Entry(
            "Look at the mail of a member; looking never drains.", imported("bullpen.cli.commands.mail:inbox")
        ),
        "approve": Entry("Say yes to a request.", imported("bullpen.cli.commands.request:approve")),
        "reject": Entry("Say no to a request.", imported("bullpen.cli.commands.request:reject")),
    },
    "Steer": {
        "team": Entry("Teams: list, show, delete.", imported("bullpen.cli.commands.team:branch")),
        "spawn": Entry("Add a teammate, or bring one back.", imported("bullpen.cli.commands.member:spawn")),
        "interrupt": Entry("Cut off what a member does just now.", imported("bullpen.cli.commands.member:interrupt")),
        "pause": Entry("No more calls of a model until unpause.", imported("bullpen.cli.commands.pause:pause")),
        "unpause": Entry("Let a paused team go on.", imported("bullpen.cli.commands.pause:unpause")),
        "stop": Entry("Ask a member, or everyone, to shut down.", imported("bullpen.cli.commands.member:stop")),
    },
    "Set up": {
        "init": Entry("Write a commented bullpen.toml.", imported("bullpen.cli.commands.config:init")),
        "config": Entry("Which settings are in force, and from where.", imported("bullpen.cli.commands.config:config")),
        "migrate": Entry("Bring the tables of the store up to date.", imported("bullpen.cli.commands.migrate:migrate")),
    },
}
COMMANDS = {name: entry for entries in SECTIONS.values() for name, entry in entries.items()}


class RootGroup(LazyGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, sections=SECTIONS)


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
