"""Nodes that leave and come back, links that fail: processes that keep a mesh from being quiet."""

from __future__ import annotations

import random
from collections.abc import Callable

from chappe.errors import ConfigError
from chappe.sim.network import Network

SHORTEST_S = 0.5  # a process does not come back sooner


class _Moments:
    """While it is on, something happens at random moments, `rate` of them a second on average."""

    def __init__(self, network: Network, rng: random.Random, rate: float, happen: Callable[[], None]) -> None:
        self._network = network
        self._rng = rng
        self._rate = rate
        self._happen = happen
        self._on = False

    def start(self) -> None:
        if not self._on:
            self._on = True
            self._next()

    def stop(self) -> None:
        self._on = False

    def _next(self) -> None:
        self._network.clock.after(self._rng.expovariate(self._rate), self._arrive)

    def _arrive(self) -> None:
        if self._on:
            self._happen()
            self._next()


class Churn:
    """Each second a share of the nodes leaves, at random moments; each comes back after `away_s` on average."""

    def __init__(
        self,
        network: Network,
        share_per_s: float,
        away_s: float = 5.0,
        silent: float = 0.0,
        spared: frozenset[str] = frozenset(),
    ) -> None:
        if not 0 < share_per_s <= 1 or away_s <= 0 or not 0 <= silent <= 1:
            raise ConfigError(
                f"churn of {share_per_s} a second, {away_s} s away, {silent} silent: shares, and a time above 0"
            )
        self.left = self.returned = 0
        self._network = network
        self._names = sorted(set(network.nodes) - spared)
        self._away_s = away_s
        self._silent = silent
        self._rng = network.streams.of("churn")
        self._moments = _Moments(network, self._rng, share_per_s * len(network.nodes), self._leave)
        self._coming = 0

    @property
    def away(self) -> int:
        """Nodes that are to come back."""
        return self._coming

    def start(self) -> None:
        self._moments.start()

    def stop(self) -> None:
        """Nobody leaves any more; who is away still comes back."""
        self._moments.stop()

    def _leave(self) -> None:
        network = self._network
        name = self._names[self._rng.randrange(len(self._names))]
        silent = self._rng.random() < self._silent
        away_s = max(SHORTEST_S, self._rng.expovariate(1 / self._away_s))
        if network.nodes[name].running:
            self.left += 1
            self._coming += 1
            network.crash(name, silent)
            network.clock.after(away_s, self._return, name)

    def _return(self, name: str) -> None:
        self._coming -= 1
        self.returned += 1
        self._network.restart(name)


class Flapping:
    """Links that fail: each second a share of them is cut, and mended after a while."""

    def __init__(self, network: Network, share_per_s: float, cut_s: float = 5.0) -> None:
        if not 0 < share_per_s <= 1 or cut_s <= 0:
            raise ConfigError(f"{share_per_s} of the links cut a second, for {cut_s} s: a share, and a time above 0")
        self.cuts = 0
        self._network = network
        self._links = sorted(network.links)
        self._cut_s = cut_s
        self._rng = network.streams.of("flapping")
        self._moments = _Moments(network, self._rng, share_per_s * len(self._links), self._cut)

    def start(self) -> None:
        self._moments.start()

    def stop(self) -> None:
        """No more cuts; what is cut will be mended."""
        self._moments.stop()

    def _cut(self) -> None:
        a, b = self._links[self._rng.randrange(len(self._links))]
        wait_s = self._rng.expovariate(1 / self._cut_s)
        if self._network.link(a, b).intact:
            self.cuts += 1
            self._network.cut(a, b)
            self._network.clock.after(wait_s, self._network.mend, a, b)
