"""Events to inboxes through simulated meshes: real engines and members, links that break, tables that stay small."""

from __future__ import annotations

import pytest

from chappe.events.member_settings import MemberSettings
from chappe.sim.link import Quality
from chappe.sim.network import Network

ID = bytes(range(16))


def square(meshed: bool = True) -> Network:
    """a - b - d is quick, a - c - d is slow."""
    network = Network(7, settings=MemberSettings() if meshed else None)
    for name in "abcd":
        network.add(name)
    for pair, delay_ms in {"ab": 2, "bd": 2, "ac": 20, "cd": 20}.items():
        network.join(*pair, Quality(delay_ms=delay_ms))
    network.start()
    network.run(5.0)
    return network


def test_an_inbox_is_reached_by_the_map_and_by_another_way_when_that_breaks() -> None:
    network = square()
    publisher, owner = network.nodes["a"].client("p"), network.nodes["d"].client("o")
    address = owner.open_inbox(ID)
    network.run(0.1)
    first_ns = network.clock.now_ns
    publisher.publish(address, kind="n")
    network.run(1.0)
    assert owner.arrivals[-1].when_ns - first_ns == pytest.approx(4e6, rel=0.2)
    publisher.publish(address, count=3, kind="n")
    network.run(0.003)  # on their way to d when b dies
    network.crash("b")
    network.run(2.0)
    assert [arrival.sequence for arrival in owner.arrivals] == [1, 2, 3, 4]
    assert not owner.repeats()


def test_nobody_else_gets_it_whatever_he_subscribed_to() -> None:
    network = square()
    publisher, owner = network.nodes["a"].client("p"), network.nodes["d"].client("o")
    curious = [network.nodes[name].client("c") for name in "abcd"]
    for client in curious:
        client.subscribe("#")
        client.subscribe("+/#")
    address = owner.open_inbox(ID)
    network.run(1.0)
    publisher.publish(address, count=5, kind="n")
    network.run(1.0)
    assert owner.received == 5
    assert not any(client.received for client in curious)


def test_what_is_sent_to_a_node_out_of_reach_waits_for_it() -> None:
    network = square()
    publisher, owner = network.nodes["a"].client("p"), network.nodes["d"].client("o")
    address = owner.open_inbox(ID)
    network.crash("b")
    network.crash("c")
    network.run(5.0)
    publisher.publish(address, count=2, kind="n")
    network.run(5.0)
    network.restart("c")
    network.run(10.0)
    assert [arrival.sequence for arrival in owner.arrivals] == [1, 2]


def test_what_leads_nowhere_is_counted_and_not_kept() -> None:
    network = square()
    node = network.nodes["a"]
    publisher = node.client("p")
    publisher.publish("nobody@" + ID.hex(), count=3, kind="n")
    network.run(1.0)
    assert node.engine.counters()["drop_no_route"] == 3
    assert node.engine.address_drops() == [("topic", "nobody@…", "drop_no_route", 3)]
    assert not node.engine.take_undeliverable()


def test_a_thousand_inboxes_do_not_widen_interest() -> None:
    """One topic a client for its answers did: nodes then told each other of a thousand patterns, or of all topics."""
    network = square()
    members = {name: node.member for name, node in network.nodes.items()}
    sent = {name: node.counts.control_out for name, node in network.nodes.items()}
    publisher = network.nodes["a"].client("p")
    owners = [network.nodes["d"].client(f"o{at}") for at in range(1000)]
    for at, owner in enumerate(owners):
        publisher.publish(owner.open_inbox(at.to_bytes(16, "big")), kind="n")
    network.run(2.0)
    assert all(owner.received == 1 for owner in owners)
    for name, member in members.items():
        assert member is not None
        assert member.subscriptions.patterns() == ()
        assert not member.state.wanting("s", b"any/topic")
        assert network.nodes[name].counts.control_out - sent[name] < 100  # what is measured is told, and no more


def test_an_inbox_is_reached_again_when_its_node_is_back() -> None:
    network = square()
    publisher, owner = network.nodes["a"].client("p"), network.nodes["d"].client("o")
    address = owner.open_inbox(ID)
    network.crash("d")
    network.run(5.0)
    network.restart("d")
    network.run(10.0)
    publisher.publish(address, kind="n")
    network.run(1.0)
    assert owner.received == 1


def test_without_a_mesh_neighbours_are_reached_by_their_names() -> None:
    network = square(meshed=False)
    publisher, near, far = (network.nodes[name].client("x") for name in "abd")
    addresses = [client.open_inbox(ID) for client in (near, far)]
    for address in addresses:
        publisher.publish(address, kind="n")
    network.run(1.0)
    assert (near.received, far.received) == (1, 0)
    assert network.nodes["a"].engine.counters()["unrouted"] == 1
