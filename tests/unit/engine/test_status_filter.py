"""The filter of the status table: rounds, intervals, minimal sets and the reference timeline."""

from __future__ import annotations

import struct
from fractions import Fraction

import pytest

from chappe.engine._engine import Engine
from chappe.engine._status import StatusTable
from chappe.wire.frames import Kind, encode_frame
from tests.support.decisions import decide, engine_with

ALL = 0xFFFF
IN, E1, E2, E3 = 0, 1, 2, 3


def record(variable: int, created: int, options: int = 0) -> bytes:
    return struct.pack(">qIB3xq", created, variable, options, 0) + b"\x01" * (24 * options)


@pytest.fixture(params=["close", "sparse"])
def engine(request: pytest.FixtureRequest) -> Engine:
    return engine_with(10, request.param, edge=False)


@pytest.fixture
def table(engine: Engine) -> StatusTable:
    return engine.status


def passed(engine: Engine, created: int, variable: int = 1, port: int = IN) -> list[int]:
    verdict, ports, _ = decide(engine, port, record(variable, created), created)
    assert verdict == "FORWARD"
    return [port for port, _ in ports]


@pytest.mark.spec("GS-060")
@pytest.mark.parametrize(
    ("period", "wanted", "created", "expected"),
    [
        (50, 100, 74, False),
        (50, 100, 75, True),
        (50, 100, 100, True),
        (50, 100, 124, True),
        (50, 100, 125, False),
        (50, 100, 174, False),
        (50, 100, 175, True),
        (33, 66, 66 - 16, True),  # odd period: half is rounded down, the window lies evenly around the instant
        (33, 66, 66 + 16, True),
        (33, 66, 66 - 17, False),
        (33, 66, 66 + 17, False),
        (1, 2, 4, True),
        (1, 2, 5, False),
        (50, 100, -25, True),  # floor, not truncation, before 1970
        (50, 100, -26, False),
        (50, 100, -125, True),
        (50, 100, -126, False),
        (50, 30, 55, True),  # finer than the publisher publishes: every event
        (50, 0, 99, True),
        (50, 149, 150, False),  # rounded down to 100
        (50, 149, 200, True),
        (1, 1 << 31, 1 << 62, True),
        (1, 1 << 31, (1 << 62) + 1, False),
    ],
)
def test_an_event_passes_in_the_period_around_each_nominal_instant(
    engine: Engine, table: StatusTable, period: int, wanted: int, created: int, expected: bool
) -> None:
    table.set_variable(1, 1, period, [IN])
    table.setup_path(1, E1, 7, [wanted], [3], ALL)
    assert passed(engine, created) == ([E1] if expected else [])


