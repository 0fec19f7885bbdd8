"""What the network map of a node is given by its configuration."""

from __future__ import annotations

from dataclasses import dataclass

from chappe.wire.mesh import MAX_PATTERNS

MS = 1_000_000
SECOND = 1000 * MS


@dataclass(frozen=True, slots=True)
class Settings:
    """Thresholds, times and limits; the defaults are those of docs/reference/mesh.md."""

    performance: bool = True  # routes by measured costs (MR-117)
    interval_ns: int = SECOND  # base interval of measurement
    profiles: tuple[str, ...] = ("default",)  # a cost that changed by one of these is advertised
    threshold: float = 0.10  # a cost is advertised when it has changed by more than this share (MR-112)
    floor_ms: float = 0.5  # and by more than this
    certainty: float = 3.0  # and by more than so many standard errors of what was measured
    gain: float = 0.05  # a route is left for one that is better by this share (MR-129)
    gain_ms: float = 1.0  # and by this
    hold_down: float = 3.0  # base intervals before a route that was left for a better one is left again
    refresh_ns: int = 60 * SECOND
    lifetime_ns: int = 180 * SECOND  # without a refresh
    tolerance_ns: int = 3600 * SECOND  # by which clocks of nodes may differ: what is older than that is replayed
    originate_ns: int = (
        50 * MS
    )  # least time between two advertisements of a node's key; twice that for its cluster, and so on
    originate_most_ns: int = 10 * SECOND  # to which it grows, twofold each time, for changes that nobody misses
    spread_ns: int = 10 * MS  # what is heard is gathered so long at most before it is passed on, unless it is the first
    offer_ns: int = 2 * SECOND  # who should hear something from others is asked so much later whether it did
    answer_ns: int = SECOND  # a neighbour that was asked for what it has answers within this time, or another is asked
    gather_ns: int = 10 * MS  # the map is computed so long after a change, with all that came with it; four times as
    # long for what is advertised of other clusters, and so on
    recompute_ns: int = 100 * MS  # least time between two computations of the map for what has changed in other units
    recompute_most_ns: int = 10 * SECOND  # to which it grows, twofold each time, while such changes keep coming
    settle_ns: int = 200 * MS  # a controller waits so long before it originates for a cluster, twice for the next unit
    parted_ns: int = SECOND  # a unit is reported to have fallen apart when it was so for this time
    missed_ns: int = 2 * SECOND  # what was withdrawn is wanted so long: it may live on in a part that nobody knows
    capabilities: tuple[str, ...] = ()  # of this node
    summary: int = 64  # patterns that a unit advertises itself
    # limits against hostile input
    max_links: int = 8192  # in one advertisement
    max_patterns: int = MAX_PATTERNS
    max_adverts: int = 16_384  # kept in all
    max_originators: int = 16  # of one unit
