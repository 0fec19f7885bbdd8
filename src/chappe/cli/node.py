"""`chappe node`: one node of the mesh in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chappe.cli._failures import exit_code, say_error
from chappe.errors import ChappeError

EXAMPLES = (
    "chappe node --dev",
    "chappe node --dev --listen tcp://127.0.0.1:7401 --listen unix:///tmp/chappe.sock",
    "chappe node --check tower-1.toml && chappe node tower-1.toml",
)


def node(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="TOML file of the node.", show_default=False)
    ] = None,
    dev: Annotated[bool, typer.Option("--dev", help="No authentication; loopback addresses only.")] = False,
    listen: Annotated[
        list[str] | None, typer.Option(metavar="URL", help="Without FILE: where to listen; may be repeated.")
    ] = None,
    name: Annotated[str, typer.Option(help="Without FILE: name of the node.")] = "dev",
    check: Annotated[bool, typer.Option("--check", help="Say what is wrong with FILE, and end.")] = False,
) -> None:
    """Run a node until Ctrl-C or SIGTERM, then drain it.

    SIGHUP reads FILE and the certificates again. A line `listening URL` for each address, then `serving`, say that it
    is up.
    """
    if file is None and not dev:
        raise typer.BadParameter("give a FILE, or --dev for a node without one", param_hint="FILE")
    if file is None and check:
        raise typer.BadParameter("--check needs a FILE", param_hint="FILE")
    if file is not None and listen:
        raise typer.BadParameter(f"is for a node without a FILE; write [[listen]] in {file}", param_hint="--listen")
    from chappe.runtime.config.reader import check as checked
    from chappe.runtime.process import dev_config, run_node

    try:
        if check:
            assert file is not None
            checked(file, dev=dev)
            typer.echo(f"{file}: ok")
            return
        code = run_node(file or dev_config(tuple(listen or ()), name), dev=dev)
    except ChappeError as error:
        say_error(error)
        raise typer.Exit(exit_code(error)) from None
    raise typer.Exit(code)
