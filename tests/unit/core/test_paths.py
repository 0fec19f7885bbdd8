"""The paths that brokers set: inputs counted, changed in place, all or none, and nothing left after the last."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chappe.core.paths import PathError, PathTable
from chappe.core.variables import Variables
from chappe.engine._engine import Engine
from chappe.wire.control import Variable
from chappe.wire.management import Path
from tests.support.decisions import decide

LINKS = ("west", "east", "north")
NOW = 1_000_000_000
MS = 1_000_000


def speed(number: int = 5, rate: tuple[int, int] = (1, MS)) -> Variable:
    return Variable(number, "plant", f"v{number}", "float", *rate, 3, 0)


def hop(number: int, source: str, target: str, interval: int = 0, variable: Variable | None = None) -> Path:
    return Path(variable or speed(), number, source, target, (interval,), (3,), 0xFFFF)


class Router:
    """A table with links and no socket."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.ports = {name: self.engine.open_port(peer=True, retain=True) for name in LINKS}
        self.variables = Variables(self.engine, 3, (), self.ports.get, 60 * NOW)
        self.table = PathTable(self.engine, self.variables, self.ports.get)

    def describe(self, number: int = 5) -> dict[str, Any]:
        return self.engine.status.describe(number)

    def inputs(self, number: int = 5) -> set[str]:
        names = {port: name for name, port in self.ports.items()}
        return {names[port] for port in self.describe(number)["inputs"]}

    def decides(self, source: str, created: int, number: int = 5) -> tuple[str, set[str]]:
        """What happens to an event that comes from a link, and where it goes."""
        record = struct.pack(">QIB3xd", created, number, 0, 1.0)
        verdict, taken, _ = decide(self.engine, self.ports[source], record, created)
        return verdict, {name for name, port in self.ports.items() if port in {target for target, _ in taken}}

    @property
    def empty(self) -> bool:
        return self.table.empty and self.engine.status.entries() == 0 and len(self.variables.directory) == 0


def shape(router: Router, number: int) -> dict[str, Any]:
    described = router.describe(number)
    return {**described, "paths": sorted(described["paths"].values())}


@pytest.fixture
def router() -> Router:
    return Router()


def test_an_input_is_permitted_as_long_as_a_path_comes_from_there(router: Router) -> None:
    router.table.setup([hop(1, "west", "east"), hop(2, "west", "north"), hop(3, "north", "")])
    assert router.inputs() == {"west", "north"}
    router.table.teardown([(5, 1)], NOW)
    assert router.inputs() == {"west", "north"}
    router.table.teardown([(5, 2)], NOW)
    assert router.inputs() == {"north"}
    assert router.decides("west", 1)[0] == "NOT_PERMITTED"
    router.table.teardown([(5, 3)], NOW)
    assert router.empty


@pytest.mark.spec("GS-069")
def test_a_variable_without_a_path_is_dropped_at_the_first_hop(router: Router) -> None:
    assert router.decides("west", 1) == ("UNKNOWN", set())
    only = Path(speed(), 1, "west", "east", (0,), (3,), 0b10)
    router.table.setup([only])
    assert router.decides("west", 1) == ("NOT_IN_MODE", set())
    router.engine.status.slot = 1
    assert router.decides("west", 2) == ("FORWARD", {"east"})


@pytest.mark.spec("GS-073")
def test_a_path_is_moved_and_slowed_down_in_place(router: Router) -> None:
    router.table.setup([hop(1, "west", "east")])
    router.table.setup([hop(1, "west", "north", 4 * MS)])
    assert [router.decides("west", at * MS)[1] for at in range(4, 9)] == [{"north"}, set(), set(), set(), {"north"}]
    router.table.setup([hop(1, "east", "")])
    assert (router.inputs(), router.describe()["paths"]) == ({"east"}, {})
    router.table.setup([hop(1, "east", "west", 4 * MS, speed(rate=(1, 2 * MS)))])
    assert router.describe()["modes"][0] == {router.ports["west"]: {"intervals": [2], "class": 2}}
    router.table.teardown([(5, 1)], NOW)
    assert router.empty


@pytest.mark.parametrize(
    "bad",
    [
        hop(9, "west", "nowhere"),
        hop(9, "west", "east", variable=Variable(6, "p", "v", "int", 1, 0, 3, 0)),
        hop(9, "west", "east", variable=Variable(5, "another", "name", "int", 1, 1, 3, 0)),
        hop(9, "west", "east", 1 << 62, speed(rate=(1, 1))),
        Path(speed(), 9, "west", "east", (0,), (9,), 0xFFFF),
    ],
)
def test_one_bad_path_and_none_is_set(router: Router, bad: Path) -> None:
    router.table.setup([hop(1, "west", "east", 2 * MS)])
    before = shape(router, 5)
    fresh = hop(1, "north", "east", variable=speed(7))
    with pytest.raises(PathError, match=r"p|v"):
        router.table.setup([hop(1, "north", "", 4 * MS), hop(2, "west", "north"), fresh, bad])
    assert (shape(router, 5), router.engine.status.entries(), len(router.table)) == (before, 1, 1)
    assert router.variables.directory.numbered(5).variable == speed()  # type: ignore[union-attr]
    assert router.variables.directory.named("plant", "v7") is None
    router.table.teardown([(5, 1)], NOW)
    assert router.empty


