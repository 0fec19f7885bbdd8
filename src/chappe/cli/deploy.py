"""`chappe deploy`: files of deployments, checked and generated."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chappe.cli._failures import exit_code, say, say_error
from chappe.errors import ChappeError, ConfigError

if TYPE_CHECKING:
    from chappe.cli._grids import Grid

app = typer.Typer(help="Check a deployment file, or generate one from a grid.", no_args_is_help=True)


@app.command(epilog="Example:\n\n  [bold]chappe deploy check grid.toml && chappe up grid.toml[/bold]")
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="TOML file of the deployment.", show_default=False)],
) -> None:
    """Say what is wrong with a file: key, reason and remedy, a line each; exit code 2 then."""
    from chappe.cli._deployment import read
    from chappe.cli.up import contents

    try:
        deployment = read(file)
    except ChappeError as error:
        say_error(error)
        raise typer.Exit(exit_code(error)) from None
    processes = len(deployment.everything)
    typer.echo(f"{file}: ok, {contents(deployment)} in {processes} process{'es' * (processes > 1)}")


@app.command(
    epilog="Examples:\n\n"
    "  [bold]chappe deploy generate --case case118 --clouds 4 --processes 4 -o grid.toml[/bold]\n\n"
    "  [bold]chappe deploy generate network.graphml --clouds 2 > grid.toml[/bold]\n\n"
    "  [bold]chappe deploy generate --topohub sndlib/germany50 --standby postgresql://localhost/chappe[/bold]"
)
def generate(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="GraphML, or JSON in node-link form.", show_default=False)
    ] = None,
    case: Annotated[str | None, typer.Option(metavar="NAME", help="A power-grid case of pandapower.")] = None,
    topohub: Annotated[str | None, typer.Option(metavar="NAME", help="A network of topohub.")] = None,
    clouds: Annotated[int, typer.Option(min=1, help="Clouds, each with a leaf broker; several get a root.")] = 1,
    base_port: Annotated[
        int, typer.Option(min=1, max=65_000, help="First port: brokers, then routers at the next hundred.")
    ] = 7500,
    processes: Annotated[int, typer.Option(min=0, help="Processes of routers; 0: one each.")] = 0,
    standby: Annotated[
        str, typer.Option(metavar="URL", help="Two processes a broker, with this PostgreSQL database.")
    ] = "",
    bytes_per_s: Annotated[float, typer.Option(min=1, help="Capacity of each channel, each direction.")] = 100e6,
    events_per_s: Annotated[float, typer.Option(min=1, help="Capacity of each router.")] = 1e6,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write; else stdout.")] = None,
) -> None:
    """Make a deployment from a grid: one router a node, channels along branches, parallel ones merged.

    The latency of a channel is `latency_ms` of the branch, or its length or the way between coordinates at 200 km a
    millisecond, or its reactance at 0.4 ohm a km; at least 0.05 ms, and 1 ms if nothing is known. Clouds are connected
    and about equally large. The same grid gives the same file.
    """
    from chappe.cli._generate import GenerateOptions, deployment

    options = GenerateOptions(clouds, base_port, processes, standby, bytes_per_s, events_per_s)
    try:
        grid, source = _source(file, case, topohub)
        text = deployment(grid, options, f"chappe deploy generate {source} {_options(options)}")
        if output is not None:
            output.write_text(text)
            say(f"{output}: {len(grid.sites)} routers, {len(grid.branches)} channels, {clouds} clouds")
        else:
            sys.stdout.write(text)
    except ChappeError as error:
        say_error(error)
        raise typer.Exit(exit_code(error)) from None
    except OSError as error:
        say_error(f"{output}: cannot be written: {error.strerror}")
        raise typer.Exit(1) from None


def _source(file: Path | None, case: str | None, topohub: str | None) -> tuple[Grid, str]:
    from chappe.cli._grids import from_case, from_file, from_topohub

    if [file, case, topohub].count(None) != 2:
        raise ConfigError("give one of FILE, --case NAME and --topohub NAME")
    if file is not None:
        return from_file(file), file.name
    if case is not None:
        return from_case(case), f"--case {case}"
    assert topohub is not None
    return from_topohub(topohub), f"--topohub {topohub}"


def _options(options: object) -> str:
    """The command again, for the head of the file; a database's url may hold a password and is left out."""
    from dataclasses import fields

    shown = []
    for field in fields(options):  # type: ignore[arg-type]
        value = getattr(options, field.name)
        if value != field.default:
            shown.append(f"--{field.name.replace('_', '-')} {'…' if field.name == 'standby' else f'{value:g}'}")
    return " ".join(shown)
