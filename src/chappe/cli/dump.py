"""`chappe dump`: frames for people, from a file or from a live port."""

from __future__ import annotations

import asyncio
import secrets
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chappe.cli._failures import DONE, FAILED, say_error
from chappe.cli._target import Target, run, targeted
from chappe.cli.watch import variables
from chappe.errors import ConfigError, LinkError

if TYPE_CHECKING:
    from chappe.wire.control import Message
    from chappe.wire.dump import Line

EXAMPLES = (
    "chappe dump capture.bin",
    "nc -U /run/chappe.sock | chappe dump - --json",
    "chappe dump --connect tcp://127.0.0.1:7400 --sub 'plant/#' --watch meter/frequency --count 20",
)
PIECE = 1 << 16


@targeted
def dump(
    target: Target,
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="Bytes of one direction; - reads stdin.", show_default=False)
    ] = None,
    connect: Annotated[
        str | None, typer.Option("--connect", metavar="URL", help="Connect as a client and decode what the node sends.")
    ] = None,
    sub: Annotated[list[str] | None, typer.Option("--sub", metavar="PATTERN", help="Subscribe first.")] = None,
    watch: Annotated[
        list[str] | None, typer.Option("--watch", metavar="PUBLISHER/VARIABLE", help="Watch first.")
    ] = None,
    count: Annotated[int, typer.Option(min=0, help="End after so many frames; 0: never.")] = 0,
    seconds: Annotated[float, typer.Option(min=0, help="With --connect: end after so long.")] = 0.0,
    as_json: Annotated[bool, typer.Option("--json", help="For scripts: one JSON object a line.")] = False,
) -> None:
    """Decode frames from a file or a live port. Exit code 1 if bytes break the wire contract; secrets are hidden."""
    if (file is None) is (connect is None):
        raise typer.BadParameter("give a FILE (or -), or --connect URL", param_hint="FILE")
    printer = _Printer(count, as_json)
    if connect is not None:
        run(_live(target, connect, sub or [], watch or [], printer, seconds), endless=True)
    assert file is not None
    if sub or watch:
        raise typer.BadParameter("--sub and --watch need --connect", param_hint="--connect")
    run(_stored(file, printer))


async def _stored(file: Path, printer: _Printer) -> int:
    from chappe.wire.dump import dump as dumped

    try:
        for line in dumped(_pieces(file)):
            if printer.full(line):
                break
    except FileNotFoundError:
        raise ConfigError(f"{file}: there is no such file") from None
    return FAILED if printer.failed else DONE


def _pieces(file: Path) -> Iterator[bytes]:
    with sys.stdin.buffer if str(file) == "-" else file.open("rb") as source:
        while piece := source.read(PIECE):
            yield piece


class _Printer:
    def __init__(self, count: int, as_json: bool) -> None:
        self.failed = False
        self._left = count
        self._json = as_json

    def full(self, line: Line) -> bool:
        """Print a line; True when it was the last one wanted."""
        typer.echo(line.json() if self._json else line.text())
        self.failed |= line.kind == "error" or "error" in line.fields
        self._left -= 1
        return self._left == 0


async def _live(
    target: Target, url: str, patterns: list[str], names: list[str], printer: _Printer, seconds: float
) -> int:
    from chappe.wire import control
    from chappe.wire.dump import Dumper
    from chappe.wire.frames import PREAMBLE, Kind, encode_frame

    reader, writer = await _open(target, url)

    def send(message: Message) -> None:
        writer.write(encode_frame(Kind.CONTROL, control.encode(message)))

    async def beat() -> None:
        while True:
            await asyncio.sleep(0.5)
            writer.write(encode_frame(Kind.PROBE, bytes(16)))

    writer.write(PREAMBLE)
    send(
        control.Hello(
            role="client", name="dump", session=secrets.token_bytes(16), token=target.secret(),
            capabilities=("loss",),
        )
    )  # fmt: skip
    dumper = Dumper()
    beating: asyncio.Task[None] | None = None
    try:
        async with asyncio.timeout(seconds or None):
            while piece := await reader.read(PIECE):
                for line in dumper.feed(piece):
                    if line.fields.get("k") == "Welcome":
                        beating = asyncio.ensure_future(beat())
                        for number, pattern in enumerate(patterns):
                            send(control.Subscribe(id=number + 1, pattern=pattern))
                        for number, (publisher, variable) in enumerate(variables(names) if names else []):
                            send(control.Watch(id=len(patterns) + number + 1, publisher=publisher, variable=variable))
                    if printer.full(line):
                        return FAILED if printer.failed else DONE
    except TimeoutError:
        return FAILED if printer.failed else DONE
    finally:
        if beating is not None:
            beating.cancel()
        writer.close()
    say_error("the node closed the connection")
    return FAILED


async def _open(target: Target, url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    from chappe.links.address import parse
    from chappe.security.config import Tls
    from chappe.security.tls import client_context

    address = parse(url, ("tcp", "tls", "unix"))
    context: ssl.SSLContext | None = None
    if address.scheme == "tls":
        given = target.tls()
        if given is None:
            raise ConfigError(f"{url} needs --ca, the certificate of the authority")
        files = given if isinstance(given, tuple) else (str(given), "", "")
        context = client_context(Tls(ca=files[0], cert=files[1], key=files[2]))
    try:
        if address.scheme == "unix":
            return await asyncio.open_unix_connection(address.path)
        return await asyncio.open_connection(address.host, address.port, ssl=context)
    except OSError as error:
        raise LinkError(f"{url}: {error}") from None
