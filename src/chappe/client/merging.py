"""One subscription for several watches of one variable: the node keeps one for each client and variable."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import gcd, lcm

from chappe.client.quality import Wish, periods
from chappe.wire.base import Qos
from chappe.wire.constants import MODES


def merged(wishes: Sequence[Wish], rate_num: int, rate_den: int) -> Wish:
    """The wish that contains all of them: each watch finds its own values among those of it."""
    if all(wish == wishes[0] for wish in wishes):
        return wishes[0]
    modes = 0
    for wish in wishes:
        modes |= wish.modes
    if all(len(wish.qos) == 1 and wish.modes == modes for wish in wishes):
        plain = all(wish.plain for wish in wishes)
        return Wish((_strictest([wish.qos[0] for wish in wishes], rate_num, rate_den),), modes, plain)
    by_mode = []
    for mode in range(MODES):
        wanted = [qos for wish in wishes if (qos := wish.in_mode(mode)) is not None]
        by_mode.append(_strictest(wanted, rate_num, rate_den) if wanted else Qos())
    return Wish(tuple(by_mode), modes, plain=False)


def _strictest(wanted: Sequence[Qos], rate_num: int, rate_den: int) -> Qos:
    same_interval = len({qos.interval_ns for qos in wanted}) == 1
    every = gcd(*(periods(qos.interval_ns, rate_num, rate_den) for qos in wanted))
    interval = 0 if every == 1 else every * rate_den // rate_num
    latencies = [qos.latency_ns for qos in wanted if qos.latency_ns]
    worst_latencies = [qos.worst_latency_ns or qos.latency_ns for qos in wanted if qos.latency_ns]
    redundancy = max(qos.redundancy for qos in wanted)
    worst_redundancy = max(qos.worst_redundancy or qos.redundancy for qos in wanted)
    return Qos(
        interval_ns=wanted[0].interval_ns if same_interval else interval,
        latency_ns=min(latencies, default=0),
        redundancy=redundancy,
        priority=min(qos.priority for qos in wanted),
        security=max(qos.security for qos in wanted),
        # a coarser grid for one of them would not contain the instants of the others
        worst_interval_ns=min(qos.worst_interval_ns for qos in wanted) if same_interval else 0,
        worst_latency_ns=min(worst_latencies, default=0),
        worst_redundancy=worst_redundancy if worst_redundancy < redundancy else 0,
        worst_priority=min(qos.worst_priority or qos.priority for qos in wanted),
    )


def common_interval(one: Fraction, other: Fraction) -> Fraction:
    """The finest interval whose instants are on the grids of both."""
    den = lcm(one.denominator, other.denominator)
    return Fraction(lcm(int(one * den), int(other * den)), den)
