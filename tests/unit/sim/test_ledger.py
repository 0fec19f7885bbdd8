"""The books find what is wrong: events that are missing, repeated, out of order or forwarded twice."""

from __future__ import annotations

from itertools import pairwise

from chappe.sim.churn import Churn, Flapping
from chappe.sim.client import Arrival
from chappe.sim.ledger import Ledger
from chappe.sim.link import Quality
from chappe.sim.network import Network


def chain(*names: str, seed: int = 1) -> Network:
    """Engines in a row with static routes towards the last; a node that starts again has its routes again."""
    network = Network(seed)
    for name in names:
        network.add(name)
    for a, b in pairwise(names):
        network.join(a, b, Quality(delay_ms=10))
    network.start()
    network.run(1.0)
    for a, b in pairwise(names):
        network.nodes[a].route_to(b, "#")
    return network


def same(pattern: str, topic: str) -> bool:
    return pattern == topic


def test_what_stays_connected_is_due_and_arrives() -> None:
    network = chain("a", "b", "c")
    ledger = Ledger(network, same, settle_s=2.0)
    publisher, subscriber = network.nodes["a"].client("p"), network.nodes["c"].client("s")
    subscriber.subscribe("t")
    ledger.subscriber(subscriber)
    network.run(3.0)
    for _ in range(10):
        ledger.publish(publisher, "t")
        network.run(0.5)
        ledger.close()
    network.run(3.0)
    ledger.close()
    sums = ledger.sums
    assert (sums.published, sums.due, sums.met, sums.forwards) == (10, 10, 10, 20)
    assert sums.repeats == sums.disorder == sums.twice == sums.rerouted == sums.strangers == 0
    assert ledger.missing == []
    assert set(ledger.latencies_ns) == {20_000_000}


def test_what_does_not_arrive_is_named() -> None:
    network = chain("a", "b", "c")
    network.nodes["b"].engine.topics.unsubscribe(network.nodes["b"].ports["c"], "#")
    ledger = Ledger(network, same, settle_s=2.0)
    publisher, subscriber = network.nodes["a"].client("p"), network.nodes["c"].client("s")
    subscriber.subscribe("t")
    ledger.subscriber(subscriber)
    network.run(3.0)
    ledger.publish(publisher, "t")
    network.run(5.0)
    ledger.close()
    assert (ledger.sums.due, ledger.sums.met) == (1, 0)
    (missing,) = ledger.missing
    assert (missing.publisher, missing.subscriber, missing.sequence) == ("a", "c", 1)
    assert missing.forwarders == ("a>a-b",)


def test_what_was_not_connected_all_the_time_is_not_due() -> None:
    network = chain("a", "b", "c")
    ledger = Ledger(network, same, settle_s=2.0)
    publisher, subscriber = network.nodes["a"].client("p"), network.nodes["c"].client("s")
    subscriber.subscribe("t")
    ledger.subscriber(subscriber)
    network.run(1.0)
    ledger.publish(publisher, "t")  # the subscription is too young
    network.run(3.0)
    ledger.publish(publisher, "t")
    network.run(0.005)
    network.crash("b")
    network.run(1.0)
    network.restart("b")
    network.run(4.0)
    ledger.close()
    assert (ledger.sums.published, ledger.sums.due, ledger.sums.extra) == (2, 0, 1)


def test_repeats_disorder_and_double_forwarding_are_seen() -> None:
    network = chain("a", "b")
    ledger = Ledger(network, same, settle_s=2.0)
    publisher, subscriber = network.nodes["a"].client("p"), network.nodes["b"].client("s")
    subscriber.subscribe("t")
    ledger.subscriber(subscriber)
    sent: list[bytes] = []
    network.watch(lambda node, link, piece: sent.append(piece))
    network.run(3.0)
    ledger.publish(publisher, "t")
    ledger.publish(publisher, "t")
    network.run(0.5)
    assert subscriber.on_arrival is not None
    subscriber.on_arrival(subscriber, Arrival(network.clock.now_ns, publisher.issuer, 1, "t"))
    link = network.link("a", "b")
    assert link.look is not None
    for piece in tuple(sent):
        link.look(network.nodes["a"], link, piece)
    network.run(2.0)
    ledger.close()
    sums = ledger.sums
    assert (sums.repeats, sums.again, sums.disorder, sums.twice, sums.rerouted) == (1, 0, 1, 2, 0)


def test_what_arrives_again_after_its_node_was_started_anew_is_told_apart() -> None:
    network = chain("a", "b")
    ledger = Ledger(network, same, settle_s=2.0)
    publisher, subscriber = network.nodes["a"].client("p"), network.nodes["b"].client("s")
    subscriber.subscribe("t")
    ledger.subscriber(subscriber)
    network.run(3.0)
    ledger.publish(publisher, "t")
    network.run(0.5)
    network.crash("b")
    network.run(0.1)
    network.restart("b")
    assert subscriber.on_arrival is not None
    subscriber.on_arrival(subscriber, Arrival(network.clock.now_ns, publisher.issuer, 1, "t"))
    network.run(2.0)
    ledger.close()
    assert (ledger.sums.repeats, ledger.sums.again, ledger.sums.extra) == (0, 1, 1)


def test_an_event_sent_again_because_a_neighbour_was_lost_is_no_double_forwarding() -> None:
    network = chain("a", "b")
    ledger = Ledger(network, same, settle_s=1.0)
    publisher, subscriber = network.nodes["a"].client("p"), network.nodes["b"].client("s")
    subscriber.subscribe("t")
    ledger.subscriber(subscriber)
    ledger.publish(publisher, "t")
    network.run(0.005)
    network.crash("b")
    network.run(0.5)
    network.restart("b")
    network.run(1.0)
    assert (ledger.sums.twice, ledger.sums.rerouted) == (0, 1)
    assert sum(node.forwarded() for node in network.nodes.values()) == 1


def test_churn_keeps_its_rate_and_everybody_comes_back() -> None:
    network = chain(*(f"n{number}" for number in range(50)), seed=4)
    churn = Churn(network, 0.02, away_s=2.0, silent=0.3, spared=frozenset({"n0"}))
    told: list[tuple[str, str]] = []
    network.changes.append(lambda what, whom: told.append((what, whom)))
    churn.start()
    network.run(100.0)
    churn.stop()
    assert 70 < churn.left < 130
    network.run(30.0)
    assert churn.away == 0
    assert churn.returned == churn.left == sum(what == "crash" for what, _ in told)
    assert all(node.running for node in network.nodes.values())
    assert all(link.connected for link in network.links.values())
    assert "n0" not in {whom for _, whom in told}
    assert network.balance() == 0


def test_flapping_links_are_mended() -> None:
    network = chain(*(f"n{number}" for number in range(20)), seed=4)
    flapping = Flapping(network, 0.02, cut_s=3.0)
    flapping.start()
    network.run(60.0)
    flapping.stop()
    assert 10 < flapping.cuts < 40
    network.run(60.0)
    assert all(link.connected for link in network.links.values())
