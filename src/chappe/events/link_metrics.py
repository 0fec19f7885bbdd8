"""What is known of the links of a member, with what others have measured of them (MR-079)."""

from __future__ import annotations

from chappe.events.member_links import Link, Links
from chappe.events.member_measure import Measurement
from chappe.events.reporting import Reporter
from chappe.measure.cost import Metrics


class LinkMetrics:
    """The metrics that the network map gets."""

    def __init__(self, links: Links, measurement: Measurement, reporter: Reporter | None) -> None:
        self._links = links
        self._measurement = measurement
        self._reporter = reporter

    def weigh(self, link: Link, own: Metrics | None) -> Metrics | None:
        """What was measured here, with what the reporter makes of it."""
        return own if self._reporter is None else self._reporter.weigh(link, own)

    def of(self, link: Link) -> Metrics | None:
        """What is known of a link now, though it may never have been measured here."""
        own = self._measurement.initiator.reading(link.port)
        return self.weigh(link, own.metrics if own is not None else None)

    def latest(self, id: bytes) -> Metrics | None:
        """What was measured of an own link, as it is now."""
        link = self._links.by_id.get(id)
        own = self._measurement.initiator.reading(link.port) if link is not None else None
        return None if link is None or own is None else self.weigh(link, own.metrics)
