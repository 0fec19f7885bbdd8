"""Which way is in use, when it is left, and what an event's tree looks like."""

from __future__ import annotations

import random

import pytest

from chappe.linkstate.routes import Branch, Route
from chappe.linkstate.settings import MS, SECOND, Settings
from chappe.linkstate.trees import grown
from chappe.linkstate.units import VertexId
from chappe.measure.cost import Metrics
from tests.support.linkstates import LinkStates

EXACT = Settings(gain=0.0, gain_ms=0.0, hold_down=0.0)


def way(mesh: LinkStates, source: str, target: str, profile: str = "default") -> str:
    vertex_id = next(vertex_id for vertex_id in mesh.nodes[source].vertex_ids() if vertex_id.name == target)
    route = mesh.nodes[source].routes.route(profile, vertex_id)
    assert route is not None
    return "".join((source, *(vertex_id.name for vertex_id in route.vertex_ids)))


def mesh_of(costs: dict[str, float], settings: Settings | None = None) -> tuple[LinkStates, dict[str, bytes]]:
    """One cluster; links by the names of their ends."""
    mesh = LinkStates(dict.fromkeys(sorted(set("".join(costs))), ""), settings)
    links = {pair: mesh.connect(*pair) for pair in costs}
    mesh.settle()
    mesh.use()
    for pair, cost in costs.items():
        mesh.measure(links[pair], cost)
    mesh.run(4 * SECOND)
    mesh.use()
    return mesh, links


@pytest.mark.spec("MR-129")
def test_a_way_is_left_only_for_one_that_is_better_by_five_percent_and_a_millisecond() -> None:
    mesh, links = mesh_of({"ab": 100.0, "ac": 50.0, "cb": 60.0}, Settings(threshold=0.0, floor_ms=0.0))
    assert way(mesh, "a", "b") == "ab"
    for cost, wanted in ((46.0, "ab"), (45.1, "ab"), (44.9, "acb"), (50.5, "acb"), (54.0, "acb"), (56.0, "ab")):
        mesh.measure(links["cb"], cost)
        mesh.run(4 * SECOND)
        assert way(mesh, "a", "b") == wanted, cost
    mesh.measure(links["ab"], 3.0)
    mesh.measure(links["ac"], 1.0)
    mesh.measure(links["cb"], 1.1)
    mesh.run(4 * SECOND)
    assert way(mesh, "a", "b") == "ab", "30 % and less than a millisecond"
    mesh.measure(links["cb"], 0.9)
    mesh.run(4 * SECOND)
    assert way(mesh, "a", "b") == "acb"


@pytest.mark.spec("MR-129")
def test_a_way_that_was_changed_stays_for_three_intervals_unless_it_breaks() -> None:
    mesh, links = mesh_of({"ab": 100.0, "ac": 60.0, "cb": 60.0})
    mesh.measure(links["ab"], 200.0)
    mesh.run(100 * MS)
    assert way(mesh, "a", "b") == "acb"
    mesh.measure(links["ab"], 20.0)
    mesh.run(2500 * MS)
    assert way(mesh, "a", "b") == "acb"
    mesh.run(500 * MS)
    assert way(mesh, "a", "b") == "ab", "the time is over, and nothing else happened"
    mesh.measure(links["ab"], 200.0)
    mesh.run(100 * MS)
    assert way(mesh, "a", "b") == "ab", "it has changed just now"
    mesh.cut(links["ab"])
    assert way(mesh, "a", "b") == "acb", "at once, when it is gone"


def test_a_held_way_that_nobody_asks_for_keeps_nobody_busy() -> None:
    mesh, links = mesh_of({"ab": 100.0, "ac": 60.0, "cb": 60.0, "cd": 1.0})
    mesh.measure(links["ab"], 200.0)
    mesh.run(100 * MS)
    mesh.measure(links["ab"], 20.0)
    mesh.run(100 * MS)
    state = mesh.nodes["a"]
    state.routes.route("default", VertexId(0, "b"))
    mesh.cut(links["cd"])
    mesh.run(SECOND)
    links["cd"] = mesh.connect("c", "d")
    mesh.run(10 * SECOND)
    assert state.next_ns() > mesh.now_ns
    way(mesh, "a", "b")
    mesh.run(MS)
    assert way(mesh, "a", "b") == "ab"


