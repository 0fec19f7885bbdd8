"""For any sequence of table changes, mode switches and records, both layouts decide what the slow model decides."""

from __future__ import annotations

import struct

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.property.status_model import Model, Path
from tests.support.decisions import decide, engine_with

WALL_NS = 1_000
FAR_NS = 3_000_000_000

variables = st.sampled_from([1, 2, 1023, 1024, (3 << 22) | 7, 2**32 - 1])
ports = st.integers(0, 4)
numbers = st.integers(0, 5)
modes = st.integers(1, 0xFFFF)
rates = st.sampled_from([(1, 10), (2, 20), (3, 100), (7, 30), (1, 1), (1, 33), (5, 17), (0, 1), (0, 9)])
small_stamps = st.integers(-200, 200).map(lambda step: step * 5)
stamps = st.one_of(
    small_stamps, st.integers(-(10**4), 10**4), st.sampled_from([-(2**63), 2**63 - 1, 2**62, -(2**62), FAR_NS])
)
intervals = st.one_of(st.integers(0, 400), st.sampled_from([30, 60, 90, 180, 240, 630, 10**8]))
some_inputs = st.lists(ports, max_size=3)


def record(variable: int, created: int, options: int) -> bytes:
    return struct.pack(">qIB3xq", created, variable, options, created) + bytes([options]) * (24 * options)


class TablesAgree(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.model = Model()
        self.engines = [engine_with(5, layout) for layout in ("close", "sparse")]
        self.tables = [engine.status for engine in self.engines]

    @rule(variable=variables, rate=rates, inputs=st.one_of(st.none(), some_inputs))
    def set_variable(self, variable: int, rate: tuple[int, int], inputs: list[int] | None) -> None:
        self.model.set_variable(variable, *rate, inputs)
        for table in self.tables:
            table.set_variable(variable, *rate, inputs)

    @rule(
        port=ports,
        number=numbers,
        wanted=st.one_of(st.lists(intervals, min_size=1, max_size=1), st.lists(intervals, min_size=16, max_size=16)),
        priorities=st.one_of(
            st.lists(st.integers(0, 6), min_size=1, max_size=1), st.lists(st.integers(0, 6), min_size=16, max_size=16)
        ),
        mask=st.one_of(modes, st.just(0xFFFF)),
        data=st.data(),
    )
    @precondition(lambda self: self.model.variables)
    def setup_path(
        self, port: int, number: int, wanted: list[int], priorities: list[int], mask: int, data: st.DataObject
    ) -> None:
        variable = data.draw(st.sampled_from(sorted(self.model.variables)))
        self.model.variables[variable].paths[number] = Path(port, wanted, priorities, mask)
        for table in self.tables:
            table.setup_path(variable, port, number, wanted, priorities, mask)

    @rule(number=numbers, data=st.data())
    @precondition(lambda self: self.model.variables)
    def terminate_path(self, number: int, data: st.DataObject) -> None:
        variable = data.draw(st.sampled_from(sorted(self.model.variables)))
        there = self.model.variables[variable].paths.pop(number, None) is not None
        assert [table.terminate_path(variable, number) for table in self.tables] == [there, there]

    @rule(port=ports, add=st.booleans(), data=st.data())
    @precondition(lambda self: self.model.variables)
    def change_input(self, port: int, add: bool, data: st.DataObject) -> None:
        variable = data.draw(st.sampled_from(sorted(self.model.variables)))
        known = self.model.variables[variable]
        (known.inputs.add if add else known.inputs.discard)(port)
        known.renew_window()
        for table in self.tables:
            (table.add_input if add else table.remove_input)(variable, port)

    @rule(level=st.integers(0, 3), mask=modes, data=st.data())
    @precondition(lambda self: self.model.variables)
    def flood(self, level: int, mask: int, data: st.DataObject) -> None:
        variable = data.draw(st.sampled_from(sorted(self.model.variables)))
        known = self.model.variables[variable]
        known.levels = [level if mask >> mode & 1 else old for mode, old in enumerate(known.levels)]
        known.renew_window()
        for table in self.tables:
            if level:
                table.set_flooding(variable, level, mask)
            else:
                table.clear_flooding(variable, mask)

    @rule(port=ports, level=st.integers(0, 3))
    def set_level(self, port: int, level: int) -> None:
        self.model.levels[port] = level
        for table in self.tables:
            table.set_level(port, level)

    @rule(variable=variables)
    @precondition(lambda self: self.model.variables)
    def drop_variable(self, variable: int) -> None:
        if self.model.variables.pop(variable, None) is not None:
            for table in self.tables:
                table.drop_variable(variable)

    @rule(port=ports, count=st.integers(1, 3))
    def remove_port(self, port: int, count: int) -> None:
        self.model.remove_port(port)
        for table in self.tables:
            start = 0
            while start >= 0:
                start = table.remove_port(port, start, count)

    @rule(mode=st.integers(0, 15))
    def switch(self, mode: int) -> None:
        self.model.slot = mode
        for table in self.tables:
            table.slot = mode

    @rule(old=st.integers(0, 15), new=st.integers(0, 15), count=st.integers(1, 3))
    @precondition(lambda self: self.model.slot < 16)
    def change_mode(self, old: int, new: int, count: int) -> None:
        self.model.pair, self.model.slot = (old, new), 16
        for table in self.tables:
            start = 0
            while start >= 0:
                start = table.prepare(old, new, start, count)
            table.slot = 16

    @rule(variable=variables, port=ports, created=stamps, options=st.integers(0, 2))
    def decide(self, variable: int, port: int, created: int, options: int) -> None:
        whole = record(variable, created, options)
        verdict, passed, failed = self.model.decide(port, variable, created, WALL_NS, whole)
        others = [[item for item in items if item[0] != port] for items in (passed, failed)]  # never back
        for engine in self.engines:
            assert decide(engine, port, whole, WALL_NS) == (verdict, *others)

    @rule(start=small_stamps, step=st.integers(1, 40), count=st.integers(60, 90), data=st.data())
    @precondition(lambda self: any(known.inputs for known in self.model.variables.values()))
    def decide_many(self, start: int, step: int, count: int, data: st.DataObject) -> None:
        fed = [number for number, known in self.model.variables.items() if known.inputs]
        variable = data.draw(st.sampled_from(sorted(fed)))
        port = min(self.model.variables[variable].inputs)
        for created in range(start, start + step * count, step):
            self.decide(variable, port, created, 0)

    @invariant()
    def the_same_is_kept(self) -> None:
        for table in self.tables:
            assert table.entries() == len(self.model.variables)
            assert table.variables(0, 100) == sorted(self.model.variables)
            for variable, known in self.model.variables.items():
                assert table.last(variable) == known.last

    def teardown(self) -> None:
        for table in self.tables:
            for variable in table.variables(0, 100):
                table.drop_variable(variable)
            assert table.sets() == 0


TestTablesAgree = TablesAgree.TestCase
TestTablesAgree.settings = settings(max_examples=120, stateful_step_count=50, deadline=None)