@pytest.mark.spec("GS-060")
@pytest.mark.parametrize("rate", [(30, 10**9), (60, 1_001_000_000), (3, 10**8), (50, 10**9), (999_999_937, 10**18)])
@pytest.mark.parametrize("start", [-(10**18), 0, 1_700_000_000 * 10**9, 2**63 - 10**12])
def test_rational_rates_are_exact_for_any_stamp(
    engine: Engine, table: StatusTable, rate: tuple[int, int], start: int
) -> None:
    num, den = rate
    table.set_variable(1, num, den, [IN])
    for port, periods in ((1, 1), (2, 3), (3, 10)):
        table.setup_path(1, port, port, [periods * den // num], [3], ALL)
    for step in range(60):
        created = start + step * den // num + (-1) ** step * step
        number = (Fraction(created * num, den) + Fraction(den // 2, den)).__floor__()
        assert passed(engine, created) == [port for port, periods in ((1, 1), (2, 3), (3, 10)) if number % periods == 0]


@pytest.mark.parametrize(
    ("num", "den", "wanted", "periods"),
    [
        (30, 10**9, 100_000_000, 3),  # 100 ms of 33.3 ms events
        (30, 10**9, 99_999_999, 2),
        (30, 10**9, 33_333_333, 1),
        (30, 10**9, 66_666_666, 2),  # two periods of 33.3 ms written in whole nanoseconds
        (30, 10**9, 66_666_665, 1),
        (1, 20_000_000, 59_999_999, 2),
        (1, 20_000_000, 60_000_000, 3),
        (1, 20_000_000, 1, 1),
        (0, 1, 10**9, 1),
        (1, 1, 2**31, 2**31),
    ],
)
def test_setting_up_a_path_tells_its_interval_in_periods(
    table: StatusTable, num: int, den: int, wanted: int, periods: int
) -> None:
    table.set_variable(1, num, den, [IN])
    assert table.setup_path(1, E1, 7, [wanted], [3], ALL) == periods


def test_every_event_of_an_alert_variable_passes(engine: Engine, table: StatusTable) -> None:
    table.set_variable(1, 0, 1, [IN])
    table.setup_path(1, E1, 7, [10**9], [0], ALL)
    assert decide(engine, IN, record(1, 12345), 0) == ("FORWARD", [(E1, 0)], [])


@pytest.mark.spec("GS-065", "GS-066", "GS-068")
def test_reference_timeline(engine: Engine, table: StatusTable) -> None:
    paths = ((E1, 90), (E1, 180), (E1, 630), (E2, 240), (E3, 630))
    edge, inner = 1, 2  # the same publication at e0, where all paths leave over one port, and at i0
    table.set_variable(edge, 1, 30, [IN])
    table.set_variable(inner, 1, 30, [IN])
    for number, (port, wanted) in enumerate(paths):
        table.setup_path(edge, 9, number, [wanted], [3], ALL)
        table.setup_path(inner, port, number, [wanted], [3], ALL)
    seen: dict[int, list[int]] = {9: [], E1: [], E2: [], E3: []}
    for created in range(0, 781, 30):
        for port in passed(engine, created, edge):
            seen[port].append(created)
            for onward in passed(engine, created, inner):
                seen[onward].append(created)
    assert seen == {
        9: [0, 90, 180, 240, 270, 360, 450, 480, 540, 630, 720],
        E1: [0, 90, 180, 270, 360, 450, 540, 630, 720],
        E2: [0, 240, 480, 720],
        E3: [0, 630],
    }
    assert table.describe(edge)["modes"][0] == {9: {"intervals": [3, 8], "class": 2}}
    assert {port: ports["intervals"] for port, ports in table.describe(inner)["modes"][0].items()} == {
        E1: [3],
        E2: [8],
        E3: [21],
    }


@pytest.mark.spec("GS-067")
def test_removing_a_path_restores_the_intervals_it_swallowed(table: StatusTable) -> None:
    def intervals() -> list[int]:
        found: list[int] = table.describe(1)["modes"][0][E1]["intervals"]
        return found

    table.set_variable(1, 1, 1, [IN])
    for number, wanted in ((1, 90), (2, 90), (3, 180)):
        table.setup_path(1, E1, number, [wanted], [3], ALL)
    assert intervals() == [90]
    assert table.terminate_path(1, 1)
    assert intervals() == [90]
    assert table.terminate_path(1, 2)
    assert intervals() == [180]
    table.setup_path(1, E1, 4, [60], [3], ALL)
    table.setup_path(1, E1, 5, [25], [3], ALL)
    table.setup_path(1, E1, 6, [40], [3], ALL)
    assert intervals() == [25, 40, 60]
    table.setup_path(1, E1, 7, [20], [3], ALL)
    assert intervals() == [20, 25]
    assert not table.terminate_path(1, 99)
    for number in (3, 4, 5, 6, 7):
        assert table.terminate_path(1, number)
    assert table.describe(1)["modes"] == {}
    assert table.sets() == 0


@pytest.mark.spec("GS-063")
def test_one_copy_a_port_however_many_of_its_intervals_fit(engine: Engine, table: StatusTable) -> None:
    table.set_variable(1, 1, 10, [IN])
    for number, wanted in enumerate((20, 30, 50, 70, 20)):
        table.setup_path(1, E1, number, [wanted], [6 - number], ALL)
    assert decide(engine, IN, record(1, 2100), 0) == ("FORWARD", [(E1, 1)], [])
    assert decide(engine, IN, record(1, 110), 0) == ("FORWARD", [], [(E1, 1)])


def test_sets_with_more_distinct_intervals_than_a_pattern_has_bits(engine: Engine, table: StatusTable) -> None:
    primes = [n for n in range(2, 400) if all(n % k for k in range(2, n))]
    assert len(primes) > 64
    source = len(primes)
    while engine.open_port(peer=True) < source:
        pass
    table.set_variable(1, 1, 1, [source])
    for port, prime in enumerate(primes):
        table.setup_path(1, port, port, [prime], [3], ALL)
    for created in (0, 1, 6, 30030, 389 * 397):
        expected = [port for port, prime in enumerate(primes) if created % prime == 0]
        assert passed(engine, created, port=source) == expected


@pytest.mark.spec("GS-073")
def test_interval_priority_port_and_rate_change_in_place(engine: Engine, table: StatusTable) -> None:
    table.set_variable(1, 1, 10, [IN])
    table.setup_path(1, E1, 7, [20], [3], ALL)
    assert decide(engine, IN, record(1, 20), 0) == ("FORWARD", [(E1, 2)], [])
    table.setup_path(1, E1, 7, [40], [1], ALL)
    assert decide(engine, IN, record(1, 20), 0) == ("FORWARD", [], [(E1, 1)])
    table.set_variable(1, 1, 20)
    assert table.describe(1)["inputs"] == [IN]
    assert table.describe(1)["modes"][0][E1]["intervals"] == [2]
    assert decide(engine, IN, record(1, 40), 0) == ("FORWARD", [(E1, 1)], [])
    table.setup_path(1, E2, 7, [40], [5], ALL)
    assert decide(engine, IN, record(1, 40), 0) == ("FORWARD", [(E2, 3)], [])


@pytest.mark.parametrize(("priority", "expected"), [(0, 0), (1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (6, 3)])
def test_priorities_map_onto_four_classes(engine: Engine, table: StatusTable, priority: int, expected: int) -> None:
    table.set_variable(1, 1, 10, [IN])
    table.setup_path(1, E1, 7, [0], [priority], ALL)
    assert decide(engine, IN, record(1, 0), 0) == ("FORWARD", [(E1, expected)], [])


def test_stamps_cannot_fill_the_memory_with_port_lists(engine: Engine, table: StatusTable) -> None:
    primes = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37]
    source = 1200
    while engine.open_port(peer=True) < source:
        pass
    table.set_variable(1, 1, 1, [source])
    for port in range(1200):
        table.setup_path(1, port, port, [primes[port % 12]], [3], ALL)
        engine.park_port(port)  # so that no queue fills: what it would get is counted
    before = table.memory_bytes()
    counted = engine.counters()
    for pattern in range(4096):
        created = 1
        for bit, prime in enumerate(primes):
            created *= prime if pattern >> bit & 1 else 1
        engine.feed(source, encode_frame(Kind.STATUS, record(1, created)))
        earlier, counted = counted, engine.counters()
        assert counted["drop_closed"] - earlier["drop_closed"] == 100 * pattern.bit_count()
        assert counted["filtered"] - earlier["filtered"] == 1200 - 100 * pattern.bit_count()
    assert table.memory_bytes() - before < 10 * 2**20
    table.set_variable(2, 1, 1, [IN])
    assert table.memory_bytes() - before < 2**19
    for port in range(1200):
        engine.resume_port(port)
    assert passed(engine, 2 * 37, port=source) == [port for port in range(1200) if primes[port % 12] in (2, 37)]
