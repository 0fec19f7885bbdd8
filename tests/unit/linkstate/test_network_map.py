"""What one node tells, believes and refuses: messages in, outputs out."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import msgspec
import pytest

from chappe.linkstate.changes import CostAdvertised, MapResult, Notice, RoutesChanged
from chappe.linkstate.network_map import LinkState
from chappe.linkstate.parts import Parts
from chappe.linkstate.settings import MS, SECOND, Settings
from chappe.linkstate.units import Address, VertexId
from chappe.machine import Send
from chappe.measure.cost import Metrics
from chappe.wire.base import Message
from chappe.wire.mesh import Advert, Digest, InterestAdvert, LinkAdvert, LinkFact, MeshJoin, Statement, StatementRequest
from chappe.wire.patterns import Pattern
from tests.support.statements import read, stated

START = SECOND
AB, AC, BC, AX = (bytes([number]) * 16 for number in range(1, 5))


class Hearing(LinkState):
    """Takes advertisements for the statements they are the bodies of."""

    def receive(self, peer: str, message: Message | Advert, now_ns: int) -> list[MapResult]:
        return super().receive(peer, stated(message) if isinstance(message, Advert) else message, now_ns)


def node(name: str = "a", unit: str = "w/1", **settings: object) -> Hearing:
    return Hearing(Parts(Address.parse(unit, name), Settings(**settings), random.Random(1)))  # type: ignore[arg-type]


def told(outputs: Sequence[MapResult], kind: type) -> list[Send]:
    """What neighbours are sent of a kind, statements by what they say."""
    sent = [output for output in outputs if isinstance(output, Send)]
    if issubclass(kind, Advert):
        sent = [Send(tell.to, read(tell.message)) for tell in sent if isinstance(tell.message, Statement)]  # type: ignore[arg-type]
    return [tell for tell in sent if isinstance(tell.message, kind)]


def refusals(outputs: Sequence[MapResult]) -> list[str]:
    return [output.reason for output in outputs if isinstance(output, Notice) and output.kind == "refused"]


def fact(link: bytes, far: str, latency_ms: float | None = 5.0, level: int = 0, **more: object) -> LinkFact:
    values: dict[str, object] = {"jitter": 0.0, "loss": 0.0} if latency_ms is not None else {}
    return LinkFact(id=link, far=far, level=level, latency_ms=latency_ms, **(values | more))  # type: ignore[arg-type]


def advert(name: str, sequence: int, *links: LinkFact, scope: str = "w/1") -> LinkAdvert:
    return LinkAdvert(origin=name, level=0, scope=scope, originator=name, sequence=sequence, links=links)


def neighbours() -> Hearing:
    """Node a with b and c in its cluster, b and c connected, all at 5 ms, and x in another cluster."""
    state = node()
    for peer, link in (("b", AB), ("c", AC)):
        state.up(peer, Address.parse("w/1", peer), link, "tcp", START)
        state.measured(link, Metrics(latency_ms=5.0, loss=0.0), START)
    state.up("x", Address.parse("w/2", "x"), AX, "tcp", START)
    state.receive("b", advert("b", 1, fact(AB, "a"), fact(BC, "c")), START)
    state.receive("c", advert("c", 1, fact(AC, "a"), fact(BC, "b")), START)
    state.tick(START + SECOND)
    return state


# --- spreading


@pytest.mark.spec("MR-015")
def test_links_of_a_cluster_are_told_inside_it_only() -> None:
    state = neighbours()
    news = advert("b", 2, fact(AB, "a"))
    assert [tell.to for tell in told(state.receive("b", news, 3 * SECOND), LinkAdvert)] == ["c"]


def test_who_hears_something_from_another_is_asked_later_whether_it_did() -> None:
    state = neighbours()
    state.tick(START + 2 * SECOND)
    news = advert("b", 2, fact(AB, "a"), fact(BC, "c", 9.0))
    assert state.receive("b", news, 4 * SECOND) == []
    outputs = state.tick(6 * SECOND)
    assert [(tell.to, tell.message.adverts) for tell in told(outputs, Digest)] == [("c", ((("l", 0, "b", "b"), 2),))]
    state.receive("b", advert("b", 3, fact(AB, "a"), fact(BC, "c", 2.0)), 7 * SECOND)
    state.receive("c", Digest(adverts=((("l", 0, "b", "b"), 3),)), 7 * SECOND)
    assert told(state.tick(9 * SECOND), Digest) == [], "it has it"


def test_what_is_known_is_not_told_again() -> None:
    state = neighbours()
    news = advert("b", 2, fact(AB, "a"))
    assert state.receive("b", news, 3 * SECOND) != []
    assert state.receive("c", news, 3 * SECOND) == []
    assert state.receive("c", advert("b", 1, fact(AB, "a"), fact(BC, "c")), 3 * SECOND) == []
    assert set(state.members()) == {"a", "b"} | {"c"}, "c is a neighbour still"


@pytest.mark.spec("MR-016")
def test_an_announcement_is_rewritten_to_what_is_seen_from_outside() -> None:
    """Broker 5 of cluster c has the link to SC-2; it is told as "5 - SC-2" inside and as "c - SC-2" outside."""
    five = node("5", "A/SC-1/c")
    link = bytes(16)
    inside = told(five.up("20", Address.parse("A/SC-2/k", "20"), link, "tcp", START), LinkAdvert)
    assert inside == [], "nobody is there to be told"
    five.up("6", Address.parse("A/SC-1/c", "6"), AB, "tcp", START)
    five.up("7", Address.parse("A/SC-1/b", "7"), AC, "tcp", START)
    outputs = five.tick(START + 60 * MS) + five.tick(START + SECOND)
    said = {
        (tell.to, tell.message.origin, fact.far)
        for tell in told(outputs, LinkAdvert)
        for fact in tell.message.links
        if fact.id == link
    }
    assert said == {
        ("6", "5", "A/SC-2"), ("6", "A/SC-1/c", "A/SC-2"), ("7", "A/SC-1/c", "A/SC-2"),
        ("6", "A/SC-1", "A/SC-2"), ("7", "A/SC-1", "A/SC-2"), ("20", "A/SC-1", "A/SC-2"),
    }  # fmt: skip


def test_digests_are_compared_when_a_link_comes_up() -> None:
    state = neighbours()
    state.want([Pattern("s", "t")], [], START)
    outputs = state.up("d", Address.parse("w/1", "d"), BC, "tcp", 3 * SECOND)
    digest = told(outputs, Digest)[0]
    assert digest.to == "d"
    known = {("l", 0, "a"), ("l", 0, "b"), ("l", 0, "c"), ("i", 0, "a")}
    assert {key[:3] for key, _ in digest.message.adverts} == known
    asked = state.receive("d", Digest(adverts=((("l", 0, "b", "b"), 1), (("l", 0, "e", "e"), 7))), 3 * SECOND)
    assert told(asked, StatementRequest)[0].message == StatementRequest(keys=(("l", 0, "e", "e"),))
    sent = state.receive("d", StatementRequest(keys=(("l", 0, "b", "b"), ("l", 0, "nobody", "nobody"))), 5 * SECOND)
    assert [tell.message.origin for tell in told(sent, LinkAdvert)] == ["b"]
    assert sent[0].message.age_ms == 4000, "it has been here for four seconds"


def test_a_neighbour_outside_gets_no_digest_of_what_is_inside() -> None:
    state = neighbours()
    outputs = state.up("y", Address.parse("w/2", "y"), BC, "tcp", 3 * SECOND)
    assert all(key[1] >= 1 for key, _ in told(outputs, Digest)[0].message.adverts)
    assert state.receive("y", StatementRequest(keys=(("l", 0, "b", "b"),)), 3 * SECOND) == []


def test_a_node_that_starts_anew_goes_on_from_its_old_number() -> None:
    state = neighbours()
    old = state.database.sequence(("l", 0, "a", "a"))
    outputs = state.receive("b", advert("a", old + 10**9, fact(AX, "z")), 3 * SECOND)
    again = told(outputs, LinkAdvert)
    assert {tell.to for tell in again} == {"b", "c"}
    assert again[0].message.sequence == old + 10**9 + 1
    assert {link.id for link in again[0].message.links} == {AB, AC, AX}


def test_what_is_not_refreshed_is_forgotten_by_its_age() -> None:
    state = neighbours()
    aged = stated(advert("d", 1, fact(BC, "b")), age_ms=170_000)
    state.receive("b", aged, 3 * SECOND)
    assert ("l", 0, "d", "d") in state.database.entries
    state.tick(13 * SECOND)
    assert ("l", 0, "d", "d") not in state.database.entries
    assert ("l", 0, "b", "b") in state.database.entries
    dead = stated(advert("e", 1), age_ms=180_000)
    assert state.receive("b", dead, 14 * SECOND) == []
    assert ("l", 0, "e", "e") not in state.database.entries
    state.tick(200 * SECOND)
    assert state.members() == ["a"], "nobody refreshed"


def test_own_links_are_refreshed() -> None:
    state = neighbours()
    outputs = state.tick(62 * SECOND)
    assert {tell.to for tell in told(outputs, LinkAdvert) if tell.message.level == 0} == {"b", "c"}
    assert {output.link for output in outputs if isinstance(output, CostAdvertised)} == {AB, AC}


# --- costs


@pytest.mark.spec("MR-112")
def test_a_cost_is_told_when_it_differs_by_more_than_the_threshold_from_the_last_told() -> None:
    state = node(threshold=0.1, floor_ms=0.5)
    state.up("b", Address.parse("w/1", "b"), AB, "tcp", START)
    costs = [20.0, 21.0, 21.9, 22.1, 22.1 + 2.2, 22.1 - 2.3, 1.0, 1.4, 1.6]
    seen = []
    for second, cost in enumerate(costs):
        outputs = state.measured(AB, Metrics(latency_ms=cost, loss=0.0), 2 * START + second * SECOND)
        seen += [output.cost for output in outputs if isinstance(output, CostAdvertised)]
        assert bool(told(outputs, LinkAdvert)) == any(isinstance(output, CostAdvertised) for output in outputs)
    assert seen == [20.0, 22.1, pytest.approx(19.8), 1.0, 1.6]
    coarse = node(threshold=0.5)
    coarse.up("b", Address.parse("w/1", "b"), AB, "tcp", START)
    assert coarse.measured(AB, Metrics(latency_ms=20.0), START + SECOND)
    assert coarse.measured(AB, Metrics(latency_ms=29.0), START + 2 * SECOND) == []
    assert coarse.measured(AB, Metrics(latency_ms=31.0), START + 3 * SECOND)


@pytest.mark.spec("MR-112")
def test_a_difference_that_samples_would_make_by_chance_is_not_told() -> None:
    state = node()
    state.up("b", Address.parse("w/1", "b"), AB, "tcp", START)
    quiet = Metrics(0.3, deviation_ms=0.1, jitter_ms=0.1, jitter=0.2, loss=0.0)
    noisy = quiet._replace(latency_ms=0.35, deviation_ms=0.2, jitter=0.45)  # cost 4.85, not 2.3: jitter is a share
    assert state.measured(AB, quiet, START + SECOND, samples=16)
    assert state.measured(AB, noisy, START + 2 * SECOND, samples=16) == []
    assert state.measured(AB, noisy, START + 3 * SECOND, samples=400), "many samples say the same"
    assert state.measured(AB, quiet, START + 4 * SECOND), "of which the noise is not known"
    assert state.measured(AB, noisy._replace(loss=0.03), START + 5 * SECOND, samples=16), "3 ms of it are loss alone"
    calm = node(certainty=0.0)
    calm.up("b", Address.parse("w/1", "b"), AB, "tcp", START)
    assert calm.measured(AB, quiet, START + SECOND, samples=16)
    assert calm.measured(AB, noisy, START + 2 * SECOND, samples=16)


@pytest.mark.spec("MR-110")
def test_what_is_told_of_a_cost() -> None:
    state = node()
    state.up("x", Address.parse("w/2", "x"), AX, "tcp", START)
    first = state.measured(AX, Metrics(latency_ms=20.0, loss=0.01, jitter=0.2), 2 * SECOND)
    [event] = [output for output in first if isinstance(output, CostAdvertised)]
    assert (event.link, event.cost, event.scope, event.sequence) == (AX, 23.0, "w", 1)
    assert (event.metrics.latency_ms, event.stamp_ns) == (20.0, 2 * SECOND)
    withdrawn = [output for output in state.down("x", AX, 3 * SECOND) if isinstance(output, CostAdvertised)]
    assert (withdrawn[0].cost, withdrawn[0].sequence) == (math.inf, 2), "a removal, not a cost"


@pytest.mark.spec("MR-114")
@pytest.mark.spec("MR-018")
def test_a_told_cost_is_in_the_map_and_in_the_routes() -> None:
    state = neighbours()
    assert state.routes.costs("default") == {AB: 5.0, AC: 5.0, BC: 5.0}
    state.receive("b", advert("b", 2, fact(AB, "a"), fact(BC, "c", 9.0)), 3 * SECOND)
    assert state.routes.costs("default")[BC] == 9.0, "the larger of what both ends say"
    assert [row["cost"] for row in state.map_rows() if row["link"] == BC.hex()] == [9.0]
    state.receive("b", advert("b", 3, fact(AB, "a", 50.0), fact(BC, "c")), 4 * SECOND)
    outputs = state.tick(4 * SECOND + 100 * MS)
    assert RoutesChanged({"default": frozenset({VertexId(0, "b")})}) in outputs
    route = state.routes.route("default", VertexId(0, "b"))
    assert route is not None
    assert [vertex_id.name for vertex_id in route.vertex_ids] == ["c", "b"]


@pytest.mark.spec("MR-113")
def test_a_cost_of_an_unknown_link_changes_nothing() -> None:
    state = neighbours()
    before = (state.map_rows(), state.routes.computed)
    unknown = bytes(16)
    state.receive("b", advert("b", 2, fact(AB, "a"), fact(BC, "c"), fact(unknown, "nobody", 0.1)), 3 * SECOND)
    outputs = state.tick(4 * SECOND)
    assert not any(isinstance(output, RoutesChanged) for output in outputs)
    assert state.map_rows() == before[0]


def test_unmeasured_links_count_like_the_median_and_half_measured_ones_at_least_so() -> None:
    state = node()
    ids = {name: bytes([9, number]) * 8 for number, name in enumerate("bcdef")}
    measured = {"b": (4.0, 4.0), "c": (10.0, 10.0), "d": (30.0, 30.0), "e": (None, None), "f": (1.0, None)}
    for name, (mine, theirs) in measured.items():
        state.up(name, Address.parse("w/1", name), ids[name], "tcp", START)
        if mine is not None:
            state.measured(ids[name], Metrics(latency_ms=mine, loss=0.0), START)
        state.receive(name, advert(name, 1, fact(ids[name], "a", theirs)), START)
    costs = state.routes.costs("default")
    assert {name: costs[ids[name]] for name in measured} == {"b": 4.0, "c": 10.0, "d": 30.0, "e": 7.0, "f": 7.0}


@pytest.mark.spec("MR-117")
def test_performance_routing_can_be_switched_off_and_on() -> None:
    state = neighbours()
    state.receive("b", advert("b", 2, fact(AB, "a", 50.0), fact(BC, "c")), 3 * SECOND)
    state.tick(4 * SECOND)
    assert len(state.routes.route("default", VertexId(0, "b")).vertex_ids) == 2  # type: ignore[union-attr]
    outputs = state.perform(False, 5 * SECOND)
    assert outputs == [RoutesChanged({"default": frozenset({VertexId(0, "b")})})]
    route = state.routes.route("default", VertexId(0, "b"))
    assert route is not None
    assert (len(route.vertex_ids), route.cost) == (1, 0.0)
    assert state.routes.explain("default", VertexId(0, "b"))[0].why == "performance routing is off: static costs"
    state.receive("b", advert("b", 3, fact(AB, "a", 90.0), fact(BC, "c")), 6 * SECOND)
    state.tick(7 * SECOND)
    assert len(state.routes.route("default", VertexId(0, "b")).vertex_ids) == 1  # type: ignore[union-attr]
    assert state.perform(True, 8 * SECOND) == outputs
    assert state.perform(True, 8 * SECOND) == []


# --- suspicion


@pytest.mark.spec("MR-021")
def test_links_and_nodes_that_are_suspected_are_in_no_way() -> None:
    state = neighbours()
    state.receive("b", advert("b", 2, fact(AB, "a", suspect=True), fact(BC, "c")), 3 * SECOND)
    route = state.routes.route("default", VertexId(0, "b"))
    assert route is not None
    assert route.links == (AC, BC)
    assert [row["suspect"] for row in state.map_rows() if row["link"] == AB.hex()] == [True]
    state.receive("c", advert("c", 2, fact(AC, "a"), fact(BC, "b", suspect=True)), 4 * SECOND)
    assert state.routes.route("default", VertexId(0, "b")) is None, "every link of b is suspected"
    assert state.members() == ["a", "c"]
    outputs = state.suspect(AC, True, 5 * SECOND)
    assert told(outputs, LinkAdvert)[0].message.links[1].suspect
    assert state.members() == ["a"]
    state.suspect(AC, False, 6 * SECOND)
    assert state.members() == ["a", "c"]


# --- interest


def test_interest_is_told_found_and_forgotten() -> None:
    state = neighbours()
    wish = InterestAdvert(
        origin="b", level=0, scope="w/1", originator="b", sequence=1,
        patterns=(Pattern("s", "a/+"), Pattern("s", "a/b", "g"), Pattern("i", "7")), publications=(Pattern("s", "p"),),
    )  # fmt: skip
    state.receive("b", advert("b", 2, fact(AB, "a")), 3 * SECOND)
    outputs = state.receive("b", wish, 4 * SECOND)
    assert [tell.to for tell in told(outputs, InterestAdvert)] == ["c"]
    assert list(state.wanting("s", b"a/b")) == [VertexId(0, "b")]
    assert state.wanting("s", b"a/b") == {VertexId(0, "b"): frozenset({"", "g"})}
    assert list(state.wanting("s", b"a/b/c")) == []
    assert list(state.wanting("i", (7).to_bytes(4, "big"))) == [VertexId(0, "b")]
    assert state.publications() == {VertexId(0, "b"): (Pattern("s", "p"),)}
    assert state.receive("b", msgspec.structs.replace(wish, sequence=2), 5 * SECOND)[1:] == []
    state.receive("b", msgspec.structs.replace(wish, sequence=3, patterns=()), 6 * SECOND)
    assert list(state.wanting("s", b"a/b")) == []


@pytest.mark.parametrize(
    ("pattern", "topic", "wanted"),
    [
        ("#", "a/b", True), ("a/#", "a", True), ("a/#", "a/b/c", True), ("a/#", "ab", False), ("+/b", "a/b", True),
        ("+", "a/b", False), ("a/b", "a/b", True), ("a/b", "a", False), ("+/#", "a", True), ("a/+/c", "a/b/c", True),
    ],
)  # fmt: skip
def test_wildcards(pattern: str, topic: str, wanted: bool) -> None:
    state = neighbours()
    wish = InterestAdvert(
        origin="b", level=0, scope="w/1", originator="b", sequence=1, patterns=(Pattern("s", pattern),)
    )
    state.receive("b", wish, 3 * SECOND)
    assert list(state.wanting("s", topic.encode())) == ([VertexId(0, "b")] if wanted else [])


# --- what is refused


UNIT = LinkAdvert(origin="w/2", level=1, scope="w", originator="x", sequence=1, links=(fact(AX, "w/1", level=1),))
GOOD = advert("b", 2, fact(AB, "a"))
BAD = {
    "level 3 in a mesh of depth 2": msgspec.structs.replace(GOOD, level=3),
    "level -1": msgspec.structs.replace(GOOD, level=-1),
    "advertised in 'e/9', this node is in 'w/1'": msgspec.structs.replace(GOOD, scope="e/9"),
    "speaks for the node 'b'": msgspec.structs.replace(GOOD, originator="c"),
    "sequence 0": advert("d", 0),
    f"sequence {1 << 63}": msgspec.structs.replace(GOOD, sequence=1 << 63),
    "'b/c' is no node here": msgspec.structs.replace(GOOD, origin="b/c", originator="b/c"),
    "'b@c' is no node here": msgspec.structs.replace(GOOD, origin="b@c", originator="b@c"),
    "is no unit of level 1 here": msgspec.structs.replace(UNIT, origin="e/2"),
    "latency of nan": advert("b", 2, fact(AB, "a", math.nan)),
    "latency of -1.0": advert("b", 2, fact(AB, "a", -1.0)),
    "latency of inf": advert("b", 2, fact(AB, "a", math.inf)),
    "latency of 1e+300": advert("b", 2, fact(AB, "a", 1e300)),
    "loss of 1.5": advert("b", 2, fact(AB, "a", loss=1.5)),
    "jitter of nan": advert("b", 2, fact(AB, "a", jitter=math.nan)),
    "bandwidth of -5": advert("b", 2, fact(AB, "a", bandwidth=-5.0)),
    "link id of 3 bytes": advert("b", 2, fact(b"abc", "a")),
    "advertised twice": advert("b", 2, fact(AB, "a"), fact(AB, "c")),
    "to itself": advert("b", 2, fact(AB, "b")),
    "in which it lies": advert("b", 2, fact(AB, "w/1", level=1)),
    "nothing this node can see": advert("b", 2, fact(AB, "e/1", level=1)),
    "is not advertised at level 1": msgspec.structs.replace(UNIT, links=(fact(AX, "a"),)),
    "members": msgspec.structs.replace(GOOD, members=-1),
    "age -1": stated(GOOD, age_ms=-1),
    "links; at most": advert("b", 2, *(fact(number.to_bytes(16, "big"), "a") for number in range(9000))),
    "pattern": InterestAdvert(
        origin="b", level=0, scope="w/1", originator="b", sequence=1, patterns=(Pattern("z", "a"),)
    ),
    "is no message of the network map": MeshJoin(name="b", unit="w/1", link=AB),
}


@pytest.mark.parametrize("reason", BAD)
def test_what_cannot_be_is_refused_with_its_reason_and_changes_nothing(reason: str) -> None:
    state = neighbours()
    before = state.map_rows(), state.vertex_ids(), state.database.digest(0, "")
    message = BAD[reason]
    outputs = state.receive("b", message, 3 * SECOND)
    [said] = refusals(outputs)
    assert reason in said
    assert not told(outputs, LinkAdvert)
    assert not told(outputs, InterestAdvert)
    assert (state.map_rows(), state.vertex_ids(), state.database.digest(0, "")) == before
    assert state.refused["b"] == 1
    assert refusals(state.receive("b", message, 4 * SECOND)) == [], "not again and again"
    assert state.refused["b"] == 2


def test_a_neighbour_outside_a_unit_cannot_tell_what_is_inside() -> None:
    state = neighbours()
    outputs = state.receive("x", advert("b", 9, fact(AB, "a", 0.1), fact(BC, "c", 0.1)), 3 * SECOND)
    assert "where the neighbour that sent it does not lie" in refusals(outputs)[0]
    assert refusals(state.receive("stranger", GOOD, 3 * SECOND))[0].endswith("to whom there is no link")


@pytest.mark.parametrize(
    ("peer", "unit", "link", "reason"),
    [
        ("d", "w", BC, "give all nodes of a mesh units of the same depth"),
        ("d", "w/1/2", BC, "w/1/2/d lies 3 units deep and this node, w/1/a, 2"),
        ("a", "w/1", BC, "names are unique in a mesh"),
        ("d", "w/1", b"short", "link id of 5 bytes"),
        ("d", "w/1", AB, "is up already"),
    ],
)
def test_a_neighbour_that_does_not_fit_is_refused(peer: str, unit: str, link: bytes, reason: str) -> None:
    state = neighbours()
    outputs = state.up(peer, Address.parse(unit, peer), link, "tcp", 3 * SECOND)
    assert len(outputs) == 1
    assert reason in refusals(outputs)[0]
    assert state.peer(BC) is None
    assert state.peer(AB) == "b"


def test_signatures() -> None:
    def sign(text: bytes) -> bytes:
        return b"a" + text[:8]

    state = Hearing(Parts(
        Address.parse("w/1", "a"), Settings(), random.Random(1), sign,
        lambda name, text, signature: signature == name.encode() + text[:8],
    ))  # fmt: skip
    outputs = state.up("b", Address.parse("w/1", "b"), AB, "tcp", START)
    [own] = [tell.message for tell in told(outputs, Statement)]
    assert own.signature == sign(own.body)
    forged = advert("b", 1, fact(AB, "a"))
    assert "the signature is not that of 'b'" in refusals(state.receive("b", forged, START))[0]
    good = stated(forged, b"b" + stated(forged).body[:8], age_ms=7)
    assert refusals(state.receive("b", good, START)) == []
    assert state.members() == ["a", "b"]


def test_there_is_room_for_so_many_and_no_more() -> None:
    state = node(max_adverts=4, max_originators=2)
    state.up("b", Address.parse("w/1", "b"), AB, "tcp", START)
    spoken = [
        LinkAdvert(
            origin="w/2", level=1, scope="w", originator=f"s{number}", sequence=1, links=(fact(AX, "w/1", level=1),)
        )
        for number in range(3)
    ]
    assert [bool(refusals(state.receive("b", message, START))) for message in spoken] == [False, False, True]
    state.receive("b", msgspec.structs.replace(spoken[0], sequence=2, links=()), START)
    assert refusals(state.receive("b", spoken[2], START)) == [], "a speaker that withdrew makes room"
    state.receive("b", advert("b", 1), START)
    assert "no more are taken" in refusals(state.receive("b", advert("c", 1), START))[0]
