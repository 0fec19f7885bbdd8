"""UDP data links beside control connections (GS-003): keys are handed over there, STATUS leaves here."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from chappe.engine._engine import Engine
from chappe.errors import ChappeError
from chappe.links.address import Address
from chappe.links.datagram import DEFAULT_BUFFER, DatagramEndpoint, open_datagrams, resolve_peer
from chappe.links.options import LinkOptions
from chappe.links.tick import FlushTick
from chappe.node.connections import Connection, Connections
from chappe.security.identity import datagram_key
from chappe.wire.control import DatagramOpened, Failed, Message, OpenDatagram

log = structlog.get_logger(__name__)

PEER_REQUEST = 1  # id of the OpenDatagram that a node sends to a peer, at most one a connection
BEAT_NS = 500_000_000
SILENT_NS = 3_000_000_000  # then STATUS goes by the stream again


@dataclass(slots=True)
class _DataLink:
    """One UDP session beside a control port."""

    endpoint: DatagramEndpoint
    session: int
    port: int  # of the engine, for the datagrams
    own_endpoint: bool
    packing: int = 0
    next_beat_ns: int = 0


class Datagrams:
    """All UDP sessions of a node, by the port of their control connection."""

    def __init__(self, engine: Engine, connections: Connections, send: Callable[[int, Message], None]) -> None:
        self._engine = engine
        self._connections = connections
        self._send = send
        self._endpoint: DatagramEndpoint | None = None
        self._tick: FlushTick | None = None
        self._links: dict[int, _DataLink] = {}
        self._sessions: set[int] = set()
        self._opening: set[asyncio.Task[None]] = set()

    @property
    def addresses(self) -> list[Address]:
        return [self._endpoint.address] if self._endpoint else []

    async def listen(self, address: Address, options: LinkOptions, tick: FlushTick) -> None:
        """Take datagrams of clients and peers on this address."""
        self._tick = tick
        options = LinkOptions(
            send_buffer=options.send_buffer or DEFAULT_BUFFER, receive_buffer=options.receive_buffer or DEFAULT_BUFFER
        )
        self._endpoint = await open_datagrams(address, tick, options=options)

    def answer(self, port: int, request: int) -> None:
        """The other side of a control connection asks for a data link."""
        connection = self._connections.by_port.get(port)
        if connection is None:
            return
        if self._endpoint is None:
            reason = "this node listens on no udp:// address"
            self._send(port, Failed(id=request, code="unsupported", reason=reason))
            return
        self.gone(port)
        number = secrets.randbits(32)
        while number in self._sessions:
            number = secrets.randbits(32)
        key = datagram_key()
        self._bind(port, self._endpoint, number, key, opener=False, own_endpoint=False)
        self._send(port, DatagramOpened(id=request, port=self._endpoint.address.port, link=number, key=key))

    def ask(self, port: int) -> None:
        """Ask the other node for a data link."""
        self._send(port, OpenDatagram(id=PEER_REQUEST))

    def opened(self, port: int, answer: DatagramOpened, tick: FlushTick) -> None:
        """The other node agreed."""
        connection = self._connections.by_port.get(port)
        if connection is not None and answer.id == PEER_REQUEST:
            self._tick = tick
            task = tick.loop.create_task(self._open(connection, answer, tick))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    def gone(self, port: int) -> None:
        """The control connection of that port is over: so is its data link."""
        link = self._links.pop(port, None)
        if link is not None:
            link.endpoint.unbind(link.session)
            self._sessions.discard(link.session)
            self._connections.free(link.port)
            if link.own_endpoint:
                link.endpoint.close()

    def tick(self, now_ns: int) -> None:
        """Heartbeats; a data link that is silent is given up, and its STATUS uses the stream."""
        for port, link in list(self._links.items()):
            if now_ns < link.next_beat_ns:
                continue
            if now_ns - self._engine.last_heard(link.port) > SILENT_NS:
                log.warning("datagrams do not arrive, status goes by the stream", port=port)
                self.gone(port)
                continue
            link.next_beat_ns = now_ns + BEAT_NS
            self._engine.heartbeat(link.port)

    def counters(self, port: int) -> dict[str, int]:
        """Of the data link beside a control port; empty if there is none."""
        link = self._links.get(port)
        if link is None:
            return {}
        return {**self._engine.port_counters(link.port), "kernel_drops": link.endpoint.counters()["kernel_drops"]}

    async def close(self) -> None:
        """End every session and socket."""
        for task in self._opening:
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)
        for port in list(self._links):
            self.gone(port)
        if self._endpoint is not None:
            self._endpoint.close()

    async def _open(self, connection: Connection, answer: DatagramOpened, tick: FlushTick) -> None:
        host = connection.link.peer.host or "127.0.0.1"
        try:
            place = await resolve_peer(host, answer.port)
            any_host = "::" if ":" in place[0] else "0.0.0.0"
            endpoint = await open_datagrams(Address("udp", any_host), tick)
        except ChappeError as error:
            log.warning("no datagrams", peer=connection.session.name, reason=str(error))
            return
        if connection.lost.is_set():
            endpoint.close()
            return
        self.gone(connection.port)
        self._bind(connection.port, endpoint, answer.link, answer.key, opener=True, own_endpoint=True, peer=place)
        log.info("datagrams opened", peer=connection.session.name, address=f"{place[0]}:{place[1]}")

    def _bind(
        self, port: int, endpoint: DatagramEndpoint, number: int, key: bytes, *, opener: bool, own_endpoint: bool,
        peer: tuple[str, int] | None = None,
    ) -> None:  # fmt: skip
        data_port = self._engine.open_port(datagram=True, partner=port)
        endpoint.bind(number, self._engine, data_port, key, opener=opener, peer=peer)
        self._sessions.add(number)
        self._links[port] = _DataLink(endpoint, number, data_port, own_endpoint)
        if opener:
            self._engine.heartbeat(data_port)  # the first datagram tells the other side where we are
        assert self._tick is not None
        self._tick.soon()
