"""The measuring half of a member: probes and trains out by the engine, echoes and reports in (MR-001, MR-060)."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Collection
from dataclasses import replace

from chappe.engine._engine import Engine
from chappe.events.member_links import Link, Links
from chappe.events.member_settings import SECOND, MemberSettings
from chappe.measure.initiator import NEVER, Initiator
from chappe.measure.readings import FACTORS, Reading
from chappe.measure.trains import Trains

LOOK_NS = 3 * SECOND
RIDE_NS = SECOND // 20  # a probe of a link with traffic waits so long for something to leave with


class Measurement:
    """One initiator for all links of a node, one estimator for each link whose bandwidth is measured."""

    def __init__(self, engine: Engine, settings: MemberSettings, rng: random.Random) -> None:
        self._engine = engine
        self._settings = settings
        measure = replace(settings.measure, advertised=settings.map.profiles, certainty=settings.map.certainty)
        self.initiator = Initiator(measure, rng)
        self._awake = False
        self._chosen: set[int] = set()  # ports of links that have a set of factors of their own
        self._trains = Trains(settings.trains, rng)
        self.sent = 0  # probes and trains
        self._looked_ns = 0
        self._unseen: list[Link] = []  # of this round
        self._carrying: set[int] = set()  # ports with traffic when they were looked at last
        self._riding: deque[tuple[int, int, int]] = deque()  # probes that wait for traffic: until when, port, token

    def add(self, link: Link, now_ns: int) -> None:
        """A link is up; the first one wakes the initiator, if this node measures."""
        self.initiator.add(link.port, link.lossy, now_ns)
        for factor in FACTORS:
            if factor != "bandwidth" and factor not in self._settings.factors:
                self.initiator.switch_factor(link.port, factor, False)
        if self._settings.measures and not self._awake:
            self.wake(now_ns)
        if self._settings.bandwidth and link.role != "client":
            link.trains = self._trains.add(link.port, now_ns)

    def choose_factors(self, link: Link, factors: Collection[str] | None) -> None:
        """Measure these factors of a link; None: those of the node, loss only where a link can lose (MR-055)."""
        if factors is not None:
            self._chosen.add(link.port)
            wanted = {*factors, "deviation"} if "latency" in factors else {*factors}
        elif link.port in self._chosen:
            self._chosen.discard(link.port)
            wanted = {*self._settings.factors, "bandwidth"} - (set() if link.lossy else {"loss"})
        else:
            return
        for factor in FACTORS:
            self.initiator.switch_factor(link.port, factor, factor in wanted)

    def remove(self, port: int) -> None:
        """It is gone, with all that was known of it."""
        self.initiator.remove(port)
        self._chosen.discard(port)
        self._carrying.discard(port)
        self._trains.remove(port)

    def wake(self, now_ns: int) -> None:
        """Measure."""
        self._awake = True
        self.initiator.wake(now_ns)

    def sleep(self) -> None:
        """Measure no more; what is known stays."""
        self._awake = False
        self.initiator.sleep()

    def arrived(self, now_ns: int) -> None:
        """Take what came back."""
        if echoes := self._engine.take_echoes():
            self.initiator.take(echoes, now_ns)
        if not self._settings.bandwidth:
            return
        for port, token, half_bytes, half_ns, _, _ in self._engine.take_trained():
            if port in self._trains:
                self.initiator.bandwidth(port, self._trains.trained(port, token, half_bytes, half_ns, now_ns))

    def tick(self, links: Links, now_ns: int) -> list[Reading]:
        """Links whose metrics are new."""
        if len(links) and len(links) * (now_ns - self._looked_ns) >= LOOK_NS:
            self._look(links, now_ns)
        return self.initiator.tick(now_ns)

    def probe(self, now_ns: int) -> bool:
        """Queue probes and trains that are due; whether any is to be written now. They count as sent at this moment,
        those of links with traffic from when it is written: they ride with it."""
        before = self.sent
        while self._riding_until() <= now_ns:
            _, port, token = self._riding.popleft()
            if self._engine.send_probe(port, token):
                self.sent += 1
        for port, token in self.initiator.due(now_ns):
            if self._trains.under_way(port):
                self.initiator.unsent(port, token)
            elif port in self._carrying and self._engine.ride_probe(port, token):
                self._riding.append((now_ns + RIDE_NS, port, token))
            elif self._engine.send_probe(port, token):
                self.sent += 1
            else:  # no loss; and behind a train it would measure the train
                self.initiator.unsent(port, token)
        for port, train in self._trains.due(now_ns):
            wanted = self.initiator.measures(port, "bandwidth")
            if wanted and self._engine.send_train(port, train.token, train.bytes):
                self.sent += 1
            else:
                self._trains.lost(port, train.token)
        return self.sent != before

    def next_ns(self) -> int:
        """When `tick` or `probe` has something to do at the latest."""
        next_ns = min(self.initiator.next_ns(), self._trains.next_ns())
        return min(next_ns, self._riding_until()) if self._riding else next_ns

    def _riding_until(self) -> int:
        """When the first probe that still waits for traffic has waited long enough; those that left are forgotten."""
        riding = self._riding
        while riding:
            until_ns, port, token = riding[0]
            if port in self.initiator and self._engine.riding(port) == token:
                return until_ns
            riding.popleft()
        return NEVER

    def _look(self, links: Links, now_ns: int) -> None:
        """Which links carry traffic: those are measured more often. A few at a time, each once in LOOK_NS."""
        each_ns = LOOK_NS // len(links)
        due = min((now_ns - self._looked_ns) // each_ns, len(links))
        self._looked_ns = now_ns if due == len(links) else self._looked_ns + due * each_ns
        for _ in range(due):
            if not self._unseen:
                self._unseen = list(links)
            link = self._unseen.pop()
            if links.by_port.get(link.port) is link:
                self._look_at(link)

    def _look_at(self, link: Link) -> None:
        traffic = self._engine.traffic(link.port)
        if link.traffic >= 0:
            self.initiator.carries(link.port, traffic != link.traffic)
            (self._carrying.add if traffic != link.traffic else self._carrying.discard)(link.port)
        link.traffic = traffic
        if link.trains is not None:
            self._trains.travelled(link.port, self.initiator.rtt_ns(link.port))
