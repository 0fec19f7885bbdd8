"""Parallel links on real sockets: connections are cut while bytes flow, strangers try to join."""

from __future__ import annotations

import asyncio
import itertools

import pytest

import chappe
from chappe.errors import LinkError
from chappe.links._socket import Flusher
from chappe.links.address import Address, parse
from chappe.links.dial import dial
from chappe.links.handshake import accept_handshake, connect_handshake
from chappe.links.link import Link, Raw
from chappe.links.listen import listen
from chappe.links.options import LinkOptions
from chappe.links.registry import Notice
from chappe.links.striping import Preface
from chappe.links.tick import FlushTick
from chappe.wire.control import Hello, Welcome
from tests.support.nodes import eventually, free_port, running
from tests.support.relays import stream_relay
from tests.unit.links.tapes import Tape
from tests.unit.links.wait import until

HELLO = Hello(role="client", name="c", session=b"c" * 16)


async def test_the_link_goes_on_over_the_connections_that_are_left_and_loses_nothing() -> None:
    links: list[Link] = []
    lost: list[Exception | None] = []
    node, client = Tape(echo=True), Tape()
    node_tick, client_tick = (FlushTick(asyncio.get_running_loop(), Flusher(tape)) for tape in (node, client))

    async def accepted(raw: Raw) -> None:
        await accept_handshake(raw, lambda _: Welcome(name="n", session=b"n" * 16, issuer=b"i" * 16))
        assert raw.kind == "parallel"
        links.append(raw.attach(node, 0, node_tick, lost.append))

    listener = await listen(parse("tcp://127.0.0.1:0?parallel=4"), accepted)
    port = free_port()
    async with stream_relay(("127.0.0.2", port), ("127.0.0.1", listener.address.port)) as relay:
        raw = await dial(parse(f"tcp://127.0.0.2:{port}?parallel=4"))
        await connect_handshake(raw, HELLO)
        links.append(raw.attach(client, 0, client_tick, lost.append))
        assert len(relay.pairs) == 4
        relay.delay_s = 0.01  # so that something is under way
        wanted = bytes(range(251)) * 8_000
        for at, place in enumerate(range(0, len(wanted), 100_000)):
            client.queue(0, wanted[place : place + 100_000])
            client_tick.soon()
            await asyncio.sleep(0.005)
            if at in (3, 7, 12):
                relay.cut((3, 7, 12).index(at))
        await until(lambda: len(client.fed.get(0, b"")) == len(wanted))
        assert bytes(client.fed[0]) == wanted
        assert lost == []
        await until(lambda: len(relay.pairs) == 7)  # those that were lost are dialled again
        client.fed[0].clear()
        relay.cut(3)  # the last of the first ones
        for place in range(0, len(wanted), 100_000):
            client.queue(0, wanted[place : place + 100_000])
            client_tick.soon()
            await asyncio.sleep(0.001)
        await until(lambda: len(client.fed[0]) == len(wanted))
        assert bytes(client.fed[0]) == wanted
        for index in range(len(relay.pairs)):
            relay.cut(index)
        await until(lambda: len(lost) == 2)
    for link in links:
        link.abort()
        await link.wait_closed()
    await listener.close()


