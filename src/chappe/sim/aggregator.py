"""A simulated aggregator: the real machine beside a client of a simulated node, with a store in memory."""

from __future__ import annotations

import msgspec

from chappe.aggregation.access import Access
from chappe.aggregation.aggregator import Aggregator, AggregatorInput, Settings
from chappe.aggregation.alerts import Alerts
from chappe.machine import Append, Appended, Delivered, Effect, Log, Publish
from chappe.measure.record import Record
from chappe.sim.clock import WALL_NS, Timer
from chappe.sim.node import Node

COMMIT_S = 0.2  # until what was appended is on disk


class SimAggregator:
    """What it publishes while its node is down is lost, and counted."""

    def __init__(self, node: Node, settings: Settings, access: Access, alerts: Alerts) -> None:
        self.machine = Aggregator(settings, access, alerts, lambda now_ns: now_ns + WALL_NS)
        self.stored: list[msgspec.Struct] = []
        self._keys: set[tuple[str, str, int]] = set()  # of the records
        self.logs: list[Log] = []
        self.lost = 0
        self._clock = node.clock
        self._timer: Timer | None = None
        self.client = node.client(settings.name)
        self.client.on_event = lambda topic, body: self._give("mesh", Delivered(topic, body))
        for topic in self.machine.topics:
            self.client.subscribe(topic)
        self._tick()

    def _give(self, source: str, message: AggregatorInput) -> None:
        self._carry_out(self.machine.receive(source, message, self._clock.now_ns))

    def _tick(self) -> None:
        self._carry_out(self.machine.tick(self._clock.now_ns))

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Append(items):
                    self._clock.after(COMMIT_S, self._commit, items)
                case Publish(topic, body):
                    self.lost += not self.client.publish(topic, body)
                case Log():
                    self.logs.append(effect)
                case _:
                    raise TypeError(f"an aggregator asks for {type(effect).__name__}")
        self._wake_at(self.machine.next_tick())

    def _wake_at(self, when_ns: int) -> None:
        if self._timer is not None and self._timer.waits:
            if self._timer.when_ns == when_ns:
                return
            self._timer.cancel()
        self._timer = self._clock.at(when_ns, self._tick)

    def _commit(self, items: list[msgspec.Struct]) -> None:
        self.stored += items
        known = len(self._keys)
        self._keys |= {(each.link, each.node, each.stamp_ns) for each in items if isinstance(each, Record)}
        self._give("store", Appended(len(self._keys) - known))
