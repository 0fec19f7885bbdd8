"""The deployment and the workload of a managed run: clouds of routers, a tree of brokers, who watches what."""

from __future__ import annotations

import random
from dataclasses import dataclass

from chappe.status.topology import BrokerSpec, ChannelSpec, RouterSpec, Topology
from chappe.wire.base import Qos
from chappe.wire.constants import MODES

MS = 1_000_000
CLOUD = 50  # routers of one, at most
REGION = 5  # clouds below one inner broker
DEGREE = 4  # channels of a router inside its cloud, on average
GATEWAYS = 3  # channels between two neighbouring clouds
INTERVAL_NS = 2_000 * MS  # of publishing
VARIABLES = 4  # of each router
WATCHED = 20  # by each router
NEAR, REGIONAL = 0.85, 0.10  # shares of what is watched in the own cloud and in others of the region
LOCAL_NS, REMOTE_NS = 60 * MS, 250 * MS  # bounds of the latency
BYTES_PER_S = 400.0  # of a channel inside a cloud: so little that some subscriptions have to be refused
TRUNK_BYTES_PER_S = 1_200.0  # between clouds
URLS = ("tcp://127.0.0.1:1", "tcp://127.0.0.1:2")  # two processes a role; nobody dials them


@dataclass(frozen=True, slots=True)
class Wish:
    """One subscription of the workload."""

    edge: str
    publisher: str
    variable: str
    qos: tuple[Qos, ...]


def topology(nodes: int, rng: random.Random) -> Topology:
    """`nodes` routers in clouds that form a ring with chords, each cloud a ring with chords itself."""
    clouds = max(2, round(nodes / CLOUD)) if nodes >= CLOUD else 2
    if nodes < 4 * CLOUD:
        clouds = max(clouds, min(4, nodes // 10))
    names = {f"c{at}": [f"c{at}r{number}" for number in range(nodes // clouds + (at < nodes % clouds))]
             for at in range(clouds)}  # fmt: skip
    pairs: dict[tuple[str, str], ChannelSpec] = {}

    def join(one: str, other: str, bytes_per_s: float, most_ms: int) -> bool:
        pair = (min(one, other), max(one, other))
        if one == other or pair in pairs:
            return False
        pairs[pair] = ChannelSpec(between=pair, bytes_per_s=bytes_per_s, latency_ms=float(rng.randint(1, most_ms)))
        return True

    for members in names.values():
        for at, name in enumerate(members):
            join(name, members[(at + 1) % len(members)], BYTES_PER_S, 5)
        left = len(members) * (DEGREE // 2 - 1)
        while left > 0:
            left -= join(rng.choice(members), rng.choice(members), BYTES_PER_S, 5)
    order = list(names)
    chords = {(order[at], order[(at + 1) % clouds]) for at in range(clouds)}
    while len(chords) < min(clouds * (clouds - 1) // 2, clouds + clouds // 2):
        one, other = rng.sample(order, 2)
        if (other, one) not in chords:
            chords.add((one, other))
    for one, other in sorted(chords):
        left = GATEWAYS
        while left > 0:
            left -= join(rng.choice(names[one]), rng.choice(names[other]), TRUNK_BYTES_PER_S, 10)
    routers = tuple(RouterSpec(name=name, cloud=cloud, listen=URLS[0]) for cloud, members in names.items()
                    for name in members)  # fmt: skip
    return Topology(broker=_brokers(order), router=routers, channel=tuple(pairs.values()))


def _brokers(clouds: list[str]) -> tuple[BrokerSpec, ...]:
    def spec(name: str, parent: str, number: int | None = None) -> BrokerSpec:
        return BrokerSpec(name=name, parent=parent, listen=URLS, store="postgresql://simulated", number=number)

    regions = [clouds[at : at + REGION] for at in range(0, len(clouds), REGION)]
    if len(regions) == 1:
        return (spec("root", ""), *(spec(cloud, "root", at + 1) for at, cloud in enumerate(clouds)))
    inner = [spec(f"region{at}", "root") for at in range(len(regions))]
    leaves = [spec(cloud, f"region{at // REGION}", at + 1) for at, cloud in enumerate(clouds)]
    return (spec("root", ""), *inner, *leaves)


def workload(deployed: Topology, rng: random.Random) -> list[Wish]:
    """What every router's client watches: each variable at most once an edge, always over two disjoint paths."""
    clouds: dict[str, list[str]] = {}
    for router in deployed.router:
        clouds.setdefault(router.cloud, []).append(router.name)
    parents = {spec.name: spec.parent for spec in deployed.broker}
    wishes = []
    for router in deployed.router:
        near = [name for name in clouds[router.cloud] if name != router.name]
        region = [name for cloud, names in clouds.items() if cloud != router.cloud
                  and parents[cloud] == parents[router.cloud] for name in names]  # fmt: skip
        far = [name for cloud, names in clouds.items() if cloud != router.cloud for name in names]
        chosen: set[tuple[str, int]] = set()
        while len(chosen) < min(WATCHED, len(near) * VARIABLES):
            drawn = rng.random()
            among = near if drawn < NEAR else region if drawn < NEAR + REGIONAL and region else far
            source = (rng.choice(among), rng.randrange(VARIABLES))
            if source in chosen:
                continue
            chosen.add(source)
            bound_ns = LOCAL_NS if among is near else REMOTE_NS
            wishes.append(Wish(router.name, f"plant.{source[0]}", f"v{source[1]}", _quality(rng, bound_ns)))
    return wishes


def _quality(rng: random.Random, bound_ns: int) -> tuple[Qos, ...]:
    """Every event, every second or every fourth; a quarter of the subscribers want twice as many in odd modes."""
    every = rng.choice((1, 2, 2, 4))
    usual = Qos(interval_ns=every * INTERVAL_NS, latency_ns=bound_ns, redundancy=2)
    if every == 1 or rng.random() >= 0.25:
        return (usual,)
    faster = Qos(interval_ns=every // 2 * INTERVAL_NS, latency_ns=bound_ns, redundancy=2)
    return tuple(faster if mode % 2 else usual for mode in range(MODES))