@pytest.mark.spec("MR-129")
def test_two_ways_within_five_percent_do_not_flap_under_noise() -> None:
    mesh, links = mesh_of({"ab": 50.0, "ac": 25.0, "cb": 25.0}, Settings(threshold=0.0, floor_ms=0.0))
    noise = random.Random(3)
    before = len(mesh.rerouted)
    for _ in range(300):
        mesh.use()
        for pair, cost in (("ab", 50.0), ("ac", 25.0), ("cb", 25.0)):
            mesh.measure(links[pair], cost * noise.uniform(0.98, 1.02))
        mesh.run(SECOND)
    assert len(mesh.rerouted) - before < 5, "less than one change a minute in five minutes"


@pytest.mark.spec("MR-115")
def test_only_destinations_that_are_affected_get_another_way() -> None:
    mesh, links = mesh_of({"ab": 5.0, "ac": 5.0, "bd": 5.0, "ce": 5.0, "ed": 20.0, "be": 20.0})
    state = mesh.nodes["a"]
    held = {name: state.routes.route("default", VertexId(0, name)) for name in "bcde"}
    mesh.rerouted.clear()
    mesh.measure(links["bd"], 100.0)
    mesh.run(SECOND)
    changes = [output.profiles for name, output in mesh.rerouted if name == "a"]
    assert changes == [{"default": frozenset({VertexId(0, "d")})}]
    assert way(mesh, "a", "d") == "aced"
    assert {name: state.routes.route("default", VertexId(0, name)) for name in "bce"} == {n: held[n] for n in "bce"}


def test_ways_that_nobody_holds_are_not_told_of() -> None:
    mesh, links = mesh_of({"ab": 5.0, "ac": 5.0, "bc": 5.0, "bd": 5.0, "cd": 5.0})
    mesh.rerouted.clear()
    mesh.cut(links["bd"])
    mesh.settle()
    assert sorted(name for name, _ in mesh.rerouted) == ["a", "b", "d"], "c reaches all directly"
    mesh.rerouted.clear()
    mesh.cut(links["ab"])
    mesh.settle()
    assert mesh.rerouted == []
    assert way(mesh, "a", "b") == "acb"
    mesh.cut(links["bc"])
    mesh.settle()
    assert sorted(name for name, _ in mesh.rerouted) == ["a", "c"], "those who asked, and c, who was not told before"


@pytest.mark.spec("MR-115")
def test_a_link_that_matters_to_nobody_costs_no_computation() -> None:
    mesh, links = mesh_of({"ab": 5.0, "ac": 5.0, "bc": 50.0})
    state = mesh.nodes["a"]
    before = state.routes.computed
    mesh.measure(links["bc"], 80.0)
    mesh.run(SECOND)
    assert state.routes.costs("default")[links["bc"]] == 80.0
    assert state.routes.computed == before
    mesh.measure(links["ab"], 8.0)
    mesh.run(SECOND)
    assert state.routes.computed == before + 1


def test_of_equal_ways_the_one_in_use_then_fewer_hops_then_smaller_names() -> None:
    mesh, links = mesh_of({"ab": 10.0, "ac": 10.0, "bd": 10.0, "cd": 10.0})
    assert way(mesh, "a", "d") == "abd"
    assert way(mesh, "d", "a") == "dba"
    mesh.cut(links["bd"])
    mesh.settle()
    assert way(mesh, "a", "d") == "acd"
    links["bd"] = mesh.connect("b", "d")
    mesh.measure(links["bd"], 10.0)
    mesh.run(4 * SECOND)
    assert way(mesh, "a", "d") == "acd", "it is in use"
    mesh, links = mesh_of({"ab": 10.0, "ac": 5.0, "cb": 5.0}, EXACT)
    assert way(mesh, "a", "b") == "ab"


def test_profiles_choose_different_ways() -> None:
    mesh = LinkStates(dict.fromkeys("abcd", ""), EXACT)
    links = {pair: mesh.connect(*pair) for pair in ("ab", "ac", "cb", "ad", "db")}
    told = {
        "ab": Metrics(latency_ms=10.0, jitter=1.0, loss=0.0, bandwidth=1e6),
        "ac": Metrics(latency_ms=12.0, jitter=0.0, loss=0.0, bandwidth=1e6),
        "cb": Metrics(latency_ms=12.0, jitter=0.0, loss=0.0, bandwidth=1e6),
        "ad": Metrics(latency_ms=90.0, jitter=0.0, loss=0.0, bandwidth=1e9),
        "db": Metrics(latency_ms=90.0, jitter=0.0, loss=0.0, bandwidth=1e9),
    }
    for pair, metrics in told.items():
        for name in pair:
            mesh.put(name, mesh.nodes[name].measured(links[pair], metrics, mesh.now_ns))
    mesh.settle()
    assert {profile: way(mesh, "a", "b", profile) for profile in ("default", "media", "bulk")} == {
        "default": "ab", "media": "acb", "bulk": "adb",
    }  # fmt: skip
    with pytest.raises(ValueError, match="no cost profile 'fast'"):
        mesh.nodes["a"].routes.route("fast", VertexId(0, "b"))


