"""The links of this node itself: what is measured of them, and what of it was advertised (MR-112)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from chappe.linkstate.checks import MAX_BANDWIDTH, MAX_JITTER, MAX_LATENCY_MS
from chappe.linkstate.costs import cost_of_one
from chappe.linkstate.settings import Settings
from chappe.linkstate.units import Address, VertexId, visible
from chappe.measure.cost import PROFILES, Metrics, error
from chappe.wire.mesh import LinkFact

Latest = Callable[[bytes], Metrics | None]  # what is known of the own link of that id now


class OwnLink:
    """One link to a neighbour."""

    def __init__(self, me: Address, peer: str, address: Address, link: bytes, kind: str) -> None:
        self.id = link
        self.peer = peer
        self.address = address
        self.kind = kind
        self.vertex_id: VertexId = visible(me, address)
        self.scope = me.scope(self.vertex_id.level)
        self.suspect = False
        self.metrics = Metrics()
        self.advertised = Metrics()
        self.sequence = 0
        self._costs: dict[str, float] = {}  # as advertised, by profile

    def moved(self, settings: Settings, samples: int = 0) -> bool:
        """Whether a cost differs from the advertised one by enough, by one of the profiles in use.

        `samples`: of latency and jitter, from whose number and noise follows what of a difference means nothing; 0 if
        they are to be believed as they are.
        """
        for profile, (old, range_ms) in zip(settings.profiles, self.bands(settings), strict=True):
            new = _cost(profile, self.metrics)
            if math.isnan(old):
                if not math.isnan(new):
                    return True
            elif abs(new - old) > range_ms and self._believed(profile, new, old, range_ms, settings, samples):
                return True
        return False

    def _believed(
        self, profile: str, new: float, old: float, range_ms: float, settings: Settings, samples: int
    ) -> bool:
        """Whether it is what latency and jitter would not be by chance, or loss and bandwidth alone make it so."""
        if not samples or abs(new - old) > settings.certainty * error(self.metrics, samples, profile):
            return True
        advertised = self.metrics._replace(latency_ms=self.advertised.latency_ms, jitter=self.advertised.jitter)
        return abs(_cost(profile, advertised) - old) > range_ms

    def bands(self, settings: Settings) -> list[tuple[float, float]]:
        """By each profile in use, the cost that was advertised, NaN if none was, and how far from it is no change."""
        advertised = [self._costs.get(profile, math.nan) for profile in settings.profiles]
        return [(cost, max(settings.threshold * cost, settings.floor_ms)) for cost in advertised]

    def quiet(self, settings: Settings) -> tuple[list[tuple[float, float]], Metrics]:
        """What is no change: the bands, and the metrics that the advertised costs were made of."""
        return self.bands(settings), self.advertised

    def update(self, settings: Settings) -> float:
        """What is measured now counts as advertised; its cost by the profile `default`."""
        self.advertised = self.metrics
        self.sequence += 1
        self._costs = {profile: _cost(profile, self.advertised) for profile in settings.profiles}
        return _cost("default", self.advertised)

    def fact(self) -> LinkFact:
        """As it is advertised."""
        advertised = self.advertised
        return LinkFact(
            id=self.id,
            far=self.vertex_id.name,
            level=self.vertex_id.level,
            kind=self.kind,
            suspect=self.suspect,
            latency_ms=_within(advertised.latency_ms, MAX_LATENCY_MS),
            jitter=_within(advertised.jitter, MAX_JITTER) if advertised.latency_ms == advertised.latency_ms else None,
            loss=_within(advertised.loss, 1.0),
            bandwidth=_within(advertised.bandwidth, MAX_BANDWIDTH),
        )

    def row(self) -> dict[str, Any]:
        """For people."""
        now = self.metrics
        return {
            "link": self.id.hex(),
            "peer": self.peer,
            "thing": self.vertex_id.name,
            "level": self.vertex_id.level,
            "kind": self.kind,
            "suspect": self.suspect,
            "latency_ms": now.latency_ms,
            "deviation_ms": now.deviation_ms,
            "jitter_ms": now.jitter_ms,
            "jitter": now.jitter,
            "loss": now.loss,
            "bandwidth": now.bandwidth,
            "cost": _cost("default", now),
            "told": _cost("default", self.advertised),
            "sequence": self.sequence,
        }


class OwnLinks:
    """All of them, by id."""

    def __init__(self, me: Address, settings: Settings, latest: Latest | None = None) -> None:
        self.me = me
        self.settings = settings
        self._latest = latest
        self.links: dict[bytes, OwnLink] = {}
        self._facts: tuple[LinkFact, ...] | None = None

    def add(self, link: OwnLink) -> None:
        self.links[link.id] = link
        self._facts = None

    def remove(self, link: bytes) -> OwnLink | None:
        self._facts = None
        return self.links.pop(link, None)

    def renew(self) -> None:
        """Take the figures of this moment, which moved too little since the last ones to be advertised."""
        if self._latest is not None:
            for own in self.links.values():
                own.metrics = self._latest(own.id) or own.metrics

    def changed(self) -> None:
        """What is advertised of one of them has changed."""
        self._facts = None

    def facts(self) -> tuple[LinkFact, ...]:
        """All of them as they are advertised, by id."""
        if self._facts is None:
            self._facts = tuple(self.links[link].fact() for link in sorted(self.links))
        return self._facts


def _cost(profile: str, metrics: Metrics) -> float:
    if profile not in PROFILES:
        return math.nan
    return cost_of_one(profile, metrics.latency_ms, metrics.jitter, metrics.loss, metrics.bandwidth)


def _within(value: float, most: float) -> float | None:
    """A value that others take; one that cannot be is as good as not measured."""
    return value if 0.0 <= value <= most else None
