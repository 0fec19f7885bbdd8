"""A client at a cell: names of its own, messages from name to name over many paths at once (BF-27)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Self, TypeAlias

from chappe.cells._arrivals import Incoming
from chappe.cells._flow import SendFlow
from chappe.cells._outgoing import Outgoing
from chappe.cells.names import check_destination, check_name
from chappe.client._core import ClientCore
from chappe.client._parcels import NEVER
from chappe.client.arrivals import Box, CellMessage
from chappe.client.exchange import Exchange
from chappe.client.node_requests import NodeRequests
from chappe.client.owner import Owner
from chappe.client.requests import Requests
from chappe.errors import LinkError, QueueFullError, RefusedError
from chappe.wire import control

Body: TypeAlias = bytes | bytearray | memoryview | Path | AsyncIterable[bytes]
Progress: TypeAlias = Callable[[int], None]
Pieces: TypeAlias = Callable[[], AsyncGenerator[bytes, None]]

PIECE = 1 << 20  # bytes that are read from a file at once
AHEAD = 4 << 20  # of a stream, that are not confirmed, before more is read
CLOSE_S = 5.0  # that messages under way have when a cell is closed


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of a message: the other end has all of it."""

    size: int
    seconds: float

    @property
    def bytes_per_s(self) -> float:
        return self.size / self.seconds if self.seconds else 0.0


