"""Condensation functions in a router: a real node, a real worker process, variables in and out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

import chappe
from chappe.client.structs import value_type
from chappe.errors import ChappeError, RefusedError
from chappe.wire.base import Variable
from chappe.wire.management import Path, Setup
from tests.support.functions import Plant, described, plant
from tests.support.nodes import eventually

MS = 1_000_000


@pytest.fixture
async def router() -> AsyncIterator[Plant]:
    async with plant() as made:
        yield made


async def taken(watch: Any, count: int) -> list[Any]:
    """So many events of a watch."""
    found = []
    async with asyncio.timeout(30):
        async for event in watch:
            found.append(event)
            if len(found) == count:
                break
    return found


@pytest.mark.spec("GS-137", "GS-130", "GS-133")
async def test_total_of_readings_is_a_variable_like_any_other(router: Plant) -> None:
    readings = [await router.client.register("grid", f"reading{at}", rate=100) for at in range(4)]
    output = await router.place(readings, "builtin:sum", trigger="time", interval_ns=10 * MS)
    for at, reading in enumerate(readings, start=1):
        reading.publish(100.0 * at)
    watch = await router.client.watch("out", "result", wait_s=30)
    assert watch.variable_id == output.variable_id
    events = await taken(watch, 20)
    assert {event.value for event in events} == {1000.0}
    assert [event.created - events[0].created for event in events] == [10 * MS * at for at in range(20)]
    assert events[0].created % (10 * MS) == 0
    readings[1].publish(250.0)
    await eventually(lambda: watch.value == 1050.0)
    listed = [row for row in await router.client.list("variables") if row["publisher"] == "out"]
    assert [(row["variable"], row["id"]) for row in listed] == [("result", output.variable_id)]
    worker = next(each for each in router.node.core.sessions if each.internal)
    assert worker.watched == {reading.id for reading in readings}  # to the table a function is one more target
    for reading in readings:
        entry = router.node.core.variables.directory.numbered(reading.id)
        assert entry is not None
        assert worker.port in entry.watchers


@pytest.mark.spec("GS-137", "GS-131", "GS-132")
async def test_an_alert_when_a_line_fails_while_the_total_is_above_its_threshold(router: Plant) -> None:
    client = router.client
    feeder, line = await client.register("grid", "feeder", rate=100), await client.register("grid", "line", type="bool")
    total = await router.place([feeder], "builtin:sum", "total")
    alarm = await router.place(
        [total, described(line)], "expression:total > 900", "alarm", type="bool", trigger="alert", out_low=1, priority=0
    )
    assert alarm.rate_num == 0
    watch = await client.watch("out", "alarm", wait_s=30)
    sums = await client.watch("out", "total", wait_s=30)
    await router.reaches(alarm, "running")
    await router.reaches(total, "running")

    async def happens(power: float, counted: str) -> None:
        before = (await router.row(alarm))[counted] if counted else 0
        feeder.publish(power)
        await eventually(lambda: sums.value == power)
        line.publish(True)
        if counted:
            await eventually(lambda: row_of(router, alarm)[counted] > before)

    await happens(800.0, "below")
    await happens(1000.0, "results")
    feeder.publish(1100.0)  # no line fails: nothing is calculated
    await eventually(lambda: sums.value == 1100.0)
    await happens(700.0, "below")
    await happens(901.0, "results")
    assert [event.value for event in watch.take_nowait()] == [True, True]
    assert (await router.row(alarm))["fired"] == 4


def row_of(router: Plant, output: Variable) -> dict[str, Any]:
    return next(row for row in router.node.functions.rows() if row["id"] == output.variable_id)


class CityUsage(msgspec.Struct):
    created: int
    id: int
    data: float


class LargestUsage(msgspec.Struct):
    source: CityUsage


@pytest.mark.spec("GS-137")
async def test_largest_usage_has_a_type_of_its_own(router: Plant) -> None:
    client = router.client
    cities = [await client.register("grid", f"city{at}", rate=50, type=CityUsage) for at in range(3)]
    output = await router.place(cities, "builtin:largest:data", type=value_type(LargestUsage).name)
    watch = await client.watch("out", "result", type=LargestUsage, wait_s=30)
    await router.reaches(output, "running")
    for at, (city, data) in enumerate(zip(cities, (3.5, 9.25, 1.0), strict=True)):
        city.publish(CityUsage(created=10, id=at, data=data), created=10 * MS)
    [event] = await taken(watch, 1)
    assert event.value == LargestUsage(source=CityUsage(created=10, id=1, data=9.25))
    assert event.created == 10 * MS


@pytest.mark.spec("GS-138")
async def test_a_time_trigger_of_two_milliseconds_does_not_drift_while_inputs_stream(router: Plant) -> None:
    """The source's one-thread trigger was 3 to 9 % slow; here the number of results is the time over the interval."""
    readings = [await router.client.register("grid", f"reading{at}", rate=1000) for at in range(20)]
    output = await router.place(readings, "builtin:mean", trigger="time", interval_ns=2 * MS)
    watch = await router.client.watch("out", "result", wait_s=30)
    stop = asyncio.Event()

    async def stream() -> None:
        while not stop.is_set():
            for reading in readings:
                reading.publish(1.0)
            await asyncio.sleep(0.001)

    streaming = asyncio.ensure_future(stream())
    try:
        [first] = await taken(watch, 1)
        events = await taken(watch, 1000)
        late_ns = time.time_ns() - events[-1].created
    finally:
        stop.set()
        await streaming
    span_ns = events[-1].created - first.created
    row = await router.row(output)
    expected = span_ns / (2 * MS)
    assert 1000 <= expected <= 1000 * 1.02 + row["missed"]
    assert late_ns < 2000 * MS  # stamps follow the clock: a busy machine is late once, not more and more
    assert len({event.created for event in events}) == 1000


