"""`chappe cell`: messages and files from name to name, over many paths at once."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chappe.cli._failures import DONE, FAILED, say, say_error
from chappe.cli._tables import print_json, print_table
from chappe.cli._target import Target, run, targeted, warn_lost
from chappe.cli._text import body_fields, printable
from chappe.errors import ConfigError, RefusedError

if TYPE_CHECKING:
    from chappe.client.arrivals import CellMessage
    from chappe.client.cells import Cell, Progress, Sent

app = typer.Typer(help="Send messages and files from name to name, over many paths at once.", no_args_is_help=True)
Json = Annotated[bool, typer.Option("--json", help="For scripts: one JSON object a line.")]
As = Annotated[
    str,
    typer.Option("--as", metavar="NAME", help="Own name: a rule must allow it.", show_default=False),
]
PIECE = 1 << 20
BAR_FROM = 1 << 20  # bytes of a message that has a bar


def _examples(*lines: str) -> str:
    return "\n\n".join(("Examples:", *(f"  [bold]{line}[/bold]" for line in lines)))


@app.command(
    epilog=_examples(
        "chappe cell send fr.lyon measurements.parquet",
        "tar c runs | chappe cell send fr.lyon - --as fr.paris.louvre",
        "chappe cell send fr.lyon model.bin --json",
    )
)
@targeted
def send(
    target: Target,
    name: Annotated[str, typer.Argument(help="Who gets it.", show_default=False)],
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="What is sent; -: standard input.", show_default=False)],
    own: As = "",
    as_json: Json = False,
) -> None:
    """Send a file, and end when the other end has all of it."""
    path = None if file == "-" else Path(file)
    if path is not None and not path.is_file():
        raise typer.BadParameter(f"{file} is no file; give -, to send standard input", param_hint="FILE")
    size = None if path is None else path.stat().st_size
    run(_send(target, name, path, size, own or _some_name(), as_json))


async def _send(target: Target, name: str, path: Path | None, size: int | None, own: str, as_json: bool) -> None:
    async with target.connect("cell-send") as client, client.cell(own) as cell:
        client.on_disconnect = warn_lost
        with _bar(f"to {name}", size) as progress:
            sent = await cell.send(name, _standard_input() if path is None else path, progress=progress)
        paths = await _paths(cell, name)
    _print_sent(name, sent, paths, as_json)


def _print_sent(name: str, sent: Sent, paths: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        row = {"to": name, "bytes": sent.size, "seconds": round(sent.seconds, 6), "paths": paths}
        print_json([row])
        return
    say(f"{name} has {sent.size:,} bytes, in {sent.seconds:.2f} s: {sent.bytes_per_s / 1e6:,.2f} MB/s")
    if paths:
        print_table(paths)


async def _paths(cell: Cell, name: str) -> list[dict[str, Any]]:
    """What went by which path; nothing where the right to see it is missing."""
    try:
        return await cell.routes(name)
    except RefusedError:
        return []


@app.command(
    epilog=_examples(
        "chappe cell receive fr.lyon",
        "chappe cell receive fr.lyon --to incoming --count 1",
        "chappe cell receive fr.lyon --to incoming --json",
    )
)
@targeted
def receive(
    target: Target,
    name: Annotated[str, typer.Argument(help="Own name, that others send to.", show_default=False)],
    to: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for a file a message.")] = None,
    count: Annotated[int, typer.Option(min=0, help="End after so many; 0: never.")] = 0,
    seconds: Annotated[
        float, typer.Option(min=0, help="End after so long; with --count and fewer messages: exit code 1.")
    ] = 0.0,
    as_json: Json = False,
) -> None:
    """Print messages that come to a name, or save each as a file, until Ctrl-C, --count or --seconds."""
    if to is not None:
        to.mkdir(parents=True, exist_ok=True)
    run(_receive(target, name, to, count, seconds, as_json), endless=not count)


async def _receive(target: Target, name: str, to: Path | None, count: int, seconds: float, as_json: bool) -> int:
    async with target.connect("cell-receive") as client, client.cell(name) as cell:
        client.on_disconnect = warn_lost
        say(f"{name} receives")
        left = count
        try:
            async with asyncio.timeout(seconds or None):
                async for message in cell:
                    await _take(message, to, as_json)
                    left -= 1
                    if not left:
                        return DONE
        except TimeoutError:
            if count:
                say_error(f"{left} of {count} messages did not come within {seconds:g} s")
                return FAILED
    return DONE


async def _take(message: CellMessage, to: Path | None, as_json: bool) -> None:
    """Save a message, or print it."""
    row: dict[str, Any] = {"from": message.source, "to": message.destination}
    if to is not None:
        path = _free(to, message.source)
        began = time.monotonic()
        with _bar(f"from {message.source}", None) as progress:
            row["bytes"] = await message.save(path, progress)
        row["seconds"] = round(time.monotonic() - began, 6)
        row["file"] = str(path)
    elif message.large:
        message.close()
        say_error(f"a message of {message.source} has more than 1 MiB: receive it with --to DIR")
        return
    else:
        row |= {"bytes": message.size, **body_fields(message.body)}
    if as_json:
        print_json([row])
    elif to is not None:
        print(f"{printable(message.source.encode())}  {row['file']}  {row['bytes']:,} bytes")
    else:
        print(f"{printable(message.source.encode())}  {printable(message.body)}")
    sys.stdout.flush()


@app.command(epilog=_examples("chappe cell multicast 'fr.*' 'backup at noon'", "chappe cell multicast '*' hello"))
@targeted
def multicast(
    target: Target,
    prefix: Annotated[str, typer.Argument(metavar="PREFIX*", help="All names that begin so.", show_default=False)],
    text: Annotated[str, typer.Argument(help="What is sent, of 32 KiB at most.", show_default=False)],
    own: As = "",
) -> None:
    """Send a text to all names with a prefix. Some may not get it, and nobody says so."""
    if not prefix.endswith("*"):
        raise typer.BadParameter(f"{prefix} is one name: write {prefix}* for all that begin so", param_hint="PREFIX*")
    run(_multicast(target, prefix, text.encode(), own or _some_name()))


async def _multicast(target: Target, prefix: str, body: bytes, own: str) -> None:
    async with target.connect("cell-multicast") as client, client.cell(own) as cell:
        cell.multicast(prefix, body)
        await client.flush(client.timeout_s)


@app.command(epilog=_examples("chappe cell names", "chappe cell names fr. --json"))
@targeted
def names(
    target: Target,
    prefix: Annotated[str, typer.Argument(help="Only names that begin so.")] = "",
    as_json: Json = False,
) -> None:
    """List the names that a node knows: a cell does not have to know all."""
    run(_list(target, "cells", prefix.removesuffix("*"), as_json))


@app.command(epilog=_examples("chappe cell routes fr.lyon", "chappe cell routes fr.lyon --json"))
@targeted
def routes(
    target: Target,
    name: Annotated[str, typer.Argument(help="Where parcels go.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Show by which paths a node sends to a name: their shares, and bytes sent and acknowledged."""
    run(_list(target, "parcel_routes", name, as_json))


