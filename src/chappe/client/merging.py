"""One subscription for several watches of one variable: the node keeps one for each client and variable."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import gcd, lcm

from chappe.client.quality import QosRequest, periods
from chappe.wire.base import Qos
from chappe.wire.constants import MODES


def merge_requests(requests: Sequence[QosRequest], rate_num: int, rate_den: int) -> QosRequest:
    """The request that contains all of them: each watch finds its own values among those of it."""
    if all(request == requests[0] for request in requests):
        return requests[0]
    modes = 0
    for request in requests:
        modes |= request.modes
    if all(len(request.qos) == 1 and request.modes == modes for request in requests):
        plain = all(request.plain for request in requests)
        return QosRequest((_strictest([request.qos[0] for request in requests], rate_num, rate_den),), modes, plain)
    by_mode = []
    for mode in range(MODES):
        asked = [qos for request in requests if (qos := request.in_mode(mode)) is not None]
        by_mode.append(_strictest(asked, rate_num, rate_den) if asked else Qos())
    return QosRequest(tuple(by_mode), modes, plain=False)


def _strictest(asked: Sequence[Qos], rate_num: int, rate_den: int) -> Qos:
    same_interval = len({qos.interval_ns for qos in asked}) == 1
    every = gcd(*(periods(qos.interval_ns, rate_num, rate_den) for qos in asked))
    interval = 0 if every == 1 else every * rate_den // rate_num
    latencies = [qos.latency_ns for qos in asked if qos.latency_ns]
    worst_latencies = [qos.worst_latency_ns or qos.latency_ns for qos in asked if qos.latency_ns]
    redundancy = max(qos.redundancy for qos in asked)
    worst_redundancy = max(qos.worst_redundancy or qos.redundancy for qos in asked)
    return Qos(
        interval_ns=asked[0].interval_ns if same_interval else interval,
        latency_ns=min(latencies, default=0),
        redundancy=redundancy,
        priority=min(qos.priority for qos in asked),
        security=max(qos.security for qos in asked),
        # a coarser grid for one of them would not contain the instants of the others
        worst_interval_ns=min(qos.worst_interval_ns for qos in asked) if same_interval else 0,
        worst_latency_ns=min(worst_latencies, default=0),
        worst_redundancy=worst_redundancy if worst_redundancy < redundancy else 0,
        worst_priority=min(qos.worst_priority or qos.priority for qos in asked),
    )


def common_interval(one: Fraction, other: Fraction) -> Fraction:
    """The finest interval whose instants are on the grids of both."""
    den = lcm(one.denominator, other.denominator)
    return Fraction(lcm(int(one * den), int(other * den)), den)
