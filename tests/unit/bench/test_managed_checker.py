"""The checker of `bench managed` finds what it is there to find."""

from __future__ import annotations

import random

import pytest

from bench.managed.checker import ModeHistory, Reachability, disjoint, hops, loads, overloads
from bench.managed.plan import topology, workload
from chappe.wire.base import Variable
from chappe.wire.management import Path

MS = 1_000_000
SLOW = Variable(1, "plant", "v", "float", 1, 1000 * MS, 3, 0)
OTHER = Variable(2, "plant", "w", "float", 1, 500 * MS, 3, 0)


def path(number: int, source: str, target: str, variable: Variable = SLOW, intervals: tuple[int, ...] = (0,),
         modes: int = 0xFFFF) -> Path:  # fmt: skip
    return Path(variable, number, source, target, intervals, (3,), modes)


def table(*paths: Path) -> dict[tuple[int, int], Path]:
    return {(each.variable.variable_id, each.path): each for each in paths}


def test_a_channel_carries_the_fastest_path_of_each_variable() -> None:
    tables = {"a": table(path(1, "", "b"), path(2, "", "b", intervals=(4000 * MS,)), path(1, "", "b", OTHER))}
    assert loads(tables)["a", "b"] == [24.0 + 48.0] * 16
    assert overloads(tables, lambda one, other: 72.0) == []
    found = overloads(tables, lambda one, other: 71.0)
    assert [(each.source, each.target, each.bytes_per_s) for each in found] == [("a", "b", 72.0)]


def test_an_overload_in_one_mode_alone_is_found() -> None:
    fast_in_five = tuple(500 * MS if mode == 5 else 4000 * MS for mode in range(16))
    tables = {"a": table(path(1, "", "b", OTHER, fast_in_five))}
    assert [each.mode for each in overloads(tables, lambda one, other: 20.0)] == [5]


@pytest.mark.parametrize(
    ("onward", "two"),
    [
        ({"a": ["b", "c"], "b": ["d"], "c": ["d"]}, True),
        ({"a": ["b", "c"], "b": ["x"], "c": ["x"], "x": ["d"]}, False),  # both through x
        ({"a": ["b"], "b": ["d"]}, False),
        ({"a": ["d", "b"], "b": ["d"]}, True),
        ({"a": ["d"]}, False),
        ({"a": ["b", "c"], "b": ["d"]}, False),
        ({"a": ["b", "c"], "b": ["e"], "c": ["b", "f"], "e": ["d"], "f": ["d"]}, True),
    ],
)
def test_two_paths_are_disjoint_if_no_router_separates_the_ends(onward: dict[str, list[str]], two: bool) -> None:
    assert disjoint(onward, "a", "d") is two


def test_hops_are_read_from_the_tables() -> None:
    tables = {"a": table(path(1, "", "b"), path(2, "", "c")), "b": table(path(1, "a", "d")),
              "c": table(path(2, "a", "d")), "d": table(path(1, "b", ""), path(2, "c", ""))}  # fmt: skip
    assert disjoint(hops(tables)[1], "a", "d")
    tables["c"] = table(path(2, "a", "b"))
    assert not disjoint(hops(tables)[1], "a", "d")


class World:
    """Four routers with two disjoint paths for variable 1, and what failed when."""

    def __init__(self) -> None:
        self.tables = {
            "a": {(1, 1): (path(1, "", "b"), 0), (1, 2): (path(2, "", "c"), 0)},
            "b": {(1, 1): (path(1, "a", "d"), 0)},
            "c": {(1, 2): (path(2, "a", "d"), 0)},
            "d": {(1, 1): (path(1, "b", ""), 0), (1, 2): (path(2, "c", ""), 0)},
        }
        self.routers: dict[str, tuple[int, int]] = {}
        self.channels: dict[frozenset[str], tuple[int, int]] = {}
        self.modes = ModeHistory()
        self.reachability = Reachability(
            lambda name, number: [each for (of, _), each in self.tables[name].items() if of == number],
            lambda name, start, end: _meet(self.routers.get(name), start, end),
            lambda one, other, start, end: _meet(self.channels.get(frozenset((one, other))), start, end),
            self.modes.in_force,
        )

    def intact(self, at_ns: int = 100) -> bool:
        return self.reachability.intact(1, "d", 1000 * MS, at_ns, 10)


def _meet(span: tuple[int, int] | None, start: int, end: int) -> bool:
    return span is not None and span[0] <= end and span[1] >= start


def test_one_failure_explains_nothing_and_one_on_each_path_does() -> None:
    world = World()
    assert world.intact()
    world.routers["b"] = (50, 150)
    assert world.intact()
    world.channels[frozenset("cd")] = (105, 106)
    assert not world.intact()
    assert world.intact(200)


def test_a_path_for_slower_subscribers_is_no_path() -> None:
    world = World()
    world.channels[frozenset("ab")] = (0, 1000)
    assert world.intact()
    world.tables["c"][1, 2] = (path(2, "a", "d", intervals=(2000 * MS,)), 0)
    assert not world.intact()


def test_a_path_of_another_mode_is_no_path_and_while_modes_change_it_needs_both() -> None:
    world = World()
    world.channels[frozenset("ab")] = (0, 1000)
    world.tables["c"][1, 2] = (path(2, "a", "d", modes=0b10), 0)
    assert not world.intact(100)
    world.modes.requested(1, 200)
    assert not world.intact(250)
    world.modes.answered(300)
    assert world.intact(350)
    world.tables["c"][1, 2] = (path(2, "a", "d", modes=0b11), 0)
    assert all(world.intact(at) for at in (100, 250, 350))
    world.modes.requested(0, 400)
    world.tables["c"][1, 2] = (path(2, "a", "d", modes=0b01), 0)
    assert not world.intact(450)
    world.modes.answered(500)
    assert world.intact(550)


def test_a_table_that_was_not_filled_yet_explains_a_loss() -> None:
    world = World()
    world.channels[frozenset("ab")] = (0, 1000)
    world.tables["c"][1, 2] = (path(2, "a", "d"), 120)
    assert not world.intact(100)
    assert world.intact(130)


def test_the_plan_has_two_disjoint_paths_between_any_two_routers_of_a_cloud() -> None:
    deployed = topology(60, random.Random(3))
    around: dict[str, list[str]] = {}
    for channel in deployed.channel:
        one, other = channel.between
        around.setdefault(one, []).append(other)
        around.setdefault(other, []).append(one)
    wishes = workload(deployed, random.Random(3))
    assert len(wishes) == 60 * 20
    assert len({(wish.edge, wish.publisher, wish.variable) for wish in wishes}) == len(wishes)
    for wish in wishes[:200]:
        assert disjoint(around, wish.publisher.removeprefix("plant."), wish.edge)
