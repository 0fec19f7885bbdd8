"""`chappe pub`: events to a topic, or values of a variable."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from fractions import Fraction
from itertools import cycle, islice
from typing import Annotated, Any

import typer

from chappe.cli._failures import say
from chappe.cli._target import Target, run, targeted
from chappe.cli.watch import variables
from chappe.errors import ConfigError, LinkError

EXAMPLES = (
    "chappe pub plant/a/alarm 'valve 7' --priority 0 --property severity=2",
    "tail -f log | chappe pub log/host --stdin",
    "chappe pub load/test hello --count 1000 --rate 100",
    "chappe pub plant/order 'open valve 7' --durable   # ends when an archive has stored it",
    "chappe pub --variable meter/frequency --rate 30 --count 300 49.98 50.01 50.02",
)
PAUSE_S = 0.01
UNCONFIRMED = 4096  # durable events that may be on their way
SHOW_FROM = 1_000  # events from which a progress bar is worth it


@targeted
def pub(
    target: Target,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC [BODY] | VALUE...", help="With --variable: values.", show_default=False),
    ] = None,
    variable: Annotated[
        str | None, typer.Option(metavar="PUBLISHER/VARIABLE", help="Publish values of this variable instead.")
    ] = None,
    stdin: Annotated[bool, typer.Option("--stdin", help="One event (or value) a line of standard input.")] = False,
    count: Annotated[int, typer.Option(min=0, help="How many; values are taken in turn. 0: each once.")] = 0,
    rate: Annotated[float, typer.Option(min=0, help="A second; 0: events as fast as possible, values as alerts.")] = 0,
    kind: Annotated[str, typer.Option("--type", help="Of the variable: float, int, bool or bytes.")] = "float",
    priority: Annotated[int, typer.Option(min=0, max=6, help="0 alert, 3 normal, 6 background.")] = 3,
    durable: Annotated[bool, typer.Option("--durable", help="Wait until an archive has stored each event.")] = False,
    prop: Annotated[list[str] | None, typer.Option("--property", metavar="KEY=VALUE", help="Of events.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For scripts: how many, as a JSON object.")] = False,
) -> None:
    """Publish events to a topic, or values of a variable. Ends when the node has all of them."""
    given = list(words or [])
    if variable is None and (not given or len(given) > 2 or (len(given) == 2) is stdin):
        raise typer.BadParameter("write TOPIC BODY, or TOPIC --stdin", param_hint="TOPIC [BODY]")
    if variable is not None and bool(given) is stdin:
        raise typer.BadParameter("give values, or --stdin", param_hint="VALUE")
    if variable is not None and durable:
        raise typer.BadParameter("events can be durable, values are taken anyway", param_hint="--durable")
    if variable is None:
        items = _lines() if stdin else _repeated(given[1:], count)
        job = _events(target, given[0], items, rate, priority, _properties(prop or []), count, as_json, durable)
    else:
        items = _lines() if stdin else _repeated(given, count or len(given))
        job = _values(target, variable, items, rate, kind, priority, as_json)
    run(job)


async def _events(
    target: Target, topic: str, items: AsyncIterator[str], rate: float, priority: int, properties: dict[str, Any],
    count: int, as_json: bool, durable: bool,
) -> None:  # fmt: skip
    extension: dict[str, Any] = {"properties": properties} if properties else {}
    async with target.connect("pub") as client:
        stored: deque[asyncio.Future[str]] = deque()

        async def publish(body: str) -> None:
            await client.publish_wait(topic, body.encode(), priority, **extension)

        async def publish_durable(body: str) -> None:
            stored.append(client.publish(topic, body.encode(), priority, durable=True, **extension))
            while len(stored) > UNCONFIRMED or (stored and stored[0].done()):
                await stored.popleft()

        sent = await _paced(items, rate, publish_durable if durable else publish, count)
        await client.flush()
        await asyncio.gather(*stored)
    _done(sent, as_json)


async def _values(
    target: Target, name: str, items: AsyncIterator[str], rate: float, kind: str, priority: int, as_json: bool
) -> None:
    ((publisher, variable),) = variables([name])
    read = _reader(kind)
    async with target.connect("pub") as client:
        exact = Fraction(rate).limit_denominator(1_000_000) if rate else None
        registered = await client.register(publisher, variable, rate=exact, type=kind, priority=priority)

        async def publish(text: str) -> None:
            value = read(text)
            while not registered.publish(value):
                if client.state != "connected":
                    raise LinkError(f"the connection was lost: {text} of {name} was not accepted")
                await asyncio.sleep(PAUSE_S)

        sent = await _paced(items, rate, publish, 0)
        await client.flush()
    _done(sent, as_json)


async def _paced(
    items: AsyncIterator[str], rate: float, publish: Callable[[str], Coroutine[Any, Any, None]], count: int
) -> int:
    """Publish each at its time; how many."""
    from rich.console import Console
    from rich.progress import Progress

    sent, began_s = 0, time.monotonic()
    console = Console(stderr=True)
    with Progress(console=console, disable=count < SHOW_FROM or not console.is_terminal, transient=True) as progress:
        bar = progress.add_task("published", total=count or None)
        async for item in items:
            if rate:
                await asyncio.sleep(max(0.0, began_s + sent / rate - time.monotonic()))
            await publish(item)
            sent += 1
            if sent % 100 == 0:
                progress.update(bar, completed=sent)
    return sent


async def _repeated(words: list[str], count: int) -> AsyncIterator[str]:
    for word in islice(cycle(words), count or 1):
        yield word


async def _lines() -> AsyncIterator[str]:
    while line := await asyncio.to_thread(sys.stdin.readline):
        yield line.rstrip("\n")


def _reader(kind: str) -> Callable[[str], float | int | bool | bytes]:
    truths = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    readers: dict[str, Callable[[str], Any]] = {
        "float": float, "int": int, "bool": lambda text: truths[text.lower()], "bytes": lambda text: text.encode(),
    }  # fmt: skip
    if kind not in readers:
        raise ConfigError(f"--type {kind!r} is none of {', '.join(readers)}")

    def read(text: str) -> Any:
        try:
            return readers[kind](text)
        except (ValueError, KeyError):
            raise ConfigError(f"{text!r} is no {kind}") from None

    return read


def _properties(texts: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not key or not separator:
            raise typer.BadParameter(f"{text!r}: write KEY=VALUE", param_hint="--property")
        found[key] = _property(value)
    return found


def _property(text: str) -> int | float | bool | str:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def _done(sent: int, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"published": sent}))
    elif sent != 1:
        say(f"published {sent}")
