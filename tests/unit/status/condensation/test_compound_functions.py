"""Functions over inputs of several clouds: one of them runs it, others may compute their part (GS-139)."""

from __future__ import annotations

import pytest

from chappe.wire.base import Done
from chappe.wire.management import ChangeMode, Function, Granted, Issued, Place
from tests.support.forest import Forest
from tests.support.tree import THREE_LEVELS, TWO_CLOUDS, deployment
from tests.unit.status.inner.test_functions import ask, condense, placed, refusal, remove, restart, total, uncondense


@pytest.fixture
def two() -> Forest:
    """Two inputs in the north, three in the south."""
    forest = Forest(TWO_CLOUDS)
    for edge, name in (("n1", "na/p"), ("N2", "nb/p"), ("s1", "sa/p"), ("S2", "sb/p"), ("S3", "sc/p")):
        forest.publish(edge, name)
    return forest


ALL = ("na/p", "nb/p", "sa/p", "sb/p", "sc/p")


def runs(forest: Forest) -> dict[str, list[str]]:
    """Calculator and inputs of what each router runs."""
    return {
        name: [
            f"{place.function.calculator}: {' '.join(f'{each.publisher}/{each.variable}' for each in place.inputs)}"
            for place in router.functions.values()
        ]
        for name, router in sorted(forest.plane.routers.items())
        if router.functions
    }


def rows(forest: Forest) -> list[tuple[str, str, str]]:
    found = []
    for role in forest.topology.leaves:
        found += [(row["cloud"], f"{row['publisher']}/{row['variable']}", row["router"])
                  for row in forest.leaf(role).rows("functions")]  # fmt: skip
    return found


@pytest.mark.spec("GS-139")
def test_the_cloud_with_most_inputs_combines_what_the_other_one_sends(two: Forest) -> None:
    issued = condense(two, "n1", total(*ALL))
    assert isinstance(issued, Issued), issued
    assert rows(two) == [("north", "sums@north/total", "N2"), ("south", "sums/total", "s1")]
    assert runs(two) == {
        "N2": ["builtin:sum: na/p nb/p"],
        "s1": ["builtin:sum: sums@north/total sa/p sb/p sc/p"],
    }
    [row] = two.leaf("south").rows("functions")
    assert (row["parts"], row["remote"]) == (["sums@north/total"], ["sums@north/total"])
    assert isinstance(two.granted("n1", "sums/total"), Granted)
    crossing = [f"{row['publisher']}/{row['variable']}" for row in two.inner("root").rows("subscriptions")]
    assert sorted(crossing) == ["sums/total", "sums@north/total"]
    two.check()


@pytest.mark.spec("GS-139")
def test_a_function_that_cannot_be_split_gets_every_input_of_the_other_cloud(two: Forest) -> None:
    assert isinstance(condense(two, "n1", total(*ALL, calculator="builtin:range")), Issued)
    assert rows(two) == [("south", "sums/total", "s1")]
    assert runs(two) == {"s1": ["builtin:range: na/p nb/p sa/p sb/p sc/p"]}
    assert len(two.inner("root").rows("subscriptions")) == 2
    two.check()


@pytest.mark.spec("GS-139")
@pytest.mark.parametrize("calculator", ["builtin:sum", "builtin:range"])
def test_a_removed_function_leaves_nothing_in_any_cloud(two: Forest, calculator: str) -> None:
    condense(two, "n1", total(*ALL, calculator=calculator))
    assert refusal(uncondense(two, "s1", "somebody"))[0] == "denied"
    assert isinstance(uncondense(two, "n1"), Done)
    two.plane.advance(2)
    assert (placed(two), rows(two), two.tables()) == ({}, [], {})
    assert two.inner("root").parts.claims.cloud("sums@north") == ""
    assert isinstance(condense(two, "s1", total(*ALL, calculator=calculator)), Issued)
    two.check()


