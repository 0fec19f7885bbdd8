"""`chappe topology`: routers, channels and children of brokers, changed while they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from chappe.cli._failures import say
from chappe.cli._operator import Operator, root_of
from chappe.cli._target import run, targeted
from chappe.errors import ConfigError

if TYPE_CHECKING:
    from chappe.status.topology import Topology
    from chappe.wire.base import Request

app = typer.Typer(help="Add and remove routers, channels and children of brokers at run time.", no_args_is_help=True)
add = typer.Typer(help="Add a router, a channel or a child broker.", no_args_is_help=True)
remove = typer.Typer(help="Remove a router, a channel or a child broker.", no_args_is_help=True)
app.add_typer(add, name="add")
app.add_typer(remove, name="remove")
Router = Annotated[str, typer.Argument(metavar="NAME", help="Name of the router.", show_default=False)]
End = Annotated[str, typer.Argument(help="Name of a router.", show_default=False)]
Role = Annotated[str, typer.Argument(metavar="NAME", help="Name of the child broker.", show_default=False)]


@add.command(
    "router", epilog="Example:\n\n  [bold]chappe topology add router bus-119 -d grid.toml --broker cloud-1[/bold]"
)
@targeted
def add_router(
    operator: Operator,
    name: Router,
    edge: Annotated[bool, typer.Option("--edge/--inner", help="Whether clients may attach to it.")] = True,
    events_per_s: Annotated[float, typer.Option(min=0, help="Events it can receive; 0: as by default.")] = 0.0,
    x: Annotated[float, typer.Option(help="Where it is on the map.")] = 100.0,
    y: Annotated[float, typer.Option(help="Where it is on the map.")] = 100.0,
) -> None:
    """Let a router into a cloud: --broker is its leaf broker. Then start it, with `broker` in its file."""
    from chappe.wire.management import AddRouter

    request = AddRouter(id=0, name=name, edge=edge, events_per_s=events_per_s, x=x, y=y)
    run(_operate(operator, request, _leaf_of(name), f"router {name} is added"))


@remove.command(
    "router", epilog="Example:\n\n  [bold]chappe topology remove router bus-119 -d grid.toml --broker cloud-1[/bold]"
)
@targeted
def remove_router(operator: Operator, name: Router) -> None:
    """Take a router out of its cloud; refused while a path uses it."""
    from chappe.wire.management import RemoveRouter

    run(_operate(operator, RemoveRouter(id=0, name=name), _leaf_of(name), f"router {name} is removed"))


@add.command(
    "channel",
    epilog="Example:\n\n"
    "  [bold]chappe topology add channel bus-1 bus-9 --to tcp://127.0.0.1:7608 --latency-ms 0.4 -d grid.toml[/bold]",
)
@targeted
def add_channel(
    operator: Operator,
    a: End,
    b: End,
    to: Annotated[str, typer.Option("--to", metavar="URL", help="Where B listens; A dials it.")] = "",
    bytes_per_s: Annotated[float, typer.Option(min=0, help="Each direction; 0: as by default.")] = 0.0,
    latency_ms: Annotated[float, typer.Option(min=0, help="Each direction.")] = 1.0,
    security: Annotated[int, typer.Option(min=0, max=2, help="0 plain, 1 authentic, 2 encrypted.")] = 0,
    udp: Annotated[bool, typer.Option("--udp", help="Values travel in datagrams.")] = False,
) -> None:
    """Join two routers. The broker is the leaf of both, or the lowest that is above both their clouds."""
    from chappe.wire.management import AddChannel

    request = AddChannel(
        id=0, a=a, b=b, url=to, bytes_per_s=bytes_per_s, latency_ns=round(latency_ms * 1e6), security=security,
        data="udp" if udp else "stream",
    )  # fmt: skip
    run(_operate(operator, request, _owner_of(a, b), f"channel {a} - {b} is added"))


@remove.command("channel", epilog="Example:\n\n  [bold]chappe topology remove channel bus-1 bus-9 -d grid.toml[/bold]")
@targeted
def remove_channel(operator: Operator, a: End, b: End) -> None:
    """Part two routers; refused while a path uses the channel."""
    from chappe.wire.management import RemoveChannel

    run(_operate(operator, RemoveChannel(id=0, a=a, b=b), _owner_of(a, b), f"channel {a} - {b} is removed"))


@add.command("child", epilog="Example:\n\n  [bold]chappe topology add child west -d grid.toml --broker root[/bold]")
@targeted
def add_child(operator: Operator, name: Role) -> None:
    """Let a broker join another as its child; without --broker the root."""
    from chappe.wire.management import AddChild

    run(_operate(operator, AddChild(id=0, role=name), root_of, f"child {name} is added"))


@remove.command("child", epilog="Example:\n\n  [bold]chappe topology remove child west -d grid.toml[/bold]")
@targeted
def remove_child(operator: Operator, name: Role) -> None:
    """Part a broker from its parent."""
    from chappe.wire.management import RemoveChild

    run(_operate(operator, RemoveChild(id=0, role=name), root_of, f"child {name} is removed"))


Choice = Callable[["Topology"], str]


async def _operate(operator: Operator, request: Request, otherwise: Choice, done: str) -> None:
    name, urls = operator.one(otherwise)
    await operator.ask(urls, lambda client: client.operate(request))
    say(f"{name or urls[0]}: {done}")


def _leaf_of(router: str) -> Choice:
    """The leaf broker of a router that the file knows."""

    def choose(topology: Topology) -> str:
        if router not in topology.routers:
            raise ConfigError(f"router {router} is not in the file of the deployment: name its leaf with --broker")
        return topology.routers[router].cloud

    return choose


def _owner_of(a: str, b: str) -> Choice:
    """The broker that manages a channel between two routers that the file knows."""

    def choose(topology: Topology) -> str:
        clouds = [_leaf_of(name)(topology) for name in (a, b)]
        above = [*topology.ancestors(clouds[0])]
        return next(broker for broker in topology.ancestors(clouds[1]) if broker in above)

    return choose
