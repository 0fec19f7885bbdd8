"""`chappe request`: a question to a topic, and its first answer."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from chappe.cli._target import Target, run, targeted
from chappe.cli._text import message_json

EXAMPLES = ("chappe request time/now", "chappe request plant/a/valve '{\"open\": 1}' --timeout 2 --json")


@targeted
def request(
    target: Target,
    topic: Annotated[str, typer.Argument(help="Where somebody answers.", show_default=False)],
    body: Annotated[str, typer.Argument(help="What is asked.")] = "",
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds to wait for the answer.")] = 5.0,
    as_json: Annotated[bool, typer.Option("--json", help="For scripts: one JSON object.")] = False,
) -> None:
    """Publish a request and print the first answer; exit code 1 if none comes in time."""
    run(_request(target, topic, body.encode(), timeout, as_json))


async def _request(target: Target, topic: str, body: bytes, timeout_s: float, as_json: bool) -> None:
    async with target.connect("request") as client:
        answer = await client.request(topic, body, timeout_s=timeout_s)
    if as_json:
        typer.echo(message_json(answer))
        return
    sys.stdout.buffer.write(answer.body + (b"" if answer.body.endswith(b"\n") else b"\n"))
