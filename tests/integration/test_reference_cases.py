"""The worked examples of the specification on managed routers: what each hop carries, stamp by stamp."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

import chappe
from chappe.wire.base import Done, Qos
from chappe.wire.control import List, PrepareMode, SetMode, Unwatch, Watch, Watching
from chappe.wire.management import ChangeMode, CommitMode, InformMode, Join, ModeState
from chappe.wire.payloads import Status
from chappe.wire.status import record
from tests.support.deployed import Deployed, deployed, deployment
from tests.support.nodes import eventually
from tests.support.scriptedbroker import ScriptedBroker
from tests.support.wireclient import WireClient

MS = 1_000_000
Hop = tuple[str, str]


class Lockstep:
    """Publishes one stamp at a time and waits until it has passed, or was filtered, on every hop.

    A second variable that everybody reads follows each stamp on the same channels: where it has arrived, what was
    before it has been decided.
    """

    def __init__(self, made: Deployed, publisher: WireClient, fence: int, period_ms: int) -> None:
        self.made, self.publisher, self.fence, self.period_ms = made, publisher, fence, period_ms
        self.readers: dict[str, WireClient] = {}
        self.hops: list[Hop] = []
        self.fences = 0

    async def follow(self, name: str, *hops: Hop) -> None:
        """This reader, and the hops on the way to it, are part of every step."""
        await self.readers[name].watch("p0/fence")
        self.hops += hops

    async def publish(self, variable: int, stamps_ms: Iterable[int]) -> dict[Hop | str, list[int]]:
        """The stamps that left by each hop and that each reader got, in milliseconds; nothing else may have moved."""
        seen: dict[Hop | str, list[int]] = {hop: [] for hop in self.hops} | {name: [] for name in self.readers}
        for stamp_ms in stamps_ms:
            before = {hop: self.made.left(*hop) for hop in self.hops}
            had = {name: len(reader.records) for name, reader in self.readers.items()}
            await self._one(variable, stamp_ms)
            for hop in self.hops:
                passed = self.made.left(*hop) - before[hop] - 1
                assert passed in (0, 1), (hop, stamp_ms, passed)
                seen[hop] += [stamp_ms] * passed
            for name, reader in self.readers.items():
                news = [record for record in reader.records[had[name] :] if record.variable != self.fence]
                assert all((record.variable, record.created) == (variable, stamp_ms * MS) for record in news)
                seen[name] += [stamp_ms] * len(news)
        return seen

    async def _one(self, variable: int, stamp_ms: int) -> None:
        self.fences += 1
        fence = record(self.fences * self.period_ms * MS, self.fence, float(self.fences))
        self.publisher.send(Status((record(stamp_ms * MS, variable, float(stamp_ms)), fence)))
        for reader in self.readers.values():
            await reader.until(lambda reader=reader: _last(reader, self.fence) == fence.created)  # type: ignore[misc]


def _last(reader: WireClient, variable: int) -> int:
    return next((record.created for record in reversed(reader.records) if record.variable == variable), 0)


def multiples(interval_ms: int, stamps_ms: Iterable[int]) -> list[int]:
    return [stamp for stamp in stamps_ms if stamp % interval_ms == 0]


# --- the timeline


LAYOUTS = [
    {"e0": "close", "i0": "sparse", "e1": "close", "e2": "sparse", "e3": "close"},
    {"e0": "sparse", "i0": "close", "e1": "sparse", "e2": "close", "e3": "sparse"},
]


@pytest.mark.spec("GS-068", "GS-062", "GS-063", "GS-065", "GS-066")
@pytest.mark.parametrize("layouts", LAYOUTS, ids=["sparse inside", "close inside"])
async def test_the_timeline_of_five_subscriptions_through_one_router(tmp_path: Path, layouts: dict[str, str]) -> None:
    """P = 30 ms at e0; s0 = 90, s1 = 180, s2 = 630 at e1, s3 = 240 at e2, s4 = 630 at e3, all by way of i0."""
    channels = ("e0-i0", "i0-e1", "i0-e2", "i0-e3")
    file = deployment({"leaf": ""}, {"leaf": ("e0", "i0", "e1", "e2", "e3")}, channels, inner=("i0",))
    wanted = {"s0": ("e1", 90), "s1": ("e1", 180), "s2": ("e1", 630), "s3": ("e2", 240), "s4": ("e3", 630)}
    async with deployed(tmp_path, file, layouts) as made:
        for router, layout in layouts.items():  # routers of both kinds beside each other
            listing = await (await made.client(router, "operator")).ask(List, what="counters")
            assert listing.rows[0]["layout"] == layout
        publisher = await made.client("e0", "p0")
        numbers = [await publisher.register(f"p0/{name}", rate_num=1, rate_den=30 * MS) for name in ("var", "fence")]
        run = Lockstep(made, publisher, numbers[1], 30)
        for name, (edge, interval_ms) in wanted.items():
            run.readers[name] = await made.client(edge, name)
            granted = await run.readers[name].watch("p0/var", qos=(Qos(interval_ns=interval_ms * MS),))
            assert granted.grants[0] is not None
            assert granted.grants[0].interval_ns == interval_ms * MS
            await run.follow(name)
        run.hops = [("e0", "i0"), ("i0", "e1"), ("i0", "e2"), ("i0", "e3")]
        seen = await run.publish(numbers[0], range(0, 781, 30))
    assert seen == {
        ("e0", "i0"): [0, 90, 180, 240, 270, 360, 450, 480, 540, 630, 720],
        ("i0", "e1"): [0, 90, 180, 270, 360, 450, 540, 630, 720],
        ("i0", "e2"): [0, 240, 480, 720],
        ("i0", "e3"): [0, 630],
        "s0": [0, 90, 180, 270, 360, 450, 540, 630, 720],
        "s1": [0, 180, 360, 540, 720],
        "s2": [0, 630],
        "s3": [0, 240, 480, 720],
        "s4": [0, 630],
    }


@pytest.mark.spec("GS-067", "GS-062")
async def test_every_hop_follows_when_a_subscription_comes_or_goes(tmp_path: Path) -> None:
    """90 ms swallows 180 ms on the same channel; without it the slower one is served, near the source."""
    file = deployment({"leaf": ""}, {"leaf": ("e0", "i0", "e1")}, ("e0-i0", "i0-e1"), inner=("i0",))
    async with deployed(tmp_path, file) as made:
        publisher = await made.client("e0", "p0")
        number, fence = [
            await publisher.register(f"p0/{name}", rate_num=1, rate_den=30 * MS) for name in ("v", "fence")
        ]
        run = Lockstep(made, publisher, fence, 30)
        for name, interval_ms in (("slow", 180), ("fast", 90)):
            run.readers[name] = await made.client("e1", name)
            await run.readers[name].watch("p0/v", qos=(Qos(interval_ns=interval_ms * MS),))
            await run.follow(name)
        run.hops = [("e0", "i0"), ("i0", "e1")]
        both, hops = await run.publish(number, range(0, 361, 30)), run.hops
        assert both == {key: [0, 90, 180, 270, 360] for key in (*hops, "fast")} | {"slow": [0, 180, 360]}
        assert isinstance(await run.readers["fast"].ask(Unwatch, variable_id=number), Done)
        one = await run.publish(number, range(390, 751, 30))
        assert one == {key: [540, 720] for key in (*hops, "slow")} | {"fast": []}
        await run.readers["fast"].watch("p0/v", qos=(Qos(interval_ns=60 * MS),))
        again = await run.publish(number, range(780, 1081, 30))
        assert again == {key: [780, 840, 900, 960, 1020, 1080] for key in (*hops, "fast")} | {"slow": [900, 1080]}


# --- the mode change

FIRST, SECOND = 1, 2  # the modes
S0_HOPS: Sequence[Hop] = (("e0", "i0"), ("i0", "e1"))
S1_HOPS: Sequence[Hop] = (("e0", "i1"), ("i1", "b0"), ("b0", "e2"))
INNER = ("i0", "i1", "b0")
EDGES = ("e0", "e1", "e2")
EXAMPLE = ("e0-i0", "i0-e1", "e0-i1", "i1-b0", "b0-e2")


def by_mode(first_ms: int, second_ms: int = 0) -> tuple[Qos, ...]:
    intervals = {FIRST: first_ms * MS, SECOND: second_ms * MS}
    return tuple(Qos(interval_ns=intervals.get(mode, 0)) for mode in range(16))


class Example:
    """p0 at e0 with var1 and var2 every 10 ms, s0 at e1, s1 at e2; the network is in the first mode."""

    def __init__(self, made: Deployed, run: Lockstep, var1: int, var2: int) -> None:
        self.made, self.run, self.var1, self.var2 = made, run, var1, var2
        self.next_ms = 0

    @classmethod
    async def begin(cls, made: Deployed) -> Example:
        assert isinstance(await made.operators["leaf"].ask(ChangeMode, mode=FIRST), Done)
        publisher = await made.client("e0", "p0")
        var1, var2, fence = [await publisher.register(f"p0/{name}", 100) for name in ("var1", "var2", "fence")]
        run = Lockstep(made, publisher, fence, 10)
        wanted = (("s0", "e1", "var1", by_mode(20, 40), 0b110), ("s1", "e2", "var1", by_mode(40, 20), 0b110),
                  ("s1", "e2", "var2", by_mode(40), 0b010))  # fmt: skip
        for name, edge, variable, qos, modes in wanted:
            if name not in run.readers:
                run.readers[name] = await made.client(edge, name)
            watch = {"publisher": "p0", "variable": variable, "qos": qos, "modes": modes}
            answer = await run.readers[name].ask(Watch, **watch)
            assert isinstance(answer, Watching), answer
        await run.follow("s0", *S0_HOPS)
        await run.follow("s1", *S1_HOPS)
        paths = {(row["subscriber"], tuple(row["routers"])) for row in await made.rows("leaf", "paths")}
        assert paths == {("s0", ("e0", "i0", "e1")), ("s1", ("e0", "i1", "b0", "e2"))}
        return cls(made, run, var1, var2)

    async def intervals(self) -> tuple[dict[Hop | str, int], dict[Hop | str, int]]:
        """The interval in ms at which each hop and each reader has var1, var2 now; what has nothing is left out."""
        stamps = range(self.next_ms, self.next_ms + 160, 10)
        self.next_ms += 160
        found = []
        for variable in (self.var1, self.var2):
            seen = await self.run.publish(variable, stamps)
            found.append({place: _interval(passed, stamps) for place, passed in seen.items() if passed})
        return found[0], found[1]


def _interval(passed: list[int], stamps: range) -> int:
    return next(interval for interval in (10, 20, 40, 80) if passed == multiples(interval, stamps))


def split(by_s0: Sequence[int], by_s1: Sequence[int]) -> dict[Hop | str, int]:
    """Intervals of the hops to each reader and of the reader itself, in the order of the events."""
    places: list[Hop | str] = [*S0_HOPS, "s0", *S1_HOPS, "s1"]
    return {place: interval for place, interval in zip(places, (*by_s0, *by_s1), strict=True) if interval}


@pytest.mark.spec("GS-118", "GS-113", "GS-114")
async def test_the_mode_change_of_two_subscribers_phase_by_phase(tmp_path: Path) -> None:
    """The real broker admits and sets up; then one that says the phases one at a time takes over from it."""
    file = deployment({"leaf": ""}, {"leaf": (*EDGES, *INNER)}, EXAMPLE, inner=INNER)
    async with deployed(tmp_path, file) as made:
        example = await Example.begin(made)
        nothing: dict[Hop | str, int] = {}
        old = split((20, 20, 20), (40, 40, 40, 40))
        old2 = split((0, 0, 0), (40, 40, 40, 40))
        assert await example.intervals() == (old, old2)
        await made.stop("leaf")
        broker = await ScriptedBroker.begin(made.url("leaf"), epoch=100)
        try:
            for router in (*EDGES, *INNER):
                await broker.heard(router, Join)
            for router in EDGES:
                await broker.order(router, InformMode, mode=SECOND)
            assert await example.intervals() == (old, old2)  # phase 1 touches no stream
            for router in EDGES:
                await broker.order(router, PrepareMode, mode=SECOND)
            assert await example.intervals() == (old, nothing)  # phase 2: var2 ends, at its source
            await broker.order("i0", SetMode, mode=SECOND)
            assert await example.intervals() == (split((20, 40, 40), (40, 40, 40, 40)), nothing)
            for router in ("b0", "i1"):
                await broker.order(router, SetMode, mode=SECOND)
            assert await example.intervals() == (split((20, 40, 40), (40, 40, 40, 40)), nothing)  # the larger of both
            await broker.order("e0", SetMode, mode=SECOND)  # phase 4: the filter of s0 moves from i0 to e0 (E8)
            assert await example.intervals() == (split((40, 40, 40), (20, 20, 20, 40)), nothing)
            await broker.order("e2", SetMode, mode=SECOND)
            assert await example.intervals() == (split((40, 40, 40), (20, 20, 20, 20)), nothing)
            await broker.order("e1", SetMode, mode=SECOND)
            new = split((40, 40, 40), (20, 20, 20, 20))
            assert await example.intervals() == (new, nothing)
            for router in EDGES:
                await broker.order(router, CommitMode, mode=SECOND)
            assert await example.intervals() == (new, nothing)
        finally:
            await broker.end()


@pytest.mark.spec("GS-118", "GS-113")
async def test_the_mode_change_by_its_broker_while_events_flow(tmp_path: Path) -> None:
    """At any moment each subscriber has at least the larger of both intervals, and var2 ends once for all."""
    file = deployment({"leaf": ""}, {"leaf": (*EDGES, *INNER)}, EXAMPLE, inner=INNER)
    async with deployed(tmp_path, file) as made:
        example = await Example.begin(made)
        run = example.run
        seen: dict[tuple[int, str], list[int]] = {(v, s): [] for v in (example.var1, example.var2) for s in run.readers}
        end_ms = 0

        async def some() -> None:
            nonlocal end_ms
            for variable in (example.var1, example.var2):
                passed = await run.publish(variable, range(end_ms, end_ms + 80, 10))
                for name in run.readers:
                    seen[variable, name] += passed[name]
            end_ms += 80

        await some()
        change = asyncio.create_task(made.operators["leaf"].ask(ChangeMode, mode=SECOND))
        while not change.done():
            await some()
        assert isinstance(await change, Done)
        for reader in run.readers.values():
            await reader.until(lambda told=reader.told: ModeState(mode=SECOND, next=SECOND) in told)  # type: ignore[misc]
        over_ms = end_ms
        await some()
        everything = range(0, end_ms, 10)
        for name in run.readers:
            assert set(multiples(40, everything)) <= set(seen[example.var1, name]) <= set(multiples(20, everything))
            assert seen[example.var1, name] == sorted(set(seen[example.var1, name]))
        after = range(over_ms, end_ms, 10)
        assert [stamp for stamp in seen[example.var1, "s0"] if stamp >= over_ms] == multiples(40, after)
        assert [stamp for stamp in seen[example.var1, "s1"] if stamp >= over_ms] == multiples(20, after)
        ended = seen[example.var2, "s1"]
        assert ended == multiples(40, range(0, ended[-1] + 10, 10))
        assert ended[-1] < over_ms
        assert seen[example.var2, "s0"] == []
        assert {node.engine.status.slot for node in made.routers.values()} == {SECOND}


@pytest.mark.spec("GS-116", "GS-048")
async def test_a_group_gets_whole_sets_of_one_instant_while_its_broker_changes_modes(tmp_path: Path) -> None:
    """Two variables by different routers, 20 ms in one mode and 40 ms in the other; meanwhile only what both have."""
    file = deployment({"leaf": ""}, {"leaf": (*EDGES, *INNER)}, EXAMPLE, inner=INNER)
    sets: list[tuple[int, int, bool]] = []  # instant in ms, mode, whether it was being changed
    async with (
        deployed(tmp_path, file) as made,
        chappe.connect(made.url("e1"), name="one") as one,
        chappe.connect(made.url("e2"), name="two") as two,
        chappe.connect(made.url("e0"), name="reader") as reader,
    ):

        def complete(snapshot: chappe.Snapshot) -> None:
            stamp_ms = snapshot.nominal // MS
            assert {*snapshot.values()} == {float(stamp_ms)}, "both values are of the instant of the set"
            sets.append((stamp_ms, reader.mode, reader.mode_changing))

        assert isinstance(await made.operators["leaf"].ask(ChangeMode, mode=FIRST), Done)
        variables = [await client.register("p", name, rate=100) for client, name in ((one, "a"), (two, "b"))]
        quality = {FIRST: chappe.Qos(interval=0.02), SECOND: chappe.Qos(interval=0.04)}
        group = await reader.group("g", qos=quality, callback=complete, history=1000)
        for name in ("a", "b"):
            await group.add("p", name)
        end_ms = 0

        async def some() -> None:
            """Both are published at every instant, and the last has been delivered."""
            nonlocal end_ms
            for stamp_ms in range(end_ms, end_ms + 120, 10):
                for variable in variables:
                    variable.publish(float(stamp_ms), created=stamp_ms * MS)
            end_ms += 120
            await eventually(lambda: sets and sets[-1][0] >= end_ms - 40)

        await some()
        mode = FIRST
        while sum(changing for _, _, changing in sets) < 12 or mode == FIRST:
            mode = FIRST + SECOND - mode
            change = asyncio.create_task(made.operators["leaf"].ask(ChangeMode, mode=mode))
            while not change.done():
                await some()
            assert isinstance(await change, Done)
            await eventually(lambda wanted=mode: (reader.mode, reader.mode_changing) == (wanted, False))  # type: ignore[misc]
            await some()
    stamps = [stamp for stamp, _, _ in sets]
    assert stamps == sorted(set(stamps))
    assert set(multiples(40, range(0, end_ms - 40, 10))) <= set(stamps), "what both modes have is never missing"
    for stamp, mode, changing in sets:
        assert stamp % (40 if changing or mode == SECOND else 20) == 0, (stamp, mode, changing)
