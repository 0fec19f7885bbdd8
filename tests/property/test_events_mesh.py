"""Laws of events in random meshes: exactly once when it is quiet, no loop and no node twice whatever changes."""

from __future__ import annotations

import random
from collections import deque

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chappe.errors import ProtocolError
from chappe.events.source_route import SourceRoute, Step, Unit, encode
from chappe.linkstate.units import Address, level_between
from tests.support.eventmesh import EventMesh, Journey

UNITS = {
    0: [""],
    1: ["a", "b", "c"],
    2: ["x/a", "x/b", "x/c", "y/a", "y/d", "z/e"],
    3: ["p/x/a", "p/x/b", "p/y/c", "q/z/d", "q/z/e", "q/w/f", "r/v/g"],
}
PATTERNS = ["t/1", "t/2", "t/+", "t/#", "#", "u/+/1", "u/#"]
TOPICS = ["t/1", "t/2", "t", "u/a/1", "u/a", "v"]
pytestmark = pytest.mark.timeout(240)  # a failing example is made smaller, which takes its time
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


@st.composite
def meshes(draw: st.DrawFn, most: int = 9) -> EventMesh:
    """Nodes in units of some depth, links at random, subscriptions with and without groups; everything has settled."""
    depth = draw(st.integers(0, 3))
    count = draw(st.integers(2, most))
    names = [f"n{number}" for number in range(count)]
    net = EventMesh(Address.parse(draw(st.sampled_from(UNITS[depth])), name) for name in names)
    for number in range(1, count):  # units hang together, mostly
        earlier = names[:number]
        if draw(st.integers(0, 9)):
            nearest = min(level_between(net.addresses[names[number]], net.addresses[name]) for name in earlier)
            earlier = [n for n in earlier if level_between(net.addresses[names[number]], net.addresses[n]) == nearest]
        net.link(names[number], draw(st.sampled_from(earlier)), draw(LATENCY))
    for _ in range(draw(st.integers(0, count))):
        net.link(draw(st.sampled_from(names)), draw(st.sampled_from(names)), draw(LATENCY))
    for name in names:
        for _ in range(draw(st.integers(0, 2))):
            net.subscribe(name, draw(st.sampled_from(PATTERNS)), draw(st.sampled_from(["", "", "g", "h"])))
    for pair in draw(st.lists(st.sampled_from(sorted(map(sorted, net.links))), max_size=1)):
        net.cut(*pair)
    net.settle()
    return net


ID = "0123456789abcdef" * 2
LATENCY = st.none() | st.sampled_from([0.5, 1.0, 2.0, 10.0, 50.0])


def reachable(net: EventMesh, start: str) -> set[str]:
    """All that links lead to."""
    found, waiting = {start}, deque([start])
    while waiting:
        here = waiting.popleft()
        for pair in net.links:
            if here in pair:
                (other,) = pair - {here}
                if other not in found:
                    found.add(other)
                    waiting.append(other)
    return found


def whole(net: EventMesh) -> bool:
    """Whether every unit that has nodes hangs together inside."""
    paths = {address.path(level) for address in net.addresses.values() for level in range(1, address.depth + 1)}
    for path in paths:
        inside = {name for name, address in net.addresses.items() if f"{address}/".startswith(path + "/")}
        first = min(inside)
        found, waiting = {first}, [first]
        while waiting:
            here = waiting.pop()
            for pair in net.links:
                if here in pair:
                    (other,) = pair - {here}
                    if other in inside and other not in found:
                        found.add(other)
                        waiting.append(other)
        if found != inside:
            return False
    return True


def check_tree(net: EventMesh, journey: Journey) -> None:
    """Each node once, along links, one hop for each node but the first."""
    assert max(journey.visited.values()) == 1
    assert len(journey.hops) == len(journey.visited) - 1
    assert all(frozenset(hop) in net.links for hop in journey.hops)


