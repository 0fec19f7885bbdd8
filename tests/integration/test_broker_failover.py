"""Two processes of a leaf broker on PostgreSQL, real routers: the active one is lost while it sets up subscriptions."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from chappe.runtime.node import Node
from chappe.wire.base import Done, Qos
from chappe.wire.control import List, Register, Registered, Unwatch, Watch, Watching
from tests.support.nodes import NodeProcess, eventually, free_port, start_node
from tests.support.tables import expected_hops, hops_of
from tests.support.wireclient import WireClient

LEASE_S = 1.0
ROUTERS = 5
SUBSCRIPTIONS = 200


class Cloud:
    """A leaf broker of two processes and a ring of routers with a chord, in this loop."""

    def __init__(self, folder: Path, store: str) -> None:
        self.brokers = [free_port(), free_port()]
        self.ports = [free_port() for _ in range(ROUTERS)]
        self.processes: list[NodeProcess] = []
        self.routers: list[Node] = []
        self._folder = folder
        self._store = store

    @property
    def urls(self) -> list[str]:
        return [f"tcp://127.0.0.1:{port}" for port in self.brokers]

    async def start(self) -> None:
        for place in range(2):
            self.processes.append(await self.start_broker(place))
            if place == 0:
                async with connected(self.urls[0]) as client:
                    await until_leading(client)
        for place, port in enumerate(self.ports):
            text = f'[node]\nname = "r{place}"\n[[listen]]\nurl = "tcp://127.0.0.1:{port}"\n'
            self.routers.append(await start_node(f'{text}[broker]\nname = "west"\nurls = {self.urls}'))

    async def start_broker(self, place: int) -> NodeProcess:
        path = self._folder / f"west-{place + 1}.toml"
        path.write_text(
            f'[node]\nname = "west-{place + 1}"\n[[listen]]\nurl = "{self.urls[place]}"\n[log]\nlevel = "warning"\n'
            f'[manages]\nrole = "west"\nstore = "{self._store}"\nlease_s = {LEASE_S}\n{self._topology()}'
        )
        return await NodeProcess.start("--dev", path)

    async def stop(self) -> None:
        for process in self.processes:
            process.tell_if_running(signal.SIGCONT)
            await process.end()
        await asyncio.gather(*(router.stop(drain=False) for router in self.routers))

    def _topology(self) -> str:
        lines = [f'[[manages.topology.broker]]\nname = "west"\nlisten = {self.urls}\nstore = "{self._store}"']
        for place, port in enumerate(self.ports):
            where = f'cloud = "west"\nlisten = "tcp://127.0.0.1:{port}"'
            lines.append(f'[[manages.topology.router]]\nname = "r{place}"\n{where}')
        pairs = [(place, (place + 1) % ROUTERS) for place in range(ROUTERS)] + [(0, 2)]
        lines += [f'[[manages.topology.channel]]\nbetween = ["r{a}", "r{b}"]' for a, b in pairs]
        return "\n".join(lines)


@contextlib.asynccontextmanager
async def connected(url: str, **hello: Any) -> AsyncIterator[WireClient]:
    client = await WireClient.open(url, **hello)
    try:
        yield client
    finally:
        await client.close()


async def until_leading(client: WireClient) -> int:
    async with asyncio.timeout(30):
        while True:
            row = (await client.ask(List, what="broker")).rows[0]
            if row["leads"]:
                return int(row["epoch"])
            await asyncio.sleep(0.01)


@pytest.mark.spec("GS-156")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "paused"])
async def test_no_path_is_lost_doubled_or_half_allocated(tmp_path: Path, place: str, number: signal.Signals) -> None:
    cloud = Cloud(tmp_path, place)
    names = [f"v{at}" for at in range(SUBSCRIPTIONS)]
    try:
        await cloud.start()
        async with (
            connected(cloud.routers[0].url, name="pub") as publisher,
            connected(cloud.routers[3].url, name="sub") as subscriber,
            connected(cloud.urls[1]) as operator,
        ):
            rate = {"rate_num": 10, "rate_den": 1_000_000_000}
            registered = await asyncio.gather(
                *(publisher.ask(Register, publisher="p", variable=name, **rate) for name in names)
            )
            assert {type(answer) for answer in registered} == {Registered}
            qos = (Qos(redundancy=2),)
            asked = [
                asyncio.ensure_future(subscriber.ask(Watch, publisher="p", variable=name, qos=qos)) for name in names
            ]
            await asyncio.wait(asked[: SUBSCRIPTIONS // 4])
            cloud.processes[0].tell(number)
            assert not all(each.done() for each in asked)
            watched = await asyncio.gather(*asked)
            assert {type(answer) for answer in watched} == {Watching}
            assert {answer.grants[0].redundancy for answer in watched} == {2}
            assert await until_leading(operator) == 2
            if number == signal.SIGSTOP:
                cloud.processes[0].tell(signal.SIGCONT)
                async with connected(cloud.urls[0]) as old:
                    assert (await old.ask(List, what="broker")).rows[0]["leads"] is False

            subscriptions = (await operator.ask(List, what="subscriptions", limit=5_000)).rows
            assert sorted(row["variable"] for row in subscriptions) == sorted(names)
            paths = (await operator.ask(List, what="paths", limit=5_000)).rows
            assert Counter(row["variable"] for row in paths) == dict.fromkeys(names, 2)
            assert hops_of(cloud.routers) == expected_hops(paths)

            for answer in registered:
                publisher.publish_status(answer.variable_id, 1.5)
            await subscriber.until(lambda: len(subscriber.records) >= SUBSCRIPTIONS)
            await publisher.flush()
            ids = sorted(answer.variable_id for answer in registered)
            assert sorted(record.variable for record in subscriber.records) == ids

            gone = await asyncio.gather(*(subscriber.ask(Unwatch, variable_id=number) for number in ids))
            assert {type(answer) for answer in gone} == {Done}
            await eventually(lambda: not hops_of(cloud.routers))
            assert (await operator.ask(List, what="paths")).rows == ()
    finally:
        await cloud.stop()