class Cells:
    """The cells of one client, over all its reconnections: names are registered again, flows go on."""

    def __init__(
        self, owner: Owner, core: ClientCore, requests: Requests, exchange: Exchange, node: NodeRequests
    ) -> None:
        self.node = node
        self.exchange = exchange
        self._owner = owner
        self._core = core
        self._requests = requests
        self._parcels = core.parcels
        self._parcels.on_change = self._changed
        self._cells: list[Cell] = []
        self._progress: set[asyncio.Event] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0  # of the timer
        self._loop: asyncio.AbstractEventLoop | None = None

    # --- names

    async def own(self, cell: Cell, names: tuple[str, ...]) -> None:
        """Register names; RefusedError or DeniedError says why one cannot be had."""
        await self.exchange.connected()
        if not self._owner.is_cell:
            raise RefusedError(
                "the node is no cell: add a section [cells] to its file, or connect to a node that has one",
                "unsupported",
            )
        for name in names:
            if name in self._parcels.boxes:
                raise ValueError(f"this client has the name {name!r} already")
        self._loop = asyncio.get_running_loop()
        for name in names:
            self._parcels.open_box(name, cell.box)
        try:
            await self.exchange.ask(
                lambda request: control.OwnNames(id=request, add=names), control.Done, f"own {', '.join(names)}"
            )
        except BaseException:
            for name in names:
                self._parcels.close_box(name, LinkError(f"the name {name!r} was refused"))
            raise
        if cell not in self._cells:
            self._cells.append(cell)

    async def disown(self, names: tuple[str, ...]) -> None:
        """Give names up; what was under way from or to them ends."""
        for name in names:
            self._parcels.close_box(name, LinkError(f"the name {name!r} was given up"))
        if names and self._owner.state == "connected":
            await self.exchange.ask(
                lambda request: control.OwnNames(id=request, remove=names), control.Done, f"give up {', '.join(names)}"
            )

    def remove(self, cell: Cell) -> None:
        """It is closed."""
        if cell in self._cells:
            self._cells.remove(cell)

    def own_again(self) -> list[asyncio.Future[Any]]:
        """Register every name on a new connection; the answers to come. Flows wait for them."""
        return [self._requests.ask(partial(_own_names, cell.own), control.Done) for cell in self._cells]

    def refused(self, destination: str, error: Exception) -> None:
        """The node says which rule forbids to send there."""
        self._parcels.refuse(destination, error)

    def close(self, failure: Exception) -> None:
        """The client is closed: nothing more comes or goes."""
        for cell in list(self._cells):
            cell.box.close(failure)
        self._parcels.end(failure)
        self._cells.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- messages

    def send(self, source: str, destination: str, message: Outgoing) -> SendFlow:
        """Queue a message."""
        flow = self._parcels.send(source, destination, message, time.monotonic_ns())
        self._core.send_parcels()
        self._arm()
        return flow

    def more(self, flow: SendFlow) -> None:
        """A message has more bytes, or nobody waits for it any more."""
        self._parcels.more(flow)
        self._core.send_parcels()

    def cast(self, source: str, prefix: str, body: bytes) -> bool:
        """Queue a multicast; False if there is no room for it."""
        queued = self._parcels.cast(source, prefix, body)
        self._core.send_parcels()
        return queued

    def take(self, incoming: Incoming, *, skip: bool = False) -> list[bytes]:
        """What has come of a message since; its sender may go on."""
        pieces = self._parcels.took(incoming, skip)
        self._core.send_parcels()
        return pieces

    def skip_soon(self, incoming: Incoming) -> None:
        """From any thread: nobody wants the rest of a message."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(lambda: self.take(incoming, skip=True))

    async def progress(self) -> None:
        """Wait until something was confirmed, or a flow ended or began anew."""
        event = asyncio.Event()
        self._progress.add(event)
        try:
            await event.wait()
        finally:
            self._progress.discard(event)

    def _changed(self) -> None:
        arrived, grown, finished = self._parcels.take()
        for box, incoming in arrived:
            if box is None or box.closed:
                self.take(incoming, skip=True)
            else:
                box.put(incoming)
        changed: list[Incoming | Outgoing] = [*grown, *finished]
        for each in changed:
            if each.notify is not None:
                each.notify()
        for event in self._progress:
            event.set()
        self._arm()

    def _arm(self) -> None:
        """One timer for all flows; it is made again only where it would come too late."""
        if self._loop is None:
            return
        now_ns = time.monotonic_ns()
        due_ns = self._parcels.next_tick(now_ns)
        if due_ns == NEVER:
            return
        due = self._loop.time() + max(0.0, (due_ns - now_ns) / 1e9)
        if self._timer is not None:
            if self._due <= due:
                return
            self._timer.cancel()
        self._due = due
        self._timer = self._loop.call_at(due, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._parcels.tick(time.monotonic_ns())
        self._core.send_parcels()
        self._arm()


class Cell:
    """Names of a client, and what is sent from them and comes to them; use it with `async with`."""

    def __init__(self, cells: Cells, names: tuple[str, ...]) -> None:
        if not names:
            raise ValueError("a cell needs a name that others send to: client.cell('fr.paris.louvre')")
        self.own = tuple(dict.fromkeys(check_name(name) for name in names))
        self.box = Box()
        self._cells = cells
        self._under_way: set[asyncio.Future[None]] = set()

    async def __aenter__(self) -> Self:
        await self._cells.own(self, self.own)
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self.close(flush=error is None)

    async def close(self, *, flush: bool = True) -> None:
        """Wait until what was sent has arrived, for 5 s at most, and give the names up."""
        if self.box.closed:
            return
        try:
            if flush and self._under_way:
                await asyncio.wait(set(self._under_way), timeout=CLOSE_S)
        finally:
            self._cells.remove(self)
            self.box.close()
            names, self.own = self.own, ()
            await self._cells.disown(names)

    # --- names

    async def add_name(self, name: str) -> None:
        """One more name, from now on (BF-04)."""
        self._check_open()
        if check_name(name) not in self.own:
            await self._cells.own(self, (name,))
            self.own = (*self.own, name)

    async def remove_name(self, name: str) -> None:
        """One name less; messages from and to it that are under way end with a LinkError."""
        self._check_open()
        if name not in self.own:
            raise ValueError(f"{name!r} is no name of this cell; it has {', '.join(self.own)}")
        if len(self.own) == 1:
            raise ValueError(f"{name!r} is the only name of this cell: close the cell instead")
        self.own = tuple(each for each in self.own if each != name)
        await self._cells.disown((name,))

    async def names(self, prefix: str = "") -> list[dict[str, Any]]:
        """The names that the node knows, or those with a prefix; a node does not have to know all."""
        return await self._cells.node.list(control.List(id=0, what="cells", limit=100_000, of=prefix.removesuffix("*")))

    async def routes(self, destination: str) -> list[dict[str, Any]]:
        """By which paths parcels go to a name now: share, and bytes sent and acknowledged, of each."""
        return await self._cells.node.list(control.List(id=0, what="parcel_routes", of=check_destination(destination)))

    # --- out

    async def send(self, destination: str, body: Body, *, source: str = "", progress: Progress | None = None) -> Sent:
        """Send a message; done when the other end has all of it. It comes exactly once, in the order of the calls.

        body: bytes, the Path of a file, or an async iterator of bytes. source: one of the own names, the first unless
        given. `progress` is told the bytes that have arrived. UnreachableError: no path leads there, or nobody answers;
        RefusedError: a rule forbids it. If the receiver is started anew meanwhile, it gets messages that it may have
        had once more; one from an iterator fails then. When the call is cancelled, it gets all of it or nothing.
        """
        self._check_open()
        check_name(destination)
        source = self._source(source)
        await self._cells.exchange.connected()
        pieces = _pieces(body)
        message = Outgoing(None if pieces is not None else bytes(body))  # type: ignore[arg-type]
        loop = asyncio.get_running_loop()
        began = time.monotonic()
        arrived: asyncio.Future[None] = loop.create_future()
        message.notify = lambda: _settle(message, arrived)
        flow = self._cells.send(source, destination, message)
        self._under_way.add(arrived)
        watching = loop.create_task(self._watch(message, progress)) if progress is not None else None
        try:
            if pieces is not None:
                await self._feed(flow, message, pieces, again=isinstance(body, Path))
            await arrived
        finally:
            self._under_way.discard(arrived)
            if watching is not None:
                watching.cancel()
            if not arrived.done():
                arrived.cancel()
            flow.cancel(message)
            self._cells.more(flow)
        if progress is not None:
            progress(message.size)
        return Sent(message.size, time.monotonic() - began)

    def multicast(self, prefix: str, body: bytes, *, source: str = "") -> None:
        """Send to all names that begin so, written as `fr.*`; some may not get it, and nobody says so (BF-28).

        QueueFullError if what was sent before has not left yet.
        """
        self._check_open()
        check_destination(prefix)
        if not prefix.endswith("*"):
            raise ValueError(f"a multicast goes to a prefix and '*', as 'fr.*'; {prefix!r} is one name: send to it")
        if not self._cells.cast(self._source(source), prefix, bytes(body)):
            raise QueueFullError("a mebibyte of multicasts waits to leave: send fewer, or wait a little")

    async def _feed(self, flow: SendFlow, message: Outgoing, pieces: Pieces, *, again: bool) -> None:
        """Add a stream to its message as it gets confirmed, and once more if the receiver begins anew."""
        while True:
            async with aclosing(pieces()) as stream:
                async for piece in stream:
                    while message.pending >= AHEAD and not message.over and not message.restarted:
                        await self._cells.progress()
                    if message.over or message.restarted:
                        break
                    message.add(piece)
                    self._cells.more(flow)
            if not message.over and not message.restarted:
                message.add(b"", last=True)
                self._cells.more(flow)
            while not message.over and not message.restarted:
                await self._cells.progress()
            if message.over:
                return
            if not again:
                raise LinkError(
                    f"{flow.destination!r} was started anew and has lost the beginning of the message: send it again"
                )

    async def _watch(self, message: Outgoing, progress: Progress) -> None:
        """Say how much has arrived, as it does."""
        before = 0
        while True:
            await self._cells.progress()
            if message.confirmed != before:
                before = message.confirmed
                progress(before)

    # --- in

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> CellMessage:
        incoming = await self.box.get()
        if incoming is None:
            raise StopAsyncIteration
        return CellMessage(incoming, self._cells)

    async def receive(self) -> CellMessage:
        """The next message; LinkError if the cell is closed."""
        try:
            return await anext(self)
        except StopAsyncIteration:
            raise LinkError("the cell is closed") from None

    def _source(self, name: str) -> str:
        """One of the own names; the first if none is given."""
        if name and name not in self.own:
            raise ValueError(f"{name!r} is no name of this cell; it has {', '.join(self.own)}")
        return name or self.own[0]

    def _check_open(self) -> None:
        if self.box.closed:
            raise LinkError("the cell is closed: open another one by `async with client.cell(...)`")


def _own_names(names: tuple[str, ...], request: int) -> control.OwnNames:
    return control.OwnNames(id=request, add=names)


def _settle(message: Outgoing, arrived: asyncio.Future[None]) -> None:
    """Tell who waits for a message what has become of it."""
    if arrived.done():
        return
    if message.done:
        arrived.set_result(None)
    elif message.failure is not None:
        arrived.set_exception(message.failure)
        arrived.exception()  # nobody may look: the call was cancelled


def _pieces(body: Body) -> Pieces | None:
    """What makes the pieces of a stream; None: it is all there."""
    if isinstance(body, str):
        raise TypeError("a message is bytes, not str: encode it, body.encode(); a file is given as a Path")
    if isinstance(body, bytes | bytearray | memoryview):
        return None
    if isinstance(body, Path):
        return lambda: _read(body)
    if isinstance(body, AsyncIterable):
        return lambda: _checked(body)
    raise TypeError(f"a message is bytes, a Path or an async iterator of bytes, not {type(body).__name__}")


async def _read(path: Path) -> AsyncGenerator[bytes, None]:
    file: BinaryIO = await asyncio.to_thread(path.open, "rb")
    try:
        while piece := await asyncio.to_thread(file.read, PIECE):
            yield piece
    finally:
        file.close()


async def _checked(source: AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
    async for piece in source:
        if not isinstance(piece, bytes | bytearray | memoryview):
            raise TypeError(f"an iterator of a message gives bytes, not {type(piece).__name__}")
        yield bytes(piece)
