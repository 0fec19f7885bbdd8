"""What one client may use, and what hostile or broken connections meet."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from typing import Any

import msgspec
import pytest

from chappe.runtime.config.reader import parse
from chappe.runtime.node import Node
from chappe.wire import control
from chappe.wire.frames import PREAMBLE, Kind, encode_frame
from tests.support.clientpeer import topic
from tests.support.nodes import eventually, running
from tests.support.wireclient import WireClient

LISTEN = '[[listen]]\nurl = "tcp://127.0.0.1:0"\n'


async def refusal(client: WireClient) -> control.Refused:
    """What a connection is told before it ends."""
    await client.until(client.closed.is_set)
    await client.close()
    assert client.refused is not None, "closed without a word"
    return client.refused


async def serves(node: Node) -> None:
    """Others are not touched."""
    client = await WireClient.open(node.url)
    try:
        await client.subscribe("a/b")
        client.publish("a/b", b"x")
        await client.until(lambda: client.events == [("a/b", b"x")])
    finally:
        await client.close()


async def test_connections_beyond_the_limit_are_refused_with_the_reason() -> None:
    async with running(LISTEN + "[limits]\nconnections = 2\n") as (node,):
        first = await WireClient.open(node.url)
        second = await WireClient.open(node.url)
        answer = await refusal(await WireClient.connect(node.url))
        assert (answer.code, "2 connections" in answer.reason, "limits.connections" in answer.reason) == (
            "limit",
            True,
            True,
        )
        await second.close()
        await eventually(lambda: len(node.connections) == 1)
        third = await WireClient.open(node.url)
        await third.close()
        await first.close()


async def test_connections_of_one_identity_are_limited_apart() -> None:
    async with running(LISTEN + "[limits]\nper_identity = 1\n") as (node,):
        one = await WireClient.open(node.url, name="one")
        two = await WireClient.open(node.url, name="two")
        answer = await refusal(await WireClient.connect(node.url, name="one"))
        assert (answer.code, "limits.per_identity" in answer.reason) == ("limit", True)
        await one.close()
        await two.close()


async def test_a_payload_above_the_limit_ends_the_connection_that_sent_it() -> None:
    async with running(LISTEN + "[limits]\npayload = 2048\n") as (node,):
        client = await WireClient.open(node.url)
        assert client.welcome is not None
        assert client.welcome.max_payload == 2048
        client.publish("a", bytes(2000))
        await client.flush()
        client.publish("a", bytes(2048))
        answer = await refusal(client)
        assert (answer.code, "2048" in answer.reason) == ("protocol", True)
        await serves(node)


async def test_a_length_of_16_mib_is_refused_before_it_arrives() -> None:
    async with running(LISTEN) as (node,):
        client = await WireClient.open(node.url)
        client.send_bytes(b"\x02\xff\xff\xff")
        answer = await refusal(client)
        assert (answer.code, "1048576" in answer.reason) == ("protocol", True)
        await serves(node)


async def test_subscriptions_and_variables_are_limited() -> None:
    async with running(LISTEN + "[limits]\nsubscriptions = 2\nvariables = 2\n") as (node,):
        client = await WireClient.open(node.url, name="greedy")
        await client.register("p/a")
        await client.register("p/b")
        answer = await client.ask(control.Register, publisher="p", variable="c")
        most = "2 variables, the most allowed to all its connections (limits.variables)"
        assert answer == control.Failed(id=answer.id, code="limit", reason=f"client 'greedy' has {most}")
        await client.subscribe("t/#")
        await client.watch("p/a")
        answer = await client.ask(control.Watch, publisher="p", variable="b")
        assert (answer.code, "limits.subscriptions" in answer.reason) == ("limit", True)
        await client.watch("p/a")
        await client.ask(control.Unsubscribe, pattern="t/#")
        await client.watch("p/b")
        await client.close()


async def test_nothing_of_a_burst_of_definitions_is_lost_and_its_connection_is_read_again() -> None:
    """More questions than one turn of the loop asks: the rest waits, unread, and then it goes on."""
    async with running(LISTEN) as (node,):
        burst, other = await WireClient.open(node.url, name="burst"), await WireClient.open(node.url, name="other")
        try:
            await other.subscribe("#")
            for turn in range(2):
                for number in range(1_500):
                    burst.publish(f"t/{turn}/{number}", b"")
                await burst.flush()
                await other.until(lambda turn=turn: len(other.events) == (turn + 1) * 1_500)  # type: ignore[misc]
            topics = [topic for topic, _ in other.events]
            assert topics == [f"t/{turn}/{number}" for turn in range(2) for number in range(1_500)]
            assert node.engine.deferred == []
        finally:
            await burst.close()
            await other.close()


async def test_what_one_identity_advertises_leaves_room_for_others() -> None:
    async with running(LISTEN) as (node,):
        greedy = [await WireClient.open(node.url, name="greedy") for _ in range(5)]
        other = await WireClient.open(node.url, name="other")
        try:
            answers = [  # what the node advertises in all, and more
                greedy[number % 5].ask(control.Advertise, pattern=f"greedy/{number}") for number in range(4_100)
            ]
            refused = [answer for answer in await asyncio.gather(*answers) if isinstance(answer, control.Failed)]
            assert len(refused) == 4_100 - 1_024
            reason = "client 'greedy' advertises 1024 topics, the most allowed; advertise a pattern that covers several"
            assert {(answer.code, answer.reason) for answer in refused} == {("limit", reason)}
            assert isinstance(await other.ask(control.Advertise, pattern="other/#"), control.Done)
            for client in greedy[1:]:
                await client.close()
            await eventually(lambda: len(node.connections) == 2)
            assert isinstance(await greedy[0].ask(control.Advertise, pattern="greedy/new"), control.Done)
        finally:
            for client in (*greedy, other):
                await client.close()


async def test_nothing_is_kept_of_topics_that_a_client_has_published_to_before() -> None:
    """Each definition gives its number another meaning: one topic is left of thousands."""
    async with running(LISTEN) as (node,):
        client = await WireClient.open(node.url, name="restless")
        try:
            for number in range(3_000):
                client.send_bytes(topic(0, f"t/{number}"))
            await client.flush()
            (session,) = (each.session for each in node.connections)
            assert len(node.engine.defined_topics(session.port, 0, 5_000)[0]) == 1
            fields = {each: getattr(session, each) for each in session.__slots__}
            sizes = {each: len(value) for each, value in fields.items() if isinstance(value, Collection)}
            assert max(sizes.values()) < 100, sizes
        finally:
            await client.close()


async def test_more_connections_of_one_identity_do_not_get_more() -> None:
    async with running(LISTEN + "[limits]\nsubscriptions = 3\nvariables = 2\n") as (node,):
        first, second, other = [await WireClient.open(node.url, name=name) for name in ("greedy", "greedy", "other")]
        await first.register("p/a")
        await second.register("p/b")
        for client, variable in ((first, "c"), (second, "d")):
            answer = await client.ask(control.Register, publisher="p", variable=variable)
            assert (answer.code, "limits.variables" in answer.reason) == ("limit", True)
        await first.subscribe("t/1")
        await second.subscribe("t/1")
        await second.watch("p/a")
        answer = await first.ask(control.Subscribe, pattern="t/2")
        assert (answer.code, "limits.subscriptions" in answer.reason) == ("limit", True)
        await other.register("p/e")
        await other.subscribe("t/2")
        await second.close()
        await eventually(lambda: len(node.connections) == 2)
        await first.subscribe("t/2")
        await first.register("p/d")
        await first.close()
        await other.close()


async def test_a_client_above_its_rate_is_slowed_down_and_the_others_are_not() -> None:
    async with running(LISTEN + "[limits]\nrate = 1000\nburst = 100\n") as (node,):
        hasty, calm, reader = [await WireClient.open(node.url, name=name) for name in ("hasty", "calm", "reader")]
        await reader.subscribe("#")
        start = time.monotonic()
        for number in range(3100):  # three seconds, so that a process that stands still for one has some left
            hasty.publish("hasty", str(number).encode())
        flushed = asyncio.create_task(hasty.flush())
        trips = 0
        while not flushed.done():
            calm.publish("calm", b"")
            await calm.flush()
            trips += 1
            await asyncio.sleep(0.01)  # the pace of one who keeps to the rate
        assert trips >= 10  # whoever waits for the hasty one makes one in this time
        hasty.publish("hasty", b"end")
        await hasty.flush()
        assert time.monotonic() - start > 2.9
        await reader.until(lambda: len(reader.events) == 3101 + trips)
        for client in (hasty, calm, reader):
            await client.close()


@pytest.mark.parametrize(
    "frame",
    [
        encode_frame(Kind.PROBE, bytes(16)),
        encode_frame(Kind.PARCEL, bytes(16)),
        encode_frame(Kind.CONTROL, control.encode(control.CloseInbox(id=0, address="none"))),
        topic(0, "a"),
    ],
    ids=["PROBE", "PARCEL", "CONTROL", "TOPIC"],
)
async def test_a_client_that_sends_no_events_has_the_same_rate(frame: bytes) -> None:
    async with running(LISTEN + "[limits]\nrate = 500\nburst = 100\n") as (node,):
        client = await WireClient.open(node.url)
        start = time.monotonic()
        client.send_bytes(frame * 600)
        await client.drain()
        await eventually(lambda: node.engine.counters()["throttled"])
        await client.flush()
        assert time.monotonic() - start > 0.9
        await client.close()


async def limited(node: Node, limits: str) -> None:
    """What SIGHUP does when the file has other limits."""
    await node.reload(msgspec.structs.replace(node.config, limits=parse(f"{LISTEN}[limits]\n{limits}\n").limits))


async def seconds_for(client: WireClient, events: int) -> float:
    start = time.monotonic()
    for _ in range(events):
        client.publish("t", b"")
    await client.drain()
    await client.flush()  # a pause begins when the events were read, and ends before this is
    await client.flush()
    return time.monotonic() - start


async def test_another_rate_holds_for_connections_that_are_there_and_for_new_ones() -> None:
    async with running(LISTEN) as (node,):
        old = await WireClient.open(node.url, name="old")
        assert await seconds_for(old, 2_000) < 2.0
        await limited(node, "rate = 1000\nburst = 100")
        new = await WireClient.open(node.url, name="new")
        for client in (old, new):
            assert await seconds_for(client, 1_100) > 0.9
        await limited(node, "rate = 1000\nburst = 3000")
        for client in (old, new):
            assert await seconds_for(client, 2_000) < 0.9
        await limited(node, "rate = 0")
        assert await seconds_for(old, 5_000) < 2.0
        for client in (old, new):
            await client.close()


async def test_other_quotas_hold_for_connections_that_are_there_and_for_new_ones() -> None:
    """What somebody has above them stays; nothing is added."""
    async with running(LISTEN) as (node,):
        old = await WireClient.open(node.url, name="old")
        for number in range(3):
            await old.subscribe(f"t/{number}")
            await old.register(f"p/{number}")
            await old.open_inbox(bytes([number]) * 16)
        await limited(node, "connections = 3\nper_identity = 1\nsubscriptions = 2\nvariables = 2\ninboxes = 1")
        new = await WireClient.open(node.url, name="new")
        answer = await refusal(await WireClient.connect(node.url, name="old"))
        assert "limits.per_identity" in answer.reason
        third = await WireClient.open(node.url, name="third")
        answer = await refusal(await WireClient.connect(node.url, name="fourth"))
        assert "limits.connections" in answer.reason
        old.publish("t/0", b"x")
        await old.until(lambda: old.events == [("t/0", b"x")])  # what it has goes on
        await new.register("q/0")
        await new.register("q/1")
        await new.open_inbox(b"n" * 16)
        for client in (old, new):
            requests: tuple[tuple[str, type[control.Request], dict[str, Any]], ...] = (
                ("variables", control.Register, {"publisher": "r", "variable": "v"}),
                ("inboxes", control.OpenInbox, {"key": b"m" * 16}),
            )
            for key, request, fields in requests:
                answer = await client.ask(request, **fields)
                assert isinstance(answer, control.Failed), (key, answer)
                assert f"limits.{key}" in answer.reason or "limits.subscriptions" in answer.reason
        await new.subscribe("t/0")
        for client in (old, new):
            answer = await client.ask(control.Subscribe, pattern="more")
            assert (answer.code, "limits.subscriptions" in answer.reason) == ("limit", True)
        await limited(node, "subscriptions = 20")
        await old.subscribe("more")
        for client in (old, new, third):
            await client.close()


async def test_other_limits_of_the_engine_hold_at_once() -> None:
    async with running(LISTEN) as (node,):
        greedy, stalled = [await WireClient.open(node.url, name=name) for name in ("greedy", "stalled")]
        for number in range(50):
            greedy.publish(f"t/{number}", b"x")
        await greedy.flush()
        await limited(node, "identity_topics = 10\nidentity_queue_bytes = 200000\nmemory_bytes = 123456789")
        assert node.engine.memory.limit == 123_456_789
        greedy.publish("t/7", b"again")  # it has that number
        greedy.publish("t/50", b"x")
        await greedy.flush()
        assert [denial.for_room for denial in greedy.denials] == [1]
        await stalled.subscribe("t/#")
        stalled.pause()
        for _ in range(2_000):
            greedy.publish("t/7", bytes(4_000))
        await greedy.flush()
        usage = node.engine.accounts.usage()
        assert usage["client 'stalled'"]["queued_bytes"] <= 200_000
        assert node.engine.counters()["drop_no_memory"] > 0
        await limited(node, "identity_topics = 100")
        greedy.publish("t/51", b"x")
        await greedy.flush()
        assert usage["client 'greedy'"]["topics"] < node.engine.accounts.usage()["client 'greedy'"]["topics"]
        stalled.resume()
        for client in (greedy, stalled):
            await client.close()


async def test_an_idle_client_is_closed_when_told_so() -> None:
    async with running(LISTEN + "[limits]\nidle_s = 0.3\nheartbeat_s = 0.05\n") as (node,):
        client = await WireClient.open(node.url, heartbeat_ns=50_000_000)
        answer = await refusal(client)
        assert (answer.code, "limits.idle_s" in answer.reason) == ("limit", True)


async def test_half_a_handshake_is_given_up_after_its_time() -> None:
    async with running(LISTEN + "[limits]\nhandshake_s = 0.2\n") as (node,):
        for piece in (b"", PREAMBLE[:3], PREAMBLE, PREAMBLE + b"\x05\x00\x00\x40half"):
            client = await WireClient.connect(node.url, send_hello=False)
            client.send_bytes(piece)
            answer = await refusal(client)
            assert answer.reason == "no Hello within 0.2 s"
        await serves(node)


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        (b"CHAPPE\x01\x02", "version", ("1.2", "2.0")),
        (b"GET / HTTP/1.1\r\n\r\n", "protocol", ("not a Chappe peer",)),
        (PREAMBLE + b"\x01\x00\x00\x18" + bytes(24), "protocol", ("kind 0x01", "handshake")),
        (PREAMBLE + b"\x05\xff\xff\xff", "protocol", ("65536",)),
        (PREAMBLE + encode_frame(Kind.CONTROL, b"\x81\xa1k\xa5Hallo"), "protocol", ("Hallo",)),
        (PREAMBLE + encode_frame(Kind.CONTROL, b"\xc1\xc1"), "protocol", ("readable",)),
    ],
)
async def test_a_bad_opening_is_refused_with_the_reason(data: bytes, code: str, words: tuple[str, ...]) -> None:
    async with running(LISTEN) as (node,):
        client = await WireClient.connect(node.url, send_hello=False)
        client.send_bytes(data)
        answer = await refusal(client)
        assert answer.code == code
        assert all(word in answer.reason for word in words), answer.reason
        await serves(node)


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"\x7f\x00\x00\x01x", "kind"),
        (b"\x01\x00\x00\x17" + bytes(23), "STATUS"),
        (b"\x02\x00\x00\x04" + bytes(4), "EVENT"),
        (encode_frame(Kind.CONTROL, b"\xc1"), "readable"),
        (
            encode_frame(Kind.CONTROL, control.encode(control.Hello(role="client", name="x", session=bytes(16)))),
            "Hello",
        ),
    ],
)
async def test_a_bad_frame_ends_its_connection_with_a_reason_and_touches_no_other(data: bytes, word: str) -> None:
    async with running(LISTEN) as (node,):
        other = await WireClient.open(node.url)
        await other.subscribe("x")
        client = await WireClient.open(node.url)
        client.publish("x", b"before")
        client.send_bytes(data)
        answer = await refusal(client)
        assert answer.code == "protocol"
        assert word.lower() in answer.reason.lower()
        await other.until(lambda: other.events == [("x", b"before")])
        await other.close()
        await eventually(lambda: len(node.connections) == 0)


async def test_an_unknown_kind_of_control_message_is_answered_by_name() -> None:
    async with running(LISTEN) as (node,):
        client = await WireClient.open(node.url)
        client.send_bytes(encode_frame(Kind.CONTROL, b"\x82\xa1k\xa8Teleport\xa2id\x63"))
        await client.until(lambda: bool(client.told))
        told = client.told[0]
        assert isinstance(told, control.Failed)
        assert (told.id, told.code, "Teleport" in told.reason) == (99, "unsupported", True)
        await client.subscribe("still/open")
        await client.close()


async def test_a_subscriber_that_stops_reading_hurts_only_itself() -> None:
    async with running(LISTEN + "[limits]\nqueue_bytes = 1048576\n") as (node,):
        publisher, healthy, stuck = [
            await WireClient.open(node.url, name=name) for name in ("publisher", "healthy", "stuck")
        ]
        await healthy.subscribe("bulk")
        await stuck.subscribe("bulk")
        stuck.pause()
        body = bytes(10_000)
        for number in range(1000):
            publisher.publish("bulk", body)
            if number % 20 == 0:
                await publisher.flush()
        await publisher.flush()
        await healthy.until(lambda: len(healthy.events) == 1000)
        rows = {row["name"]: row for row in (await publisher.ask(control.List, what="clients")).rows}
        lost = rows["stuck"]["drop_queue_full"]
        assert lost > 0
        assert rows["healthy"]["drop_queue_full"] == 0
        assert rows["stuck"]["queued_bytes"] <= 1_048_576
        stuck.resume()
        await stuck.until(lambda: len(stuck.events) == 1000 - lost)
        # What was lost is told again while it grows.
        await stuck.until(lambda: bool(stuck.losses) and stuck.losses[-1].events == lost)
        for client in (publisher, healthy, stuck):
            await client.close()


async def test_a_flood_of_connections_leaves_those_who_are_served_alone() -> None:
    async with running(LISTEN + "[limits]\nconnections = 50\nhandshake_s = 1\n") as (node,):
        client = await WireClient.open(node.url)
        await client.subscribe("x")

        async def knock(number: int) -> str:
            stranger = await WireClient.connect(node.url, send_hello=number % 2 == 0, name=f"s{number}")
            try:
                await stranger.until(lambda: stranger.closed.is_set() or stranger.welcome is not None)
                return stranger.refused.code if stranger.refused else "welcome" if stranger.welcome else "closed"
            finally:
                await stranger.close()

        flood = asyncio.gather(*(knock(number) for number in range(400)))
        for number in range(50):
            client.publish("x", str(number).encode())
            await client.flush()
        outcomes = await flood
        await client.until(lambda: len(client.events) == 50)
        assert outcomes.count("limit") > 0
        assert set(outcomes) <= {"limit", "welcome", "protocol"}
        assert node.reception.greeting == 0
        await client.close()
