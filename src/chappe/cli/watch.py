"""`chappe watch`: the values of variables, one a line."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from chappe.cli._failures import DONE, FAILED, say, say_error
from chappe.cli._target import Target, run, targeted, warn_lost
from chappe.cli._text import event_json, printable
from chappe.errors import ConfigError

if TYPE_CHECKING:
    from chappe.client._status import StatusEvent, StatusStream

EXAMPLES = (
    "chappe watch meter/frequency",
    "chappe watch meter frequency --interval 0.333",
    "chappe watch pmu/bus-0001 pmu/bus-0002 --count 10 --json",
    "chappe watch 'pmu/#' '+/alarm' --interval 1",
)


@targeted
def watch(
    target: Target,
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="PUBLISHER/VARIABLE...",
            help="Variables, or patterns with + and # that also take in what is published later; of one alone also "
            "PUBLISHER VARIABLE.",
        ),
    ],
    interval: Annotated[float, typer.Option(min=0, help="Seconds between values; 0: every value.")] = 0.0,
    count: Annotated[int, typer.Option(min=0, help="End after so many; 0: never.")] = 0,
    seconds: Annotated[
        float, typer.Option(min=0, help="End after so long; with --count and fewer values: exit code 1.")
    ] = 0.0,
    wait: Annotated[float, typer.Option(min=0, help="Seconds that a named variable may take to appear.")] = 0.0,
    as_json: Annotated[bool, typer.Option("--json", help="For scripts: one JSON object a line.")] = False,
) -> None:
    """Print the values of variables, until Ctrl-C, --count or --seconds. The node does the thinning."""
    run(_watch(target, names, interval, count, seconds, wait, as_json), endless=not count)


def variables(words: list[str]) -> list[tuple[str, str]]:
    """(publisher, variable) of each word `publisher/variable`, or of two words without a slash."""
    if len(words) == 2 and not any("/" in word for word in words):
        return [(words[0], words[1])]
    found = [(publisher, name) for publisher, _, name in (word.partition("/") for word in words)]
    for (publisher, name), word in zip(found, words, strict=True):
        if not publisher or not name:
            raise ConfigError(f"{word!r} is no variable: write PUBLISHER/VARIABLE")
    return found


def wanted_of(words: list[str]) -> list[tuple[str, str] | str]:
    """The same, and words that are patterns as they are."""
    if all(map(_plain, words)):
        return [*variables(words)]
    return [variables([word])[0] if _plain(word) else word for word in words]


def _plain(word: str) -> bool:
    """Whether it stands for one variable alone."""
    return {"+", "#"}.isdisjoint(word.split("/"))


async def _watch(
    target: Target, names: list[str], interval: float, count: int, seconds: float, wait: float, as_json: bool
) -> int:
    wanted = wanted_of(names)
    async with target.connect("watch") as client:
        client.on_disconnect = warn_lost
        client.on_loss = lambda status, _: say(f"the node dropped {status} values for this watcher: it is too slow")
        stream = await client.watch_many(wanted, interval=interval or None, wait_s=wait)
        say(f"watching {', '.join(each if isinstance(each, str) else '/'.join(each) for each in wanted)}")
        left = [count]
        try:
            async with asyncio.timeout(seconds or None):
                await _print(stream, left, bool(count), as_json)
        except TimeoutError:
            if left[0]:
                say_error(f"{left[0]} of {count} values did not come within {seconds:g} s")
                return FAILED
        return DONE


async def _print(stream: StatusStream, left: list[int], counted: bool, as_json: bool) -> None:
    line = event_json if as_json else _line
    async for events in stream.batches():
        if counted:
            events = events[: left[0]]
            left[0] -= len(events)
        sys.stdout.write("".join(f"{line(event)}\n" for event in events))
        sys.stdout.flush()
        if counted and not left[0]:
            return


def _line(event: StatusEvent) -> str:
    created = datetime.fromtimestamp(event.created // 1_000_000_000, UTC)
    stamp = f"{created:%H:%M:%S}.{event.created % 1_000_000_000:09}"
    value = event.value.hex() if isinstance(event.value, bytes) else event.value
    name = printable(f"{event.publisher}/{event.variable}".encode())
    return f"{stamp}  {name}  {value}  {event.latency_ns / 1e6:.3f} ms"