async def _list(target: Target, what: str, of: str, as_json: bool) -> None:
    async with target.connect(f"cell-{what}") as client:
        rows = await client.list(what, 100_000, of=of)
    print_json(rows) if as_json else print_table(rows)


def _some_name() -> str:
    """An own name for a command that nobody answers."""
    return f"cli.{os.getpid()}-{secrets.token_hex(4)}"


def _free(folder: Path, source: str) -> Path:
    """A file name that is not in use, after who sent it."""
    stem = re.sub(r"[^A-Za-z0-9._-]", "_", source).lstrip(".")[:100] or "message"
    for number in range(1, 1_000_000):
        path = folder / f"{stem}-{number:04}"
        if not path.exists() and not path.with_name(f"{path.name}.part").exists():
            return path
    raise ConfigError(f"{folder} has a million messages of {source!r}: give another folder")


async def _standard_input() -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(sys.stdin.buffer.read, PIECE):
        yield piece


@contextmanager
def _bar(text: str, size: int | None) -> Iterator[Progress | None]:
    """A progress bar on a terminal, with bytes and bytes a second; nothing for a small message or a script."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    console = Console(stderr=True)
    if not console.is_terminal or (size is not None and size < BAR_FROM):
        yield None
        return
    columns = (
        TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn(),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(printable(text.encode()), total=size)
        yield lambda done: progress.update(task, completed=done)
