"""User types, derived values, alerts, groups and violations, from publisher to subscriber through a real node."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from fractions import Fraction

import msgspec
import pytest

import chappe
from chappe.client._status import Watch
from chappe.errors import RefusedError
from chappe.runtime.node import Node
from tests.support.nodes import eventually, running

LISTEN = '[[listen]]\nurl = "tcp://127.0.0.1:0"\n'
MS = 1_000_000
PERIOD = 20 * MS


class Phasor(msgspec.Struct):
    magnitude: float
    angle: float


class Breaker(msgspec.Struct):
    closed: bool
    phases: list[str]


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    async with running(LISTEN) as nodes:
        yield nodes[0]


@pytest.fixture
async def one(node: Node) -> AsyncIterator[chappe.Client]:
    async with chappe.connect(node.url, name="one") as client:
        yield client


@pytest.fixture
async def two(node: Node) -> AsyncIterator[chappe.Client]:
    async with chappe.connect(node.url, name="two") as client:
        yield client


@pytest.mark.spec("GS-021")
async def test_values_of_user_types_arrive_as_they_were_published(one: chappe.Client, two: chappe.Client) -> None:
    phasor = await one.register("pmu", "voltage", rate=50, type=Phasor)
    breaker = await one.register("pmu", "breaker", type=Breaker, length=200)
    voltage = await two.watch("pmu", "voltage", type=Phasor)
    state = await two.watch("pmu", "breaker", type=Breaker)
    untyped = await two.watch("pmu", "breaker")
    assert phasor.publish(Phasor(230.5, 0.1))
    assert breaker.publish(Breaker(closed=True, phases=["a", "b", "c"] * 10))
    assert (await anext(voltage)).value == Phasor(230.5, 0.1)
    assert (await anext(state)).value == Breaker(closed=True, phases=["a", "b", "c"] * 10)
    assert (await anext(untyped)).value == {"closed": True, "phases": ["a", "b", "c"] * 10}
    with pytest.raises(ValueError, match="takes 224: register it with a larger length"):
        breaker.publish(Breaker(closed=True, phases=["phase"] * 100))


@pytest.mark.spec("GS-022")
async def test_another_type_than_the_registered_one_is_denied(one: chappe.Client, two: chappe.Client) -> None:
    await one.register("pmu", "voltage", rate=50, type=Phasor)
    await one.register("pmu", "frequency", rate=50)
    for variable, kind in (("voltage", Breaker), ("voltage", float), ("frequency", int), ("frequency", Phasor)):
        with pytest.raises(RefusedError, match="type"):
            await two.watch("pmu", variable, type=kind)
    rows = {row["variable"]: row for row in await one.list("variables")}
    assert rows["voltage"]["type"].startswith("struct:Phasor:")
    assert await two.watch("pmu", "frequency", type=float)


@pytest.mark.spec("GS-036", "GS-046")
async def test_derived_values_arrive_with_the_values_they_come_from(one: chappe.Client, two: chappe.Client) -> None:
    variable = await one.register(
        "pmu", "frequency", rate=50, derived=[chappe.Mean(3), chappe.Maximum(2), chappe.RateOfChange()]
    )
    watch = await two.watch("pmu", "frequency")
    holder = watch.hold("mean(3)")
    for number, value in enumerate((50.0, 51.0, 49.0), 1):
        assert variable.publish(value, created=number * 1_000_000_000)
    events = [await anext(watch) for _ in range(3)]
    assert [event.derived for event in events] == [
        {"mean(3)": 50.0, "maximum(2)": 50.0, "rate": None},
        {"mean(3)": 50.5, "maximum(2)": 51.0, "rate": 1.0},
        {"mean(3)": 50.0, "maximum(2)": 51.0, "rate": -2.0},
    ]
    assert (watch.value, holder.value, watch.derived["rate"]) == (49.0, 50.0, -2.0)


@pytest.mark.spec("GS-033")
async def test_an_alert_keeps_its_least_interval(one: chappe.Client, two: chappe.Client) -> None:
    alert = await one.register("relay", "trip", type=bool, minimum=30, priority=0)
    watch = await two.watch("relay", "trip")
    assert [alert.publish(True) for _ in range(5)] == [True, False, False, False, False]
    assert alert.early == 4
    assert (await anext(watch)).value is True
    assert await two.list("variables")  # whatever else was sent would be here by now
    assert len(watch.stream) == 0


@pytest.mark.spec("GS-032", "GS-042")
async def test_an_unmanaged_node_grants_intervals(one: chappe.Client, two: chappe.Client) -> None:
    await one.register("pmu", "frequency", rate=50, slowest=0.1)
    watch = await two.watch("pmu", "frequency", qos=chappe.Qos(interval=0.11))
    granted = watch.granted[0]
    assert (granted.every, granted.redundancy) == (5, 1)
    assert watch.quality is not None
    assert watch.quality.slowest_ns == 100 * MS, "what the publisher promised reaches the subscriber"
    assert granted.interval == pytest.approx(0.1)
    with pytest.raises(RefusedError, match="disjoint"):
        await two.watch("pmu", "frequency", qos=chappe.Qos(redundancy=2))


@pytest.mark.spec("GS-047", "GS-048", "GS-049", "GS-064")
async def test_a_group_reads_variables_of_different_rates_together(one: chappe.Client, two: chappe.Client) -> None:
    fast = await one.register("pmu", "fast", rate=Fraction(50))
    slow = await one.register("pmu", "slow", rate=Fraction(25))
    called: list[chappe.Snapshot] = []
    group = await two.group("frame", interval=0.08, history=4, callback=called.append)
    await group.add("pmu", "fast")
    await group.add("pmu", "slow")
    assert group.latest() is None
    with pytest.raises(ValueError, match="already"):
        await two.group("frame")
    with pytest.raises(ValueError, match="has pmu/fast already"):
        await group.add("pmu", "fast")
    for number in range(41):
        fast.publish(float(number), created=number * PERIOD + number % 3 * MS)
        if number % 2 == 0:
            slow.publish(-float(number), created=number * PERIOD - number % 3 * MS)
    await eventually(lambda: len(called) == 11)
    fast_name, slow_name = ("pmu", "fast"), ("pmu", "slow")
    assert [(each[fast_name], each[slow_name]) for each in called] == [(n, -n) for n in range(0, 41, 4)]
    assert all(each.spread_ns < PERIOD for each in called)
    latest = group.latest()
    assert latest is called[-1]
    assert group.latest(2) == called[-2:]
    assert group.latest(100) == called[-4:], "history"
    await group.remove("pmu", "slow")
    await eventually(lambda: group.members == (fast_name,))
    fast.publish(44.0, created=44 * PERIOD)
    await eventually(lambda: len(called) == 12)
    assert dict(called[-1]) == {fast_name: 44.0}
    await group.add("pmu", "slow")  # again, while values come
    fast.publish(48.0, created=48 * PERIOD)
    slow.publish(-48.0, created=48 * PERIOD)
    await eventually(lambda: len(called) == 13)
    assert dict(called[-1]) == {fast_name: 48.0, slow_name: -48.0}
    await group.close()
    assert two.groups == {}


@pytest.mark.spec("GS-048")
async def test_sets_of_a_group_are_iterated(one: chappe.Client, two: chappe.Client) -> None:
    variables = [await one.register("pmu", name, rate=50) for name in "ab"]
    group = await two.group("frame")
    for name in "ab":
        await group.add("pmu", name)
    got: list[float] = []

    async def read() -> None:
        async for snapshot in group:
            got.append(snapshot["pmu", "a"] + snapshot["pmu", "b"])  # noqa: PERF401  what has come so far is looked at

    reading = asyncio.create_task(read())
    await asyncio.sleep(0)
    for number in range(1, 6):
        for variable in variables:
            variable.publish(float(number), created=number * PERIOD)
    await eventually(lambda: got == [2.0, 4.0, 6.0, 8.0, 10.0])
    await group.close()
    await asyncio.wait_for(reading, 30)


async def test_a_member_without_a_rate_is_refused_and_not_watched(one: chappe.Client, two: chappe.Client) -> None:
    await one.register("relay", "trip", type=bool)
    group = await two.group("frame")
    with pytest.raises(ValueError, match="only periodic variables"):
        await group.add("relay", "trip")
    assert group.members == ()
    with pytest.raises(ValueError, match="has no relay/trip"):
        await group.remove("relay", "trip")


@pytest.mark.spec("GS-045", "GS-050")
async def test_a_publisher_that_stops_is_noticed_and_estimated(one: chappe.Client, two: chappe.Client) -> None:
    missed: list[chappe.Violation[Watch]] = []
    variable = await one.register("pmu", "frequency", rate=50)
    told = await two.watch("pmu", "frequency", on_violation=missed.append, slack=0.1)
    guessed = await two.watch("pmu", "frequency", extrapolate=chappe.Average(points=4), slack=0.1)
    start = time.time_ns() // PERIOD + 1
    for number in range(10):
        variable.publish(50.0 + number, created=(start + number) * PERIOD)
    await eventually(lambda: guessed.extrapolated and missed)
    assert told.extrapolated is False
    assert told.value == 59.0
    assert guessed.value == pytest.approx((56 + 57 + 58 + 59) / 4)
    assert all(violation.kind == "missed" and violation.nominal_ns >= (start + 10) * PERIOD for violation in missed)


async def test_only_numbers_are_extrapolated(one: chappe.Client, two: chappe.Client) -> None:
    await one.register("relay", "trip", type=bool, rate=10)
    with pytest.raises(TypeError, match="only int and float"):
        await two.watch("relay", "trip", extrapolate=chappe.Average())
    assert two.counters()["dropped"] == 0
    watch = await two.watch("relay", "trip")
    assert watch.active


@pytest.mark.spec("GS-053")
async def test_a_withdrawal_reaches_the_subscriber(one: chappe.Client, two: chappe.Client) -> None:
    variable = await one.register("pmu", "frequency", rate=50)
    watch = await two.watch("pmu", "frequency")
    await variable.withdraw()
    with pytest.raises(chappe.errors.WithdrawnError, match="pmu/frequency was withdrawn"):
        await asyncio.wait_for(anext(watch), 30)
