"""The measurement initiator of a node: when to probe which link, and what the echoes say (MR-059).

It has no socket and no clock: `due` says which probes to send, `echoed` takes their answers, `tick` tells what is new.
"""

from __future__ import annotations

import random

import numpy as np
from numpy.typing import NDArray

from chappe.measure.readings import Factor, Reading, Settings


class Initiator:
    """Measures any number of links of one node; asleep until `wake`."""

    def __init__(self, settings: Settings, rng: random.Random) -> None:
        self.settings = settings

    def add(self, link: int, kind: str, lossy: bool, now_ns: int) -> None:
        """A link that can be measured; loss is measured on lossy transports only, unless switched on."""
        raise NotImplementedError

    def remove(self, link: int) -> None:
        """The link is gone; nothing is kept of it."""
        raise NotImplementedError

    def wake(self, now_ns: int) -> None:
        """Start to measure."""
        raise NotImplementedError

    def sleep(self) -> None:
        """Stop to measure; what is known stays."""
        raise NotImplementedError

    def switch(self, link: int, on: bool) -> None:
        """Measure this link, or not (MR-051)."""
        raise NotImplementedError

    def switch_factor(self, link: int, factor: str, on: bool) -> None:
        """Measure one factor of this link, or not (MR-052)."""
        raise NotImplementedError

    def interval(self, interval_ns: int, link: int | None = None) -> None:
        """The base interval of the node, or exactly that of one link."""
        raise NotImplementedError

    def asked(self, link: int, interval_ns: int | None) -> None:
        """The other end wants to be probed no more often than this; 0 = not at all, None = as we like (MR-072)."""
        raise NotImplementedError

    def carries(self, link: int, traffic: bool) -> None:
        """Whether the link carries traffic: then it is never measured less often than every second base interval."""
        raise NotImplementedError

    def bandwidth(self, link: int, bytes_per_s: float) -> None:
        """The available bandwidth of the link, as its estimator says."""
        raise NotImplementedError

    def due(self, now_ns: int) -> list[tuple[int, int]]:
        """(link, token) of each probe to send now; a token is never 0."""
        raise NotImplementedError

    def echoed(self, link: int, token: int, rtt_ns: int, now_ns: int) -> None:
        """A probe came back; unknown tokens and impossible times are counted (`refused`) and change nothing."""
        raise NotImplementedError

    def tick(self, now_ns: int) -> list[Reading]:
        """Links whose metrics are new; finds probes that got no answer in time."""
        raise NotImplementedError

    def next_ns(self) -> int:
        """When `due` or `tick` has something to do at the latest; a time far off if nothing is awaited."""
        raise NotImplementedError

    def reading(self, link: int) -> Reading | None:
        """What is known of the link; None before its first echo."""
        raise NotImplementedError

    def factors(self, link: int) -> list[Factor]:
        """All that is known of the link by factors that are on (MR-053)."""
        raise NotImplementedError

    def factor(self, link: int, type: str) -> Factor:
        """One of them (MR-053)."""
        raise NotImplementedError

    def enabled(self, link: int) -> list[str]:
        """Names of the factors that are on (MR-054)."""
        raise NotImplementedError

    def history(self, link: int) -> NDArray[np.void]:
        """The last readings of the link, oldest first, as HISTORY entries (MR-131)."""
        raise NotImplementedError
