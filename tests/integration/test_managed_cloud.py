"""One cloud with its real broker: redundant paths, restarts on every side, modes and floods as clients see them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import chappe
from chappe.wire import control
from chappe.wire.control import Done, Failed, Qos, Watching
from chappe.wire.management import ChangeMode, ClearFlood, ModeState, SetFlood, Withdrawn
from tests.support.cloud import Cloud, cloud
from tests.support.nodes import eventually
from tests.support.wireclient import WireClient

DIAMOND = ("ab", "bd", "ac", "cd")
PERIOD_NS = 1_000_000


class Stream:
    """A client that publishes 0, 1, 2 … with stamps in the rhythm of its variable."""

    def __init__(self, client: WireClient, number: int) -> None:
        self.client, self.number, self.sent = client, number, 0
        self.start_ns = time.time_ns() // PERIOD_NS * PERIOD_NS

    @classmethod
    async def open(cls, cloud: Cloud, router: str = "a", name: str = "meter", **hello: Any) -> Stream:
        client = await cloud.client(router, name, **hello)
        return cls(client, await client.register("plant/speed", 1000))

    def publish(self, count: int) -> None:
        for _ in range(count):
            self.client.publish_status(self.number, float(self.sent), self.start_ns + self.sent * PERIOD_NS)
            self.sent += 1

    @contextlib.asynccontextmanager
    async def flowing(self) -> AsyncIterator[None]:
        """It publishes meanwhile, and a little after that."""
        running = asyncio.create_task(self._run())
        try:
            yield
            await self.more()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def more(self, count: int = 100) -> None:
        before = self.sent
        await eventually(lambda: self.sent >= before + count)

    async def _run(self) -> None:
        while True:
            self.publish(5)
            await asyncio.sleep(0.005)


def got(client: WireClient) -> list[float]:
    return [float(record.value_as("float")) for record in client.records]


@pytest.mark.spec("GS-085", "GS-054")
async def test_a_killed_router_on_one_of_two_paths_costs_nothing(tmp_path: Path) -> None:
    async with cloud(tmp_path, *DIAMOND, processes="bc") as made:
        stream = await Stream.open(made)
        reader = await made.client("d", "reader")
        granted = await reader.watch("plant/speed", qos=(Qos(redundancy=2),))
        assert granted.grants[0] is not None
        assert granted.grants[0].redundancy == 2
        async with stream.flowing():
            await stream.more()
            await made.stop("b")
            await stream.more(200)
            await made.start("b")
            await stream.more(500)
        await reader.until(lambda: len(reader.records) >= stream.sent)
        # b may be quicker, when it is back, than what still waits on the way over c
        assert sorted(got(reader)) == [float(number) for number in range(stream.sent)]


@pytest.mark.spec("GS-152", "GS-091")
async def test_with_one_path_the_stream_resumes_when_the_killed_router_is_back(tmp_path: Path) -> None:
    async with cloud(tmp_path, "ab", "bc", processes="b") as made:
        stream = await Stream.open(made)
        reader = await made.client("c", "reader")
        await reader.watch("plant/speed")
        stream.publish(10)
        await reader.until(lambda: len(reader.records) == 10)
        await made.stop("b")
        await made.start("b")
        async with stream.flowing():  # how soon is measured by `chappe bench redundancy`
            await reader.until(lambda: len(reader.records) > 10)


async def test_removal_returns_every_table_to_empty(tmp_path: Path) -> None:
    async with cloud(tmp_path, *DIAMOND) as made:
        meter = await made.client("a", "meter")
        readers = [await made.client(at, f"reader-{at}") for at in "abcd"]
        numbers = [await meter.register(f"plant/v{at}", 1000) for at in range(20)]
        for at, reader in enumerate(readers):
            for name in range(20):
                await reader.watch(f"plant/v{name}", qos=(Qos(interval_ns=PERIOD_NS * (1 + name % 3)),))
            for number in numbers[:: at + 1]:
                assert isinstance(await reader.ask(control.Unwatch, variable_id=number), Done)
        for number in numbers:
            assert isinstance(await meter.ask(control.Withdraw, variable_id=number), Done)
        for at, reader in enumerate(readers):
            left = 20 - len(numbers[:: at + 1])
            await reader.until(lambda reader=reader, left=left: _withdrawn(reader) == left)  # type: ignore[misc]
        await eventually(lambda: not made.tables)
        assert (await made.operator.ask(control.List, what="subscriptions")).rows == ()


def _withdrawn(client: WireClient) -> int:
    return sum(isinstance(message, Withdrawn) for message in client.told)


@pytest.mark.spec("GS-153")
async def test_what_a_restarted_publisher_had_is_over_and_its_subscribers_are_told(tmp_path: Path) -> None:
    async with cloud(tmp_path, "ab") as made:
        stream = await Stream.open(made)
        reader = await made.client("b", "reader")
        await reader.watch("plant/speed")
        stream.publish(10)
        await reader.until(lambda: len(reader.records) == 10)
        await stream.client.close()  # its link failed: it comes back with its session and nothing has changed
        again = await made.client("a", "meter", session=stream.client.session)
        assert again.welcome is not None
        assert not again.welcome.restarted
        stream.client, number = again, await again.register("plant/speed", 1000)
        assert number == stream.number
        stream.publish(10)
        await reader.until(lambda: len(reader.records) == 20)
        await again.close()  # it has restarted: another session
        fresh = await made.client("a", "meter")
        assert fresh.welcome is not None
        assert fresh.welcome.restarted  # and it is told so
        await reader.until(lambda: _withdrawn(reader) == 1)
        await eventually(lambda: not made.tables)
        stream.client, stream.number = fresh, await fresh.register("plant/speed", 1000)
        await reader.watch("plant/speed")
        stream.publish(10)
        await reader.until(lambda: len(reader.records) >= 30)


async def test_clients_that_end_in_good_order_give_back_what_they_had_at_once(tmp_path: Path) -> None:
    async with cloud(tmp_path, "ab") as made:
        meter = await chappe.connect(made.url("a"), name="meter")
        variables = [await meter.register("plant", f"v{at}", rate=1000) for at in range(50)]
        reader = await chappe.connect(made.url("b"), name="reader")
        watches = [await reader.watch("plant", f"v{at}") for at in range(50)]
        variables[0].publish(1.5)
        await eventually(lambda: watches[0].value == 1.5)
        await reader.close()
        await eventually(lambda: not any(len(node.core.paths) for node in made.nodes.values()))
        await meter.close()
        await eventually(lambda: not made.tables)
        for what in ("subscriptions", "publications"):
            assert (await made.operator.ask(control.List, what=what)).rows == ()


async def test_a_second_client_of_the_same_name_is_refused(tmp_path: Path) -> None:
    async with cloud(tmp_path, "ab") as made:
        await Stream.open(made)
        for router in "ab":
            other = await made.client(router, "meter")
            answer = await other.ask(control.Register, publisher="other", variable="x")
            assert isinstance(answer, Failed)
            assert answer.code == "exists"


@pytest.mark.spec("GS-154")
async def test_a_restarted_edge_takes_its_clients_back(tmp_path: Path) -> None:
    async with cloud(tmp_path, "ab", processes="a") as made:
        stream = await Stream.open(made)
        reader = await made.client("b", "reader")
        await reader.watch("plant/speed")
        stream.publish(10)
        await reader.until(lambda: len(reader.records) == 10)
        session = stream.client.session
        await made.stop("a")
        await made.start("a")
        stream.client = again = await made.client("a", "meter", session=session)
        assert await again.register("plant/speed", 1000) == stream.number
        async with stream.flowing():
            await reader.until(lambda: len(reader.records) > 10)
        assert _withdrawn(reader) == 0


@pytest.mark.spec("GS-110", "GS-113", "GS-115")
async def test_a_mode_change_stops_old_streams_starts_new_ones_and_leaves_shared_ones_alone(tmp_path: Path) -> None:
    async with cloud(tmp_path, "ab", "bc") as made:
        stream = await Stream.open(made)
        readers = {name: await made.client("c", name) for name in ("both", "old", "new")}
        for name, modes in (("both", 0b101), ("old", 0b001), ("new", 0b100)):
            answer = await readers[name].ask(control.Watch, publisher="plant", variable="speed", modes=modes)
            assert isinstance(answer, Watching), answer
        stream.publish(20)
        await readers["both"].until(lambda: len(readers["both"].records) == 20)
        async with stream.flowing():
            assert isinstance(await made.operator.ask(ChangeMode, mode=2), Done)
            await readers["new"].until(lambda: bool(readers["new"].records))
        for reader in readers.values():
            await reader.until(lambda told=reader.told: ModeState(mode=2, next=2) in told)  # type: ignore[misc]
            assert reader.told.index(ModeState(mode=0, next=2)) < reader.told.index(ModeState(mode=2, next=2))
        both = readers["both"]
        await both.until(lambda: len(both.records) >= stream.sent)
        assert got(both) == [float(number) for number in range(stream.sent)]
        old, new = got(readers["old"]), got(readers["new"])
        assert old[:20] == got(both)[:20]
        assert old[-1] < new[0]
        await readers["new"].until(lambda: got(readers["new"])[-1] == stream.sent - 1)
        assert {node.engine.status.slot for name, node in made.nodes.items() if name != "leaf"} == {2}


@pytest.mark.spec("GS-104", "GS-100")
async def test_flooding_reaches_whoever_wants_all_and_loses_no_event_of_a_subscription(tmp_path: Path) -> None:
    async with cloud(tmp_path, *DIAMOND) as made:
        stream = await Stream.open(made)
        reader = await made.client("d", "reader")
        await reader.watch("plant/speed")
        crowd = await made.client("c", "crowd", flooded=True)
        flood = {"publisher": "plant", "variable": "speed"}
        async with stream.flowing():
            await stream.more(20)
            assert isinstance(await made.operator.ask(SetFlood, **flood), Done)
            await crowd.until(lambda: len(crowd.records) > 20)
            assert isinstance(await made.operator.ask(ClearFlood, **flood), Done)
        await reader.until(lambda: len(reader.records) >= stream.sent)
        assert sorted(got(reader)) == [float(number) for number in range(stream.sent)]
        assert len(set(got(crowd))) == len(crowd.records) < stream.sent
