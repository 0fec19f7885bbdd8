"""Neighbouring status records are decided together: the outcome is that of records that come one by one."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from chappe.engine._engine import Engine
from tests.model.engine import STATUS, frame

WALL_NS = 1_700_000_000_000_000_000
PERIOD_NS = 1_000_000_000
SECOND_RATE, FAST_RATE = (1, PERIOD_NS), (10, PERIOD_NS)


def record(variable: int, created: int, value: int, options: int = 0) -> bytes:
    return struct.pack(">qIB3xq", created, variable, options, value) + b"o" * (24 * options)


@dataclass
class Mesh:
    """An engine with variables of every kind that tells a record from its neighbour."""

    layout: str
    engine: Engine = field(init=False)
    inward: int = field(init=False)
    outward: list[int] = field(init=False)

    def __post_init__(self) -> None:
        engine = self.engine = Engine(layout=self.layout)  # type: ignore[arg-type]
        engine.clock(1, WALL_NS)
        self.inward = engine.open_port(issuer=b"i" * 16)
        other = engine.open_port(issuer=b"j" * 16)
        self.outward = [engine.open_port(issuer=bytes([number]) * 16) for number in range(3)]
        every, half, _ = self.outward
        table = engine.status
        for variable in range(1, 41):
            rate = FAST_RATE if variable % 4 == 0 else SECOND_RATE
            inputs = [self.inward] if variable % 10 < 8 else [other] if variable % 10 == 8 else [self.inward, other]
            table.set_variable(variable, *rate, inputs)
            if variable <= 32:  # the last ones are wanted by nobody
                table.setup_path(variable, every, 1, [0], [3], 0xFFFF)
            if 16 < variable <= 32:
                table.setup_path(variable, half, 2, [2 * PERIOD_NS], [3], 0xFFFF)
        table.setup_path(39, every, 1, [0], [3], 0x0002)  # in another mode than the one in force
        table.set_level(self.outward[2], 1)
        table.set_flooding(13, 1, 0xFFFF)

    def outcome(self) -> tuple[list[bytes], dict[str, int], list[bytes | None]]:
        sent = []
        for port in self.outward:
            records = b""
            while shown := bytes(self.engine.peek(port)):
                self.engine.consumed(port, len(shown))
                while shown:
                    size = int.from_bytes(shown[1:4], "big")
                    records += shown[4 : 4 + size]
                    shown = shown[4 + size :]
            sent.append(records)
        counted = self.engine.counters()
        counts = {name: counted[name] for name in counted if not name.startswith(("bytes", "frames"))}
        return sent, counts, [self.engine.status.last(variable) for variable in range(1, 41)]


stamps = st.sampled_from([0, 0, 0, 1, 2, 3, 300]).map(lambda steps: WALL_NS - 10 * PERIOD_NS + steps * PERIOD_NS)
runs = st.builds(
    lambda first, length, created, options: [(first + i, created, options) for i in range(length)],
    st.integers(1, 41), st.integers(1, 12), stamps, st.sampled_from([0, 0, 0, 0, 1, 2]),
)  # fmt: skip
frames = st.lists(runs, min_size=1, max_size=6).map(lambda parts: [each for part in parts for each in part])


@pytest.mark.parametrize("layout", ["close", "sparse"])
@settings(max_examples=150, deadline=None)
@given(sent=st.lists(frames, min_size=1, max_size=4))
def test_records_of_a_frame_fare_as_if_each_came_alone(layout: str, sent: list[list[tuple[int, int, int]]]) -> None:
    together, apart = Mesh(layout), Mesh(layout)
    value = 0
    for each in sent:
        records = [record(variable, created, value := value + 1, options) for variable, created, options in each]
        together.engine.feed(together.inward, frame(STATUS, b"".join(records)))
        for single in records:
            apart.engine.feed(apart.inward, frame(STATUS, single))
    assert together.outcome() == apart.outcome()


@pytest.mark.parametrize(("packing", "largest"), [(0, 16384), (7, 7 * 24 + 4)])
def test_long_runs_fill_frames_up_to_their_limit(packing: int, largest: int) -> None:
    engine = Engine()
    engine.clock(1, WALL_NS)
    inward = engine.open_port(issuer=b"i" * 16)
    outward = engine.open_port(issuer=b"o" * 16, packing=packing)
    for variable in range(1, 101):
        engine.status.set_variable(variable, 1, PERIOD_NS, [inward])
        engine.status.setup_path(variable, outward, 1, [0], [3], 0xFFFF)
    wanted = b"".join(record(i % 100 + 1, WALL_NS, i) for i in range(5000))
    engine.feed(inward, frame(STATUS, wanted))
    found, sizes = b"", []
    while shown := bytes(engine.peek(outward)):
        engine.consumed(outward, len(shown))
        while shown:
            size = 4 + int.from_bytes(shown[1:4], "big")
            sizes.append(size)
            found += shown[4:size]
            shown = shown[size:]
    assert found == wanted
    assert max(sizes) <= largest < max(sizes) + 24
    assert len(sizes) <= 1 + 2 * len(wanted) // largest  # frames are full, but where a segment of the queue ends