@pytest.mark.spec("MR-019", "MR-022")
@settings(max_examples=40, deadline=None, suppress_health_check=SLOW)
@given(meshes())
def test_when_it_is_quiet_everyone_who_wants_an_event_gets_it_once(net: EventMesh) -> None:
    for publisher in net.states:
        there = reachable(net, publisher)
        for topic in TOPICS:
            journey = net.publish(publisher, topic)
            check_tree(net, journey)
            wanted = {name: net.mine[name].wants("s", topic.encode()) for name in there}
            assert set(+journey.delivered) == {name for name, wants in wanted.items() if wants.plain}
            assert journey.served == {group: 1 for wants in wanted.values() for group in wants.groups}
            assert not journey.undeliverable


@pytest.mark.spec("MR-022")
@settings(max_examples=30, deadline=None, suppress_health_check=SLOW)
@given(meshes())
def test_nothing_is_flooded(net: EventMesh) -> None:
    """A node that an event visits wants it, or somebody behind it does: no branch ends where nobody is interested."""
    if not whole(net):
        return  # the parts of a unit may speak for one another
    for publisher in net.states:
        for topic in TOPICS:
            journey = net.publish(publisher, topic)
            passed = {sender for sender, _ in journey.hops}
            for _, last in journey.hops:
                if last not in passed:
                    assert net.mine[last].wants("s", topic.encode())


@settings(max_examples=40, deadline=None, suppress_health_check=SLOW)
@given(meshes())
def test_an_address_leads_to_its_node_and_nowhere_else(net: EventMesh) -> None:
    """Whatever is subscribed to; where a unit fell apart, the other parts of it may be asked, too."""
    for publisher in net.states:
        there = reachable(net, publisher)
        for name, address in net.addresses.items():
            journey = net.publish(publisher, f"{address}@{ID}", kind="n")
            assert set(+journey.delivered) == {name} & there
            if name in there and whole(net):
                check_tree(net, journey)
                assert not journey.undeliverable
                assert len(journey.hops) == len({sender for sender, _ in journey.hops})  # a line, no branches


@settings(max_examples=40, deadline=None, suppress_health_check=SLOW)
@given(meshes(), st.randoms(use_true_random=False))
def test_an_address_gets_an_event_at_most_once_whatever_happens_on_its_way(net: EventMesh, rng: random.Random) -> None:
    names = sorted(net.states)
    for _ in range(5):
        to = rng.choice(names)
        journey = net.publish(
            rng.choice(names), f"{net.addresses[to]}@{ID}", lambda: disturb(net, rng), reroute=True, kind="n"
        )
        assert set(+journey.delivered) <= {to}
        assert sum(journey.delivered.values()) <= 1


def disturb(net: EventMesh, rng: random.Random) -> None:
    """Something changes, and some of what the nodes tell each other arrives."""
    names = sorted(net.states)
    what = rng.random()
    if what < 0.3 and net.links:
        net.cut(*sorted(rng.choice(sorted(map(sorted, net.links)))))
    elif what < 0.6:
        net.link(*rng.sample(names, 2), rng.choice([None, 1.0, 5.0, 50.0]))
    elif what < 0.7 and net.links:
        net.measure(*rng.choice(sorted(map(sorted, net.links))), rng.choice([1.0, 5.0, 50.0]))
    elif what < 0.8:
        net.subscribe(rng.choice(names), rng.choice(PATTERNS), rng.choice(["", "g"]))
    net.step(rng.randrange(12))


@pytest.mark.spec("MR-020")
@settings(max_examples=40, deadline=None, suppress_health_check=SLOW)
@given(meshes(), st.randoms(use_true_random=False))
def test_while_everything_changes_no_event_visits_a_node_twice(net: EventMesh, rng: random.Random) -> None:
    for _ in range(8):
        disturb(net, rng)
        journey = net.publish(rng.choice(sorted(net.states)), rng.choice(TOPICS), lambda: disturb(net, rng))
        check_hops(journey)


def check_hops(journey: Journey) -> None:
    """Each node is visited once, whatever the maps say.

    Two cases apart, in which receivers drop repeats: a node had to plan anew after a loss; a unit is falling apart or
    comes together, and some know it while others do not.
    """
    if not (journey.strayed or journey.parted):
        assert max(journey.visited.values()) == 1
        assert len(journey.hops) == len(journey.visited) - 1
    assert len(journey.hops) < 100


