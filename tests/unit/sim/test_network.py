"""Real engines over modelled links: delivery, failures, order, and the same run from the same seed."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from chappe.errors import ConfigError
from chappe.sim.link import Quality
from chappe.sim.network import Network, Tape
from chappe.wire.frames import Kind, encode_frame
from chappe.wire.payloads import Probe


def chain(count: int, quality: Quality | None = None, seed: int = 1) -> Network:
    """Engines in a row with static routes for everything from the first to the last."""
    network = Network(seed)
    names = [f"n{at}" for at in range(count)]
    for name in names:
        network.add(name)
    for a, b in pairwise(names):
        network.join(a, b, quality)
    network.start()
    network.run(1.0)
    for a, b in pairwise(names):
        network.nodes[a].route_to(b, "#")
    return network


def test_events_cross_a_chain_after_the_sum_of_its_delays() -> None:
    network = chain(5, Quality(delay_ms=10))
    subscriber = network.nodes["n4"].client("s")
    subscriber.subscribe("a/+")
    publisher = network.nodes["n0"].client("p")
    sent_ns = network.clock.now_ns
    publisher.publish("a/b", b"body", count=3)
    publisher.publish("c", b"nobody wants it")
    network.run(1.0)
    assert [arrival.sequence for arrival in subscriber.arrivals] == [1, 2, 3]
    assert {arrival.when_ns - sent_ns for arrival in subscriber.arrivals} == {40_000_000}
    assert {arrival.issuer for arrival in subscriber.arrivals} == {publisher.issuer}
    assert {arrival.topic for arrival in subscriber.arrivals} == {"a/b"}
    assert network.balance() == 0


@pytest.mark.parametrize("silent", [False, True])
def test_what_a_crashed_neighbour_had_not_confirmed_is_sent_again(silent: bool) -> None:
    network = chain(2, Quality(delay_ms=10))
    publisher, subscriber = network.nodes["n0"].client("p"), network.nodes["n1"].client("s")
    subscriber.subscribe("t")
    publisher.publish("t")
    network.run(0.1)
    assert subscriber.received == 1
    publisher.publish("t")  # on its way when the other end dies
    network.run(0.005)
    network.crash("n1", silent=silent)
    network.run(0.002)
    publisher.publish("t")
    network.run(4.0)
    assert subscriber.received == 1
    network.restart("n1")
    network.run(1.0)
    assert [arrival.sequence for arrival in subscriber.arrivals] == [1, 2, 3]
    assert subscriber.repeats() == [] == subscriber.disorder()
    assert network.balance() == 0


def test_what_a_process_had_sent_arrives_though_it_crashed() -> None:
    network = chain(3, Quality(delay_ms=10))
    publisher, subscriber = network.nodes["n0"].client("p"), network.nodes["n2"].client("s")
    subscriber.subscribe("t")
    publisher.publish("t")
    network.run(0.015)  # between n1 and n2
    network.crash("n1")
    network.run(1.0)
    assert subscriber.received == 1


def test_a_cut_line_is_noticed_by_both_ends_and_mended() -> None:
    network = chain(2, Quality(delay_ms=5))
    publisher, subscriber = network.nodes["n0"].client("p"), network.nodes["n1"].client("s")
    subscriber.subscribe("t")
    network.cut("n0", "n1")
    publisher.publish("t")
    network.run(10.0)
    assert not network.link("n1", "n0").connected
    assert subscriber.received == 0
    network.mend("n0", "n1")
    network.run(1.0)
    assert [arrival.sequence for arrival in subscriber.arrivals] == [1]


def test_a_partition_cuts_what_is_between_groups_only() -> None:
    network = chain(4)
    cut = network.partition(["n0", "n1"])
    assert cut == [("n1", "n2")]
    for a, b in cut:
        network.mend(a, b)
    network.run(1.0)
    assert all(link.connected for link in network.links.values())


def test_a_paused_node_does_everything_when_it_goes_on() -> None:
    network = chain(3, Quality(delay_ms=5))
    publisher, subscriber = network.nodes["n0"].client("p"), network.nodes["n2"].client("s")
    subscriber.subscribe("t")
    network.nodes["n1"].pause()
    publisher.publish("t", count=5)
    network.run(2.0)
    assert subscriber.received == 0
    network.nodes["n1"].resume()
    network.run(1.0)
    assert [arrival.sequence for arrival in subscriber.arrivals] == [1, 2, 3, 4, 5]


def test_a_narrow_line_keeps_the_rest_with_the_engine_and_loses_nothing() -> None:
    network = chain(2, Quality(delay_ms=5, rate=1e6, queue_bytes=50_000))
    publisher, subscriber = network.nodes["n0"].client("p"), network.nodes["n1"].client("s")
    subscriber.subscribe("t")
    start_ns = network.clock.now_ns
    publisher.publish("t", bytes(984), count=1000)  # frames of 1,000 bytes: a second on the line
    network.run(5.0)
    assert subscriber.received == 1000
    assert subscriber.disorder() == []
    assert (subscriber.arrivals[-1].when_ns - start_ns) / 1e9 == pytest.approx(1.005, rel=0.01)
    assert network.balance() == 0


def test_probes_on_a_datagram_link_are_lost_on_the_way_there_and_back() -> None:
    network = Network(3)
    for name in ("a", "b"):
        network.add(name)
    link = network.join("a", "b", Quality(delay_ms=2, loss=0.2), datagrams=True)
    network.start()
    network.run(1.0)
    engine = network.nodes["a"].engine
    port = max(engine.open_ports())  # opened last: the datagram port
    for token in range(1, 501):
        engine.send(port, encode_frame(Kind.PROBE, Probe(token, 0).encode()))
        network.nodes["a"].settle()
        network.run(0.01)
    echoes = engine.take_echoes()
    assert {echo[0] for echo in echoes} == {port}
    assert len(echoes) == pytest.approx(500 * 0.8 * 0.8, rel=0.2)
    assert link.datagrams[0].sent == 500 * 20
    assert 0 < link.datagrams[1].lost < link.datagrams[0].lost
    assert network.balance() == 0


def drama(seed: int) -> tuple[str, int]:
    """A run with everything random in it; its digest."""
    network = chain(6, Quality(delay_ms=3, jitter_ms=2, loss=0.05), seed)
    tape = Tape(network)
    network.nodes["n5"].client("s").subscribe("#")
    publisher = network.nodes["n0"].client("p")
    rng = network.streams.of("drama")
    for step in range(60):
        publisher.publish(f"t/{rng.randrange(5)}", bytes(rng.randrange(200)))
        if step % 10 == 3:
            network.crash("n3", silent=rng.random() < 0.5)
        if step % 10 == 8:
            network.restart("n3")
        network.run(0.3)
    return tape.digest, tape.pieces


def test_the_same_seed_gives_the_same_run_byte_for_byte() -> None:
    first, again, other = drama(11), drama(11), drama(12)
    assert first == again
    assert first[1] > 300
    assert other[0] != first[0]


def test_a_million_events_a_second_go_through_real_engines() -> None:
    """The target is a million forwarded messages a second; half of it must do on a machine that has other work."""
    network = chain(10)
    subscriber, publisher = network.nodes["n9"].client("s"), network.nodes["n0"].client("p")
    subscriber.subscribe("t")
    subscriber.on_arrival = lambda client, arrival: None
    began = time.process_time()
    for _ in range(50):
        publisher.publish("t", bytes(64), count=1000)
        network.run(0.001)
    network.run(1.0)
    took = time.process_time() - began
    forwarded = sum(node.forwarded() for node in network.nodes.values())
    assert subscriber.received == 50_000
    assert forwarded == 9 * 50_000
    assert forwarded / took > 500_000


def test_what_cannot_be_built_is_refused() -> None:
    network = chain(2)
    with pytest.raises(ConfigError, match="two nodes 'n0'"):
        network.add("n0")
    with pytest.raises(ConfigError, match="already"):
        network.join("n1", "n0")
    with pytest.raises(ConfigError, match="no node 'x'"):
        network.crash("x")
    with pytest.raises(ConfigError, match="no link"):
        network.cut("n0", "n9")
