"""Variables in a mesh without brokers: they are found, flow as they are wanted, and take other ways when links fail."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pytest

from chappe.core.sections import Config, NodeSection, Peer, Route
from chappe.events.member_settings import MemberSettings
from chappe.linkstate.units import Address
from chappe.sim.build import Design
from chappe.sim.client import Client
from chappe.sim.connection import Connection
from chappe.sim.link import Quality
from chappe.sim.network import Network
from chappe.sim.node import Node
from chappe.wire.base import Failed
from chappe.wire.control import Find, Found, Register, Registered, Unwatch, Watch, Watching
from chappe.wire.frames import FrameReader, Kind
from chappe.wire.status import decode_status, encode_value

SECOND = 1_000_000_000
EVERY_NS = SECOND // 10


class Mesh10:
    """A network whose publishers publish ten values a second, and how many cross each link in each direction."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.crossed: Counter[tuple[str, str]] = Counter()
        self.publishers: dict[tuple[str, str], tuple[Client, int]] = {}
        self._readers: dict[tuple[str, str, int], FrameReader] = {}
        self._value = 0
        network.watch(self._look)

    def _look(self, node: Node, link: Connection, piece: bytes) -> None:
        key = node.name, link.other(node).name
        reader = self._readers.setdefault((*key, link.life), FrameReader())
        for frame in reader.feed(piece):
            if frame.kind is Kind.STATUS:
                self.crossed[key] += len(list(decode_status(frame.payload)))

    def publish(self, node: str, publisher: str, *variables: str) -> Client:
        """A client that publishes these variables from now on."""
        client = self.network.nodes[node].client(publisher)
        for variable in variables:
            number = client.request(Register, publisher=publisher, variable=variable, rate_num=1, rate_den=EVERY_NS)
            self.network.run(0.0)
            answer = client.answers[number]
            assert isinstance(answer, Registered)
            self.publishers[publisher, variable] = client, answer.variable_id
        return client

    def watch(self, client: Client, publisher: str, variable: str, interval_ns: int = 0) -> int:
        return client.request(
            Watch, publisher=publisher, variable=variable, interval_ns=interval_ns, wait_ns=10 * SECOND
        )

    def run(self, seconds: float) -> None:
        """Let that many seconds pass, with a value of each variable at each tenth."""
        clock = self.network.clock
        for _ in range(round(seconds * 10)):
            wall_ns = clock.wall_ns
            self.network.run((EVERY_NS - wall_ns % EVERY_NS) / 1e9)
            self._value += 1
            for client, variable_id in self.publishers.values():
                if client.attached:
                    client.publish_value(variable_id, clock.wall_ns, encode_value(self._value))

    def count(self, seconds: float) -> dict[tuple[str, str], int]:
        """How many values cross each link in so many seconds, links without any left out."""
        self.network.run(0.05)  # what is still on its way
        self.crossed.clear()
        self.run(seconds)
        self.network.run(0.05)
        return dict(self.crossed)


def mesh_of(
    links: list[tuple[str, str]], units: dict[str, str] | None = None, quality: Quality | None = None, seed: int = 1
) -> Mesh10:
    """Nodes of a measuring mesh, joined by these links; the units of nodes that are in one."""
    network = Network(seed, settings=MemberSettings())
    for name in sorted({end for link in links for end in link}):
        network.add(name, (units or {}).get(name, "").split("/") if units else ())
    for a, b in links:
        network.join(a, b, quality or Quality(delay_ms=2))
    network.start()
    network.run(5.0)
    return Mesh10(network)


