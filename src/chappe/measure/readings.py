"""Settings of the measurement initiator, and the readings that it gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from chappe.measure import metrics
from chappe.measure.cost import Metrics

SECOND = 1_000_000_000

FACTORS = ("latency", "deviation", "jitter", "loss", "bandwidth")
"""What can be switched on and off, a link at a time."""

TYPES = {
    "latency": {"latency_ms": "mean one-way latency without outliers, ms"},
    "deviation": {"deviation_ms": "standard deviation of the latency, ms"},
    "jitter": {
        "jitter_ms": "jitter of successive latencies as in RTP, ms",
        "jitter": "mean deviation from the mean latency, as a share of it",
    },
    "loss": {"loss": "share of the last probes that got no answer in time"},
    "bandwidth": {"bandwidth": "available bandwidth towards the other end, bytes/s"},
}
"""Types and descriptions of the values that each factor gives."""

HISTORY = np.dtype(
    [("now_ns", "i8"), ("latency_ms", "f4"), ("deviation_ms", "f4"), ("jitter_ms", "f4"), ("jitter", "f4"),
     ("loss", "f4"), ("cost", "f4")]
)  # fmt: skip
"""One entry of a link's history."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a node measures; the defaults are those of decision record 0011."""

    base_ns: int = SECOND  # interval of a link that is neither far nor slow nor one of very many
    longest_ns: int = 60 * SECOND  # no link is measured less often
    shortest_ns: int = 10_000_000  # no link is measured more often, whoever asks
    rtt_factor: float = 6.0  # the interval is at least so many round trips
    per_link_ns: int = 500_000  # and so much for each link of the node
    steps: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0)  # a steady link goes through these multiples of its interval
    steady_rounds: int = 10  # one step after so many rounds without change
    carrying: float = 1.5  # a link that carries traffic never goes beyond this multiple (at most 2)
    extreme_share: float = 0.05  # the nearest and the farthest of all links, which go to the last step at once
    adaptive: bool = True
    slot_ns: int = 100_000_000  # probes of links with an interval of ten slots or more leave at multiples of a slot
    synchronous: bool = False  # all links at the same time, instead of spread over the interval
    share: float = 0.01  # of a link's capacity that probes and their echoes may use
    probe_bytes: int = 160  # of a probe on the network, with the headers around it
    timeout_factor: float = 4.0  # an answer is late after so many smoothed round trips
    timeout_ns: int = SECOND  # and after this at the earliest
    late_ns: int = 10 * SECOND  # an answer that comes so much later still counts as one
    window: int = metrics.WINDOW
    z: float = metrics.Z
    threshold: float = metrics.SHARE  # what differs by less than this share is no change
    floor_ms: float = metrics.FLOOR_MS  # and neither is what differs by less than this
    certainty: float = metrics.CERTAINTY  # nor, for what is advertised, what differs by fewer standard errors
    profile: str = "default"  # whose cost must stay the same for a link to be steady
    advertised: tuple[str, ...] = ()  # profiles whose costs are advertised, if `quiet` is to be used
    history: int = 240  # entries a link
    batch: float = 1.0  # of the interval, for which echoes wait to be evaluated together unless they deviate; a fifth
    # less if probes are sent at that moment
    hurry_ns: int = 20_000_000  # time between evaluations if they do
    confirm: float = 0.05  # of the interval, after which one more probe says whether a deviation lasts

    def __post_init__(self) -> None:
        wrong = [
            text
            for bad, text in (
                (self.shortest_ns <= 0, "shortest_ns must be above 0"),
                (not self.shortest_ns <= self.base_ns <= self.longest_ns,
                 "base_ns must be from shortest_ns to longest_ns"),
                (self.window < metrics.OUTLIER_MINIMUM,
                 "window must be 6 or more: smaller ones cannot detect an outlier"),
                (not self.steps or self.steps[0] != 1 or list(self.steps) != sorted(self.steps),
                 "steps must begin with 1 and rise"),
                (not 1 <= self.carrying <= 2, "carrying must be from 1 to 2"),
                (self.slot_ns < 1, "slot_ns must be 1 or more"),
                (self.steady_rounds < 1, "steady_rounds must be 1 or more"),
                (not 0 < self.share <= 1, "share must be above 0 and at most 1"),
                (not 0 < self.threshold < 1, "threshold must be between 0 and 1"),
                (self.history < 1, "history must be 1 or more"),
            )
            if bad
        ]  # fmt: skip
        if wrong:
            raise ValueError("settings of measurement: " + "; ".join(wrong))


@dataclass(frozen=True, slots=True)
class Factor:
    """One thing known of a link (MR-042)."""

    type: str
    value: float
    description: str


class Reading(NamedTuple):
    """What is known of a link after a round."""

    link: int
    window: int  # samples in the window, outliers among them
    outliers: int
    metrics: Metrics = Metrics()
    interval_ns: int = 0  # until the next probe
    restarted: bool = False  # the level of the link changed with this round
