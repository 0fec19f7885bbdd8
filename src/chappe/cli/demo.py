"""`chappe demo`: see the mesh at work."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from chappe.cli._failures import FAILED, say_error
from chappe.errors import ChappeError

EXAMPLES = ("chappe demo", "chappe demo --seconds 20")


def demo(
    seconds: Annotated[
        float | None, typer.Option(min=1, max=86_400, help="End after so long, with a summary; else at Ctrl-C.")
    ] = None,
) -> None:
    """Three nodes, 1,000 variables and a live table.

    A publisher at the first node sends 1,000 phasors 30 times a second, alarms and jobs; subscribers at the third
    take all of it, a third and a tenth, and check each message. Ends with 1 if anything was lost, repeated or
    filtered wrongly.
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