def test_a_variable_is_found_over_three_nodes_and_thinned_on_the_way() -> None:
    mesh = mesh_of([("a", "b"), ("b", "c")])
    mesh.publish("a", "meter", "volts")
    mesh.run(2.0)
    assert mesh.count(5.0) == {}  # nobody wants it
    reader = mesh.network.nodes["c"].client("reader")
    number = mesh.watch(reader, "meter", "volts", SECOND)
    mesh.network.run(0.05)
    answer = reader.answers[number]
    assert isinstance(answer, Watching)
    assert answer.every == 10
    assert len(reader.values) == 1  # the present value is there at once
    assert mesh.count(10.0) == {("a", "b"): 10, ("b", "c"): 10}
    middle = mesh.network.nodes["b"].client("middle")
    wanted = mesh.watch(middle, "meter", "volts", SECOND // 2)
    mesh.network.run(0.05)
    assert mesh.count(10.0) == {("a", "b"): 20, ("b", "c"): 10}
    watched = middle.answers[wanted]
    assert isinstance(watched, Watching)
    middle.request(Unwatch, variable_id=watched.variable_id)
    mesh.network.run(0.05)
    assert mesh.count(10.0) == {("a", "b"): 10, ("b", "c"): 10}
    reader.leave()
    mesh.network.run(2.0)
    assert mesh.count(5.0) == {}


def test_a_watch_waits_for_a_variable_that_is_published_later_at_another_node() -> None:
    mesh = mesh_of([("a", "b"), ("b", "c")])
    reader = mesh.network.nodes["c"].client("reader")
    number = mesh.watch(reader, "meter", "volts")
    mesh.network.run(3.0)
    assert number not in reader.answers
    mesh.publish("a", "meter", "volts")
    mesh.network.run(2.0)
    assert isinstance(reader.answers[number], Watching)
    mesh.run(1.0)
    assert len(reader.values) >= 9
    never = reader.request(Watch, publisher="meter", variable="amperes", wait_ns=SECOND)
    mesh.network.run(1.5)
    answer = reader.answers[never]
    assert isinstance(answer, Failed)
    assert answer.code == "unknown"


@pytest.mark.parametrize("silent", [False, True])
def test_a_transit_node_that_crashes_is_gone_round(silent: bool) -> None:
    mesh = mesh_of([("a", "b"), ("b", "d"), ("a", "c"), ("c", "d")])
    mesh.publish("a", "meter", "volts")
    reader = mesh.network.nodes["d"].client("reader")
    mesh.network.run(1.0)
    mesh.watch(reader, "meter", "volts")
    mesh.network.run(1.0)
    crossed = mesh.count(2.0)
    (transit,) = {end for link in crossed for end in link} & {"b", "c"}
    reader.values.clear()
    mesh.run(1.0)
    mesh.network.crash(transit, silent=silent)
    mesh.run(10.0)
    times = [each.when_ns for each in reader.values]
    gap_s = max(b - a for a, b in pairwise(times)) / 1e9
    assert gap_s <= (4.5 if silent else 0.3)
    created = [each.record.created for each in reader.values]
    assert len(created) == len(set(created))
    mesh.network.restart(transit)
    mesh.run(10.0)
    crossed = mesh.count(2.0)
    assert sum(count for (_, to), count in crossed.items() if to == "d") <= 21  # one way, not both


def test_a_link_that_is_cut_and_mended_leaves_one_way_in_use() -> None:
    mesh = mesh_of([("a", "b"), ("b", "d"), ("a", "c"), ("c", "d")])
    mesh.publish("a", "meter", "volts")
    reader = mesh.network.nodes["d"].client("reader")
    mesh.network.run(1.0)
    mesh.watch(reader, "meter", "volts")
    mesh.run(1.0)
    (transit,) = {end for link in mesh.count(2.0) for end in link} & {"b", "c"}
    for end in ("a", "d"):
        mesh.network.cut(end, transit)
        mesh.run(6.0)
        mesh.network.mend(end, transit)
        mesh.run(6.0)
    reader.values.clear()
    mesh.run(12.0)
    crossed = mesh.count(5.0)
    assert set(crossed.values()) == {50}
    assert len(crossed) == 2
    created = [each.record.created for each in reader.values]
    assert created == sorted(set(created))


def test_a_pattern_takes_in_variables_of_other_units_and_those_that_come() -> None:
    units = {name: name[0] for name in ("e1", "e2", "m1", "m2", "w1", "w2")}
    links = [("e1", "e2"), ("e2", "m1"), ("m1", "m2"), ("m2", "w1"), ("w1", "w2")]
    mesh = mesh_of(links, units)
    mesh.publish("e1", "scada", "volts", "amperes")
    mesh.publish("m1", "other", "volts")
    mesh.network.run(10.0)
    reader = mesh.network.nodes["w2"].client("reader")
    reader.request(Find, pattern="scada/#")
    mesh.network.run(1.0)
    assert found(reader) == {"scada/volts", "scada/amperes"}
    mesh.publish("e2", "scada", "watts")
    mesh.network.run(10.0)
    assert found(reader) == {"scada/volts", "scada/amperes", "scada/watts"}
    mesh.watch(reader, "scada", "watts", SECOND)
    mesh.watch(reader, "scada", "volts")
    mesh.network.run(1.0)
    crossed = mesh.count(10.0)
    assert crossed == {("e1", "e2"): 100, **dict.fromkeys(links[1:], 110)}


def test_only_what_is_looked_for_is_known_elsewhere_and_forgotten_after_it() -> None:
    mesh = mesh_of([("a", "b"), ("b", "c")])
    mesh.publish("a", "meter", *(f"v{number}" for number in range(20)))
    reader = mesh.network.nodes["c"].client("reader")
    number = mesh.watch(reader, "meter", "v7")
    mesh.network.run(2.0)
    assert isinstance(reader.answers[number], Watching)
    for name in ("b", "c"):
        assert len(mesh.network.nodes[name].core.variables.directory) == 1
    reader.leave()
    mesh.network.run(30.0)
    for name in ("b", "c"):
        assert len(mesh.network.nodes[name].core.variables.directory) == 0


def test_a_static_path_carries_what_is_wanted_at_its_end() -> None:
    network = Network(1)
    for number, (name, onward) in enumerate((("west", "middle"), ("middle", "east"), ("east", ""))):
        paths = (Route(variables="#", to=(onward,)),) if onward else ()
        peers = (Peer(name=onward),) if onward else ()
        config = Config(node=NodeSection(name=name, leaf=number + 1), path=paths, peer=peers)
        network.add_node(Address((), name), Design(config))
    network.join("west", "middle", Quality(delay_ms=2))
    network.join("middle", "east", Quality(delay_ms=2))
    network.start()
    network.run(1.0)
    mesh = Mesh10(network)
    mesh.publish("west", "meter", "volts", "amperes")
    network.run(1.0)
    assert mesh.count(5.0) == {}
    reader = network.nodes["east"].client("reader")
    mesh.watch(reader, "meter", "volts", SECOND // 2)
    network.run(0.05)
    assert mesh.count(10.0) == {("west", "middle"): 20, ("middle", "east"): 20}


@pytest.mark.parametrize("seed", range(5))
def test_watchers_come_and_go_in_a_random_mesh_and_each_link_carries_the_union(seed: int) -> None:
    rng = random.Random(seed)
    names = [f"n{number:02}" for number in range(12)]
    links = [(names[rng.randrange(at)], names[at]) for at in range(1, len(names))]
    links += [(a, b) for a, b in (tuple(sorted(rng.sample(names, 2))) for _ in range(8)) if (a, b) not in links]
    mesh = mesh_of(sorted(set(links)), seed=seed)
    sources = {f"p{number}": rng.choice(names) for number in range(4)}
    for publisher, node in sources.items():
        mesh.publish(node, publisher, "x")
    mesh.network.run(5.0)
    watching: dict[tuple[str, str], tuple[Client, int]] = {}
    for _ in range(30):
        node, publisher = rng.choice(names), rng.choice(sorted(sources))
        client, number = watching.pop((node, publisher), (None, 0))
        if client is not None:
            client.leave()
        else:
            client = mesh.network.nodes[node].client(f"r{node}{publisher}{rng.random()}")
            watching[node, publisher] = client, mesh.watch(client, publisher, "x", rng.choice((0, SECOND // 2, SECOND)))
        mesh.run(0.5)
    mesh.run(5.0)
    for client, number in watching.values():
        assert isinstance(client.answers[number], Watching)
        client.values.clear()
    crossed = mesh.count(6.0)
    for client, number in watching.values():
        answer = client.answers[number]
        assert isinstance(answer, Watching)
        assert len(client.values) in (60 // answer.every, 60 // answer.every + 1)
    into: Counter[str] = Counter()
    for (_, to), count in crossed.items():
        into[to] += count
    for name in names:  # nothing comes to a node twice, and nothing that neither it nor anybody behind it wants
        assert into[name] <= 60 * len({publisher for publisher, at in sources.items() if at != name})
    wanted = {publisher for _, publisher in watching}
    assert sum(crossed.values()) <= 60 * len(wanted) * (len(names) - 1)


def found(client: Client) -> set[str]:
    notices = [each for each in client.notices if isinstance(each, Found)]
    return {"/".join(name) for each in notices for name in each.variables}
