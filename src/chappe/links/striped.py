"""A transport over several connections: blocks go where there is room, and by another one when theirs is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, cast

from chappe.errors import ChappeError, LinkError, ProtocolError
from chappe.links.link import LINGER_S
from chappe.links.striping import BLOCK_SIZE, PREFACE, Block, BlockReader, Receiving, Sending
from chappe.links.transported import HIGH_WATER, TransportStream, arrival

Reopen: TypeAlias = Callable[[int], Awaitable["Stripe"]]

REOPEN_S = 1.0  # before a lost connection is dialled again; doubles while that fails
REOPEN_MOST_S = 30.0
EARLY_LIMIT = 65_536  # bytes that are kept before the link is complete
LOW_ROOM = 1 << 20  # of the window: below, the stack keeps what it has


class Stripe(asyncio.BufferedProtocol):
    """One connection of a link."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.writable = True
        self.early = bytearray()  # before the link is complete
        self.lost = False
        self._link: Striped | None = None
        self._index = 0
        self._reader = BlockReader()
        self._waiter: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=HIGH_WATER)

    def get_buffer(self, sizehint: int) -> memoryview:
        return arrival.view

    def buffer_updated(self, nbytes: int) -> None:
        data = bytes(arrival.view[:nbytes])  # the link gives its blocks on by way of the same buffer
        if self._link is None:
            self.early += data
            if len(self.early) > EARLY_LIMIT and self.transport is not None:
                self.transport.pause_reading()
            if len(self.early) >= PREFACE.size and self._waiter is not None and not self._waiter.done():
                self._waiter.set_result(None)
        else:
            self._receive(self._link, data)

    def _receive(self, link: Striped, data: bytes) -> None:
        try:
            for block in self._reader.feed(data):
                link.arrived(*block)
        except ProtocolError as error:
            link.fail(error)
        else:
            link.settle()

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        if self._link is not None:
            self._link.pour()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        if self._link is not None:
            self._link.stripe_lost(self._index, exc)

    async def preface(self) -> bytes:
        """The first bytes; LinkError if the connection ends before."""
        while len(self.early) < PREFACE.size:
            if self.lost:
                raise LinkError("the connection ended before its first bytes were complete")
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        taken = bytes(self.early[: PREFACE.size])
        del self.early[: PREFACE.size]
        return taken

    def leave(self) -> None:
        """Belong to no link any more."""
        self._link = None
        if self.transport is not None:
            self.transport.abort()

    def join(self, link: Striped, index: int) -> None:
        """Belong to a link from now on."""
        self._link, self._index = link, index
        if self.transport is not None and not self.transport.is_closing() and not self.transport.is_reading():
            self.transport.resume_reading()
        early = bytes(self.early)
        self.early.clear()
        if early:
            self._receive(link, early)