def test_what_is_avoided_is_never_passed() -> None:
    mesh, _ = mesh_of({"ab": 1.0, "bd": 1.0, "ac": 9.0, "cd": 9.0})
    routes = mesh.nodes["a"].routes
    assert way(mesh, "a", "d") == "abd"
    around = routes.route("default", VertexId(0, "d"), avoid=[VertexId(0, "b")])
    assert around is not None
    assert ([vertex_id.name for vertex_id in around.vertex_ids], around.cost) == (["c", "d"], 18.0)
    assert routes.route("default", VertexId(0, "d"), avoid=[VertexId(0, "b"), VertexId(0, "c")]) is None
    assert routes.route("default", VertexId(0, "d"), avoid=[VertexId(0, "d")]) is None
    assert routes.route("default", VertexId(0, "a")) is None
    assert routes.route("default", VertexId(0, "nobody")) is None


def nodes_of(branch: Branch) -> list[str]:
    return [branch.node, *(name for child in branch.branches for name in nodes_of(child))]


def test_a_tree_reaches_nodes_and_leaves_at_gateways() -> None:
    mesh = LinkStates({"a": "x", "b": "x", "c": "x", "d": "y", "e": "z", "f": "w"}, EXACT)
    links = {pair: mesh.connect(*pair) for pair in ("ab", "bc", "cd", "de", "bf")}
    mesh.settle()
    tree = mesh.nodes["a"].routes.tree(
        "default",
        [
            VertexId(0, "c"),
            VertexId(1, "z"),
            VertexId(1, "y"),
            VertexId(1, "w"),
            VertexId(1, "nowhere"),
            VertexId(0, "a"),
        ],
    )
    assert tree.unreached == (VertexId(1, "nowhere"),)
    b = tree.root.branches[0]
    c = b.branches[0]
    assert (tree.root.node, tree.root.deliver, b.node, b.deliver, c.node, c.deliver) == (
        "a",
        False,
        "b",
        False,
        "c",
        True,
    )
    assert [(leave.link, leave.next.name) for leave in b.leaves] == [(links["bf"], "w")]
    assert [(leave.link, leave.next.name) for leave in c.leaves] == [(links["cd"], "y")]
    assert c.leaves[0].vertex_ids == ((VertexId(1, "y"),), (VertexId(1, "y"), VertexId(1, "z")))


def test_no_name_stands_twice_in_a_tree_of_ways_that_cross() -> None:
    def route(path: str) -> Route:
        vertex_ids = tuple(VertexId(0, name) if name.islower() else VertexId(1, name) for name in path)
        return Route(vertex_ids, tuple(name.encode() * 16 for name in path), 1.0, 1.0)

    tree = grown(
        "r", [VertexId(0, "x"), VertexId(0, "y"), VertexId(1, "U")], [route("abx"), route("cby"), route("cbU")], ()
    )
    names = nodes_of(tree.root)
    assert sorted(names) == ["a", "b", "r", "x", "y"]
    assert [branch.node for branch in tree.root.branches] == ["a"], "what is met again is reached as it was"


def test_an_explanation_names_the_ways_and_why() -> None:
    mesh, _ = mesh_of({"ab": 10.0, "ac": 4.9, "cb": 4.9, "ad": 40.0, "db": 40.0})
    rows = mesh.nodes["a"].routes.explain("default", VertexId(0, "b"))
    assert [row.name for row in rows] == ["in use", "best", "static"], "the next best is the one in use"
    named = {row.name: row for row in rows}
    assert "".join(vertex_id.name for vertex_id in named["in use"].route.vertex_ids) == "b"
    assert named["in use"].why == "it was the best, and no other is better by enough"
    assert "less than the 1 that are worth a change" in named["best"].why
    assert named["static"].route.cost == 0.0
    assert mesh.nodes["a"].routes.explain("default", VertexId(0, "nobody")) == []
