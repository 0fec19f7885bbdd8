"""The commands of `chappe`: where each one lives, and its line in the help. Only the one that is called is loaded."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer

MESH, DATA, LOOK, OPERATE, TOOLS = "Run a mesh", "Publish and receive", "Look inside", "Operate brokers", "Tools"
COMPLETING = "_CHAPPE_COMPLETE"  # set by the shell's completion


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """One command: `module:name` of its function or Typer, and what it does in one line."""

    place: str
    line: str
    panel: str


COMMANDS = {
    "node": CommandEntry("chappe.cli.node:node", "Run a node until Ctrl-C or SIGTERM, then drain it.", MESH),
    "up": CommandEntry("chappe.cli.up:up", "Run a whole deployment on this machine.", MESH),
    "deploy": CommandEntry("chappe.cli.deploy:app", "Check a deployment file, or generate one from a grid.", MESH),
    "demo": CommandEntry(
        "chappe.cli.demo:demo", "Two clouds with brokers, a change of mode, a flooded alert and a condensation.", MESH
    ),
    "pub": CommandEntry("chappe.cli.pub:pub", "Publish events to a topic, or values of a variable.", DATA),
    "sub": CommandEntry("chappe.cli.sub:sub", "Print the events of topics.", DATA),
    "watch": CommandEntry("chappe.cli.watch:watch", "Print the values of variables.", DATA),
    "request": CommandEntry("chappe.cli.request:request", "Publish a request and print the first answer.", DATA),
    "cell": CommandEntry("chappe.cli.cell:app", "Send messages and files from name to name, over many paths.", DATA),
    "top": CommandEntry("chappe.cli.top:top", "Live table of nodes, links, clients, rates and drops.", LOOK),
    "ls": CommandEntry("chappe.cli.ls:ls", "List what a node knows.", LOOK),
    "links": CommandEntry(
        "chappe.cli.links:links", "Show the links of a node: mean latency, deviation, jitter, loss, cost.", LOOK
    ),
    "route": CommandEntry("chappe.cli.route:route", "Explain the route of events from one node to another.", LOOK),
    "dump": CommandEntry("chappe.cli.dump:dump", "Decode frames from a file or a live port.", LOOK),
    "show": CommandEntry("chappe.cli.show:show", "List what a broker knows.", OPERATE),
    "map": CommandEntry(
        "chappe.cli.map:map_", "Draw routers where their coordinates say, or the map of a node of a mesh.", OPERATE
    ),
    "paths": CommandEntry("chappe.cli.paths:paths", "Print all paths of all subscriptions to a variable.", OPERATE),
    "mode": CommandEntry("chappe.cli.mode:app", "Show or change the operating mode.", OPERATE),
    "flood": CommandEntry("chappe.cli.flood:app", "Flood variables through clouds, and stop it.", OPERATE),
    "condense": CommandEntry("chappe.cli.condense:app", "Create, list and remove condensation functions.", OPERATE),
    "topology": CommandEntry("chappe.cli.topology:app", "Add and remove routers, channels and children.", OPERATE),
    "aggregate": CommandEntry(
        "chappe.cli.aggregate:app", "Run an aggregator of measurements, and ask what it has stored.", OPERATE
    ),
    "archive": CommandEntry(
        "chappe.cli.archive:app", "Run an archive of a mesh, and look after what it has written.", OPERATE
    ),
    "pipeline": CommandEntry(
        "chappe.cli.pipeline:app", "Run the jobs of the data pipeline on Spark; see their tables.", TOOLS
    ),
    "bench": CommandEntry("chappe.cli.bench:app", "Measure Chappe beside its peers (from a checkout).", TOOLS),
    "cert": CommandEntry("chappe.cli.cert:app", "Make, renew, revoke and show the certificates of a mesh.", TOOLS),
    "token": CommandEntry("chappe.cli.token:app", "Make, show and revoke signed tokens of clients.", TOOLS),
    "version": CommandEntry(
        "chappe.cli.version:version", "Print the versions of Chappe, its wire format and Python.", TOOLS
    ),
}


def run(arguments: Sequence[str] | None = None) -> None:
    """Do what the arguments say and exit."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    wanted = None if COMPLETING in os.environ else next((word for word in given if not word.startswith("-")), "")
    build(wanted)(args=given, prog_name="chappe")


def build(wanted: str | None = None) -> typer.Typer:
    """The application with one command loaded and only the lines of the others; None loads all of them."""
    app = typer.Typer(
        name="chappe",
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(epilog="Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not reachable, 4 refused.")(_root)
    for name, entry in COMMANDS.items():
        if wanted is None or name == wanted:
            _add(app, name, entry)
        else:
            app.command(name, help=entry.line, rich_help_panel=entry.panel)(_elsewhere)
    return app


def _add(app: typer.Typer, name: str, entry: CommandEntry) -> None:
    place, _, attribute = entry.place.partition(":")
    module = import_module(place)
    loaded: typer.Typer | Callable[..., Any] = getattr(module, attribute)
    if isinstance(loaded, typer.Typer):
        app.add_typer(loaded, name=name, short_help=entry.line, rich_help_panel=entry.panel)
        return
    examples: tuple[str, ...] = getattr(module, "EXAMPLES", ())
    epilog = "\n\n".join(("Examples:", *(f"  [bold]{example}[/bold]" for example in examples))) if examples else None
    settings: dict[str, Any] | None = getattr(module, "SETTINGS", None)
    app.command(name, epilog=epilog, short_help=entry.line, rich_help_panel=entry.panel, context_settings=settings)(
        loaded
    )


def _elsewhere() -> None:
    """Stands for a command that was not called."""


def _show_version(value: bool) -> None:
    if value:
        from chappe import __version__

        typer.echo(f"chappe {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Status and events across a wide area.

    Every command has --help with examples. Commands that talk to a node take its address from --url or CHAPPE_URL.
    """
