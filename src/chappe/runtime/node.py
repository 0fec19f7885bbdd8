"""A node as a process: it starts, ticks, reloads its configuration and stops."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterable

import structlog

from chappe.core.sections import Config
from chappe.engine._engine import Engine
from chappe.errors import ConfigError
from chappe.links._socket import Flusher, clocks
from chappe.links._turns import LoopTurns
from chappe.links.address import Address
from chappe.links.tick import FlushTick
from chappe.machine import Effect
from chappe.runtime.build import MakeRoleProcess, build_parts, rules_of
from chappe.runtime.config.checks import fixed, problems
from chappe.runtime.drain import drain as drained
from chappe.runtime.links.connections import Connection
from chappe.runtime.metrics import Snapshot
from chappe.runtime.reload import apply
from chappe.runtime.snapshot import take
from chappe.runtime.ticker import TICK_S, Ticker, rest_s
from chappe.security.credentials import Credentials
from chappe.wire.control import Goodbye

log = structlog.get_logger(__name__)


class Node:
    """One node of the mesh; several may run in one process. `dev`: no authentication, loopback only."""

    def __init__(self, config: Config, *, dev: bool = False, role: MakeRoleProcess | None = None) -> None:
        """`role`: in place of the one that the configuration says."""
        found = problems(config, dev=dev)
        if found:
            raise ConfigError("\n".join(f"configuration: {problem}" for problem in found))
        self.config = config
        self.dev = dev
        self.process = secrets.token_bytes(16)
        self.ready = False
        self.turns: LoopTurns | None = None  # of the loop, while it runs
        self.credentials = Credentials(config.tls, config.tokens)
        own = self.credentials.own
        if own is not None and (own.role, own.name) != ("node", config.node.name):
            raise ConfigError(f"tls.cert: the certificate is for {own}; node.name is {config.node.name!r}")
        self._ticker = Ticker(config.node.name, self._on_tick)
        parts = build_parts(
            config, dev=dev, process=self.process, credentials=self.credentials, hurry=self._ticker.hurry, role=role
        )
        self.core, self.role, self.mesh = parts.core, parts.role, parts.mesh
        self.connections, self.peers, self.datagrams = parts.connections, parts.peers, parts.datagrams
        self.shell, self.reception, self.functions = parts.shell, parts.reception, parts.functions
        self.management, self.alternates = parts.management, parts.alternates
        self._parts = parts

    @property
    def name(self) -> str:
        return self.config.node.name

    @property
    def engine(self) -> Engine:
        return self.core.engine

    @property
    def addresses(self) -> list[Address]:
        """Where it listens, with the real port numbers."""
        return self._parts.listening.addresses

    @property
    def url(self) -> str:
        """The first address it listens on."""
        return str(self.addresses[0])

    # --- the process that its role runs in

    @property
    def behind(self) -> bool:
        """Whether messages have arrived that nobody has looked at."""
        return self.shell.behind

    def carry_out(self, effects: list[Effect]) -> None:
        """Effects of something that happened outside of a message."""
        self.shell.perform(effects)
        self.tick.soon()

    def publish(self, topic: str, body: bytes) -> None:
        """An event of a feed."""
        self._parts.feeds.publish(topic, body)

    def follow(self, urls: Iterable[str]) -> None:
        """Keep a management link to each of these, and to no others."""
        self._parts.follow_brokers(urls)

    # --- beginning and end

    async def start(self) -> None:
        """Listen and dial; LinkError or ConfigError if an address cannot be had, and nothing is left open."""
        loop, parts = asyncio.get_running_loop(), self._parts
        self._measure_turns(loop)
        self.tick = FlushTick(loop, Flusher(self.engine), self.shell.arrived)
        self.shell.begin(self.tick)
        parts.carrier.begin(self.tick)
        self.shell.limit_rates(self.config.limits.rate > 0)
        try:
            if self.role is not None:
                await self.role.open(self)
            for entry in self.config.listen:
                await parts.listening.open(entry, self.config.limits.handshake_s, self.tick)
            self.datagrams.groups.follow(self.peers, self.tick)
        except BaseException:
            await parts.listening.close()
            await self.datagrams.close()
            if self.role is not None:
                await self.role.stop()
            self._close_turns()
            raise
        self.reception.datagrams = bool(self.datagrams.addresses)
        self._ticker.start()
        parts.feeds.start(self.tick, self.snapshot)
        if self.mesh is not None:
            assert parts.feeds.own is not None
            self.mesh.start(self.tick, parts.feeds.own)
        self.peers.start()
        if self.config.broker is not None:
            self.follow(self.config.broker.urls)
        if self.role is not None:
            try:
                await self.role.start()
            except BaseException:
                await self.stop(drain=False)
                raise
        self.ready = True
        await self._administered("start")
        log.info("listening", node=self.name, addresses=[str(address) for address in self.addresses], dev=self.dev)

    async def stop(self, drain: bool = True) -> None:
        """End it; `drain`: after everything it accepted was delivered, within node.drain_timeout_s."""
        parts = self._parts
        self.ready = False
        self.reception.draining = True
        await parts.listening.close()
        await self.functions.close()
        if self.role is not None:
            await self.role.stop()
        if drain:
            timeout_s = self.config.node.drain_timeout_s
            await drained(self.engine, self.connections, self.peers, self.tick, timeout_s)
        await parts.renewal.stop()
        self.shell.background.stop()
        parts.gate.stop()
        await self.management.stop()
        if self.mesh is not None:
            self.mesh.stop()
        parts.feeds.stop()
        await self.peers.stop()
        await self.alternates.stop()
        await self.shell.recorded()
        links = [connection.link for connection in self.connections]
        for connection in self.connections:
            farewell = Goodbye(reason=f"{self.name} is going away")
            self.connections.close(connection, "node stopped", message=farewell)
        await asyncio.gather(*(link.wait_closed() for link in links))
        self._ticker.stop()
        self._close_turns()
        await self.datagrams.close()
        if parts.audit is not None:
            await self._administered("stop")
            parts.audit.close()
        log.info("stopped", node=self.name)

    # --- reload

    async def reload(self, config: Config) -> None:
        """Use other limits, rules, certificates, peers and paths. ConfigError leaves everything as it was."""
        found = problems(config, dev=self.dev) + fixed(self.config, config)
        if found:
            raise ConfigError("\n".join(found))
        rules = rules_of(config, self.dev)
        shown = self.credentials.own
        await asyncio.to_thread(self.credentials.reload)
        self.config = config
        if self.credentials.own != shown:
            self._parts.renewal.begin()
        await apply(self._parts, config, rules, self.tick, self._lapsed)
        log.info("configuration reloaded", node=self.name)
        await self._administered("reload")

    def _lapsed(self, connection: Connection) -> str | None:
        return None if self.dev else self.credentials.lapsed(connection.session.identity)

    async def _administered(self, what: str) -> None:
        """Write down what somebody at this machine did to the node."""
        if self._parts.audit is not None:
            await asyncio.to_thread(self._parts.audit.record, None, "admin", f"{self.name}/{what}", "done")

    # --- to see it

    def _measure_turns(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            self.turns = self._parts.facts.turns = LoopTurns(loop)
        except RuntimeError:
            log.info("the turns of the loop are not measured: it is no uvloop", node=self.name)

    def _close_turns(self) -> None:
        if self.turns is not None:
            self.turns.close()
            self.turns = self._parts.facts.turns = None

    async def snapshot(self, scrape: bool = False) -> Snapshot:
        """The counters for /metrics, taken in slices so that forwarding does not wait.

        `scrape`: the longest turn of the loop is counted anew from now on.
        """
        return await take(self._parts, self.turns, scrape)

    # --- time

    def _on_tick(self) -> float:
        """Whatever is due; how long the next tick has time."""
        clocks(self.engine)
        now_ns, core, carrier = self.engine.mono_ns, self.core, self._parts.carrier
        self.connections.tick(now_ns, time.time_ns(), round(self.config.limits.idle_s * 1e9), self._lapsed)
        self.datagrams.tick(now_ns)
        self.alternates.tick(now_ns)
        self.shell.sweep()
        carrier.count_refusals()
        self.shell.write_down(core.access.refusals.due(now_ns))
        self.shell.write_down(core.access.neighbour_refusals.due(now_ns))
        self.shell.perform(core.tick(now_ns))
        carrier.remove_absent(round(self.config.node.away_s * 1e9))
        if core.busy:
            self.tick.soon()
        else:
            self.tick.now()
        if self.connections.freeing:
            return 0
        waits = (
            self.role is not None
            or core.cells is not None
            or self.connections.restless
            or self.datagrams.busy
            or core.control.behind
        )
        return TICK_S if waits else rest_s(self.connections.shortest_ns)
