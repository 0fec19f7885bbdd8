from __future__ import annotations

import asyncio
import contextlib
import signal
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bench.postgres import Postgres
from chappe.errors import ConfigError, StoreError
from chappe.runtime.config.reader import parse
from chappe.runtime.node import Node
from chappe.store import open_store
from chappe.wire import management
from chappe.wire.base import Done, Failed, Message, Variable
from chappe.wire.control import List, Listing, Register
from tests.support.brokerprocess import LEASE_S, connected, counters, join, leads, node_of, role, told, toml
from tests.support.counterbroker import CounterBroker
from tests.support.nodes import NodeProcess, eventually, fetch, free_port
from tests.support.wireclient import WireClient

TAKEN_OVER_S = 20.0  # how soon is measured by `chappe bench failover`; a busy machine takes its time
VARIABLE = Variable(0, "p", "v", "float", 0, 1, 3, 0)
WANT = management.SubscribeRequest(id=1, entity=management.Entity("e", b""), publisher="p", variable="v")


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> list[CounterBroker]:
    return counters(monkeypatch)


# --- one process


async def test_it_leads_and_answers_after_the_commit(tmp_path: Path, brokers: list[CounterBroker]) -> None:
    store = str(tmp_path / "west.db")
    async with node_of(toml(0, [free_port()], store)) as node:
        await eventually(lambda: leads(node))
        assert role(node).machine.epoch == 1
        async with connected(node.url, role="node", name="r1") as router, connected(node.url) as operator:
            router.send(join("r1"))
            await router.until(lambda: bool(router.told))
            assert router.told == [management.Lead(role="west", epoch=1, finds=True)]
            answers = await asyncio.gather(*(operator.ask(management.AddRouter, name=f"n{at}") for at in range(200)))
            assert {type(answer) for answer in answers} == {Done}
            seen = open_store(store)
            assert len([item for item in seen.load("west") if item[0] == "request"]) == 200
            seen.close()
            await router.until(lambda: len(told(router, management.Withdrawn)) == 200)
            numbers = [message.variable_id for message in told(router, management.Withdrawn)]  # type: ignore[attr-defined]
            assert numbers == list(range(1, 201))
            assert role(node).tally.changes >= 201
            assert role(node).tally.commits < 100  # they were grouped
            failed = await operator.ask(management.RemoveRouter, name="none")
            assert (failed.code, failed.reason) == ("unknown", "no router none")
        await eventually(lambda: sum(each.startswith("-") for each in brokers[0].connections) == 2)
        assert "+router/r1" in brokers[0].connections
        assert "-router/r1" in brokers[0].connections
        await eventually(lambda: brokers[0].ticks > 0)


async def test_it_listens_when_its_store_is_open(brokers: list[CounterBroker]) -> None:
    """Routers that dial earlier would keep the interpreter from opening it: they are refused, which costs nothing."""
    connections: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: connections.append(writer), "127.0.0.1", 0)
    port = free_port()
    store = f"postgresql://chappe@127.0.0.1:{server.sockets[0].getsockname()[1]}/none"
    node = Node(parse(toml(0, [port], store)), dev=True)
    starting = asyncio.ensure_future(node.start())
    try:
        await eventually(lambda: bool(connections))  # it waits for a server that does not answer
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
    finally:
        server.close()
        for writer in connections:
            writer.transport.abort()
        with pytest.raises(StoreError):
            await starting
        await server.wait_closed()


async def test_a_restarted_process_has_what_it_had_and_a_higher_epoch(
    tmp_path: Path, brokers: list[CounterBroker]
) -> None:
    text = toml(0, [free_port()], str(tmp_path / "west.db"))
    for epoch in (1, 2):
        async with node_of(text) as node, connected(node.url) as operator:
            await eventually(lambda: leads(node))
            for _ in range(5):
                assert isinstance(await operator.ask(management.AddRouter, name="n"), Done)
            listing = await operator.ask(List, what="count")
            assert listing.rows == ({"count": 5 * epoch, "epoch": epoch},)


