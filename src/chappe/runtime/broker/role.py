"""A node that is a broker: its machine driven by the loop, with a lease, a store and the log for those who listen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import structlog

from chappe.core.access import Access
from chappe.core.broker.log import BrokerLog
from chappe.core.broker.machine import BrokerMachine
from chappe.core.roles import Host
from chappe.core.sections import Manages
from chappe.core.sessions import Sessions
from chappe.links._socket import clocks
from chappe.machine import Address, AuditWritten, Effect, Input
from chappe.runtime.broker.commits import Commits, Tally
from chappe.runtime.broker.leadership import Leadership
from chappe.status.brokers import broker_of
from chappe.status.machine import Broker
from chappe.status.topology import Topology
from chappe.wire import feeds
from chappe.wire.base import Message
from chappe.wire.control import Subscribe, Unsubscribe

log = structlog.get_logger(__name__)

BEHIND_NS = 10_000_000_000  # an answer that has arrived and waits here to be looked at is not late
SETTLE_S = 2.0  # for commits under way when the process ends

Make = Callable[[str, Topology], Broker]


class BrokerRole:
    """One process of a broker's role (GS-156). Planning happens here and forwards nothing, so it may take its time."""

    def __init__(
        self, name: str, process: bytes, manages: Manages, sessions: Sessions, access: Access, make: Make = broker_of
    ) -> None:
        self.role = manages.role
        self.tally = Tally()
        self._sessions = sessions
        self._host: Host  # given with `open`
        self._manages = manages
        self._above = manages.topology.brokers[manages.role].parent  # empty: it is the root
        self._log = BrokerLog(self.role)
        self._led = 0  # epoch that the machine led in when it was last called
        self._ticked_ns = 0
        self.leadership = Leadership(
            self.role, f"{name}/{process.hex()[:12]}", lambda: make(self.role, manages.topology),
            self._begin, self._over,
        )  # fmt: skip
        self.machine = BrokerMachine(
            name, self.role, manages.topology, lambda: access.book, self.leadership.held, sessions, self._log,
            time.time_ns,
        )  # fmt: skip
        self._commits = Commits(self.machine, self.leadership.commit, self._perform, self._over, self.tally)

    async def open(self, host: Host) -> None:
        """Open the store; StoreError says what is wrong with it."""
        self._host = host
        await self.leadership.open(self._manages.store)

    async def start(self) -> None:
        """Ask for the lease."""
        self.leadership.start(self._manages.lease_s)
        if self._above:
            self._host.follow(self._manages.topology.brokers[self._above].listen)

    async def stop(self) -> None:
        """Finish what is being committed, then let another process lead at once."""
        await self.leadership.halt()
        if self.machine.epoch:
            try:
                async with asyncio.timeout(SETTLE_S):
                    await self._commits.settled()
            except TimeoutError:
                log.warning("ends before everything is committed", role=self.role)
            self._over(self.machine.epoch, "the process ends")
        self._commits.stop()
        await self.leadership.stop()
        self._publish_log()

    @property
    def state(self) -> str:
        if self.machine.epoch:
            return "leading"
        return "restoring" if self.leadership.restoring else "standby"

    def _begin(self, broker: Broker, epoch: int) -> None:
        clocks(self._host.engine)
        self._perform(self._done(self.machine.lead(broker, epoch, self._host.engine.mono_ns)))

    def _over(self, epoch: int, reason: str) -> None:
        if self.machine.epoch == epoch:
            self._perform(self._done(self.machine.resign(reason)))

    # --- what the node gives it

    def takes(self, message: Message) -> bool:
        if isinstance(message, Subscribe | Unsubscribe) and feeds.at_brokers(message.pattern):
            self._log.on = True  # the next tick sees whether somebody is still there
            return False
        return self.machine.takes(message)

    def receive(self, source: Address, message: Input | AuditWritten, now_ns: int) -> list[Effect]:
        return self._done(self.machine.receive(source, message, now_ns))

    def tick(self, now_ns: int) -> list[Effect]:
        self.leadership.alive()
        self._publish_log()
        if self._host.behind and now_ns - self._ticked_ns < BEHIND_NS:
            return []
        self._ticked_ns = now_ns
        return self._done(self.machine.tick(now_ns))

    def next_tick(self) -> int:
        return self.machine.next_tick()

    def rows(self, what: str) -> list[dict[str, Any]] | None:
        """What the broker shows; `broker`: this process. RefusedError while it stands by."""
        return self.machine.rows(what, self.state)

    def gauges(self) -> dict[str, float]:
        """For /metrics."""
        tally = self.tally
        return {
            "broker_leading": float(bool(self.machine.epoch)), "broker_epoch": self.machine.epoch,
            "broker_terms": self.leadership.terms, "broker_commits": tally.commits, "broker_changes": tally.changes,
            "broker_commit_seconds": tally.seconds, "broker_slowest_commit_seconds": tally.slowest_s,
            "broker_waiting_messages": self.machine.waiting, "broker_log_dropped": self._log.dropped,
        }  # fmt: skip

    # --- what follows

    def _done(self, effects: list[Effect]) -> list[Effect]:
        """The machine was called: commit what it decided, give up the lease of a term that it has ended."""
        if self._led and self.machine.epoch != self._led:
            self.leadership.leave(self._led)
        self._led = self.machine.epoch
        self._commits.go()
        return effects

    def _perform(self, effects: list[Effect]) -> None:
        self._host.carry_out(self._done(effects))

    def _publish_log(self) -> None:
        """Publish what was done for those who listen; nobody: nothing is written down."""
        listened = any(session.subscriptions for session in self._sessions)
        if listened:
            for body in self._log.take(time.time_ns()):
                self._host.publish(feeds.broker_topic(self.role), body)
        elif self._log.on:
            self._log.forget()
        self._log.on = listened
