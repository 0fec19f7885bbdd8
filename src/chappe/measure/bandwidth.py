"""Available bandwidth of a link by trains of bytes whose arrival the other end stamps (MR-136)."""

from __future__ import annotations

import random
from dataclasses import dataclass
from math import nan


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """How a link's bandwidth is measured."""

    share: float = 0.015  # of the last estimate that trains may use


@dataclass(frozen=True, slots=True)
class Train:
    """So many bytes to send in one go."""

    token: int
    bytes: int


class Estimator:
    """Estimates what one link can carry towards its other end."""

    def __init__(self, settings: TrainSettings, rng: random.Random) -> None:
        self.settings = settings
        self.estimate = nan  # bytes/s
        self.spent_bytes = 0

    def travelled(self, rtt_ns: int) -> None:
        """The round trip of the link, as probes say: a train shorter than that may be TCP waiting, not the link."""
        raise NotImplementedError

    def next_train(self, now_ns: int) -> Train | None:
        """The train to send now, if any."""
        raise NotImplementedError

    def trained(self, token: int, half_bytes: int, half_ns: int, now_ns: int) -> None:
        """The other end tells how long the second half of a train took to arrive."""
        raise NotImplementedError

    def lost(self, token: int) -> None:
        """The train could not be sent, or its link was lost."""
        raise NotImplementedError

    def next_ns(self) -> int:
        """When `next_train` may have one."""
        raise NotImplementedError