async def test_strangers_and_mistakes_are_refused(tmp_path: Path, brokers: list[CounterBroker]) -> None:
    async with node_of(toml(0, [free_port()], str(tmp_path / "west.db"))) as node:
        await eventually(lambda: leads(node))
        async with connected(node.url, role="node", name="r1") as router:
            router.send(management.Publish(id=7, entity=management.Entity("e", b""), variable=VARIABLE))
            await router.until(lambda: bool(router.told))
            assert router.told == [Failed(id=7, code="unavailable", reason="say Join or Child first")]
            answer = await router.ask(management.Child, role="east", epoch=1, mode=0, issuer=b"")
            assert answer.code == "denied"
            answer = await router.ask(management.Reset, epoch=9, command=1)
            assert answer.code == "unsupported"
            router.send(join("r2"))
            await router.closed.wait()
            assert router.refused is not None
            assert router.refused.reason == "Join: 'r1' may not join as 'r2'"
        async with connected(node.url) as client:
            for request in (
                await client.ask(Register, publisher="p", variable="v"),
                await client.ask(management.Seek, subscription="s", cloud="c", edge="e", request=WANT),
                await client.ask(management.Reset, epoch=9, command=1),
            ):
                assert request.code == "unsupported"
                assert "is a broker; connect to a router" in request.reason
            unknown = await client.ask(List, what="nonsense")
            assert (unknown.code, unknown.reason) == ("invalid", "'nonsense' cannot be listed; count can")
            rows = (await client.ask(List, what="broker")).rows
            assert rows == (
                {"name": "west", "role": "west", "state": "leading", "epoch": 1, "leads": True, "waiting": 0},
            )
            assert isinstance(await client.ask(List, what="links"), Listing)
            client.send(join("test"))
            await client.closed.wait()
        assert brokers[0].heard == []