async def test_an_event_trigger_waits_for_all_inputs_and_an_interval_thins_them(router: Plant) -> None:
    client = router.client
    fast = await client.register("grid", "fast", rate=1000)
    slow = await client.register("grid", "slow", rate=100)
    output = await router.place([fast, slow], "expression:fast + slow")
    assert (output.rate_num, output.rate_den) == (1, 10 * MS)
    watch = await client.watch("out", "result", wait_s=30)
    await router.reaches(output, "running")
    for turn in range(1, 6):
        for step in range(1, 11):
            fast.publish(float(step), created=(turn * 10 + step) * MS)
        await client.list("counters")
        slow.publish(1000.0 * turn, created=(turn * 10 + 10) * MS)
        await eventually(lambda turn=turn: row_of(router, output).get("results") == turn)  # type: ignore[misc]
    assert [event.value for event in watch.take_nowait()] == [1000.0 * turn + 10 for turn in range(1, 6)]


async def test_an_input_that_comes_later_is_waited_for(router: Plant) -> None:
    here = await router.client.register("grid", "here", rate=100)
    later = Variable(0x3F000009, "grid", "later", "float", 1, 10 * MS, 3, 0)
    output = await router.place([here, later], "builtin:sum", count=1)
    await eventually(lambda: "grid/later" in row_of(router, output)["reason"])
    assert row_of(router, output)["state"] == "waiting"
    path = Path(later, 1, "", "", (0,), (3,), 0xFFFF)
    await router.client.command(Setup(id=0, epoch=1, command=next(router.commands), paths=(path,)))
    await router.reaches(output, "running")
    assert row_of(router, output)["reason"] == ""


@pytest.mark.spec("GS-136")
async def test_functions_go_on_without_the_connection_that_asked_for_them(router: Plant) -> None:
    reading = await router.client.register("grid", "reading", rate=100)
    async with chappe.connect(router.node.url, name="creator") as creator:
        creators = Plant(router.node, creator, router.commands, router.numbers)
        output = await creators.place([reading], "builtin:sum")
    await router.reaches(output, "running")
    watch = await router.client.watch("out", "result")
    reading.publish(7.0)
    assert [event.value for event in await taken(watch, 1)] == [7.0]


async def test_a_function_that_is_placed_again_replaces_itself_and_one_that_is_removed_is_gone(router: Plant) -> None:
    reading = await router.client.register("grid", "reading", rate=100)
    output = await router.place([reading], "builtin:sum")
    await router.reaches(output, "running")
    watch = await router.client.watch("out", "result")
    router.numbers = iter([output.variable_id])  # type: ignore[assignment]
    again = await router.place([reading], "expression:reading * 2")
    assert again.variable_id == output.variable_id
    reading.publish(4.0)

    def doubled() -> bool:
        reading.publish(4.0)
        return bool(watch.value == 8.0)

    await eventually(doubled)  # its subscribers have noticed nothing
    assert watch.withdrawn is None
    await router.displace(output)
    await router.displace(output)  # one that is not there is no error
    assert await router.client.list("functions") == []
    await eventually(lambda: not any(each.internal for each in router.node.core.sessions))


async def test_a_reset_stops_all_functions_and_their_worker(router: Plant) -> None:
    reading = await router.client.register("grid", "reading", rate=100)
    for name in ("one", "two"):
        output = await router.place([reading], "builtin:sum", name)
    await router.reaches(output, "running")
    await router.reset()
    assert await router.client.list("functions") == []
    await eventually(lambda: not any(each.internal for each in router.node.core.sessions))


@pytest.mark.parametrize(
    ("calculator", "settings", "words"),
    [
        ("expression:reading +", {}, "expression: column"),
        ("expression:9**9**9**9", {}, "more than 64 bits"),
        ("entry:nobody", {}, "no package on this router has a calculator 'nobody'"),
        ("builtin:sum", {"count": 4}, "cannot wait for 4 of 1 inputs"),
    ],
)
async def test_a_wrong_function_is_refused_and_nothing_else_changes(
    router: Plant, calculator: str, settings: dict[str, Any], words: str
) -> None:
    reading = await router.client.register("grid", "reading", rate=100)
    with pytest.raises(RefusedError, match=words.replace("*", r"\*")):
        await router.place([reading], calculator, **settings)
    assert await router.client.list("functions") == []
    assert [row["publisher"] for row in await router.client.list("variables")] == ["grid"]
    with pytest.raises(ChappeError):
        await router.client.watch("out", "result")