@settings(max_examples=30, deadline=None, suppress_health_check=SLOW)
@given(meshes(), st.randoms(use_true_random=False))
def test_reroutes_end_and_deliver_once(net: EventMesh, rng: random.Random) -> None:
    """Copies for lost neighbours are given other ways while more links go: it ends, and nobody gets it twice."""
    for _ in range(5):
        disturb(net, rng)
        journey = net.publish(
            rng.choice(sorted(net.states)), rng.choice(TOPICS), lambda: disturb(net, rng), reroute=True
        )
        assert all(count <= 1 for count in journey.delivered.values())
        assert len(journey.hops) < 200


@st.composite
def forged(draw: st.DrawFn, net: EventMesh) -> SourceRoute:
    """A way that somebody made up, of names that exist and of others."""
    names = st.sampled_from([*sorted(net.states), "nobody"])
    paths = {a.path(level) for a in net.addresses.values() for level in range(1, a.depth + 1)} | {"nowhere", "a@n1"}
    units = st.builds(
        Unit,
        st.integers(1, 3),
        st.sampled_from(sorted(paths)),
        st.integers(0, 3),
        st.booleans(),
        st.sampled_from([(), ("g",)]),
    )
    forests = st.lists(units, max_size=3).map(tuple)
    steps = st.builds(Step, names, st.integers(0, 3), st.booleans(), st.sampled_from([(), ("h",)]), forests)
    trace = st.lists(st.sampled_from(sorted(paths)), max_size=2).map(tuple)
    reroutes, profile = draw(st.integers(0, 8)), draw(st.sampled_from(["default", "media", "unknown"]))
    if draw(st.booleans()):
        return SourceRoute((), tuple(draw(st.lists(units, min_size=1, max_size=4))), draw(trace), profile, reroutes)
    return SourceRoute(tuple(draw(st.lists(steps, min_size=1, max_size=4))), (), draw(trace), profile, reroutes)


@settings(max_examples=40, deadline=None, suppress_health_check=SLOW)
@given(meshes(), st.data())
def test_forged_ways_are_refused_or_end(net: EventMesh, data: st.DataObject) -> None:
    """A neighbour that makes up ways gets no loop and no node that delivers twice out of it, and no other error."""
    for _ in range(10):
        way = data.draw(forged(net))
        receiver = data.draw(st.sampled_from(sorted(net.states)))
        try:
            journey = net.inject("n0", receiver, encode(way), "t/1")
        except ProtocolError:
            continue
        assert all(count <= 1 for count in journey.delivered.values())
        assert len(journey.hops) < 200


def lose(net: EventMesh, rng: random.Random) -> None:
    """A link is lost without which everything still hangs together, and some time passes."""
    if rng.random() < 0.6:
        return
    for pair in rng.sample(sorted(map(sorted, net.links)), len(net.links)):
        number = net.links.pop(frozenset(pair))
        spare = whole(net) and all(reachable(net, name) == set(net.states) for name in net.states)
        net.links[frozenset(pair)] = number
        if spare:
            net.cut(*pair)
            net.settle(rng.choice([0, 0.05, 0.5, 10]))
            return


@settings(max_examples=40, deadline=None, suppress_health_check=SLOW)
@given(meshes(), st.randoms(use_true_random=False))
def test_links_are_lost_and_events_are_not(net: EventMesh, rng: random.Random) -> None:
    """As long as units hang together, all who want an event get it once, whichever links go while it is under way."""
    if not whole(net) or any(reachable(net, name) != set(net.states) for name in net.states):
        return
    for _ in range(4):
        journey = net.publish(rng.choice(sorted(net.states)), "t/1", lambda: lose(net, rng), reroute=True)
        assert +journey.delivered == {n: 1 for n in net.states if net.mine[n].wants("s", b"t/1").plain}
        net.settle(10)


@settings(max_examples=40, deadline=None, suppress_health_check=SLOW)
@given(meshes(), st.randoms(use_true_random=False))
def test_after_changes_it_is_quiet_again(net: EventMesh, rng: random.Random) -> None:
    for _ in range(6):
        disturb(net, rng)
    net.settle(10)
    for publisher in net.states:
        there = reachable(net, publisher)
        journey = net.publish(publisher, "t/1")
        check_tree(net, journey)
        assert set(+journey.delivered) == {n for n in there if net.mine[n].wants("s", b"t/1").plain}