@pytest.mark.spec("GS-139")
def test_the_wish_for_a_router_and_the_name_of_the_output_decide_before_the_inputs(two: Forest) -> None:
    assert isinstance(condense(two, "n1", total(*ALL, place="N3")), Issued)
    assert ("north", "sums/total", "N3") in rows(two)
    other = total(*ALL, variable="mean", calculator="builtin:mean")
    assert isinstance(condense(two, "n1", other), Issued)
    assert ("north", "sums/mean") in [row[:2] for row in rows(two)]  # the north has the name `sums`
    code, reason = refusal(condense(two, "n1", total(*ALL, publisher="more", place="X9")))
    assert (code, "there is no router X9 below root" in reason) == ("invalid", True)
    two.check()


@pytest.mark.spec("GS-139")
def test_three_levels_are_crossed_by_the_lowest_broker_that_knows_all_inputs() -> None:
    forest = Forest(THREE_LEVELS)
    for edge, name in (("a1", "a/p"), ("b1", "b/p"), ("B2", "bb/p"), ("d1", "d/p"), ("D2", "dd/p")):
        forest.publish(edge, name)
    assert isinstance(condense(forest, "c1", total("a/p", "b/p", "bb/p")), Issued)
    assert rows(forest) == [("w2", "sums/total", "B2")]
    far = total("a/p", "b/p", "bb/p", "d/p", "dd/p", publisher="all")
    assert isinstance(condense(forest, "c1", far), Issued)
    assert rows(forest)[1:] == [("w2", "all@w2/total", "B2"), ("e2", "all/total", "D2")]
    forest.check()


@pytest.mark.spec("GS-139")
@pytest.mark.parametrize(
    ("function", "code", "reason"),
    [
        (total("na/p", "sa/p", "x/p"), "unknown", "nobody publishes x/p"),
        (total("na/p", "sa/q"), "unknown", "south: nobody publishes sa/q here"),
        (total("na/p", "sa/p", calculator="builtin:any"), "invalid", "builtin:any cannot take na/p of type float"),
        (total("na/p", "sa/p", publisher="na", variable="p"), "exists", "na/p exists"),
    ],
)
def test_what_cannot_be_is_refused_with_its_reason(two: Forest, function: Function, code: str, reason: str) -> None:
    found, why = refusal(condense(two, "n1", function))
    assert (found, reason in why) == (code, True), why
    two.plane.advance(2)
    assert (placed(two), rows(two), two.tables()) == ({}, [], {})


@pytest.mark.spec("GS-139")
def test_without_room_between_the_clouds_it_is_refused_and_nothing_stays() -> None:
    narrow = ("n1-N2", "n1-N3", "s1-S2", "s1-S3", "N2-S2", "N3-S3")
    tree = {"root": "", "north": "root", "south": "root"}
    clouds = {"north": ("n1", "N2", "N3"), "south": ("s1", "S2", "S3")}
    forest = Forest(deployment(tree, clouds, narrow, bytes_per_s=10_000))
    forest.publish("n1", "na/p", interval_ns=1_000_000)
    forest.publish("s1", "sa/p")
    forest.publish("s1", "sb/p")
    code, reason = refusal(condense(forest, "n1", total("na/p", "sa/p", "sb/p", calculator="builtin:range")))
    assert code == "capacity", reason
    assert "input na/p at" in reason
    forest.plane.advance(2)
    assert (placed(forest), rows(forest), forest.tables()) == ({}, [], {})


@pytest.mark.spec("GS-139")
def test_a_part_that_its_cloud_refuses_ends_the_whole(two: Forest) -> None:
    for name in ("n1", "N2", "N3"):
        two.router(name).refuses.add(Place)
    code, reason = refusal(condense(two, "s1", total(*ALL)))
    assert (code, "its part sums@north/total" in reason, "has no room" in reason) == ("invalid", True, True), reason
    two.plane.advance(2)
    assert (placed(two), rows(two), two.tables()) == ({}, [], {})


@pytest.mark.spec("GS-139")
def test_the_same_request_again_gets_the_same_answer(two: Forest) -> None:
    first, second = condense(two, "n1", total(*ALL)), condense(two, "s1", total(*ALL))
    assert isinstance(first, Issued)
    assert isinstance(second, Issued)
    assert first.variable_id == second.variable_id
    assert refusal(condense(two, "n1", total(*ALL), "somebody"))[0] == "exists"
    two.check()


