"""Functions whose inputs are in another cloud: passed to the leaf that has them, answered, repeated, removed."""

from __future__ import annotations

from typing import Any

import pytest

from chappe.wire.base import Done, Failed, Message
from chappe.wire.management import Condense, Function, Granted, Input, Issued, Place, Uncondense, Withdrawn
from tests.support.forest import Forest
from tests.support.tree import THREE_LEVELS, TWO_CLOUDS


def total(*inputs: str, **fields: Any) -> Function:
    names = tuple(Input(publisher, variable) for publisher, variable in (name.split("/") for name in inputs))
    return Function(**{"publisher": "sums", "variable": "total", "calculator": "builtin:sum", **fields}, inputs=names)


def ask(forest: Forest, edge: str, function: Function, creator: str = "creator") -> int:
    router = forest.router(edge)
    return router.condense(router.entities.get(creator) or router.attach(creator), function)


def condense(forest: Forest, edge: str, function: Function, creator: str = "creator") -> Message:
    request = ask(forest, edge, function, creator)
    forest.plane.settle()
    return forest.router(edge).answers[request]


def remove(forest: Forest, edge: str, creator: str = "creator") -> int:
    router = forest.router(edge)
    return router.uncondense(router.entities.get(creator) or router.attach(creator), "sums/total")


def uncondense(forest: Forest, edge: str, creator: str = "creator") -> Message:
    request = remove(forest, edge, creator)
    forest.plane.settle()
    return forest.router(edge).answers[request]


def placed(forest: Forest) -> dict[str, list[int]]:
    """Functions by the router that runs them."""
    return {name: list(router.functions) for name, router in forest.plane.routers.items() if router.functions}


def refusal(answer: Message) -> tuple[str, str]:
    assert isinstance(answer, Failed), answer
    return answer.code, answer.reason


def restart(forest: Forest, role: str) -> None:
    forest.plane.kill(role)
    forest.plane.start(role)


@pytest.fixture
def two() -> Forest:
    """Both inputs are in the north."""
    forest = Forest(TWO_CLOUDS)
    forest.publish("n1", "west/power")
    forest.publish("N2", "east/power")
    return forest


@pytest.fixture
def three() -> Forest:
    """Both inputs are in w1."""
    forest = Forest(THREE_LEVELS)
    forest.publish("a1", "west/power")
    forest.publish("A2", "east/power")
    return forest


@pytest.mark.spec("GS-134")
def test_a_function_is_placed_in_the_cloud_of_its_inputs_and_its_output_is_read_in_the_creators(two: Forest) -> None:
    issued = condense(two, "s1", total("west/power", "east/power", place="N3"))
    assert isinstance(issued, Issued)
    assert placed(two) == {"N3": [issued.variable_id]}
    (row,) = two.leaf("north").rows("functions")
    assert (row["creator"], row["home"], row["router"]) == ("creator", "south", "N3")
    assert not two.leaf("south").rows("functions")
    assert two.inner("root").parts.claims.cloud("sums") == "north"
    granted = two.granted("s1", "sums/total")
    assert isinstance(granted, Granted)
    assert granted.variable.variable_id == issued.variable_id
    two.check()


@pytest.mark.spec("GS-134")
@pytest.mark.parametrize("edge", ["b1", "d1"])
def test_three_levels_pass_a_request_up_to_whoever_knows_the_inputs_and_down_through_those_between(
    three: Forest, edge: str
) -> None:
    three.plane.trace.clear()
    issued = condense(three, edge, total("west/power", "east/power"))
    assert isinstance(issued, Issued)
    assert three.leaf("w1").rows("functions")
    way = [(source, target) for source, target, message in three.plane.trace if isinstance(message, Condense)]
    assert (
        way
        == {
            "b1": [("b1", "w2"), ("w2", "west"), ("west", "w1")],
            "d1": [("d1", "e2"), ("e2", "east"), ("east", "root"), ("root", "west"), ("west", "w1")],
        }[edge]
    )
    back = [(source, target) for source, target, message in three.plane.trace if isinstance(message, Issued)]
    assert back == [(target, source) for source, target in reversed(way)]
    three.check()


