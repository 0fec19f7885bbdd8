"""`chappe aggregate control`: an order to the monitor of a node, as an aggregator gives it (MR-085, MR-086)."""

from __future__ import annotations

import asyncio
import os
import time
from enum import StrEnum
from typing import Annotated

import typer

from chappe.cli._failures import DONE, FAILED, say
from chappe.cli._tables import print_json
from chappe.cli._target import Target, run, targeted
from chappe.errors import ConfigError, TimeoutExpired

WAIT_S = 10.0


class Action(StrEnum):
    """What a monitor can be asked to do."""

    start = "start"
    stop = "stop"
    set_interval = "set_interval"
    report_only = "report_only"
    measure = "measure"


def add(app: typer.Typer) -> None:
    """Give the application this command."""
    app.command(
        "control",
        epilog="Examples:\n\n"
        "  [bold]chappe aggregate control n1 report_only --realm east --change percent:10[/bold]\n\n"
        "  [bold]chappe aggregate control n1 stop --realm east --metric bandwidth --link 'tcp://*'[/bold]",
    )(control)


@targeted
def control(
    target: Target,
    node: Annotated[str, typer.Argument(help="Name of the node.", show_default=False)],
    action: Annotated[Action, typer.Argument(help="What to do.", show_default=False)],
    realm: Annotated[str, typer.Option(help="Realm of the node.")] = "default",
    link: Annotated[list[str] | None, typer.Option(help="UUID, or pattern of URIs and peers; without: all.")] = None,
    metric: Annotated[list[str] | None, typer.Option(help="latency_ms, loss, …; without: all.")] = None,
    interval_ms: Annotated[float | None, typer.Option(min=0, help="Of set_interval.")] = None,
    change: Annotated[str, typer.Option(metavar="KIND:VALUE", help="Of report_only: absolute:2 or percent:10.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="For scripts: the answer as a JSON object.")] = False,
) -> None:
    """Ask the monitor of a node what to measure, how often, and what to report; prints what it answers."""
    request: dict[str, object] = {
        "id": f"operator-{os.getpid()}-{time.time_ns()}", "aggregator": f"operator-{os.getpid()}", "node": node,
        "action": action.value, "links": link or [], "metrics": metric or [], "interval_ms": interval_ms,
        "change": _change(change),
    }  # fmt: skip
    run(_control(target, realm, request, as_json))


async def _control(target: Target, realm: str, request: dict[str, object], as_json: bool) -> int:
    import msgspec

    from chappe.measure import messages
    from chappe.measure.messages import ControlReply, ControlRequest
    from chappe.measure.record import RecordError

    try:
        order = msgspec.convert(request, ControlRequest)
    except msgspec.ValidationError as error:
        raise ConfigError(str(error)) from None
    async with target.connect("aggregate") as client:
        answers = await client.subscribe(messages.reply_topic(realm, order.node))
        client.publish(messages.control_topic(realm, order.node), messages.encode(order), content_type=messages.JSON)
        try:
            async with asyncio.timeout(WAIT_S):
                async for message in answers:
                    try:
                        reply = messages.decode(message.body, ControlReply)
                    except RecordError:
                        continue
                    if reply.id == order.id:
                        return _print_reply(reply, as_json)
        except TimeoutError:
            pass
    raise TimeoutExpired(f"no monitor of {order.node} in realm {realm} answered within {WAIT_S:g} s; does it report?")


def _print_reply(reply: object, as_json: bool) -> int:
    import msgspec

    from chappe.measure.messages import ControlReply

    assert isinstance(reply, ControlReply)
    if as_json:
        print_json([msgspec.to_builtins(reply)])
    else:
        typer.echo(f"applied to {len(reply.applied)} links of {reply.node}")
        for reason in reply.refused:
            say(f"refused: {reason}")
    return FAILED if reply.refused else DONE


def _change(text: str) -> dict[str, object] | None:
    if not text:
        return None
    kind, _, value = text.partition(":")
    try:
        return {"kind": kind, "value": float(value)}
    except ValueError:
        raise typer.BadParameter(f"{text!r}: write absolute:2 or percent:10", param_hint="--change") from None
