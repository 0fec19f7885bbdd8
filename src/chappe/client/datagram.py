"""The UDP data link of a client: values go and come by datagrams, everything else by the connection (GS-003)."""

from __future__ import annotations

import asyncio
import time

import structlog

from chappe.client._core import ClientCore
from chappe.client.requests import Requests, within
from chappe.client.session import Session
from chappe.errors import RefusedError
from chappe.links.address import Address
from chappe.links.datagram import DatagramEndpoint, open_datagrams, resolve_peer
from chappe.wire.control import DatagramOpened, OpenDatagram

PORT = 1  # of the core
FIRST_BEAT_S = 0.05  # until the first echo: a datagram may get lost
BEAT_S = 0.5
SILENT_NS = 3_000_000_000  # then values use the connection again

log = structlog.get_logger("chappe.client")


class DataLink:
    """One session of datagrams beside one connection; values use it once an echo has shown that it works."""

    def __init__(self, core: ClientCore, session: Session, requests: Requests) -> None:
        self._core = core
        self._session = session
        self._requests = requests
        self._tick = session.tick
        self._endpoint: DatagramEndpoint | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._settled: asyncio.Future[bool] = self._tick.loop.create_future()

    async def open(self, timeout_s: float) -> bool:
        """Ask the node for it; False if its datagrams do not get here, and values stay on the connection."""
        address, welcome = self._session.address, self._session.welcome
        if address is None or welcome is None or "datagram" not in welcome.capabilities:
            raise RefusedError(f"{address} takes no datagrams: it needs a [[listen]] with a udp:// url")
        asked = self._requests.ask(lambda request: OpenDatagram(id=request), DatagramOpened)
        opened = await within(asked, timeout_s, "open datagrams")
        peer = await resolve_peer(address.host or "127.0.0.1", opened.port)
        any_host = "::" if ":" in peer[0] else "0.0.0.0"
        self._endpoint = await open_datagrams(Address("udp", any_host), self._tick)
        self._endpoint.bind(opened.link, self._core, PORT, opened.key, opener=True, peer=peer)
        self._core.clock(time.monotonic_ns(), time.time_ns())
        self._core.open_datagrams()
        self._beat()
        return await self._settled

    def progress(self) -> None:
        """Something was heard."""
        if self._core.by_datagrams and not self._settled.done():
            self._settled.set_result(True)

    def counters(self) -> dict[str, int]:
        """Of the socket: accepted, bad_tag, replayed, kernel_drops, …"""
        return {} if self._endpoint is None else self._endpoint.counters()

    def close(self) -> None:
        """Values use the connection from now on."""
        if self._timer is not None:
            self._timer.cancel()
        self._core.close_datagrams()
        if self._endpoint is not None:
            self._endpoint.close()
        if not self._settled.done():
            self._settled.set_result(False)

    def _beat(self) -> None:
        if time.monotonic_ns() - self._core.datagram_heard_ns > SILENT_NS:
            log.warning("datagrams do not arrive, values use the connection")
            self.close()
            return
        self._core.probe_datagrams()
        pause_s = BEAT_S if self._core.by_datagrams else FIRST_BEAT_S
        self._timer = self._tick.loop.call_later(pause_s, self._beat)
