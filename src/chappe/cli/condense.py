"""`chappe condense`: condensation functions, made and removed through an edge (GS-140)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chappe.cli._failures import say
from chappe.cli._operator import Operator, split_name
from chappe.cli._tables import print_json, print_table
from chappe.cli._target import run, targeted
from chappe.errors import ConfigError

if TYPE_CHECKING:
    from chappe.wire.base import Answer, Request
    from chappe.wire.management import Function

app = typer.Typer(help="Create, list and remove condensation functions.", no_args_is_help=True)
Output = Annotated[
    str, typer.Argument(metavar="PUBLISHER/VARIABLE", help="The variable it publishes.", show_default=False)
]
Edge = Annotated[str, typer.Option("--edge", "-e", metavar="NAME", help="Edge router of --deployment to go through.")]
Creator = Annotated[str, typer.Option("--creator", help="Who owns the function: only it can remove it.")]
KEYS = ("inputs", "calculator", "type", "trigger", "interval_ms", "count", "low", "high", "out_low", "out_high",
        "priority", "place")  # fmt: skip


@app.command(
    epilog="Examples:\n\n"
    "  [bold]chappe condense create area/load --input a/p --input b/p --calculator builtin:sum --trigger time "
    "--interval-ms 1000 -d grid.toml --edge bus-1[/bold]\n\n"
    "  [bold]chappe condense create area/load --file load.toml --url tcp://127.0.0.1:7600[/bold]"
)
@targeted
def create(
    operator: Operator,
    output: Output,
    edge: Edge = "",
    creator: Creator = "operator",
    file: Annotated[Path | None, typer.Option(help="TOML with these options as keys; options win.")] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="PUBLISHER/VARIABLE[@MS]", help="An input, and its interval in ms."),
    ] = None,
    calculator: Annotated[
        str | None, typer.Option(help="builtin:NAME, expression:TEXT, or entry:NAME of a registered entry point.")
    ] = None,
    type_: Annotated[str | None, typer.Option("--type", help="Of the output; float without.")] = None,
    trigger: Annotated[str | None, typer.Option(help="time, event, alert or entry:NAME; event without.")] = None,
    interval_ms: Annotated[
        float | None, typer.Option(min=0, help="Of the time trigger, and publishing interval of the output.")
    ] = None,
    count: Annotated[int | None, typer.Option(min=0, help="Inputs for event and alert triggers; 0: all.")] = None,
    low: Annotated[float | None, typer.Option(help="Inputs below are dropped.")] = None,
    high: Annotated[float | None, typer.Option(help="Inputs above are dropped.")] = None,
    out_low: Annotated[float | None, typer.Option(help="Results below are dropped.")] = None,
    out_high: Annotated[float | None, typer.Option(help="Results above are dropped.")] = None,
    priority: Annotated[int | None, typer.Option(min=0, max=6, help="Of the output; 3 without.")] = None,
    place: Annotated[str | None, typer.Option(metavar="ROUTER", help="Where it should run.")] = None,
) -> None:
    """Create a function that publishes PUBLISHER/VARIABLE; it stays when this command has ended.

    It runs beside a router of the cloud that has its inputs; of several clouds the one with most of them runs it, and
    the others compute their part where that saves traffic.
    """
    given = {
        "inputs": inputs or None, "calculator": calculator, "type": type_, "trigger": trigger,
        "interval_ms": interval_ms, "count": count, "low": low, "high": high, "out_low": out_low,
        "out_high": out_high, "priority": priority, "place": place,
    }  # fmt: skip
    run(_create(operator, output, edge, creator, file, {key: each for key, each in given.items() if each is not None}))


@app.command(epilog="Example:\n\n  [bold]chappe condense remove area/load -d grid.toml --edge bus-1[/bold]")
@targeted
def remove(operator: Operator, output: Output, edge: Edge = "", creator: Creator = "operator") -> None:
    """Remove a function; only its creator may."""
    run(_remove(operator, output, edge, creator))


@app.command("list", epilog="Example:\n\n  [bold]chappe condense list -d grid.toml --json[/bold]")
@targeted
def list_(
    operator: Operator,
    as_json: Annotated[bool, typer.Option("--json", help="For scripts: one JSON object a line.")] = False,
) -> None:
    """Print the functions of a broker, or of all brokers of a deployment."""
    run(_list(operator, as_json))


async def _create(
    operator: Operator, output: str, edge: str, creator: str, file: Path | None, given: dict[str, Any]
) -> None:
    from chappe.wire.management import Condense, Issued

    request = Condense(id=0, function=function(output, {**_read(file), **given}, file))
    issued = await _at_edge(operator, edge, creator, request)
    where = f", runs at {issued.place}" if isinstance(issued, Issued) and issued.place else ""
    say(f"{output} is created{where}; it belongs to {creator}")
    if isinstance(issued, Issued) and issued.parts:
        say(f"other clouds compute {', '.join(issued.parts)} for it")


async def _remove(operator: Operator, output: str, edge: str, creator: str) -> None:
    from chappe.wire.management import Uncondense

    publisher, variable = split_name(output)
    await _at_edge(operator, edge, creator, Uncondense(id=0, publisher=publisher, variable=variable))
    say(f"{output} is removed")


async def _list(operator: Operator, as_json: bool) -> None:
    found = await operator.gathered("functions")
    if as_json:
        print_json(found)
    elif found:
        print_table(found)
    else:
        say("no functions")


def _read(file: Path | None) -> dict[str, Any]:
    import msgspec

    if file is None:
        return {}
    try:
        table: dict[str, Any] = msgspec.toml.decode(file.read_bytes())
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: not TOML: {error}") from None
    for key in table.keys() - {*KEYS}:
        raise ConfigError(f"{file}: {key}: this key does not exist; there are {', '.join(KEYS)}")
    return table


def function(output: str, given: dict[str, Any], file: Path | None = None) -> Function:
    """The function that was asked for; ConfigError names the option or key that is wrong."""
    import msgspec

    from chappe.wire.management import Function

    publisher, variable = split_name(output)
    for key in ("inputs", "calculator"):
        if not given.get(key):
            raise ConfigError(f"--{key.removesuffix('s')} is required" + (f", or {key} in {file}" if file else ""))
    fields = {key: value for key, value in given.items() if key not in ("inputs", "interval_ms")}
    fields |= {"publisher": publisher, "variable": variable, "inputs": [_input(text) for text in given["inputs"]]}
    try:
        if "interval_ms" in given:
            fields["interval_ns"] = round(msgspec.convert(given["interval_ms"], float) * 1e6)
        return msgspec.convert(fields, Function)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{file or 'the function'}: {error}") from None


def _input(text: Any) -> tuple[str, str, int]:
    name, _, interval_ms = str(text).partition("@")
    try:
        return *split_name(name), round(float(interval_ms or 0) * 1e6)
    except ValueError:
        raise ConfigError(f"--input {text}: {interval_ms!r} is no number of milliseconds") from None


async def _at_edge(operator: Operator, edge: str, creator: str, request: Request) -> Answer:
    """Ask as the creator, a client of an edge: brokers take functions from edges alone."""
    async with operator.at(_edge_url(operator, edge), creator) as client:
        return await client.operate(request)


def _edge_url(operator: Operator, edge: str) -> str:
    topology = operator.topology()
    if topology is None:
        if edge:
            raise ConfigError(f"--edge {edge}: needs --deployment FILE, which says where that router is")
        if not operator.url:
            raise ConfigError("say through which edge: --url URL, or --deployment FILE and --edge NAME")
        return operator.url
    edges = {router.name: router.listen for router in topology.router if router.edge}
    if not edge:
        raise ConfigError(f"--edge is required: a router of {operator.deployment} such as {next(iter(edges), '')}")
    if edge not in edges:
        raise ConfigError(f"--edge {edge}: {operator.deployment} has no such edge (edges: {', '.join(edges)})")
    return edges[edge]
