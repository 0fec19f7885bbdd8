"""`chappe demo`: see clouds, brokers and modes at work."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from chappe.cli._failures import FAILED, say_error
from chappe.errors import ChappeError

EXAMPLES = ("chappe demo", "chappe demo --seconds 20", "chappe demo --seconds 120")


def demo(
    seconds: Annotated[
        float | None, typer.Option(min=1, max=86_400, help="End after so long, with a summary; else at Ctrl-C.")
    ] = None,
) -> None:
    """Two clouds with brokers, a change of mode, a flooded alert and a condensation.

    A publisher in one cloud sends 200 phasors 30 times a second; watchers in the other take all of it over two
    disjoint paths, a third and a tenth. Meanwhile a sum is condensed in the network, an emergency mode gives the second
    everything and the third nothing, and an alert is flooded to every router. Every value is checked: ends with 1 if
    anything was lost, repeated or filtered wrongly. All of it takes 20 seconds.

    In 90 seconds or more, where Spark can run, a measuring mesh with an archive and a pipeline is beside it: one of its
    links is made slow, the route leaves it at once, the pipeline's alert follows as an event, and a report shows both.
    """
    import asyncio

    import uvloop
    from rich.console import Console

    from chappe.demo.run import run_demo

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            code = runner.run(run_demo(seconds, Console()))
    except (ChappeError, TimeoutError, json.JSONDecodeError) as error:
        say_error(str(error) or "the processes of the demo did not start in time")
        raise typer.Exit(FAILED) from None
    raise typer.Exit(code)
