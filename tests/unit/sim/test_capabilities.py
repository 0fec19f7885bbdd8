"""Events that need a capability cross only nodes that advertise it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chappe.events.member_settings import MemberSettings
from chappe.linkstate.units import VertexId
from chappe.sim.link import Quality
from chappe.sim.network import Network

ABLE = MemberSettings(needs=(("hard/#", ("sealed",)),))
ABLE = replace(ABLE, map=replace(ABLE.map, capabilities=("sealed",)))
UNABLE = replace(ABLE, map=replace(ABLE.map, capabilities=()))


def diamond(unable: str, units: dict[str, str] | None = None) -> Network:
    """a - b - d is quick, a - c - d is slow; e behind d."""
    network = Network(3, settings=ABLE)
    for name in "abcde":
        unit = (units or {}).get(name, "")
        network.add(name, (unit,) if unit else (), UNABLE if name in unable else None)
    for pair, delay_ms in {"ab": 2, "bd": 2, "ac": 20, "cd": 20, "de": 2}.items():
        network.join(pair[0], pair[1], Quality(delay_ms=delay_ms))
    network.start()
    return network


def sent(network: Network, name: str) -> int:
    return network.nodes[name].forwarded()


@pytest.mark.parametrize("units", [{}, {"a": "w", "b": "x", "c": "y", "d": "z", "e": "z"}])
def test_an_event_goes_round_a_node_that_lacks_what_it_needs(units: dict[str, str]) -> None:
    network = diamond("b", units)
    subscriber, publisher = network.nodes["e"].client("s"), network.nodes["a"].client("p")
    for topic in ("hard/x", "soft"):
        subscriber.subscribe(topic)
    network.run(60.0)
    before = sent(network, "b"), sent(network, "c")
    publisher.publish("soft")
    network.run(1.0)
    assert sent(network, "b") > before[0]
    before = sent(network, "b"), sent(network, "c")
    publisher.publish("hard/x")
    network.run(1.0)
    assert (sent(network, "b"), sent(network, "c")) == (before[0], before[1] + 1)
    assert [arrival.topic for arrival in subscriber.arrivals] == ["soft", "hard/x"]


def test_an_event_that_cannot_go_round_is_refused_and_counted() -> None:
    network = diamond("d")
    subscriber, publisher = network.nodes["e"].client("s"), network.nodes["a"].client("p")
    near = network.nodes["c"].client("near")
    for client in (subscriber, near, network.nodes["d"].client("unable")):
        client.subscribe("hard/x")
    network.run(60.0)
    publisher.publish("hard/x")
    network.run(70.0)
    assert near.received == 1
    assert subscriber.received == 0
    drops = {(topic, reason): count for _, topic, reason, count in network.nodes["a"].engine.address_drops()}
    assert drops["hard/x", "drop_incapable"] == 2, "d itself, and e behind it"
    assert ("hard/x", "drop_waited") not in drops


def test_a_unit_has_what_all_its_nodes_have_and_learns_what_they_learn() -> None:
    network = diamond("c", {"a": "w", "b": "x", "c": "x", "d": "z", "e": "z"})
    network.join("b", "c", Quality(delay_ms=1))
    network.run(60.0)
    member = network.nodes["a"].member
    assert member is not None
    assert VertexId(1, "x") in member.state.lacking({"sealed"})
    assert VertexId(1, "z") not in member.state.lacking({"sealed"})
    network.crash("c")
    upgraded = network.nodes["c"]
    upgraded.design = replace(upgraded.design, settings=ABLE)
    network.restart("c")
    network.run(60.0)
    assert VertexId(1, "x") not in member.state.lacking({"sealed"})
