"""The tables of the source: routes over the graphs of its experiments, through the whole of the network map."""

from __future__ import annotations

import pytest

from chappe.linkstate.settings import SECOND
from chappe.linkstate.units import VertexId
from tests.support.linkstates import LinkStates

FIGURE_17 = {
    ("1", "2"): 1.0, ("1", "3"): 1.0, ("2", "10"): 1.0, ("2", "11"): 1.0, ("3", "12"): 1.0, ("3", "21"): 1.0,
    ("11", "12"): 3.0, ("10", "20"): 1.0, ("20", "21"): 1.0, ("21", "30"): 1.0,
}  # fmt: skip
TABLES_3_TO_5 = (
    ({}, {"2": "2/1", "3": "3/1", "10": "2/2", "11": "2/2", "12": "3/2", "20": "2/3", "21": "3/2", "30": "3/3"}),
    (
        {("3", "12"): 3.0, ("11", "12"): 1.0},
        {"2": "2/1", "3": "3/1", "10": "2/2", "11": "2/2", "12": "2/3", "20": "2/3", "21": "3/2", "30": "3/3"},
    ),
    (
        {("1", "2"): 3.0},
        {"2": "2/3", "3": "3/1", "10": "2/4", "11": "2/4", "12": "3/4", "20": "3/3", "21": "3/2", "30": "3/3"},
    ),
)


class Network:
    """A cluster with the links of a table, each measured by both ends."""

    def __init__(self, costs: dict[tuple[str, str], float]) -> None:
        names = sorted({name for pair in costs for name in pair})
        self.mesh = LinkStates(dict.fromkeys(names, ""))
        self.links = {pair: self.mesh.connect(*pair) for pair in costs}
        self.mesh.settle()
        self.mesh.use()
        self.cost(costs)

    def cost(self, costs: dict[tuple[str, str], float]) -> None:
        """Links cost that now; hold-down is over before the next change."""
        for pair, cost in costs.items():
            self.mesh.measure(self.links[pair], cost)
        self.mesh.run(4 * SECOND)
        self.mesh.use()

    def route(self, source: str, target: str) -> tuple[str, float]:
        """Names along the way, and its cost."""
        route = self.mesh.nodes[source].routes.route("default", VertexId(0, target))
        assert route is not None
        return "-".join((source, *(vertex_id.name for vertex_id in route.vertex_ids))), round(route.cost, 9)


@pytest.mark.spec("MR-122")
@pytest.mark.spec("MR-116")
def test_tables_3_to_5_with_all_their_24_entries() -> None:
    network = Network(FIGURE_17)
    for changes, table in TABLES_3_TO_5:
        network.cost(changes)
        found = {}
        for target in table:
            way, cost = network.route("1", target)
            found[target] = f"{way.split('-')[1]}/{cost:g}"
        assert found == table


@pytest.mark.parametrize("third", [("11", "20", 1.0), ("2", "20", 2.0)])
def test_the_other_graphs_that_fit_give_the_first_table_too(third: tuple[str, str, float]) -> None:
    costs = {pair: cost for pair, cost in FIGURE_17.items() if pair != ("10", "20")} | {third[:2]: third[2]}
    network = Network(costs)
    assert {target: network.route("1", target)[1] for target in TABLES_3_TO_5[0][1]} == {
        target: float(entry.split("/")[1]) for target, entry in TABLES_3_TO_5[0][1].items()
    }


@pytest.mark.spec("MR-123")
def test_table_6_four_brokers() -> None:
    network = Network({("1", "2"): 44.5, ("1", "3"): 1.6, ("2", "4"): 41.2, ("3", "4"): 1.4})
    assert network.route("1", "4") == ("1-3-4", 3.0)
    # Between 44.5 direct and 44.2 over three hops the source's mesh kept switching: here what is in use stays.
    assert network.route("1", "2") == ("1-2", 44.5)
    rows = {row.name: row for row in network.mesh.nodes["1"].routes.explain("default", VertexId(0, "2"))}
    assert rows["best"].route.cost == pytest.approx(44.2)
    assert "better by 0.3, less than the 2.2" in rows["best"].why
    network.cost({("1", "2"): 50.0})
    assert network.route("1", "2") == ("1-3-4-2", 44.2)
    network.cost({("1", "2"): 44.5})
    assert network.route("1", "2") == ("1-3-4-2", 44.2)
    assert network.route("2", "3") == ("2-4-3", 42.6)


@pytest.mark.spec("MR-123")
def test_table_7_five_brokers() -> None:
    network = Network({
        ("1", "2"): 39.5, ("1", "3"): 43.8, ("2", "3"): 2.1, ("2", "4"): 1.1, ("2", "5"): 2.2, ("3", "4"): 1.9,
        ("4", "5"): 1.8,
    })  # fmt: skip
    assert [network.route("1", target) for target in "2345"] == [
        ("1-2", 39.5), ("1-2-3", 41.6), ("1-2-4", 40.6), ("1-2-5", 41.7),
    ]  # fmt: skip


@pytest.mark.spec("MR-123")
def test_table_8_six_brokers_with_the_corrected_row() -> None:
    network = Network({
        ("2", "1"): 102.0, ("2", "3"): 1.2, ("2", "6"): 52.0, ("3", "1"): 99.0, ("3", "4"): 30.0, ("5", "4"): 29.0,
        ("5", "6"): 50.0,
    })  # fmt: skip
    assert network.route("6", "1") == ("6-2-3-1", 152.2)
    assert [network.route("5", target) for target in "123"] == [("5-4-3-1", 158.0), ("5-4-3-2", 60.2), ("5-4-3", 59.0)]
    rows = network.mesh.nodes["6"].routes.explain("default", VertexId(0, "1"))
    assert rows[0].route.cost == pytest.approx(152.2)
    others = [row for row in rows if row.name == "next best"]
    assert others[0].route.cost == pytest.approx(154.0), "over CGL1 directly"