@pytest.mark.spec("GS-136")
@pytest.mark.parametrize("edge", ["b1", "d1"])
def test_only_its_creator_removes_a_function_of_another_cloud(three: Forest, edge: str) -> None:
    condense(three, edge, total("west/power", "east/power"))
    assert isinstance(three.granted("c1", "sums/total"), Granted)
    for other in ("a1", "b1", "c1", "d1"):
        code, reason = refusal(uncondense(three, other, "somebody"))
        assert (code, "belongs to 'creator'" in reason) == ("denied", True)
    assert len(placed(three)) == 1
    three.router(edge).detach("creator")
    three.router(edge).attach("creator", session="2")  # it has restarted: its function is still there
    three.plane.settle()
    assert len(placed(three)) == 1
    assert isinstance(uncondense(three, edge), Done)
    assert placed(three) == {}
    three.plane.advance(1)
    assert [type(notice) for notice in three.router("c1").notices] == [Withdrawn]
    assert three.tables() == {}
    assert three.inner("root").parts.claims.cloud("sums") == ""
    assert refusal(uncondense(three, edge)) == ("unknown", "there is no function sums/total")
    three.check()


@pytest.mark.spec("GS-134")
@pytest.mark.parametrize(
    ("function", "code", "words"),
    [
        (total("west/power", "nobody/power"), "unknown", "nobody publishes nobody/power; correct the names"),
        (total("west/power", "west/nothing"), "unknown", "nobody publishes west/nothing in cloud w1"),
        (total("west/power", trigger="never"), "invalid", "never"),
        (total("west/power", publisher="away"), "exists", "away belongs to the cloud e1"),
        (total("west/power", publisher="here"), "exists", "here belongs to the cloud e2"),
        (total("east/power", publisher="west", variable="power"), "exists", "west/power exists"),
        (total("west/power", "sums/total"), "invalid", "compute its output from itself"),
    ],
)
def test_a_function_that_cannot_be_is_refused_with_what_to_do_and_changes_nothing(
    three: Forest, function: Function, code: str, words: str
) -> None:
    for edge, name in (("b1", "far/power"), ("c1", "away/power"), ("d1", "here/power")):
        three.publish(edge, name)
    claims = dict(three.inner("root").parts.claims.items)
    said, reason = refusal(condense(three, "d1", function))
    assert said == code
    assert words in reason
    assert placed(three) == {}
    assert three.inner("root").parts.claims.items == claims
    assert not three.leaf("w1").rows("functions")
    three.check()


def test_a_router_that_refuses_leaves_the_name_to_others(three: Forest) -> None:
    three.router("a1").refuses.add(Place)
    three.publish("a1", "west/current")
    code, reason = refusal(condense(three, "d1", total("west/power", "west/current")))
    assert (code, "a1 refuses the function" in reason) == ("invalid", True)
    three.plane.settle()
    assert three.inner("root").parts.claims.cloud("sums") == ""
    assert three.publish("d1", "sums/total")
    three.check()


@pytest.mark.spec("GS-134")
def test_the_same_request_gets_the_same_answer_also_without_its_inputs_and_from_another_cloud(three: Forest) -> None:
    function = total("west/power", "east/power")
    first = condense(three, "d1", function)
    assert isinstance(first, Issued)
    assert condense(three, "b1", function) == Issued(id=1, variable_id=first.variable_id, place="w1/A2")
    code, reason = refusal(condense(three, "d1", function, "somebody"))
    assert (code, "sums/total exists" in reason) == ("exists", True)
    other = total("west/power", "east/power", calculator="builtin:max")
    assert refusal(condense(three, "d1", other))[0] == "exists"
    three.router("a1").detach("west")
    three.router("a1").attach("west", session="2")  # it has restarted and publishes nothing yet
    three.plane.settle()
    again = condense(three, "d1", function)
    assert isinstance(again, Issued)
    assert again.variable_id == first.variable_id
    assert refusal(condense(three, "d1", other))[0] == "unknown"
    assert len(placed(three)) == 1
    three.check()


def test_without_a_parent_it_is_unavailable_and_so_without_the_leaf_that_has_the_inputs(three: Forest) -> None:
    function = total("west/power", "east/power")
    three.plane.cut("e2", "east")
    for answer in (condense(three, "d1", function), uncondense(three, "d1")):
        code, reason = refusal(answer)
        assert (code, "no broker above it can be reached" in reason) == ("unavailable", True)
    three.plane.heal("e2", "east")
    three.plane.settle()
    three.plane.cut("east", "root")
    assert refusal(condense(three, "d1", function))[0] == "unavailable"
    three.plane.heal("east", "root")
    three.plane.settle()
    three.plane.cut("w1", "west")
    for answer in (condense(three, "d1", function), condense(three, "b1", function)):
        assert refusal(answer)[0] == "unavailable"
    three.plane.heal("w1", "west")
    three.plane.settle()
    assert isinstance(condense(three, "d1", function), Issued)
    three.check()