async def test_without_its_store_it_does_not_lead(tmp_path: Path, brokers: list[CounterBroker]) -> None:
    path = tmp_path / "west.db"
    async with node_of(toml(0, [free_port()], str(path))) as node, connected(node.url) as operator:
        await eventually(lambda: leads(node))
        async with connected(node.url, role="node", name="r1") as router:
            router.send(join("r1"))
            await router.until(lambda: bool(router.told))
            other = sqlite3.connect(path, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")  # nobody else can write
            answer = await operator.ask(management.AddRouter, name="late")
            assert answer.code == "unavailable"
            assert answer.reason.startswith("it may have been done or not: west does not lead west")
            assert (await operator.ask(List, what="count")).code == "unavailable"
            other.execute("ROLLBACK")
            other.close()
            await eventually(lambda: leads(node))
            assert role(node).machine.epoch == 2
            await router.until(lambda: len(router.told) == 3)
            one, two, three = router.told
            assert isinstance(one, management.Lead)
            assert (two, three) == (management.Standby(role="west"), management.Lead(role="west", epoch=2, finds=True))
            assert isinstance(await operator.ask(management.AddRouter, name="again"), Done)


async def test_a_store_that_cannot_be_opened_ends_it_with_a_line(tmp_path: Path) -> None:
    path = tmp_path / "west.toml"
    path.write_text(toml(0, [free_port()], "none/west.db"))
    with pytest.raises(RuntimeError, match="did not start") as caught:
        await NodeProcess.start("--dev", path)
    last = str(caught.value).splitlines()[-1]
    assert last == f"store {tmp_path}/none/west.db: there is no folder {tmp_path}/none; create it"


async def test_its_gauges_are_in_the_metrics(tmp_path: Path, brokers: list[CounterBroker]) -> None:
    async with node_of(toml(0, [free_port()], str(tmp_path / "west.db"))) as node, connected(node.url) as operator:
        await eventually(lambda: leads(node))
        await operator.ask(management.AddRouter, name="n")
        gauges = (await node.snapshot()).gauges
        assert {name: gauges[f"broker_{name}"] for name in ("leading", "epoch", "terms", "commits", "changes")} == {
            "leading": 1, "epoch": 1, "terms": 1, "commits": 1, "changes": 2,
        }  # fmt: skip
        assert 0 < gauges["broker_commit_seconds"] < 5


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (('role = "west"', 'role = "east"'), "manages.role: there is no broker 'east' in manages.topology"),
        (("[manages]", '[broker]\nname="x"\nurls=["tcp://127.0.0.1:1"]\n[manages]'), "is a broker itself"),
        (("lease_s = 1.5", "lease_s = 0"), "manages.lease_s: Expected `float` > 0"),
    ],
)
def test_a_wrong_file_is_explained(tmp_path: Path, change: tuple[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        parse(toml(0, [7401], "west.db").replace(*change), base=tmp_path)


# --- two processes of a role, and brokers above


async def test_the_standby_says_so_and_takes_over(tmp_path: Path, brokers: list[CounterBroker]) -> None:
    ports, store = [free_port(), free_port()], str(tmp_path / "west.db")
    async with contextlib.AsyncExitStack() as first:
        one = await first.enter_async_context(node_of(toml(0, ports, store)))
        await eventually(lambda: leads(one))
        async with node_of(toml(1, ports, store)) as two, connected(two.url) as operator:
            async with connected(one.url) as active:
                assert isinstance(await active.ask(management.AddRouter, name="n"), Done)
            async with connected(two.url, role="node", name="r1") as router:
                router.send(join("r1"))
                await router.until(lambda: bool(router.told))
                assert router.told == [management.Standby(role="west")]
                answer = await operator.ask(management.AddRouter, name="n")
                assert answer.code == "unavailable"
                assert f"tcp://127.0.0.1:{ports[0]}" in answer.reason
                assert (await operator.ask(List, what="count")).code == "unavailable"
                assert (await operator.ask(List, what="broker")).rows[0]["state"] == "standby"
                await first.aclose()
                await router.until(lambda: len(router.told) == 2)
                assert router.told[1] == management.Lead(role="west", epoch=2, finds=True)
                router.send(join("r1"))
                await router.until(lambda: len(router.told) == 3)
                assert (await operator.ask(List, what="count")).rows == ({"count": 1, "epoch": 2},)
    assert brokers[1].connections[0] == "+router/r1"


async def test_a_child_follows_the_parent_that_leads(tmp_path: Path, brokers: list[CounterBroker]) -> None:
    above, below = [free_port(), free_port()], [free_port()]
    top, west = str(tmp_path / "top.db"), str(tmp_path / "west.db")
    async with contextlib.AsyncExitStack() as first:
        one = await first.enter_async_context(node_of(toml(0, above, top, role="top")))
        await eventually(lambda: leads(one))
        async with (
            node_of(toml(1, above, top, role="top")) as two,
            node_of(toml(0, below, west, parents=above)) as child,
            connected(child.url) as operator,
        ):
            await eventually(lambda: leads(child))
            broker = brokers[-1]
            assert broker.role == "west"

            def parents() -> list[Message]:
                return [message for address, message in broker.heard if isinstance(message, management.Lead)]

            await eventually(lambda: parents() == [management.Lead(role="top", epoch=1, finds=True)])
            assert isinstance(await operator.ask(management.AddRouter, name="a"), Done)
            await eventually(lambda: ("parent", Done(id=1_001)) in broker.heard)
            await first.aclose()
            await eventually(lambda: leads(two))
            await eventually(lambda: parents()[1:] == [management.Lead(role="top", epoch=2, finds=True)])
            assert isinstance(await operator.ask(management.AddRouter, name="b"), Done)
            await eventually(lambda: ("parent", Done(id=1_002)) in broker.heard)
            heard = [(address, type(message)) for address, message in brokers[-1 - (brokers[-1].role == "west")].heard]
            assert heard[-2:] == [("child/west", management.Child), ("child/west", management.Claim)]
            assert not any(isinstance(message, Failed) for _, message in broker.heard)


async def test_a_router_or_a_child_is_no_operator(tmp_path: Path, brokers: list[CounterBroker]) -> None:
    async with node_of(toml(0, [free_port()], str(tmp_path / "top.db"), role="top")) as node:
        await eventually(lambda: leads(node))
        async with connected(node.url, role="node", name="r1") as router:
            greetings = (join("r1"), management.Child(id=1, role="r1", epoch=1, mode=0, issuer=b""))
            for at, greeting in enumerate(greetings, 1):
                router.send(greeting)
                await router.until(lambda: len(told(router, management.Lead)) == at)  # noqa: B023
                answer = await router.ask(management.AddRouter, name="n")
                assert (answer.code, "client that may admin" in answer.reason) == ("denied", True)
                answer = await router.ask(management.ChangeMode, mode=3)
                assert answer.code == "denied"
        assert not [message for _, message in brokers[0].heard if isinstance(message, management.AddRouter)]


async def test_a_router_that_is_called_like_a_process_of_a_child_is_none(
    tmp_path: Path, brokers: list[CounterBroker]
) -> None:
    text = toml(0, [free_port()], str(tmp_path / "top.db"), role="top")
    text += '[[manages.topology.router]]\nname = "west-7"\ncloud = "top"\nlisten = "tcp://127.0.0.1:1"\n'
    async with node_of(text) as node:
        await eventually(lambda: leads(node))
        async with connected(node.url, role="node", name="west-7") as router:
            answer = await router.ask(management.Child, role="west", epoch=9, mode=0, issuer=b"")
            assert answer.code == "denied"


async def test_a_new_process_of_a_child_replaces_the_old_one(tmp_path: Path, brokers: list[CounterBroker]) -> None:
    async with node_of(toml(0, [free_port()], str(tmp_path / "top.db"), role="top")) as node:
        await eventually(lambda: leads(node))
        async with (
            connected(node.url, role="node", name="west-1") as old,
            connected(node.url, role="node", name="west-2") as new,
        ):
            old.send(management.Child(id=1, role="west", epoch=1, mode=0, issuer=b""))
            await old.until(lambda: bool(old.told))
            new.send(management.Child(id=1, role="west", epoch=2, mode=0, issuer=b""))
            await new.until(lambda: bool(new.told))
            assert old.told == new.told == [management.Lead(role="top", epoch=1, finds=True)]
            stale = await old.ask(management.Claim, publisher="p", cloud="west")
            assert stale.code == "unavailable"
            stale = await old.ask(management.Child, role="west", epoch=1, mode=0, issuer=b"")
            assert stale.code == "stale"
            assert isinstance(await new.ask(management.Claim, publisher="p", cloud="west"), Done)
        broker = brokers[0]
        assert broker.connections[:3] == ["+child/west", "-child/west", "+child/west"]


# --- processes that share PostgreSQL


class Pair:
    """Two processes of one role; counts up at whichever leads."""

    def __init__(self, folder: Path, store: str, lease_s: float) -> None:
        self.ports = [free_port(), free_port()]
        self.files = [folder / f"west-{place + 1}.toml" for place in range(2)]
        self.processes: list[NodeProcess] = []
        for place, path in enumerate(self.files):
            path.write_text(toml(place, self.ports, store, lease_s=lease_s))

    async def start(self, place: int) -> NodeProcess:
        return await NodeProcess.start("--dev", self.files[place], module="tests.support.counterbroker")

    def url(self, place: int) -> str:
        return f"tcp://127.0.0.1:{self.ports[place]}"


async def state(client: WireClient) -> tuple[str, int]:
    row = (await client.ask(List, what="broker")).rows[0]
    return row["state"], row["epoch"]


async def until_state(client: WireClient, wanted: str, timeout_s: float) -> int:
    """Wait for a process to lead or to stand by; its epoch."""
    async with asyncio.timeout(timeout_s):
        while True:
            found, epoch = await state(client)
            if found == wanted:
                return epoch
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def pair(folder: Path, store: str, lease_s: float = LEASE_S) -> AsyncIterator[tuple[Pair, list[NodeProcess]]]:
    """Two processes on a store of their own; the first of them leads."""
    both = Pair(folder, store, lease_s)
    processes = [await both.start(0)]
    try:
        async with connected(both.url(0)) as client:
            await until_state(client, "leading", TAKEN_OVER_S)
        processes.append(await both.start(1))
        yield both, processes
    finally:
        for process in processes:
            process.tell_if_running(signal.SIGCONT)
            await process.end()


@pytest.mark.spec("GS-156")
async def test_the_standby_leads_when_the_active_process_is_killed(tmp_path: Path, place: str) -> None:
    async with (
        pair(tmp_path, place) as (both, processes),
        connected(both.url(1)) as standby,
        connected(both.url(1), role="node", name="r1") as router,
    ):
        router.send(join("r1"))
        await router.until(lambda: router.told == [management.Standby(role="west")])
        async with connected(both.url(0)) as active:
            asked = [asyncio.ensure_future(active.ask(management.AddRouter, name=f"n{at}")) for at in range(400)]
            await asked[50]
            processes[0].tell(signal.SIGKILL)
            answers = await asyncio.gather(*asked, return_exceptions=True)
        answered = sum(isinstance(answer, Done) for answer in answers)
        assert await until_state(standby, "leading", TAKEN_OVER_S) == 2
        await router.until(lambda: management.Lead(role="west", epoch=2, finds=True) in router.told)
        (row,) = (await standby.ask(List, what="count")).rows
        assert 50 <= answered <= row["count"] <= 400  # nothing that was answered is lost
        assert isinstance(await standby.ask(management.AddRouter, name="more"), Done)


@pytest.mark.spec("GS-156")
async def test_a_paused_process_that_wakes_up_changes_nothing(tmp_path: Path, place: str) -> None:
    async with (
        pair(tmp_path, place) as (both, processes),
        connected(both.url(0)) as old,
        connected(both.url(1)) as new,
        connected(both.url(0), role="node", name="r1", heartbeat_ns=60_000_000_000) as router,
    ):
        router.send(join("r1"))
        await router.until(lambda: router.told == [management.Lead(role="west", epoch=1, finds=True)])
        assert isinstance(await old.ask(management.AddRouter, name="before"), Done)
        await router.until(lambda: len(router.told) == 2)
        processes[0].tell(signal.SIGSTOP)
        asked = [asyncio.ensure_future(old.ask(management.AddRouter, name=f"late{at}")) for at in range(20)]
        assert await until_state(new, "leading", TAKEN_OVER_S) == 2
        assert isinstance(await new.ask(management.AddRouter, name="after"), Done)
        processes[0].tell(signal.SIGCONT)
        for answer in await asyncio.gather(*asked):
            assert answer.code == "unavailable"
        assert (await state(old))[0] == "standby"
        await router.until(lambda: management.Standby(role="west") in router.told)
        assert len(told(router, management.Withdrawn)) == 1  # it commanded nothing
        assert (await new.ask(List, what="count")).rows == ({"count": 2, "epoch": 2},)
        with contextlib.closing(open_store(place)) as store:
            requests = sorted(key for kind, key, _ in store.load("west") if kind == "request")
        assert requests == ["after", "before"]


async def test_a_server_that_restarts_is_waited_for(tmp_path: Path, place: str, server: Postgres) -> None:
    async with (
        pair(tmp_path, place) as (both, _),
        connected(both.url(0)) as one,
        connected(both.url(1)) as two,
    ):
        assert isinstance(await one.ask(management.AddRouter, name="a"), Done)
        server.stop()
        server.start()
        counts: set[int] = set()
        async with asyncio.timeout(30):
            while not counts:
                for client in (one, two):
                    if isinstance(await client.ask(management.AddRouter, name="b"), Done):
                        counts.add((await client.ask(List, what="count")).rows[0]["count"])
                await asyncio.sleep(0.05)
        assert min(counts) >= 2


async def test_the_end_of_a_process_lets_the_other_lead_at_once(tmp_path: Path, place: str) -> None:
    lease_s = 12.0  # the standby looks three times as often
    async with pair(tmp_path, place, lease_s) as (both, processes), connected(both.url(1)) as two:
        status, page = await fetch(processes[0].metrics + "/metrics")
        assert status == 200
        assert 'chappe_broker_leading{node="west-1"} 1.0' in page
        assert await processes[0].end(signal.SIGTERM) == 0
        assert await until_state(two, "leading", 0.8 * lease_s) == 2
