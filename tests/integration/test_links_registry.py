"""A transport that did not exist before: registered, and nodes use it without another change."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest

import chappe
from chappe.errors import RefusedError
from chappe.links.address import Address, Form, Scheme
from chappe.links.factory import Accepted, Dialling, Listening
from chappe.links.kinds import register, unregister
from chappe.links.link import Raw, Security
from chappe.links.listener import Finished, Listener, bind
from chappe.links.reach import reach
from chappe.links.registry import Notice
from chappe.links.transported import Decoded, TransportRaw, connected
from chappe.links.transported import accepted as accepted_transport
from chappe.runtime.node import Node
from tests.support.nodes import eventually, running

TABLE = bytes(255 - byte for byte in range(256))


class Mirror:
    """Every byte is turned into its complement."""

    def decode(self, data: bytes | memoryview) -> Decoded:
        return Decoded(bytearray(bytes(data).translate(TABLE)))

    def encode(self, data: bytes) -> bytes:
        return data.translate(TABLE)

    def farewell(self) -> bytes:
        return b""


@dataclass(frozen=True)
class MirrorFactory:
    kind: str = "mirror"
    stream: bool = True
    secure: bool = False
    encrypts: bool = False
    ranks: Mapping[str, int] = field(default_factory=lambda: {"control": 9})
    migrates_to: frozenset[str] = frozenset({"tcp"})
    schemes: Mapping[str, Scheme] = field(default_factory=lambda: {"mirror": Scheme(Form.PLACE)})

    def takes(self, address: Address) -> bool:
        return address.scheme == "mirror"

    async def connect(self, address: Address, how: Dialling) -> Raw:
        sock, _ = await reach(address, how)
        return self._raw(TransportRaw(await connected(sock, address, None, ""), address))

    async def listen(self, address: Address, accepted: Accepted, how: Listening) -> Listener:
        async def opener(sock: socket.socket, peer: Address, finished: Finished) -> Raw:
            return self._raw(TransportRaw(await accepted_transport(sock, None, 1.0), peer, finished))

        return await bind(address, opener, accepted, how.options)

    def _raw(self, raw: TransportRaw) -> TransportRaw:
        raw.use(Mirror())
        raw.security = Security(False, "a mirror")
        return raw


@pytest.fixture
def mirror() -> Iterator[None]:
    register(MirrorFactory())
    yield
    unregister("mirror")


@pytest.mark.spec("MR-045", "MR-046", "MR-036", "MR-037")
async def test_a_new_transport_needs_no_change_elsewhere(mirror: None) -> None:
    """Configuration, dialling, handshake, heartbeats, routing and listings work on it at once."""
    listen = '[node]\nname = "west"\n[[listen]]\nurl = "mirror://127.0.0.1:0"\n[[peer]]\nname = "east"\n'
    async with running(listen + '[[topic_route]]\npattern = "#"\nto = ["east"]\n') as (west,):
        notices: list[Notice] = []
        west.connections.transports.watch(notices.append)
        other = '[node]\nname = "east"\n[[listen]]\nurl = "tcp://127.0.0.1:0"\n'
        other += f'[[peer]]\nname = "west"\nurl = "{west.url}"\n'
        async with running(other) as (east,):
            await eventually(lambda: east.peers.channels() == ["west"] and west.peers.channels() == ["east"])
            async with chappe.connect(east.url) as reader, chappe.connect(west.url) as writer:
                subscription = await reader.subscribe("a")
                writer.publish("a", b"!" * 100_000)
                assert (await anext(aiter(subscription))).body == b"!" * 100_000
                rows = await writer.list("transports")
            by_kind = {(row["kind"], row["peer"], row["secure"], row["mechanism"]) for row in rows}
            assert ("mirror", "east", False, "a mirror") in by_kind
            assert all(row["local"] and row["remote"] and row["state"] == "open" for row in rows)
            [link] = [row for row in await _rows(west) if row["name"] == "east"]
            assert link["kind"] == "mirror"
        await eventually(lambda: not west.peers.channels())
        told = [(notice.what, notice.entry.peer) for notice in notices if notice.entry.role == "node"]
        assert told == [("opened", "east"), ("closed", "east")]


@pytest.mark.spec("MR-045", "MR-040")
async def test_traffic_moves_only_to_the_kinds_that_the_factory_of_a_link_lists(mirror: None) -> None:
    urls = ("mirror://127.0.0.1:0", "ws://127.0.0.1:0", "tcp://127.0.0.1:0")
    listen = '[node]\nname = "west"\n' + "".join(f'[[listen]]\nurl = "{url}"\n' for url in urls)
    async with running(listen) as (west,):
        other = '[node]\nname = "east"\n[[listen]]\nurl = "tcp://127.0.0.1:0"\n'
        other += f'[[peer]]\nname = "west"\nurl = "{west.url}"\n'
        async with running(other) as (east,), chappe.connect(east.url) as client:
            await eventually(lambda: east.peers.channels() == ["west"])
            [row] = [row for row in await client.list("transports") if row["role"] == "node"]
            assert (row["kind"], row["migrates_to"]) == ("mirror", "tcp")
            with pytest.raises(RefusedError, match="of a mirror link cannot move to ws; it can move to: tcp"):
                await client.open_link("west", kind="ws")
            assert (await client.open_link("west", kind="tcp"))["kind"] == "tcp"


async def _rows(node: Node) -> list[dict[str, object]]:
    async with chappe.connect(node.url) as client:
        return list(await client.list("links"))


@pytest.mark.spec("MR-042", "MR-049", "MR-050", "MR-045")
async def test_a_new_transport_is_measured_without_code_of_its_own_and_switched_by_its_kind(mirror: None) -> None:
    measure = "[measure]\ninterval_s = 0.05\n"
    async with running('[node]\nname = "west"\n[[listen]]\nurl = "mirror://127.0.0.1:0"\n' + measure) as (west,):
        other = f'[node]\nname = "east"\n[[peer]]\nname = "west"\nurl = "{west.url}"\n' + measure
        async with running(other) as (east,):
            await eventually(lambda: east.peers.channels() == ["west"])
            port = east.peers.port("west")
            assert port is not None
            assert east.mesh is not None
            initiator = east.mesh.member.measurement.initiator
            await eventually(lambda: (reading := initiator.reading(port)) is not None and reading.window >= 3)
            factors = {factor.type: factor for factor in initiator.factors(port)}
            assert 0 < factors["latency_ms"].value < 100
            assert all(factor.description for factor in factors.values())
            east.connections.transports.set_monitoring("mirror", on=False)
            assert initiator.enabled(port) == []
            east.connections.transports.set_monitoring("mirror", on=True, interval_ns=70_000_000)
            assert initiator.enabled(port)
            assert initiator.interval_ns(port) == 70_000_000


@pytest.mark.spec("MR-038", "MR-045")
async def test_failure_detection_is_switched_and_set_by_kind_while_links_run() -> None:
    listen = '[node]\nname = "west"\n[[listen]]\nurl = "tcp://127.0.0.1:0"\n'
    async with running(listen) as (west,):
        other = f'[node]\nname = "east"\n[[peer]]\nname = "west"\nurl = "{west.url}"\nheartbeat_s = 30\n'
        async with running(other) as (east,):
            await eventually(lambda: west.peers.channels() == ["east"] and east.peers.channels() == ["west"])
            [connection] = list(west.connections)
            far = east.peers.named("west")
            assert far is not None
            assert far.connection is not None
            far.connection.link.pause_reading()  # from now on it answers nothing
            transports = west.connections.transports
            transports.set_detection("tcp", on=False, interval_ns=50_000_000)
            await eventually(lambda: west.engine.port_counters(connection.port)["bytes_out"] > 300)
            assert west.peers.channels() == ["east"]  # heartbeats go unanswered, and nobody minds
            transports.set_detection("tcp", on=True, interval_ns=50_000_000)
            await eventually(lambda: connection.closing == "silent for 0.15 s")