@pytest.mark.parametrize("role", ["e2", "east", "root", "west", "w1"])
def test_any_broker_on_the_way_that_restarts_at_any_time_does_no_harm(role: str) -> None:
    function = total("west/power", "east/power")
    for steps in range(0, 60, 3):
        forest = Forest(THREE_LEVELS, choose=steps)
        forest.publish("a1", "west/power")
        forest.publish("A2", "east/power")
        request = ask(forest, "d1", function)
        for _ in range(steps):
            forest.plane.step()
        restart(forest, role)
        forest.plane.advance(4)
        answer = forest.router("d1").answers[request]
        if isinstance(answer, Failed):
            assert answer.code == "unavailable", (steps, answer)
            answer = condense(forest, "d1", function)
        assert isinstance(answer, Issued), (steps, answer)
        assert [number for found in placed(forest).values() for number in found] == [answer.variable_id], steps
        removal = remove(forest, "d1")
        for _ in range(steps // 3):
            forest.plane.step()
        restart(forest, role)
        forest.plane.advance(4)
        gone = forest.router("d1").answers[removal]
        if isinstance(gone, Failed) and gone.code == "unavailable":
            gone = uncondense(forest, "d1")
        assert isinstance(gone, Done) or gone.code == "unknown", (steps, gone)  # type: ignore[attr-defined]
        assert placed(forest) == {}, steps
        forest.plane.advance(1)
        assert forest.inner("root").parts.claims.cloud("sums") == "", steps
        forest.check()


@pytest.mark.spec("GS-136")
def test_a_function_of_another_cloud_survives_both_leaves(three: Forest) -> None:
    issued = condense(three, "d1", total("west/power", "east/power"))
    assert isinstance(issued, Issued)
    for role in ("e2", "w1"):
        restart(three, role)
        three.plane.advance(4)
        assert [number for found in placed(three).values() for number in found] == [issued.variable_id]
    (row,) = three.leaf("w1").rows("functions")
    assert (row["creator"], row["home"]) == ("creator", "e2")
    assert isinstance(uncondense(three, "d1"), Done)
    assert placed(three) == {}


def test_a_broker_that_never_answers_is_given_up(three: Forest) -> None:
    request = ask(three, "d1", total("west/power", "east/power"))
    three.plane.pause("w1")
    three.plane.advance(40)
    code, reason = refusal(three.router("d1").answers[request])
    assert (code, "ask again whether it was done" in reason) == ("unavailable", True)
    three.plane.resume("w1")
    three.plane.settle()
    assert isinstance(condense(three, "d1", total("west/power", "east/power")), Issued)
    assert len(placed(three)) == 1
    three.check()


def test_a_circle_of_functions_is_refused_even_if_one_of_them_has_no_input_now(two: Forest) -> None:
    first = total("west/power", "east/power")
    middle = total("sums/total", variable="middle")
    last = total("sums/middle", variable="last")
    for function in (first, middle, last):
        assert isinstance(condense(two, "s1", function), Issued)
    assert isinstance(uncondense(two, "s1"), Done)
    code, reason = refusal(condense(two, "s1", total("west/power", "sums/last")))
    assert code == "invalid"
    assert "sums/total of sums/middle of sums/last of sums/total" in reason
    assert isinstance(condense(two, "s1", first), Issued)
    two.plane.settle()
    assert len(two.leaf("north").rows("functions")) == 3
    two.check()


def test_requests_of_brokers_name_the_leaf_and_the_creators_cloud_but_no_session(two: Forest) -> None:
    two.plane.trace.clear()
    condense(two, "s1", total("west/power", "east/power"))
    uncondense(two, "s1")
    passed = [(message.cloud, message.entity.issuer if message.entity else None)
              for source, target, message in two.plane.trace
              if isinstance(message, Condense | Uncondense) and source in ("root", "south")]  # fmt: skip
    assert passed == [("", b""), ("north", b"")] * 2


def test_a_leaf_that_is_asked_by_its_own_ancestors_does_not_pass_the_request_up_again(three: Forest) -> None:
    three.plane.trace.clear()
    code, reason = refusal(condense(three, "a1", total("west/power", "west/nothing")))
    assert (code, "nobody publishes west/nothing in cloud w1" in reason) == ("unknown", True)
    way = [(source, target) for source, target, message in three.plane.trace if isinstance(message, Condense)]
    assert way == [("a1", "w1"), ("w1", "west"), ("west", "w1")]