def test_a_flooded_variable_stays_until_it_is_neither_flooded_nor_routed(router: Router) -> None:
    router.table.flood(speed(), (1,) * 16, NOW)
    router.table.setup([hop(1, "west", "east")])
    router.table.teardown([(5, 1)], NOW)
    assert router.describe()["flooding"][3] == 1
    router.table.flood(speed(), (0,) * 16, NOW)
    assert router.empty


@pytest.mark.spec("GS-104")
def test_no_event_of_a_subscription_is_lost_when_flooding_begins_and_ends(router: Router) -> None:
    for name, level in (("west", 1), ("north", 1)):
        router.engine.status.set_level(router.ports[name], level)
    router.table.setup([hop(1, "west", "east")])
    got = []
    for at in range(9):
        if at == 3:
            router.table.flood(speed(), (1,) * 16, NOW)
        if at == 6:
            router.table.flood(speed(), (0,) * 16, NOW)
        got.append(router.decides("west", (at + 1) * MS)[1] - {"west"})
    assert got == [{"east"}] * 3 + [{"east", "north"}] * 3 + [{"east"}] * 3


def test_reset_leaves_nothing_but_what_clients_have(router: Router) -> None:
    own = router.engine.open_port(issuer=bytes(16))
    published = Variable(8, "plant", "own", "float", 1, MS, 3, 0)
    router.variables.register(own, "meter", published)
    router.table.setup([hop(1, "", "east", variable=published), hop(1, "west", "east"), hop(2, "west", "")])
    router.table.flood(speed(6), (2,) * 16, NOW)
    router.table.place(speed(7))
    router.table.reset(NOW)
    assert (router.table.empty, router.engine.status.entries()) == (True, 1)
    assert router.describe(8)["paths"] == {}
    assert router.describe(8)["inputs"] == [own]


def test_paths_that_agree_are_one_in_the_engine_until_the_last_is_gone(router: Router) -> None:
    router.table.setup([hop(path, "west", "east", 2 * MS) for path in range(1, 100)])
    router.table.setup([hop(100, "north", "east", 3 * MS)])
    assert len(router.describe()["paths"]) == 2
    router.table.teardown([(5, path) for path in range(1, 99)], NOW)
    assert router.decides("west", 2 * MS) == ("FORWARD", {"east"})
    router.table.setup([hop(99, "west", "east", 3 * MS)])
    assert len(router.describe()["paths"]) == 1
    router.table.teardown([(5, 99), (5, 100)], NOW)
    assert router.empty


def test_a_link_that_is_removed_takes_its_paths_along(router: Router) -> None:
    router.table.setup([hop(1, "west", "east"), hop(2, "north", "west"), hop(3, "north", "east")])
    router.table.port_gone(router.ports["west"], NOW)
    assert [row["path"] for row in router.table.rows()] == [3]
    assert router.inputs() == {"north"}


paths = st.builds(
    hop, st.integers(1, 3), st.sampled_from(["", *LINKS]), st.sampled_from(["", *LINKS]),
    st.sampled_from([0, 2 * MS, 3 * MS]), st.integers(5, 6).map(speed),
).filter(lambda path: not path.source or path.source != path.target)  # fmt: skip
steps = st.lists(
    st.one_of(
        st.lists(paths, min_size=1, max_size=4),
        st.lists(st.tuples(st.integers(5, 6), st.integers(1, 3)), min_size=1, max_size=4),
    ),
    max_size=12,
)


@settings(max_examples=100, deadline=None)
@given(steps)
def test_the_engine_holds_what_a_table_built_at_once_would_hold(steps: list[Any]) -> None:
    router, expected = Router(), {}
    for step in steps:
        if isinstance(step[0], Path):
            router.table.setup(step)
            expected.update({(path.variable.variable_id, path.path): path for path in step})
        else:
            router.table.teardown(step, NOW)
            for key in step:
                expected.pop(key, None)
    fresh = Router()
    fresh.table.setup(list(expected.values()))
    numbers = fresh.engine.status.variables(0, 10)
    assert router.engine.status.variables(0, 10) == numbers
    assert [shape(router, number) for number in numbers] == [shape(fresh, number) for number in numbers]
    router.table.teardown(list(expected), NOW)
    assert router.empty