class Striped(asyncio.Transport):
    """What a TransportStream takes for its transport."""

    def __init__(self, stripes: list[Stripe], stream: TransportStream, reopen: Reopen | None = None) -> None:
        """`reopen(index)` dials a connection anew in place of one that was lost."""
        super().__init__()
        self.on_over: Callable[[], None] = lambda: None
        self._reopen = reopen
        self._reopening: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._stripes: dict[int, Stripe] = dict(enumerate(stripes))
        self.count = len(stripes)
        self._stream = stream
        self._sending = Sending()
        self._receiving = Receiving()
        self._unsent = bytearray()
        self._reading = True
        self._full = False
        self._closing = self._over = False
        self._ended = False  # the END is on its way
        self._confirming = False
        stream.connection_made(self)
        for index, stripe in list(self._stripes.items()):
            stripe.join(self, index)
        for index, stripe in list(self._stripes.items()):
            if stripe.lost:
                self.stripe_lost(index, None)

    @property
    def connections(self) -> int:
        """How many are left."""
        return len(self._stripes)

    # --- as a transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        stripe = next(iter(self._stripes.values()), None)
        if stripe is None or stripe.transport is None:
            return default
        return stripe.transport.get_extra_info(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """The window is the limit."""

    def get_write_buffer_size(self) -> int:
        return len(self._unsent) + self._sending.unconfirmed

    def is_closing(self) -> bool:
        return self._closing or self._over

    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._loop.call_soon(self.settle)

    def can_write_eof(self) -> bool:
        return False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self.is_closing():
            self._unsent += data
            self.pour()

    def close(self) -> None:
        if not self.is_closing():
            self._closing = True
            self.pour()

    def abort(self) -> None:
        self._finish(None, now=True)

    # --- sending

    def pour(self) -> None:
        """Send what fits, on the connections that have the least to do."""
        while self._unsent and self._sending.room > 0:
            index = self._idlest()
            if index is None:
                break
            piece = bytes(self._unsent[:BLOCK_SIZE])
            del self._unsent[:BLOCK_SIZE]
            self._write(index, self._sending.put(index, piece))
        if self._closing and not self._unsent and not self._ended and self._stripes:
            self._ended = True
            index = min(self._stripes)
            self._write(index, self._sending.put(index, b"", Block.END))
        full = bool(self._unsent) or self._sending.room < LOW_ROOM
        if full != self._full and not self._over:
            self._full = full
            if full:
                self._stream.pause_writing()
            else:
                self._stream.resume_writing()

    def _idlest(self) -> int | None:
        loads = [
            (stripe.transport.get_write_buffer_size(), index)
            for index, stripe in self._stripes.items()
            if stripe.writable and stripe.transport is not None
        ]
        return min(loads)[1] if loads else None

    def _write(self, index: int, block: bytes) -> None:
        stripe = self._stripes[index]
        assert stripe.transport is not None
        stripe.transport.write(block)

    # --- receiving

    def arrived(self, kind: Block, number: int, payload: bytes) -> None:
        """A block has come on some connection; ProtocolError if it must not."""
        if kind is Block.ACK:
            self._sending.confirmed(number)
        else:
            self._receiving.put(kind, number, payload)

    def settle(self) -> None:
        """Give on what is in order, and say so; go on sending."""
        if self._over:
            return
        wanted = self._receiving.wanted
        while self._reading and not self._over and (block := self._receiving.take()) is not None:
            if block[0] is Block.END:
                self._confirm()
                self._finish(None)
                return
            room = self._stream.get_buffer(-1)
            room[: len(block[1])] = block[1]
            self._stream.buffer_updated(len(block[1]))
        if self._receiving.wanted != wanted and not self._confirming:
            self._confirming = True
            self._loop.call_soon(self._confirm)
        self.pour()
        if self._ended and self._sending.done:
            self._finish(None)

    def _confirm(self) -> None:
        self._confirming = False
        index = self._idlest() if self._stripes else None
        if not self._over and self._stripes:
            self._write(min(self._stripes) if index is None else index, self._receiving.confirmation())

    # --- the end of one, and of all

    def stripe_lost(self, index: int, error: Exception | None) -> None:
        """Its blocks go by the others; the last one takes the link with it."""
        if self._over or self._stripes.pop(index, None) is None:
            return
        if not self._stripes:
            self._finish(error)
            return
        for number in self._sending.lost(index):
            other = self._idlest()
            other = min(self._stripes) if other is None else other
            self._write(other, self._sending.again(number, other))
        self._confirm()  # one may have been on its way on the connection that is gone
        self.pour()
        if self._reopen is not None and not self._closing:
            task = self._loop.create_task(self._replace(index, self._reopen), name=f"connection {index} of a link")
            self._reopening.add(task)
            task.add_done_callback(self._reopening.discard)

    async def _replace(self, index: int, reopen: Reopen) -> None:
        pause_s = REOPEN_S
        while True:
            await asyncio.sleep(pause_s)
            try:
                stripe = await reopen(index)
            except (ChappeError, OSError):
                pause_s = min(2 * pause_s, REOPEN_MOST_S)
            else:
                self.rejoin(index, stripe)
                return

    def rejoin(self, index: int, stripe: Stripe) -> None:
        """A new connection takes the place of one that was lost, or that is about to be found so."""
        if self._over or stripe.lost:
            if stripe.transport is not None:
                stripe.transport.abort()
            return
        before = self._stripes.get(index)
        self._stripes[index] = stripe
        stripe.join(self, index)
        if before is not None:
            before.leave()
            for number in self._sending.lost(index):
                self._write(index, self._sending.again(number, index))
        self.pour()

    def fail(self, error: Exception) -> None:
        """The other side broke the rules."""
        self._finish(error, now=True)

    def _finish(self, error: Exception | None, now: bool = False) -> None:
        if self._over:
            return
        self._over = True
        self.on_over()
        for task in self._reopening:
            task.cancel()
        for stripe in self._stripes.values():
            if stripe.transport is not None:
                if now:
                    stripe.transport.abort()
                else:
                    self._loop.call_later(LINGER_S, stripe.transport.abort)
                    stripe.transport.close()
        self._loop.call_soon(self._stream.connection_lost, error)
