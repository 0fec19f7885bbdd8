"""Cost against interval on a simulated node with a thousand links."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from chappe.events.member_settings import MemberSettings
from chappe.measure import cost
from chappe.measure.readings import Settings as MeasureSettings
from chappe.sim.link import Quality
from chappe.sim.network import Network

LINKS = 1000
JITTER_MS = 0.02  # mean of what comes on top of each delay
ROUNDS = 18  # the whole window is new, and two more
Costs = dict[float, tuple[float, float]]  # by delay: median and highest of its links


def costs(delays_ms: Sequence[float], intervals_ms: Sequence[float], links: int = LINKS) -> Iterator[Costs]:
    """Costs at each interval; the links have the delays in turn, and only the node in the middle measures."""
    measure = MeasureSettings(adaptive=False)
    network = Network(1, settings=MemberSettings(mesh=False, measures=False, costs=False))
    hub = network.add("hub", settings=MemberSettings(mesh=False, costs=False, measure=measure))
    delays = {f"far-{at}": delays_ms[at % len(delays_ms)] for at in range(links)}
    for name, delay_ms in delays.items():
        network.add(name)
        network.join("hub", name, Quality(delay_ms=delay_ms, jitter_ms=JITTER_MS))
    network.start()
    there_s = 4 * max(delays_ms) / 1e3
    network.run(there_s)  # all connections are there
    assert hub.member is not None
    initiator = hub.member.measurement.initiator
    for interval_ms in intervals_ms:
        for port in hub.ports.values():
            initiator.interval(round(interval_ms * 1e6), port)
        network.run(ROUNDS * interval_ms / 1e3 + there_s)
        found: dict[float, list[float]] = {delay_ms: [] for delay_ms in delays_ms}
        for name, port in hub.ports.items():
            reading = initiator.reading(port)
            found[delays[name]].append(cost.of(reading.metrics, "default") if reading is not None else float("nan"))
        yield {delay_ms: (median(values), max(values)) for delay_ms, values in found.items()}