async def test_events_between_nodes_survive_a_cut_without_a_new_connection() -> None:
    far, near = free_port(), free_port()
    west = f'[node]\nname = "west"\n[[listen]]\nurl = "tcp://127.0.0.1:{far}?parallel=3"\n'
    west += '[[listen]]\nurl = "tcp://127.0.0.1:0"\n[[peer]]\nname = "east"\n'
    east = f'[node]\nname = "east"\n[[listen]]\nurl = "tcp://127.0.0.1:{near}"\n'
    east += f'[[peer]]\nname = "west"\nurl = "tcp://127.0.0.2:{far}?parallel=3"\n'
    east += '[[topic_route]]\npattern = "#"\nto = ["west"]\n'
    async with (
        running(west) as (there,),
        stream_relay(("127.0.0.2", far), ("127.0.0.1", far)) as relay,
        running(east) as (here,),
    ):
        await eventually(lambda: here.peers.channels() == ["west"])
        notices: list[Notice] = []
        here.connections.transports.watch(
            lambda notice: notices.append(notice) if notice.entry.role == "node" else None
        )
        async with chappe.connect(here.url) as writer, chappe.connect(str(there.addresses[1])) as reader:
            subscription = await reader.subscribe("n")
            numbers = itertools.count()
            for step in range(100):
                for _ in range(20):
                    writer.publish("n", b"%d" % next(numbers) + b"x" * 500)
                await asyncio.sleep(0.001)
                if step in (30, 60):
                    relay.cut(step // 30 - 1)
            async with asyncio.timeout(30):
                got = [int((await anext(aiter(subscription))).body.rstrip(b"x")) for _ in range(2000)]
        assert got == list(range(2000))
        kinds = [(entry.kind, entry.peer) for entry in here.connections.transports if entry.role == "node"]
        assert kinds == [("parallel", "west")]
        assert notices == []  # the link is still the first one


async def test_strangers_and_latecomers_do_not_join_and_do_not_disturb() -> None:
    raws: list[Raw] = []

    async def accepted(raw: Raw) -> None:
        await accept_handshake(raw, lambda _: Welcome(name="n", session=b"n" * 16, issuer=b"i" * 16))
        raws.append(raw)

    options = LinkOptions(handshake_timeout_s=1)
    listener = await listen(parse("tcp://127.0.0.1:0?parallel=2"), accepted, options=options)

    async def say(data: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.address.port)
        writer.write(data)
        async with asyncio.timeout(30):
            try:
                answer = await reader.read()
            except ConnectionResetError:
                answer = b""
        writer.close()
        return answer

    half = Preface(b"h" * 16, 0, 2).encode()
    answers = await asyncio.gather(
        say(b"GET / HTTP/1.1\r\nHost: some.where.example\r\n\r\n"),  # no preface
        say(b""),  # nothing at all
        say(half),  # the other half never comes
        say(half),  # twice the same
        say(Preface(b"h" * 16, 1, 3).encode()),  # of another number
    )
    assert answers == [b""] * 5
    raw = await dial(listener.address)
    await connect_handshake(raw, HELLO)
    raw.abort()
    assert len(raws) == 1
    raws[0].abort()
    await listener.close()


async def test_an_address_that_stripes_nothing_is_named() -> None:
    async def accepted(raw: Raw) -> None:
        await accept_handshake(raw, lambda _: Welcome(name="n", session=b"n" * 16, issuer=b"i" * 16))

    listener = await listen(parse("tcp://127.0.0.1:0"), accepted)
    address = Address("tcp", "127.0.0.1", listener.address.port, options=(("parallel", "2"),))
    with pytest.raises(LinkError, match="does not speak as one end of a parallel link"):
        await connect_handshake(await dial(address), HELLO)
    with pytest.raises(LinkError, match="refused"):
        await dial(parse("tcp://127.0.0.1:1?parallel=3"))
    await listener.close()


async def test_connections_of_links_that_are_not_complete_count_as_unfinished() -> None:
    async def accepted(raw: Raw) -> None:
        raise AssertionError("no link is complete")

    options = LinkOptions(max_pending_of_host=8, handshake_timeout_s=60.0)
    listener = await listen(parse("tcp://127.0.0.1:0?parallel=2"), accepted, options=options)
    streams = []
    try:
        for number in range(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.address.port)
            streams.append((reader, writer))
            writer.write(Preface(number.to_bytes(16, "big"), 0, 2).encode())
        await until(lambda: listener.evicted == 12)
        assert listener.pending == 8
        for reader, _ in streams[:12]:
            assert await reader.read() == b""  # the oldest ones are closed
        assert listener.counters()["pending"] == 8
    finally:
        await listener.close()
        for _, writer in streams:
            writer.close()
