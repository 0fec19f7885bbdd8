"""Quality, modes, withdrawals and condensation, at a node that answers as a managed one does."""

from __future__ import annotations

import asyncio
import time

import pytest

import chappe
from chappe.client._status import Watch
from chappe.errors import QosError, RefusedError, WithdrawnError
from chappe.wire import control
from chappe.wire.management import Condense, Issued, ModeState, Uncondense, Withdrawn
from tests.support.nodes import eventually
from tests.support.scriptednode import ScriptedNode

MS = 1_000_000
PERIOD = 100 * MS  # of every variable here


def grant(every: int = 1, latency_ms: int = 20, redundancy: int = 1) -> control.Grant:
    return control.Grant(every * PERIOD, every, latency_ms * MS, redundancy, 3)


def managed(request: control.Request) -> control.Message | None:
    """As a managed node: what is asked for is granted, rounded to the publishing interval; numbers by name."""
    if isinstance(request, control.Watch):
        number = sum(map(ord, request.publisher + request.variable))
        qos = request.qos or (control.Qos(interval_ns=request.interval_ns),)
        grants: list[control.Grant | None] = []
        for mode, wanted in enumerate(qos):
            every = max(1, wanted.interval_ns // PERIOD)
            alive = len(qos) == 1 or request.modes >> mode & 1
            grants.append(grant(every, redundancy=wanted.redundancy) if alive else None)
        first = next(each for each in grants if each is not None)
        return control.Watching(
            id=request.id, variable_id=number, type="float", rate_num=1, rate_den=PERIOD, every=first.every,
            grants=tuple(grants),
        )  # fmt: skip
    if isinstance(request, Condense):
        return Issued(id=request.id, variable_id=77)
    return None


def number_of(watch: Watch) -> int:
    return watch.variable_id


@pytest.mark.spec("GS-040", "GS-042")
async def test_what_is_asked_for_reaches_the_node_and_what_is_granted_comes_back() -> None:
    async with ScriptedNode.serving(managed) as node, chappe.connect(node.url) as client:
        wanted = chappe.Qos(interval=0.25, latency=0.05, redundancy=2, priority=1, worst=chappe.Qos(redundancy=1))
        watch = await client.watch("p", "v", qos=wanted, type=float)
        (request,) = node.asked(control.Watch)
        assert isinstance(request, control.Watch)
        assert request.qos == (
            control.Qos(
                interval_ns=250 * MS, latency_ns=50 * MS, redundancy=2, priority=1, worst_redundancy=1
            ),
        )  # fmt: skip
        assert (request.type, request.modes) == ("float", 0xFFFF)
        assert set(watch.granted) == set(range(16))
        assert watch.granted[0] == chappe.Granted(interval=0.2, every=2, latency=0.02, redundancy=2, priority=3)


@pytest.mark.spec("GS-041")
async def test_a_watch_has_the_quality_of_the_mode_in_force() -> None:
    async with ScriptedNode.serving(managed) as node, chappe.connect(node.url) as client:
        watch = await client.watch("p", "v", qos={0: chappe.Qos(interval=0.2), 3: chappe.Qos(interval=0.4)})
        (request,) = node.asked(control.Watch)
        assert isinstance(request, control.Watch)
        assert (request.modes, len(request.qos)) == (0b1001, 16)
        assert {mode: granted.every for mode, granted in watch.granted.items()} == {0: 2, 3: 4}
        assert watch.every == 2
        node.tell(ModeState(mode=0, next=3))
        node.tell(ModeState(mode=3, next=3))
        await eventually(lambda: client.mode == 3)
        assert watch.every == 4


@pytest.mark.spec("GS-042")
async def test_what_cannot_be_granted_is_refused_with_the_best_that_could() -> None:
    best = (grant(5, latency_ms=80),)

    def script(request: control.Request) -> control.Message:
        return control.Failed(id=request.id, reason="no two disjoint paths", code="capacity", best=best)

    async with ScriptedNode.serving(script) as node, chappe.connect(node.url) as client:
        with pytest.raises(QosError, match="no two disjoint paths") as failure:
            await client.watch("p", "v", qos=chappe.Qos(redundancy=2))
        assert failure.value.best[0] == chappe.Granted(0.5, 5, 0.08, 1, 3)
        assert client.counters()["dropped"] == 0


@pytest.mark.spec("GS-022")
async def test_a_variable_of_another_type_is_refused_and_not_watched() -> None:
    async with ScriptedNode.serving(managed) as node, chappe.connect(node.url) as client:
        with pytest.raises(RefusedError, match="p/v is of type float, not int"):
            await client.watch("p", "v", type=int)
        await eventually(lambda: node.asked(control.Unwatch))


async def test_two_watches_of_one_variable_are_one_subscription_that_suits_both() -> None:
    async with ScriptedNode.serving(managed) as node, chappe.connect(node.url) as client:
        fine = await client.watch("p", "v", qos=chappe.Qos(interval=0.2, redundancy=2))
        coarse = await client.watch("p", "v", interval=0.3)
        last = node.asked(control.Watch)[-1]
        assert isinstance(last, control.Watch)
        assert (last.qos[0].interval_ns, last.qos[0].redundancy) == (0, 2), "20 and 30 meet at 10; both paths stay"
        assert (fine.every, coarse.every) == (2, 3)
        node.values(*((number_of(fine), number * PERIOD, float(number)) for number in range(12)))
        await eventually(lambda: coarse.updates == 4)
        assert [event.value for event in fine.take_nowait()] == [0, 2, 4, 6, 8, 10]
        assert [event.value for event in coarse.take_nowait()] == [0, 3, 6, 9]
        await coarse.unwatch()
        await eventually(lambda: len(node.asked(control.Watch)) == 3)
        relaxed = node.asked(control.Watch)[-1]
        assert isinstance(relaxed, control.Watch)
        assert relaxed.qos[0].interval_ns == 200 * MS
        assert node.asked(control.Unwatch) == []


@pytest.mark.spec("GS-052")
async def test_the_mode_can_be_read_at_any_time() -> None:
    told: list[tuple[int, int]] = []
    async with ScriptedNode.serving(managed, mode=2) as node, chappe.connect(node.url) as client:
        client.on_mode = lambda mode, following: told.append((mode, following))
        assert (client.mode, client.next_mode, client.mode_changing) == (2, 2, False)
        node.tell(ModeState(mode=2, next=5))
        await eventually(lambda: client.mode_changing)
        assert (client.mode, client.next_mode) == (2, 5)
        node.tell(ModeState(mode=5, next=5))
        await eventually(lambda: not client.mode_changing)
        assert (client.mode, client.next_mode) == (5, 5)
        await eventually(lambda: told == [(2, 5), (5, 5)])
        node.mode = 7
        node.cut()
        await eventually(lambda: client.mode == 7)


@pytest.mark.spec("GS-053")
async def test_the_end_of_a_variable_is_told_to_those_who_watch_it() -> None:
    told: list[tuple[Watch, WithdrawnError]] = []
    reported: list[Exception] = []
    async with ScriptedNode.serving(managed) as node, chappe.connect(node.url) as client:
        client.on_error = reported.append
        quiet = await client.watch("p", "v")
        listened = await client.watch("p", "w", on_withdrawn=lambda watch, error: told.append((watch, error)))
        kept = await client.watch("p", "x")
        node.values((number_of(quiet), PERIOD, 1.5))
        for watch in (quiet, listened):
            node.tell(Withdrawn(variable_id=number_of(watch), reason="its publisher withdrew it"))
        assert (await anext(quiet)).value == 1.5, "what had come before can still be read"
        with pytest.raises(WithdrawnError, match="p/v was withdrawn: its publisher withdrew it"):
            await anext(quiet)
        await eventually(lambda: told and reported)
        assert [str(error) for error in reported] == ["p/v was withdrawn: its publisher withdrew it"]
        assert (told[0][0], quiet.active, kept.active) == (listened, False, True)
        assert isinstance(quiet.withdrawn, WithdrawnError)
        assert kept.withdrawn is None
        asked = len(node.asked(control.Watch))
        node.cut()
        await eventually(lambda: len(node.asked(control.Watch)) == asked + 1)
        last = node.asked(control.Watch)[-1]
        assert isinstance(last, control.Watch)
        assert last.variable == "x", "what was withdrawn is not asked for again"


async def test_a_stream_of_many_goes_on_without_the_one_that_was_withdrawn() -> None:
    async with ScriptedNode.serving(managed) as node, chappe.connect(node.url) as client:
        stream = await client.watch_many([("p", "v"), ("p", "w")])
        first, second = stream.watches
        node.tell(Withdrawn(variable_id=number_of(first), reason="over"))
        node.values((number_of(first), PERIOD, 1.0), (number_of(second), PERIOD, 2.0))
        assert (await anext(stream)).value == 2.0
        node.tell(Withdrawn(variable_id=number_of(second), reason="over"))
        with pytest.raises(WithdrawnError):
            await anext(stream)


@pytest.mark.spec("GS-054")
async def test_copies_of_redundant_paths_are_delivered_once() -> None:
    async with ScriptedNode.serving(managed) as node, chappe.connect(node.url) as client:
        watch = await client.watch("p", "v", qos=chappe.Qos(redundancy=2))
        for number in range(1, 51):
            node.values((number_of(watch), number * PERIOD, float(number)))
            node.values((number_of(watch), number * PERIOD, float(number)))
        got = [(await anext(watch)).value for _ in range(50)]
        assert got == [float(number) for number in range(1, 51)]
        await eventually(lambda: watch.duplicates == 50)
        assert (len(watch.stream), watch.updates) == (0, 50)


@pytest.mark.spec("GS-045")
async def test_violations_are_told_whether_values_are_pulled_or_pushed() -> None:
    pulled: list[chappe.Violation[Watch]] = []
    pushed: list[chappe.Violation[Watch]] = []
    async with ScriptedNode.serving(managed) as node, chappe.connect(node.url) as client:
        pull = await client.watch("p", "v", qos=chappe.Qos(latency=0.05), on_violation=pulled.append, slack=0.01)
        push = await client.watch(
            "p", "w", qos=chappe.Qos(latency=0.05), on_violation=pushed.append, slack=0.01, callback=lambda event: None
        )
        await eventually(lambda: len(pulled) >= 2 and len(pushed) >= 2)
        assert {violation.kind for violation in (*pulled, *pushed)} == {"missed"}
        assert pull.violations["missed"] == sum(violation.count for violation in pulled)
        client.monitor(push)
        pulled.clear()
        pushed.clear()
        now = time.time_ns()
        node.values((number_of(pull), now - 60 * MS, 1.0), (number_of(push), now - 60 * MS, 1.0))
        await eventually(lambda: any(violation.kind == "late" for violation in pulled))
        late = next(violation for violation in pulled if violation.kind == "late")
        assert late.watch is pull
        assert late.latency_ns is not None
        assert late.latency_ns >= 60 * MS
        assert pull.violations["late"] == 1
        assert pushed == [], "it is not monitored any more"


async def test_an_error_in_a_callback_of_violations_is_reported_and_does_not_stop_the_next() -> None:
    reported: list[Exception] = []

    def fail(violation: chappe.Violation[Watch]) -> None:
        raise RuntimeError("mine")

    async with ScriptedNode.serving(managed) as node, chappe.connect(node.url) as client:
        client.on_error = reported.append
        await client.watch("p", "v", on_violation=fail, slack=0)
        await eventually(lambda: len(reported) >= 2)
        assert {str(error) for error in reported} == {"mine"}


@pytest.mark.spec("GS-115")
async def test_violations_are_suppressed_while_a_mode_is_announced() -> None:
    told: list[chappe.Violation[Watch]] = []
    async with ScriptedNode.serving(managed) as node, chappe.connect(node.url) as client:
        await client.watch("p", "v", on_violation=told.append, slack=0)
        await eventually(lambda: len(told) >= 1)
        node.tell(ModeState(mode=0, next=1))
        await eventually(lambda: client.mode_changing)
        before = len(told)
        await eventually(lambda: client.counters()["violations_suppressed"] >= 2)
        assert len(told) == before
        node.tell(ModeState(mode=1, next=1))
        await eventually(lambda: len(told) > before)


@pytest.mark.spec("GS-050")
async def test_an_estimate_takes_the_place_of_a_missing_value_and_of_the_violation() -> None:
    told: list[object] = []
    got: list[tuple[float, bool]] = []
    async with ScriptedNode.serving(managed) as node, chappe.connect(node.url) as client:
        watch = await client.watch(
            "p", "v", extrapolate=chappe.Polynomial(order=1, points=4), on_violation=told.append, slack=0.02,
            callback=lambda event: got.append((event.value, event.extrapolated)),
        )  # fmt: skip
        first = time.time_ns() // PERIOD - 4
        node.values(*((number_of(watch), (first + number) * PERIOD, float(10 + number)) for number in range(5)))
        await eventually(lambda: watch.extrapolated)
        assert watch.created is not None
        assert watch.value == pytest.approx(10 + (watch.created / PERIOD - first))
        assert told == []
        assert [flag for _, flag in got[:6]] == [False] * 5 + [True]
        assert watch.violations["missed"] >= 1
        newest = time.time_ns()
        node.values((number_of(watch), newest, 99.0))
        await eventually(lambda: (99.0, False) in got)


async def test_without_enough_points_the_violation_is_told_instead() -> None:
    told: list[chappe.Violation[Watch]] = []
    async with ScriptedNode.serving(managed) as node, chappe.connect(node.url) as client:
        watch = await client.watch("p", "v", extrapolate=chappe.Rational(), on_violation=told.append, slack=0)
        await eventually(lambda: len(told) >= 1)
        assert (watch.value, watch.extrapolated) == (None, False)


@pytest.mark.spec("GS-116", "GS-048")
async def test_a_group_gives_consistent_sets_through_a_mode_change() -> None:
    sets: list[int] = []
    async with ScriptedNode.serving(managed) as node, chappe.connect(node.url) as client:
        group = await client.group(
            "g", qos={0: chappe.Qos(interval=0.1), 1: chappe.Qos(interval=0.2)},
            callback=lambda snapshot: sets.append(snapshot.nominal // PERIOD),
        )  # fmt: skip
        await group.add("p", "a")
        await group.add("p", "b")
        a, b = sum(map(ord, "pa")), sum(map(ord, "pb"))
        node.values(*((variable, number * PERIOD, 1.0) for number in (1, 2, 3) for variable in (a, b)))
        node.tell(ModeState(mode=0, next=1))
        # one member is on the new interval already, the other still on the old one
        node.values(*((a, number * PERIOD, 1.0) for number in (4, 5, 6, 7, 8)))
        node.values(*((b, number * PERIOD, 1.0) for number in (4, 6, 8)))
        node.tell(ModeState(mode=1, next=1))
        node.values(*((variable, number * PERIOD, 1.0) for number in (10, 12) for variable in (a, b)))
        await eventually(lambda: sets and sets[-1] == 12)
        assert sets == [1, 2, 3, 4, 6, 8, 10, 12]


async def test_a_group_goes_on_when_a_member_is_withdrawn() -> None:
    gone: list[tuple[str, str]] = []
    async with ScriptedNode.serving(managed) as node, chappe.connect(node.url) as client:
        group = await client.group("g")
        group.on_withdrawn = lambda member, error: gone.append(member)
        await group.add("p", "a")
        await group.add("p", "b")
        node.tell(Withdrawn(variable_id=sum(map(ord, "pb")), reason="over"))
        await eventually(lambda: gone == [("p", "b")])
        node.values((sum(map(ord, "pa")), PERIOD, 4.0))
        async with asyncio.timeout(30):
            async for snapshot in group:
                assert dict(snapshot) == {("p", "a"): 4.0}
                break


async def test_functions_are_created_and_removed_by_their_messages() -> None:
    function = chappe.Function(
        publisher="p", variable="sum", inputs=(chappe.Input("p", "a"), chappe.Input("p", "b")), calculator="builtin:sum"
    )
    async with ScriptedNode.serving(managed) as node, chappe.connect(node.url) as client:
        assert await client.condense(function) == 77
        await client.uncondense("p", "sum")
        assert [type(request) for request in node.requests] == [Condense, Uncondense]
        first = node.requests[0]
        assert isinstance(first, Condense)
        assert first.function == function


async def test_registrations_carry_their_promises_and_patterns() -> None:
    def script(request: control.Request) -> control.Message | None:
        return control.Registered(id=request.id, variable_id=9) if isinstance(request, control.Register) else None

    async with ScriptedNode.serving(script) as node, chappe.connect(node.url) as client:
        await client.register("p", "v", rate=30, slowest=0.5, derived=[chappe.Mean(10), chappe.RateOfChange()])
        await client.register("p", "alarm", type=bool, minimum=2, priority=0)
        periodic, alert = node.requests
        assert isinstance(periodic, control.Register)
        assert isinstance(alert, control.Register)
        assert (periodic.rate_num, periodic.rate_den, periodic.slowest_ns) == (3, 100 * MS, 500 * MS)
        assert periodic.options == 2
        assert periodic.patterns == (control.DerivedValue(1, "mean(10)"), control.DerivedValue(2, "rate"))
        assert (alert.rate_num, alert.minimum_ns, alert.type) == (0, 2000 * MS, "bool")
