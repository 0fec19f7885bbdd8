"""`chappe sub`: the events of topics, one a line."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from chappe.cli._failures import DONE, FAILED, say, say_error
from chappe.cli._target import Target, run, targeted, warn_lost
from chappe.cli._text import message_json, printable

if TYPE_CHECKING:
    from chappe.client._inbox import Message, Subscription

EXAMPLES = (
    "chappe sub 'plant/#'",
    "chappe sub 'jobs/+' --group workers --json",
    "chappe sub 'plant/+/alarm' --count 1 --seconds 10   # exit code 1 if none comes",
)


@targeted
def sub(
    target: Target,
    patterns: Annotated[list[str], typer.Argument(metavar="PATTERN...", help="Topics; + one level, # the rest.")],
    group: Annotated[str, typer.Option(help="Share the events with the other members of this queue group.")] = "",
    count: Annotated[int, typer.Option(min=0, help="End after so many; 0: never.")] = 0,
    seconds: Annotated[
        float, typer.Option(min=0, help="End after so long; with --count and fewer events: exit code 1.")
    ] = 0.0,
    backpressure: Annotated[bool, typer.Option("--backpressure", help="Make publishers wait for this one.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For scripts: one JSON object a line.")] = False,
) -> None:
    """Print the events of topics, until Ctrl-C, --count or --seconds."""
    run(_sub(target, patterns, group, count, seconds, backpressure, as_json), endless=not count)


async def _sub(
    target: Target, patterns: list[str], group: str, count: int, seconds: float, backpressure: bool, as_json: bool
) -> int:
    async with target.connect("sub") as client:
        client.on_disconnect = warn_lost
        client.on_loss = lambda _, events: say(f"the node dropped {events} events for this subscriber: it is too slow")
        subscriptions = [await client.subscribe(each, group=group, backpressure=backpressure) for each in patterns]
        say(f"subscribed to {' '.join(patterns)}")
        printer = _Printer(count, as_json)
        tasks = [asyncio.ensure_future(printer.follow(each)) for each in subscriptions]
        await asyncio.wait(tasks, timeout=seconds or None, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if printer.left:
            say_error(f"{printer.left} of {count} events did not come within {seconds:g} s")
        return FAILED if printer.left else DONE


class _Printer:
    def __init__(self, count: int, as_json: bool) -> None:
        self.left = count
        self._endless = not count
        self._line = message_json if as_json else _line

    async def follow(self, subscription: Subscription) -> None:
        async for messages in subscription.batches():
            if not self._endless:
                messages = messages[: self.left]
                self.left -= len(messages)
            sys.stdout.write("".join(f"{self._line(message)}\n" for message in messages))
            sys.stdout.flush()
            if not self._endless and not self.left:
                return


def _line(message: Message) -> str:
    topic = printable(str(message.topic).encode())
    return f"{topic}  {printable(message.body)}"