@pytest.mark.spec("GS-139")
def test_an_input_that_is_withdrawn_comes_back_when_it_is_published_again(two: Forest) -> None:
    number = two.router("n1").entities["na"]
    condense(two, "s1", total(*ALL, calculator="builtin:range"))
    published = two.leaf("north").parts.registry.by_name["na", "p"].variable.variable_id
    two.router("n1").unpublish(number, published)
    two.plane.advance(3)
    assert len(two.inner("root").rows("subscriptions")) == 1
    assert placed(two) != {}, "the function goes on with the others"
    again = two.publish("N3", "na/p")
    two.plane.advance(3)
    assert len(two.inner("root").rows("subscriptions")) == 2
    [place] = [each for router in two.plane.routers.values() for each in router.functions.values()]
    assert place.inputs[0].variable_id == again
    two.check()


@pytest.mark.spec("GS-139")
@pytest.mark.parametrize("role", ["root", "north", "south"])
def test_it_goes_on_when_a_broker_is_replaced(two: Forest, role: str) -> None:
    condense(two, "n1", total(*ALL))
    before = runs(two)
    restart(two, role)
    two.plane.advance(5)
    assert runs(two) == before
    assert isinstance(condense(two, "s1", total(*ALL)), Issued)
    two.check()
    assert isinstance(uncondense(two, "n1"), Done)
    two.plane.advance(5)
    assert (placed(two), rows(two), two.tables()) == ({}, [], {})


@pytest.mark.spec("GS-139")
@pytest.mark.parametrize("role", ["root", "north", "south"])
@pytest.mark.parametrize("steps", range(0, 80, 3))
def test_a_broker_lost_on_the_way_leaves_all_or_nothing(two: Forest, role: str, steps: int) -> None:
    request = ask(two, "n1", total(*ALL))
    for _ in range(steps):
        two.plane.step()
    restart(two, role)
    two.plane.advance(60)
    answer = two.router("n1").answers.get(request)
    if not isinstance(answer, Issued):
        assert isinstance(condense(two, "n1", total(*ALL)), Issued)
    two.plane.advance(5)
    assert sorted(runs(two)) == ["N2", "s1"]
    two.check()


@pytest.mark.spec("GS-139")
@pytest.mark.parametrize("role", ["root", "north"])
def test_parts_end_although_their_broker_was_away_when_the_function_was_removed(two: Forest, role: str) -> None:
    condense(two, "s1", total(*ALL))
    two.plane.kill(role)
    request = remove(two, "s1")
    two.plane.advance(5)
    assert isinstance(two.router("s1").answers[request], Done)
    restart(two, "south")  # what is left to do is durable
    two.plane.start(role)
    two.plane.advance(10)
    assert (placed(two), rows(two), two.tables()) == ({}, [], {})


@pytest.mark.spec("GS-139")
def test_a_function_that_would_be_fed_by_itself_through_another_cloud_is_refused(two: Forest) -> None:
    assert isinstance(condense(two, "s1", total("na/p", "sa/p", "sb/p", calculator="builtin:range")), Issued)
    number = two.leaf("north").parts.registry.by_name["na", "p"].variable.variable_id
    two.router("n1").unpublish(two.router("n1").entities["na"], number)
    two.plane.advance(2)
    circle = total("nb/p", "sums/total", publisher="na", variable="p")  # what the first one is computed from
    code, reason = refusal(condense(two, "n1", circle))
    assert (code, "compute its output from itself" in reason) == ("invalid", True), reason
    assert isinstance(condense(two, "n1", total("nb/p", "sums/total", publisher="other")), Issued)
    two.check()


@pytest.mark.spec("GS-139")
def test_it_has_its_inputs_in_every_mode(two: Forest) -> None:
    condense(two, "n1", total(*ALL))
    paths = [path for router in two.plane.routers.values() for path in router.paths.values()]
    assert {path.modes for path in paths} == {0xFFFF}
    two.plane.operator("root").ask(ChangeMode, mode=3)
    two.plane.advance(5)
    assert {router.mode for router in two.plane.routers.values()} == {3}
    two.check()
