"""What a core makes of the frames it is fed."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chappe.client._core import ClientCore
from chappe.client._inbox import Subscription
from chappe.client.topics import Long
from chappe.errors import ProtocolError
from chappe.wire.events import TopicName
from chappe.wire.frames import Kind, encode_frame
from tests.support.clientpeer import SESSION, Peer, event, issuer, topic


def subscribed(core: ClientCore, pattern: str | int | Long, **options: object) -> Subscription:
    subscription = Subscription(pattern, **options)  # type: ignore[arg-type]
    core.add_subscription(subscription)
    return subscription


def bodies(subscription: Subscription) -> list[bytes]:
    return [message.body for message in subscription.take_nowait()]


@pytest.mark.spec("NS-002")
def test_a_message_goes_to_every_subscription_that_matches_and_to_no_other() -> None:
    core = ClientCore()
    Peer(core)
    wide, one, exact, other = (subscribed(core, pattern) for pattern in ("a/#", "a/+", "a/b", "b/#"))
    core.feed(issuer() + topic(0, "a/b") + topic(1, "a/b/c") + topic(2, "a"))
    core.feed(event(0, 1, b"ab") + event(1, 2, b"abc") + event(2, 3, b"a"))
    assert bodies(wide) == [b"ab", b"abc", b"a"]
    assert bodies(one) == bodies(exact) == [b"ab"]
    assert bodies(other) == []


def test_a_subscription_made_later_gets_what_comes_later() -> None:
    core = ClientCore()
    Peer(core)
    core.feed(issuer() + topic(0, "a") + event(0, 1, b"before"))
    later = subscribed(core, "a")
    core.feed(event(0, 2, b"after"))
    assert bodies(later) == [b"after"]
    assert core.remove_subscription(later)
    core.feed(event(0, 3, b"never"))
    assert bodies(later) == []
    assert core.counters()["unwanted"] == 2


def test_a_redefined_number_does_not_change_what_is_queued() -> None:
    core = ClientCore()
    Peer(core)
    everything = subscribed(core, "#")
    core.feed(issuer() + topic(0, "old") + event(0, 1, b"1") + topic(0, "new") + event(0, 2, b"2"))
    assert [message.topic for message in everything.take_nowait()] == ["old", "new"]


def test_numbers_are_topics_of_their_own_kind() -> None:
    core = ClientCore()
    Peer(core)
    small, large, text = subscribed(core, 7), subscribed(core, Long(7)), subscribed(core, "7")
    core.feed(issuer() + topic(0, 7, "i") + topic(1, 7, "l") + topic(2, "7"))
    core.feed(event(0, 1, b"i") + event(1, 2, b"l") + event(2, 3, b"s"))
    assert [message.topic for message in small.take_nowait()] == [7]
    assert [message.topic for message in large.take_nowait()] == [Long(7)]
    assert bodies(text) == [b"s"]


def test_copies_for_a_group_go_to_one_member_and_to_nobody_outside() -> None:
    core = ClientCore()
    Peer(core)
    alone = subscribed(core, "a")
    members = [subscribed(core, "a", group="g") for _ in range(2)]
    core.feed(
        issuer() + topic(0, "a", group="g") + b"".join(event(0, number, b"%d" % number) for number in range(1, 7))
    )
    assert bodies(alone) == []
    shares = [bodies(member) for member in members]
    assert sorted(shares[0] + shares[1]) == [b"1", b"2", b"3", b"4", b"5", b"6"]
    assert len(shares[0]) == len(shares[1]) == 3


def test_a_message_tells_what_its_extension_says() -> None:
    core = ClientCore()
    Peer(core)
    everything = subscribed(core, "#")
    full = event(
        0, 5, b"body", priority=1, created=11, expires=22, reply=TopicName("r"), correlation=3, content_type="t",
        properties={"k": 1.5},
    )  # fmt: skip
    core.feed(issuer() + topic(0, "a") + full)
    (message,) = everything.take_nowait()
    assert (message.topic, message.body, message.priority) == ("a", b"body", 1)
    assert (message.created, message.expires, message.reply, message.correlation) == (11, 22, "r", 3)
    assert (message.content_type, message.properties) == ("t", {"k": 1.5})
    assert message.identifier == (SESSION, 1, 5)


def test_repeats_are_dropped_also_after_a_reconnection_and_in_any_order() -> None:
    core = ClientCore()
    Peer(core)
    everything = subscribed(core, "#")
    core.feed(issuer(3) + topic(0, "a"))
    core.feed(b"".join(event(0, number, b"%d" % number, issuer=3) for number in (1, 3, 2, 3, 5000, 4999, 1)))
    Peer(core)
    core.feed(issuer(8) + topic(4, "a"))
    core.feed(b"".join(event(4, number, b"%d" % number, issuer=8, resent=True) for number in (2, 4999, 5001)))
    assert bodies(everything) == [b"1", b"3", b"2", b"5000", b"4999", b"1", b"5001"]
    assert core.counters()["repeats"] == 3


def test_a_new_epoch_of_an_issuer_starts_afresh() -> None:
    core = ClientCore()
    Peer(core)
    everything = subscribed(core, "#")
    core.feed(topic(0, "a") + issuer(0, 1) + event(0, 1, b"first") + issuer(0, 2) + event(0, 1, b"second"))
    assert bodies(everything) == [b"first", b"second"]


def test_a_full_queue_drops_the_newest_and_says_so() -> None:
    core = ClientCore()
    Peer(core)
    notified: list[object] = []
    core.on_full = notified.append
    small, large = subscribed(core, "#", max_queue=3), subscribed(core, "#")
    core.feed(issuer() + topic(0, "a") + b"".join(event(0, number, b"%d" % number) for number in range(1, 6)))
    core.feed(event(0, 6, b"6"))
    assert notified == [small], "notified once"
    assert bodies(small) == [b"1", b"2", b"3"]
    assert small.dropped == 3
    assert len(large) == 6
    core.feed(event(0, 7, b"7"))
    assert bodies(small) == [b"7"]


def test_a_queue_is_bounded_by_bytes_too() -> None:
    core = ClientCore()
    Peer(core)
    small = subscribed(core, "#", max_bytes=5000)
    core.feed(issuer() + topic(0, "a") + b"".join(event(0, number, bytes(1000)) for number in range(1, 9)))
    assert (len(small), small.dropped) == (4, 4)


def test_a_blocking_queue_keeps_all_and_asks_for_a_pause_until_it_is_half_empty() -> None:
    core = ClientCore()
    Peer(core)
    notified: list[object] = []
    core.on_full = notified.append
    slow = subscribed(core, "#", max_queue=4, on_full="block")

    class Owner:
        resumed = 0

        def subscription_has_room(self, queue: object) -> None:
            assert queue is slow
            self.resumed += 1

    slow.owner = Owner()
    core.feed(issuer() + topic(0, "a") + b"".join(event(0, number, b"%d" % number) for number in range(1, 8)))
    assert notified == [slow]
    assert len(slow) == 7
    slow.take_nowait(4)
    assert slow.owner.resumed == 0
    slow.take_nowait(1)
    assert slow.owner.resumed == 1
    assert slow.dropped == 0


@settings(max_examples=80, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=20),
    cuts=st.lists(st.integers(1, 4000), min_size=1, max_size=40),
)
def test_bytes_may_be_cut_anywhere(sizes: list[int], cuts: list[int]) -> None:
    core = ClientCore()
    Peer(core)
    everything = subscribed(core, "#")
    stream = issuer() + topic(0, "a")
    sent = [bytes((number % 256,)) * size for number, size in enumerate(sizes)]
    stream += b"".join(event(0, number, body) for number, body in enumerate(sent, 1))
    place = turn = 0
    while place < len(stream):
        cut = cuts[turn % len(cuts)]
        core.feed(stream[place : place + cut])
        place, turn = place + cut, turn + 1
    assert bodies(everything) == sent


@settings(max_examples=200, deadline=None)
@given(junk=st.binary(min_size=1, max_size=300), kind=st.sampled_from([*Kind, 0, 0x33]))
def test_bad_bytes_are_a_protocol_error_and_nothing_else(junk: bytes, kind: int) -> None:
    core = ClientCore()
    Peer(core)
    subscribed(core, "#")
    core.feed(issuer() + topic(0, "a"))
    with contextlib.suppress(ProtocolError):
        core.feed(bytes((kind,)) + len(junk).to_bytes(3, "big") + junk + junk)
    assert core.ready


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        (b"\x07\0\0\0", "unknown kind 0x07"),
        (event(9, 1, b""), "topic number 9"),
        (encode_frame(Kind.EVENT, bytes(11)), "at least 12 bytes"),
        (encode_frame(Kind.EVENT, bytes((0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 1, 0, 9))), "past its end"),
        (encode_frame(Kind.STATUS, bytes(25)), "past the end"),
        (encode_frame(Kind.LOSS, bytes(3)), "LOSS has 16 bytes"),
        (encode_frame(Kind.CREDIT, bytes(3)), "CREDIT has 8 bytes"),
        (topic((1 << 20), "a"), "topic number 1048576"),
    ],
)
def test_each_bad_frame_is_named(frames: bytes, reason: str) -> None:
    core = ClientCore()
    Peer(core)
    with pytest.raises(ProtocolError, match=reason):
        core.feed(frames)


def test_a_length_above_the_limit_is_refused_before_its_bytes_come() -> None:
    core = ClientCore(max_frame=1000)
    Peer(core)
    with pytest.raises(ProtocolError, match="the limit is 1000"):
        core.feed(b"\x02\x00\x10\x00")


def test_losses_add_up_over_connections() -> None:
    core = ClientCore()
    for total in (3, 5):
        Peer(core)
        core.feed(encode_frame(Kind.LOSS, (1).to_bytes(8, "big") + total.to_bytes(8, "big")))
    assert core.losses == (2, 8)


def test_a_probe_is_echoed_unchanged() -> None:
    core = ClientCore()
    peer = Peer(core)
    core.feed(encode_frame(Kind.PROBE, bytes(range(30))))
    peer.read()
    assert peer.frames[-1] == (Kind.ECHO, bytes(range(30)))


def test_arrow_holds_the_same_as_messages() -> None:
    core = ClientCore()
    Peer(core)
    everything = subscribed(core, "#")
    core.feed(issuer(0) + issuer(1, publisher=bytes(16)) + topic(0, "a") + topic(1, "b"))
    core.feed(event(0, 1, b"x") + event(1, 1, b"", issuer=1) + event(0, 2, b"yz", created=4))

    async def collect() -> list[dict[str, object]]:
        rows: list[dict[str, object]] = []
        async for batch in everything.arrow(max_rows=2):
            rows += batch.to_pylist()
            batch.validate(full=True)
            if not len(everything):
                break
        return rows

    assert asyncio.run(collect()) == [
        {"topic": "a", "issuer": SESSION, "sequence": 1, "body": b"x"},
        {"topic": "b", "issuer": bytes(16), "sequence": 1, "body": b""},
        {"topic": "a", "issuer": SESSION, "sequence": 2, "body": b"yz"},
    ]
