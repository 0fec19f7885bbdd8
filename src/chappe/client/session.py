"""The connection of a client, over all its reconnections: dial, handshake, heartbeats, backoff."""

from __future__ import annotations

import asyncio
import os
import random
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import structlog

from chappe.client._core import ClientCore
from chappe.client.attachment import Ranking, answer_times
from chappe.errors import ChappeError, LinkError, RefusedError
from chappe.links._socket import Flusher
from chappe.links.address import Address
from chappe.links.backoff import Backoff
from chappe.links.dial import dial
from chappe.links.handshake import connect_handshake
from chappe.links.heartbeat import Heartbeat
from chappe.links.kinds import encrypts
from chappe.links.link import Link, Raw, control_frame
from chappe.links.options import LinkOptions
from chappe.links.proxy import proxy_for
from chappe.links.tick import FlushTick
from chappe.wire.control import Goodbye, Hello, Welcome

State = Literal["connecting", "connected", "reconnecting", "closed"]
CAP_S = 1.0  # the longest pause between attempts, so that streams resume soon after the node is back

log = structlog.get_logger("chappe.client")


class Owner(Protocol):
    """Whom a session notifies."""

    def session_up(self, welcome: Welcome, again: bool) -> None: ...
    def session_down(self, error: Exception | None) -> None: ...
    async def settled(self) -> bool:
        """Whether the node has everything, so that the connection can be changed for another one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectOptions:
    """The arguments of `chappe.connect`, checked: where and how to connect, and as whom."""

    addresses: Sequence[Address]
    name: str  # for people, access rules and brokers
    token: str | Callable[[], str] | None = None
    tls: ssl.SSLContext | None = None
    server_name: str | None = None
    link: LinkOptions = field(default_factory=LinkOptions)
    reconnect: bool = True
    heartbeat_s: float = 1.0
    wait_s: float = 0.0  # how long the first connection is tried
    proxy: str = ""  # http://user:password@host:port, or `environment`
    stamps: bool | None = None  # whether events without a stamp get one; None: if the node asks for it
    compare_s: float = 30.0  # of several addresses: how often they are compared while connected; 0: never
    queue_bytes: int = 8 << 20  # of events that the node has not confirmed
    status_bytes: int = 1 << 20  # of values that are not written yet
    conflate: bool = False
    flooded: bool = False
    datagrams: bool = False
    timeout_s: float = 5.0  # of requests to the node
    durable_s: float = 30.0  # how long an archive may take to confirm an event
    report_quality: bool = False


class Session:
    """Keeps one connection: when it is lost, the next try comes at once, then with backoff and jitter (GS-035)."""

    def __init__(self, core: ClientCore, options: ConnectOptions, hello: Callable[[], Hello], owner: Owner) -> None:
        self.state: State = "connecting"
        self.address: Address | None = None
        self.welcome: Welcome | None = None
        self.reconnections = 0
        self._core = core
        self._options = options
        self._hello = hello
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._flusher = Flusher(core)
        self.tick = self._tick = FlushTick(self._loop, self._flusher)
        self._link: Link | None = None
        self._heartbeat = Heartbeat(max(1, round(options.heartbeat_s * 1e9)))
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._comparing: asyncio.Task[None] | None = None
        self._ranking = Ranking(len(options.addresses))
        self._place: int | None = None  # of the address that is or was connected
        self._paused = False
        core.schedule = self._flusher.soon
        core.write = self._tick.now

    def schedule_from_threads(self) -> None:
        """Publishing may be called from other threads than the loop's."""
        self._core.write = None
        self._core.schedule = lambda: self._loop.call_soon_threadsafe(self._flusher.soon)

    async def start(self) -> None:
        """The first connection; the error of the last address tried if there is none."""
        deadline = self._loop.time() + self._options.wait_s
        backoff = Backoff(random.random, cap_s=CAP_S)
        backoff.next_s()
        while True:
            order = await self._order()
            for place in order:
                try:
                    await self._connect(place)
                except LinkError:
                    if place == order[-1] and self._loop.time() >= deadline:
                        raise
                else:
                    if len(order) > 1 and self._options.compare_s:
                        self._comparing = self._loop.create_task(self._compare())
                    return
            await asyncio.sleep(backoff.next_s())

    async def _order(self) -> list[int]:
        """Places of the addresses, the one to try first at the front."""
        if len(self._options.addresses) > 1:
            self._ranking.measured(await answer_times(self._options.addresses, self._dial))
        return self._ranking.order(self._place)

    async def _dial(self, address: Address) -> Raw:
        options = self._options
        tls = options.tls if encrypts(address) else None
        proxy = proxy_for(options.proxy, address, os.environ)
        return await dial(address, tls=tls, server_name=options.server_name, options=options.link, proxy=proxy)

    async def _connect(self, place: int) -> None:
        address = self._options.addresses[place]
        raw = await self._dial(address)
        asked_ns = time.time_ns()
        welcome = await connect_handshake(raw, self._hello(), self._options.link.handshake_timeout_s)
        if self.welcome is not None and welcome.issuer != self.welcome.issuer:
            raw.abort()
            raise RefusedError(f"{address} knows this client by another identity than before: close it, connect again")
        self._core.ahead_ns = ahead_ns(asked_ns, welcome.wall_ns, time.time_ns())
        self._core.stamping = "stamp" in welcome.capabilities if self._options.stamps is None else self._options.stamps
        if self.state == "closed":
            raw.abort()
            return
        again, self.state = self.state == "reconnecting", "connected"
        self.address, self.welcome, self._place = address, welcome, place
        credit = welcome.credit if "credit" in welcome.capabilities else 0
        try:
            self._core.connected(
                max_payload=welcome.max_payload, max_topics=welcome.max_topics, credit=credit, hold=again
            )
            self._link = raw.attach(self._core, 0, self._tick, self._lost)
        except BaseException:
            self._core.close()
            raw.abort()
            raise
        if self._paused:
            self._link.pause_reading()
        self._heartbeat = Heartbeat(max(1, welcome.heartbeat_ns))
        self._heartbeat.connected(time.monotonic_ns())
        self._beat()
        self._owner.session_up(welcome, again)

    def _lost(self, error: Exception | None) -> None:
        """The connection ended by itself."""
        if self.state == "closed":
            return
        self._unlink()
        self._heartbeat.lost()
        self.state = "reconnecting" if self._options.reconnect else "closed"
        log.info("connection lost", address=str(self.address), error=str(error or "end of stream"))
        self._owner.session_down(error)
        if self.state == "reconnecting":
            self._task = self._loop.create_task(self._reconnect())

    async def _reconnect(self) -> None:
        backoff = Backoff(random.random, cap_s=CAP_S)
        while self.state == "reconnecting":
            await asyncio.sleep(backoff.next_s())
            for place in await self._order():
                try:
                    await self._connect(place)
                except (ChappeError, OSError) as error:
                    log.info("reconnection failed", error=str(error))
                else:
                    self.reconnections += 1
                    return

    async def _compare(self) -> None:
        """Move to another node that has answered sooner for several rounds in a row (MR-008)."""
        while self.state != "closed":
            await asyncio.sleep(self._options.compare_s * random.uniform(0.9, 1.1))
            if self.state != "connected":
                self._ranking.moved()
                continue
            times = await answer_times(self._options.addresses, self._dial)
            self._ranking.measured(times, self._place)
            better = self._ranking.move()
            if better is not None and self.state == "connected" and await self._owner.settled():
                log.info("another node is nearer", address=str(self._options.addresses[better]), left=str(self.address))
                self._ranking.moved()
                self._place = better
                self.drop(LinkError(f"{self._options.addresses[better]} answers sooner than {self.address}"))

    def _beat(self) -> None:
        now = time.monotonic_ns()
        heard = now if self._paused else self._core.heard_ns  # we do not read: silence says nothing
        verdict = self._heartbeat.check(now, heard)
        if verdict.dead:
            interval, misses = self._heartbeat.interval_ns / 1e9, self._heartbeat.misses
            if self._link is not None:
                self._link.abort()
            self._lost(LinkError(f"{self.address} was silent for {misses} heartbeats of {interval:g} s"))
            return
        if verdict.send:
            self._core.heartbeat()
            self._core.acknowledge_soon()
        self._timer = self._loop.call_later(max(0.001, (verdict.next_ns - now) / 1e9), self._beat)

    def pause_reading(self) -> None:
        """Leave what arrives to the kernel until `resume_reading`."""
        self._paused = True
        if self._link is not None:
            self._link.pause_reading()

    def resume_reading(self) -> None:
        self._paused = False
        if self._link is not None:
            self._link.resume_reading()

    def drop(self, error: Exception) -> None:
        """Give the present connection up, as if it had been lost."""
        if self._link is not None:
            self._link.abort()
            self._lost(error)

    def _unlink(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._link = None
        self._core.close()

    async def close(self) -> None:
        """End the connection and all attempts; what is queued is written first."""
        self.state = "closed"
        link = self._link
        if link is not None:
            link.close(control_frame(Goodbye()))  # it ends in good order: what it had is not kept for it
        self._unlink()
        tasks = [task for task in (self._task, self._comparing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if link is not None:
            await link.wait_closed()


def ahead_ns(asked_ns: int, node_ns: int, answered_ns: int) -> int:
    """How far the node's wall clock is ahead of ours; 0 if it said nothing, or no more than the one-way delay explains.

    Clocks that are kept well agree better than one answer can tell.
    """
    delay_ns = max(0, answered_ns - asked_ns) // 2
    ahead = node_ns - asked_ns - delay_ns
    return ahead if node_ns and abs(ahead) > delay_ns else 0
