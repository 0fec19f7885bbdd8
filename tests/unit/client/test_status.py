"""Watched variables: the holder, the stream, the callback."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chappe.client._core import ClientCore
from chappe.client._status import StatusEvent, StatusStream, Watch
from tests.support.clientpeer import Peer, status


@pytest.fixture
def core() -> ClientCore:
    core = ClientCore()
    Peer(core)
    core.clock(5_000, 1_000)
    return core


def watched(core: ClientCore, number: int, kind: str = "float", every: int = 1, **options: object) -> Watch:
    watch = Watch("p", f"v{number}", **options)  # type: ignore[arg-type]
    watch.admit(number, kind, 1, 10, every)
    core.watches.add([watch])
    return watch


@pytest.mark.spec("GS-043")
def test_a_holder_keeps_the_newest_by_creation_and_knows_its_times(core: ClientCore) -> None:
    watch = watched(core, 7)
    assert (watch.value, watch.created, watch.received, watch.latency_ns) == (None, None, None, None)
    core.feed(status((7, 900, 2.0), (7, 800, 1.0)))
    assert (watch.value, watch.created, watch.received, watch.latency_ns) == (2.0, 900, 1_000, 100)
    core.clock(6_000, 2_000)
    core.feed(status((7, 1_950, 3.0)))
    assert (watch.value, watch.latency_ns, watch.updates) == (3.0, 50, 3)


@pytest.mark.spec("GS-043")
def test_a_stream_keeps_all_that_a_holder_passes_over(core: ClientCore) -> None:
    watch = watched(core, 7)
    core.feed(status((7, 900, 2.0), (7, 800, 1.0), (8, 1, 5.0)))
    assert [(event.created, event.value) for event in watch.take_nowait()] == [(900, 2.0), (800, 1.0)]
    assert core.counters()["unwanted"] == 1


@pytest.mark.spec("GS-044")
def test_a_callback_gets_every_value_and_its_errors_stay_its_own(core: ClientCore) -> None:
    got: list[tuple[str, object]] = []
    failures: list[Exception] = []
    core.on_failure = failures.append

    def listen(event: StatusEvent) -> None:
        got.append((event.variable, event.value))
        if event.value == 2:
            raise RuntimeError("mine")

    watched(core, 7, "int", callback=listen)
    quiet = watched(core, 8, "int")
    core.feed(status((7, 1, 1), (7, 2, 2), (8, 1, 9), (7, 3, 3)))
    assert got == [("v7", 1), ("v7", 2), ("v7", 3)]
    assert [str(failure) for failure in failures] == ["mine"]
    assert quiet.value == 9


@pytest.mark.spec("GS-020")
@pytest.mark.parametrize(
    ("kind", "value"), [("float", -0.5), ("int", -(1 << 62)), ("bool", True), ("bool", False), ("bytes", b"12345678")]
)
def test_values_of_every_type_arrive_as_they_are(core: ClientCore, kind: str, value: object) -> None:
    watch = watched(core, 7, kind)
    core.feed(status((7, 1, value)))  # type: ignore[arg-type]
    assert watch.value == value
    assert type(watch.value) is type(value)

    async def batch() -> list[object]:
        table = await anext(watch.arrow())
        table.validate(full=True)
        values: list[object] = table.column("value").to_pylist()
        return values

    assert asyncio.run(batch()) == [value]


def test_long_values_come_back_from_option_blocks(core: ClientCore) -> None:
    watch = watched(core, 7, "bytes")
    core.feed(status((7, 1, bytes(range(32))), (7, 2, b"short..."), (7, 3, bytes(range(56)))))
    assert [event.value for event in watch.take_nowait()] == [bytes(range(32)), b"short...", bytes(range(56))]
    assert watch.value == bytes(range(56))


def test_several_variables_share_a_stream_in_order_of_arrival(core: ClientCore) -> None:
    stream = StatusStream()
    watches = [Watch("p", f"v{number}", stream=stream) for number in range(3)]
    for number, watch in enumerate(watches, 1):
        watch.admit(number, "float", 0, 1, 1)
    core.watches.add(watches)
    core.feed(status((2, 10, 0.5), (1, 11, 1.5), (3, 12, 2.5)))

    batch = asyncio.run(_first(stream))
    assert batch.column("variable").to_pylist() == [2, 1, 3]
    assert batch.column("name").to_pylist() == ["p/v1", "p/v0", "p/v2"]
    assert batch.column("value").to_pylist() == [0.5, 1.5, 2.5]
    assert batch.column("created").cast("int64").to_pylist() == [10, 11, 12]
    assert batch.column("received").cast("int64").to_pylist() == [1_000] * 3
    assert [watch.value for watch in stream.watches] == [1.5, 0.5, 2.5]


def test_mixed_types_become_doubles_in_arrow_and_stay_themselves_otherwise(core: ClientCore) -> None:
    stream = StatusStream()
    kinds = ("float", "int", "bool")
    watches = [Watch("p", kind, stream=stream) for kind in kinds]
    for number, (watch, kind) in enumerate(zip(watches, kinds, strict=True), 1):
        watch.admit(number, kind, 0, 1, 1)
    core.watches.add(watches)
    core.feed(status((1, 1, 0.5), (2, 1, -3), (3, 1, True)))
    assert [event.value for event in stream.take_nowait()] == [0.5, -3, True]
    core.feed(status((1, 2, 0.5), (2, 2, -3), (3, 2, True)))
    assert asyncio.run(_first(stream)).column("value").to_pylist() == [0.5, -3.0, 1.0]


def test_a_ring_that_wraps_and_grows_keeps_the_order(core: ClientCore) -> None:
    watch = watched(core, 7, "int", max_queue=3000)
    sent = 0
    got: list[int] = []
    for size in (200, 100, 700, 50, 1500):
        core.feed(status(*((7, sent + at, sent + at) for at in range(size))))
        sent += size
        got += [event.value for event in watch.take_nowait(size - 30)]
    got += [event.value for event in watch.take_nowait()]
    assert got == list(range(sent))


def test_a_full_stream_drops_and_counts_once_somebody_reads(core: ClientCore) -> None:
    told: list[object] = []
    core.on_full = told.append
    watch = watched(core, 7, "int", max_queue=10)
    watch.take_nowait()
    core.feed(status(*((7, at, at) for at in range(15))))
    assert watch.dropped == 5
    assert told == [watch.stream]
    assert [event.value for event in watch.take_nowait()] == list(range(10))
    assert watch.value == 14, "the holder is never full"


def test_before_anybody_reads_the_newest_values_are_kept(core: ClientCore) -> None:
    watch = watched(core, 7, "int", max_queue=10)
    core.feed(status(*((7, at, at) for at in range(15))))
    assert (watch.dropped, watch.stream.unread) == (0, 5)
    assert [event.value for event in watch.take_nowait()] == list(range(5, 15))


def test_watches_of_one_variable_each_get_their_own_rate(core: ClientCore) -> None:
    fine, coarse = watched(core, 7, "int"), watched(core, 7, "int", every=3)
    core.feed(status(*((7, period * 10, period) for period in range(10))))
    assert [event.value for event in fine.take_nowait()] == list(range(10))
    assert [event.value for event in coarse.take_nowait()] == [0, 3, 6, 9]
    assert core.watches.remove([fine]) == []
    assert core.watches.remove([coarse]) == [7]


def test_many_variables_are_found_again(core: ClientCore) -> None:
    watches = [watched(core, number * 977 + 1, "int") for number in range(300)]
    core.feed(status(*((number * 977 + 1, 1, number) for number in range(300))))
    assert [watch.value for watch in watches] == list(range(300))


async def _first(stream: StatusStream) -> Any:
    return await anext(stream.arrow())
