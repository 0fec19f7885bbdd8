"""UDP data links beside control connections (GS-003): keys are handed over there, STATUS leaves here."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable

import structlog

from chappe.engine._engine import Engine
from chappe.errors import ChappeError
from chappe.links.address import Address
from chappe.links.datagram import DEFAULT_BUFFER, DatagramEndpoint, open_datagrams, resolve_peer
from chappe.links.link import Security
from chappe.links.migration import Constraint
from chappe.links.options import LinkOptions
from chappe.links.tick import FlushTick
from chappe.runtime.links.connections import Connection, Connections
from chappe.runtime.links.datalink import DataLink
from chappe.runtime.links.groups import Groups
from chappe.security.identity import datagram_key
from chappe.wire.control import (
    DatagramClosed,
    DatagramFence,
    DatagramOpened,
    DatagramReport,
    Failed,
    Message,
    OpenDatagram,
)

log = structlog.get_logger(__name__)

KEY_BYTES = 16
BAD = ("bad_tag", "replayed", "reflected", "bad_frame")  # why a datagram of a session was dropped
UNREAD = ("unknown_session", "too_short", "truncated", "kernel_drops", "challenges", "moves")
PEER_REQUEST = 1  # id of the OpenDatagram that a node sends to a peer, at most one a connection
SILENT_NS = 3_000_000_000  # then STATUS goes by the stream again
UDP_SECURITY = Security(True, "SipHash-2-4-128 tags; not encrypted")


class Datagrams:
    """All UDP sessions of a node, by the port of their control connection."""

    def __init__(
        self, engine: Engine, connections: Connections, groups: Groups, send: Callable[[int, Message], None]
    ) -> None:
        self._engine = engine
        self._connections = connections
        self._send = send
        self._endpoint: DatagramEndpoint | None = None
        self._tick: FlushTick | None = None
        self._links: dict[int, DataLink] = {}
        self.groups = groups  # of multicast
        self.listens: dict[int, str] = {}  # ports of peers whose groups we asked for, with our interface
        self.constraint = Constraint()  # when values of new links leave for the stream and return
        self._asked: set[int] = set()  # ports of peers that were asked for a data link and have not answered
        self.refused = 0  # answers that nobody had asked for, or that cannot be
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

    def receive(self, port: int, message: Message, now_ns: int, tick: FlushTick) -> None:
        """A message of the other side of a control connection about the data link beside it."""
        match message:
            case OpenDatagram():
                self._answer(port, message.id, message.reports, message.multicast)
            case DatagramOpened():
                self._opened(port, message, tick)
            case _:
                self._report(port, message, now_ns)

    def _answer(self, port: int, request: int, reports: bool, multicast: bool) -> None:
        """The other side of a control connection asks for a data link."""
        connection = self._connections.by_port.get(port)
        if connection is None:
            return
        if multicast:
            if connection.session.role != "node" or not self.groups.answer(connection, request):
                reason = "this node sends to no udp+multicast:// group"
                self._send(port, Failed(id=request, code="unsupported", reason=reason))
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
        reports = reports and connection.session.role == "node"
        self._bind(connection, self._endpoint, number, key, opener=False, own_endpoint=False, reports=reports)
        place = self._endpoint.address.port
        self._send(port, DatagramOpened(id=request, port=place, link=number, key=key, reports=reports))

    def ask(self, port: int, multicast: bool = False) -> None:
        """Ask the other node for a data link, or to listen to its groups."""
        if not multicast:
            self._asked.add(port)
        self._send(port, OpenDatagram(id=PEER_REQUEST, reports=True, multicast=multicast))

    def listen_to(self, port: int, interface: str) -> None:
        """Ask the other node for its multicast groups, and hear them by that interface of ours."""
        self.listens[port] = interface
        self.ask(port, multicast=True)

    def _opened(self, port: int, answer: DatagramOpened, tick: FlushTick) -> None:
        """The other node agreed to what we asked for; an answer without a question changes nothing."""
        connection = self._connections.by_port.get(port)
        if connection is None:
            return
        if answer.group and port in self.listens:
            self.groups.joined(connection, answer, self.listens[port], tick)
            return
        asked = port in self._asked and answer.id == PEER_REQUEST and not answer.group
        self._asked.discard(port)
        fits = 0 < answer.port < 65_536 and 0 <= answer.link < 1 << 32 and len(answer.key) == KEY_BYTES
        if not asked or not fits:
            self.refused += 1
            log.warning(
                "DatagramOpened refused", peer=connection.session.name,
                reason="it cannot be" if asked else "nobody asked for it",
            )  # fmt: skip
            return
        self._tick = tick
        task = tick.loop.create_task(self._open(connection, answer, tick))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    def _report(self, port: int, message: Message, now_ns: int) -> None:
        """The other node says something about the data link beside that port."""
        if isinstance(message, DatagramReport) and self.groups.report(port, message):
            return
        link = self._links.get(port)
        if link is None or not link.reports or getattr(message, "link", None) != link.number:
            return  # of one that was before
        match message:
            case DatagramReport():
                link.report(message, now_ns)
            case DatagramFence():
                self._send(port, link.own_report(message.fence))
            case DatagramClosed():
                link.heard = True
                link.close(now_ns, "the other side ends it")
        self._end_if_over(port, link)

    def close_link(self, port: int, now_ns: int, reason: str) -> None:
        """End the data link beside a control port; its values use the stream, and none is lost."""
        link = self._links.get(port)
        if link is not None and link.reports:
            link.close(now_ns, reason)
        else:
            self.gone(port, reason)

    def gone(self, port: int, reason: str = "its control connection is over") -> None:
        """The control connection of that port is over: so is its data link."""
        if port not in self._connections.by_port:
            self._asked.discard(port)
        if port not in self._connections.by_port:
            self.listens.pop(port, None)
            self.groups.gone(port)
        link = self._links.pop(port, None)
        if link is not None:
            link.connection.session.security = 2 if link.connection.link.security.secure else 0
            self._sessions.discard(link.number)
            link.free(reason)

    def tick(self, now_ns: int) -> None:
        """Heartbeats and reports; a data link that is silent is given up, and its STATUS uses the stream."""
        self.groups.tick(now_ns)
        for port, link in list(self._links.items()):
            if now_ns - self._engine.last_heard(link.port) > SILENT_NS:
                log.warning("datagrams do not arrive, status goes by the stream", port=port)
                self.gone(port, "datagrams do not arrive")
                continue
            link.beat(now_ns)
            self._end_if_over(port, link)

    @property
    def busy(self) -> bool:
        """Whether there are data links or groups to look after."""
        return bool(self._links) or self.groups.busy

    def _end_if_over(self, port: int, link: DataLink) -> None:
        if link.over and self._links.get(port) is link:
            self.gone(port, "both sides have ended it")

    def link(self, port: int) -> DataLink | None:
        """The data link beside a control port."""
        return self._links.get(port)

    def counters(self, port: int) -> dict[str, int]:
        """Of the data link beside a control port; empty if there is none that was ever used."""
        link = self._links.get(port)
        if link is None:
            return {}
        found = {f"drop_datagram_{name}": count for name, count in link.bound.counters().items() if name in BAD}
        if not link.used:
            return found
        kernel_drops = link.endpoint.counters()["kernel_drops"]
        return {**found, **self._engine.port_counters(link.port), "kernel_drops": kernel_drops}

    def socket_counters(self) -> dict[str, dict[str, int]]:
        """Of the UDP socket that this node listens on, by its address; of sessions that have ended, too."""
        if self._endpoint is None:
            return {}
        counters = self._endpoint.counters()
        shown = {name: counters.get(name, 0) for name in (*BAD, *UNREAD)}
        return {str(self._endpoint.address): {**shown, "unasked": self.refused}}

    async def close(self) -> None:
        """End every session and socket."""
        for task in self._opening:
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)
        for port in list(self._links):
            self.gone(port)
        self.groups.stop()
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
        self._bind(
            connection, endpoint, answer.link, answer.key, opener=True, own_endpoint=True, reports=answer.reports,
            peer=place,
        )  # fmt: skip
        log.info("datagrams opened", peer=connection.session.name, address=f"{place[0]}:{place[1]}")

    def _bind(
        self, connection: Connection, endpoint: DatagramEndpoint, number: int, key: bytes, *, opener: bool,
        own_endpoint: bool, reports: bool, peer: tuple[str, int] | None = None,
    ) -> None:  # fmt: skip
        assert self._tick is not None
        data_port = self._engine.open_port(datagram=True, partner=connection.port)
        bound = endpoint.bind(number, self._engine, data_port, key, opener=opener, peer=peer)
        self._sessions.add(number)
        remote = Address("udp", peer[0], peer[1]) if peer is not None else Address("udp", connection.link.peer.host)
        session = connection.session
        entry = self._connections.transports.opened(
            uri=str(remote), kind="udp", peer=session.name, role=session.role, port=data_port,
            local=str(endpoint.address), remote=str(remote), security=UDP_SECURITY, wall_ns=time.time_ns(),
            data=() if reports else ("status",), alternate=True,
        )  # fmt: skip
        session.security = min(1, session.security)
        self._links[connection.port] = DataLink(
            self._engine, self._connections, connection, self._tick, self._send, endpoint, bound, data_port,
            own_endpoint, reports, entry, self.constraint,
        )  # fmt: skip
        if opener:
            self._engine.heartbeat(data_port)  # the first datagram tells the other side where we are
        self._tick.soon()
