"""Each kind of interaction goes as the state of the network says: directly between its ends, or through others."""

from __future__ import annotations

import pytest

from chappe.events.member_links import Link
from chappe.measure.cost import Metrics
from tests.support.members import Members

PROFILES = (("video/#", "media"),)


def triangle(jitter: dict[frozenset[str], float]) -> Members:
    """a and c have a direct link of 8 ms, and another way of 5 + 5 ms through b; `jitter` of links may be changed."""
    mesh = Members(profiles=PROFILES, readings=True)
    for name in "abc":
        place = mesh.node(name)

        def weigh(link: Link, own: Metrics | None, me: str = name) -> Metrics | None:
            return None if own is None else own._replace(jitter=jitter.get(frozenset((me, link.name)), 0.0), loss=0.0)

        place.reporter.weigh = weigh
    mesh.link("a", "b", 5)
    mesh.link("b", "c", 5)
    mesh.link("a", "c", 8)
    return mesh


def passed(mesh: Members, name: str) -> int:
    """Events that a node has passed on."""
    place = mesh.places[name]
    return sum(place.engine.port_counters(port)["events_out"] for port in place.ports.values())


@pytest.mark.spec("MR-119")
def test_the_state_of_the_network_decides_which_interaction_is_direct_and_which_goes_through_others() -> None:
    jitter: dict[frozenset[str], float] = {frozenset("ac"): 0.15}
    mesh = triangle(jitter)
    reader, publisher = mesh.reader("c"), mesh.reader("a")
    reader.subscribe("orders")
    reader.subscribe("video/#")
    mesh.run(4)
    publisher.publish("orders", b"1")
    mesh.run(0.1)
    assert (reader.bodies, passed(mesh, "b")) == ([b"1"], 0)
    publisher.publish("video/1", b"2")  # the direct link is quicker, but not steady enough for this
    mesh.run(0.1)
    assert (reader.bodies, passed(mesh, "b")) == ([b"1", b"2"], 1)
    jitter[frozenset("ac")], jitter[frozenset("ab")] = 0.0, 1.0
    mesh.run(8)
    for topic in ("orders", "video/1"):
        publisher.publish(topic, topic.encode())
    mesh.run(0.1)
    assert (reader.bodies[2:], passed(mesh, "b")) == ([b"orders", b"video/1"], 1)
