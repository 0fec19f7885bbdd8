"""Readings of the links of a member on their way to the network map and to the reporter (MR-083)."""

from __future__ import annotations

from collections import deque

from chappe.engine._engine import Engine
from chappe.events.link_metrics import LinkMetrics
from chappe.events.map_results import MapResults
from chappe.events.member_links import Link, Links
from chappe.events.member_measure import Measurement
from chappe.events.reporting import Measured, Reporter
from chappe.linkstate.network_map import LinkState
from chappe.machine import Effect
from chappe.measure.readings import Reading

READ_AT_ONCE = 20  # readings in one tick: each may be advertised to every neighbour


class LinkReadings:
    """Some are read in each tick, so that nobody waits for all of them."""

    def __init__(
        self, engine: Engine, links: Links, measurement: Measurement, metrics: LinkMetrics, state: LinkState,
        results: MapResults, reporter: Reporter | None,
    ) -> None:  # fmt: skip
        self._engine = engine
        self._links = links
        self._measurement = measurement
        self._metrics = metrics
        self._state = state
        self._results = results
        self._reporter = reporter
        self._waiting: deque[Reading] = deque()  # that the map does not know yet

    @property
    def busy(self) -> bool:
        """Whether some are left for the next tick."""
        return bool(self._waiting)

    def tick(self, now_ns: int) -> list[Effect]:
        """Take new ones from the measurement, and read some."""
        if now_ns >= self._measurement.initiator.next_ns():
            readings = self._measurement.tick(self._links, now_ns)
            if self._reporter is None:  # of a link to a client nobody needs to know then
                links = self._links.by_port
                readings = [reading for reading in readings if (link := links.get(reading.link)) and link.joined]
            self._waiting += readings
        return self._read(now_ns) if self._waiting else []

    def reweigh(self, port: int, now_ns: int) -> list[Effect]:
        """Others have measured a link: its cost is computed anew, with what the reporter makes of it (MR-079)."""
        link = self._links.by_port.get(port)
        if link is None or not link.joined or self._reporter is None:
            return []
        metrics = self._metrics.of(link)
        return [] if metrics is None else self._results.follow(self._state.measured(link.id, metrics, now_ns))

    def lost(self, link: Link, now_ns: int) -> None:
        """A link is down."""
        self._measurement.remove(link.port)
        if self._reporter is not None:
            self._reporter.lost(link, now_ns)

    def _read(self, now_ns: int) -> list[Effect]:
        """Give some readings to the map, and all of them to the reporter."""
        effects: list[Effect] = []
        reported: list[Measured] = []
        for _ in range(min(READ_AT_ONCE, len(self._waiting))):
            reading = self._waiting.popleft()
            link = self._links.by_port.get(reading.link)
            if link is None:
                continue
            before = len(effects)
            metrics = self._metrics.weigh(link, reading.metrics)
            if link.joined and metrics is not None:
                # a level that changed is advertised at once; else few or noisy samples are not taken for a change
                samples = 0 if reading.restarted else reading.window - reading.outliers
                effects += self._results.follow(self._state.measured(link.id, metrics, now_ns, samples))
            reported.append(Measured(link, reading, len(effects) > before))
        if self._reporter is not None and reported:
            effects += self._reporter.report(reported, now_ns, self._engine.wall_ns)
        return effects
