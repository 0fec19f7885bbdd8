"""Multicast on the loopback interface: one datagram for all members, keys by control connections, loss counted."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from chappe.errors import ConfigError, LinkError
from chappe.links._datagram import siphash128
from chappe.links._socket import Flusher
from chappe.links.address import Address, parse
from chappe.links.multicast import open_receiver, open_sender
from chappe.links.tick import FlushTick
from chappe.runtime.config.reader import parse as parse_config
from chappe.runtime.node import Node
from tests.integration.test_mesh import PERIOD_NS, grid_ns
from tests.support.nodes import eventually, free_port, running
from tests.support.wireclient import WireClient
from tests.unit.links.tapes import Tape
from tests.unit.links.wait import until

KEY = b"0123456789abcdef"


def group(options: str = "?interface=127.0.0.1&ttl=0") -> Address:
    return parse(f"udp+multicast://239.255.77.7:{free_port()}{options}")


def frame(number: int) -> bytes:
    return bytes([1, 0, 0, 24]) + number.to_bytes(24, "big")


@pytest.mark.spec("MR-027")
async def test_what_is_sent_once_reaches_every_receiver_and_strangers_reach_nobody() -> None:
    address = group()
    tapes = [Tape() for _ in range(4)]
    ticks = [FlushTick(asyncio.get_running_loop(), Flusher(tape)) for tape in tapes]
    sender = open_sender(address, ticks[0])
    receivers = [open_receiver(address, tick) for tick in ticks[1:]]
    sending = sender.send_as(7, tapes[0], 0, KEY)
    hearing = [receiver.listen_to(7, tape, 3, KEY) for receiver, tape in zip(receivers, tapes[1:], strict=True)]
    wanted = [frame(number) for number in range(100)]
    tapes[0].queue_datagrams(0, wanted)
    ticks[0].soon()
    await until(lambda: all(bound.accepted == 100 for bound in hearing))
    assert all(list(tape.datagrams[3]) == wanted for tape in tapes[1:])
    assert sending.written == 100  # not three hundred
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        body = (7).to_bytes(4, "big") + (1 << 63 | 200).to_bytes(8, "big") + frame(0)
        place = (address.host, address.port)
        stranger.sendto(body + siphash128(b"x" * 16, body), place)  # another key
        opener = (7).to_bytes(4, "big") + (200).to_bytes(8, "big") + frame(0)
        stranger.sendto(opener + siphash128(KEY, opener), place)  # as a member, which only listens
        await until(lambda: all(bound.bad_tag == 1 and bound.reflected == 1 for bound in hearing))
    assert all(bound.accepted == 100 for bound in hearing)
    tapes[1].queue_datagrams(3, [frame(1)])
    ticks[1].soon()
    await asyncio.sleep(0.01)
    assert hearing[0].written == 0  # a receiver never answers
    for endpoint in (sender, *receivers):
        endpoint.close()


async def test_an_interface_that_does_not_exist_is_named() -> None:
    tick = FlushTick(asyncio.get_running_loop(), Flusher(Tape()))
    for opening in (open_sender, open_receiver):
        with pytest.raises(LinkError, match=r"198\.51\.100\.1"):
            opening(group("?interface=198.51.100.1"), tick)


@contextlib.asynccontextmanager
async def segment(count: int) -> AsyncIterator[tuple[Node, list[Node], WireClient, list[WireClient], int]]:
    """A sender with a group, members, a publisher there and a reader at each member."""
    address, port = group(), free_port()
    listed = "".join(f'[[peer]]\nname = "m{number}"\n' for number in range(count))
    sender = (
        f'[node]\nname = "sender"\n[[listen]]\nurl = "tcp://127.0.0.1:{port}"\n{listed}'
        f'[[peer]]\nname = "segment"\nurl = "{address}"\npacking = 1\n'
        '[[path]]\nvariables = "plant/+"\nto = ["segment"]\n'
    )
    members = [
        f'[node]\nname = "m{number}"\n[[listen]]\nurl = "tcp://127.0.0.1:0"\n'
        f'[[peer]]\nname = "sender"\nurl = "tcp://127.0.0.1:{port}"\ndata = "multicast"\ninterface = "127.0.0.1"\n'
        for number in range(count)
    ]
    async with running(sender, *members) as (first, *others):
        await eventually(lambda: len(first.datagrams.groups.losses("segment")) == count)
        publisher = await WireClient.open(first.url, name="publisher")
        readers = [await WireClient.open(node.url, name="reader") for node in others]
        try:
            variable = await publisher.register("plant/speed", rate_hz=100)
            for reader in readers:
                await reader.watch("plant/speed", wait_ns=30_000_000_000)
            yield first, others, publisher, readers, variable
        finally:
            for client in (publisher, *readers):
                await client.close()


@pytest.mark.spec("MR-027", "MR-048")
async def test_values_go_to_all_members_as_one_datagram_each() -> None:
    async with segment(3) as (sender, members, publisher, readers, variable):
        for step in range(100):
            publisher.publish_status(variable, float(step), grid_ns() + step * PERIOD_NS)
            await asyncio.sleep(0)
        for reader in readers:
            await reader.until(lambda reader=reader: len(reader.records) == 100)
            assert [item.value_as("float") for item in reader.records] == [float(step) for step in range(100)]
        port = sender.peers.port("segment")
        assert port is not None
        assert sender.engine.port_counters(port)["status_out"] == 100
        for member in members:
            [entry] = [entry for entry in member.connections.transports if entry.kind == "multicast"]
            assert (entry.peer, entry.data, entry.security.secure) == ("sender", ("status",), True)
            link = member.peers.port("sender")
            assert link is not None
            counters = member.engine.port_counters(link)
            assert counters["status_in"] == 0  # none by the stream
        await eventually(lambda: sorted(sender.datagrams.groups.losses("segment")) == ["m0", "m1", "m2"])
        assert all(lost == 0 for lost, _ in sender.datagrams.groups.losses("segment").values())


async def test_a_member_that_leaves_takes_a_key_with_it_that_is_worth_nothing() -> None:
    async with segment(2) as (sender, members, publisher, readers, variable):
        [old] = list(sender.datagrams.groups._groups.values())
        number, key = old.number, old.key
        await readers[1].close()
        await members[1].stop(drain=False)
        await eventually(lambda: old.number != number)
        assert old.key != key
        for step in range(50):
            publisher.publish_status(variable, float(step), grid_ns() + step * PERIOD_NS)
        await readers[0].until(lambda: len(readers[0].records) == 50)


async def test_what_a_member_misses_is_counted() -> None:
    async with segment(2) as (sender, members, publisher, readers, variable):
        port = members[1].peers.port("sender")
        assert port is not None
        [deaf] = list(members[1].datagrams.groups._heard[port].values())
        deaf.endpoint._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)  # what a burst does not fit in
        for step in range(2000):
            publisher.publish_status(variable, float(step), grid_ns() + step * PERIOD_NS)
        await readers[0].until(lambda: len(readers[0].records) == 2000)
        await eventually(lambda: sender.datagrams.groups.losses("segment")["m1"][0] > 0)
        for step in range(2000, 2050):  # the last numbers arrive, so that every gap is seen
            publisher.publish_status(variable, float(step), grid_ns() + step * PERIOD_NS)
            await asyncio.sleep(0.002)
        await eventually(lambda: sender.datagrams.groups.losses("segment")["m1"][0] == 2050 - len(readers[1].records))
        assert sender.datagrams.groups.losses("segment")["m0"][0] == 0


def test_a_group_in_the_wrong_place_of_the_file_is_refused() -> None:
    head = '[[peer]]\nname = "g"\nurl = "udp+multicast://239.1.1.1:5?interface=127.0.0.1"\n'
    for text, reason in (
        (head + '[[topic_route]]\npattern = "#"\nto = ["g"]\n', "carries variables and no events"),
        ('[[listen]]\nurl = "udp+multicast://239.1.1.1:5"\n', "can not be used here"),
        ('[[peer]]\nname = "g"\nurl = ["udp+multicast://239.1.1.1:5", "tcp://127.0.0.1:1"]\n', "stands alone"),
        ('[[peer]]\nname = "g"\ninterface = "eth0"\n', "not the IP address of an interface"),
    ):
        with pytest.raises(ConfigError, match=reason):
            parse_config(text)
