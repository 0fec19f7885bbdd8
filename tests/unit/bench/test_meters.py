"""The compiled scanners and meters, fed with bytes cut anywhere."""

from __future__ import annotations

import random
import socket
import threading

import pytest

from bench._channel import quantile
from bench._publish import Publisher
from bench._subscribe import Subscriber
from bench.protocols.common import body
from bench.secured import histogram
from bench.shared import RUN, Shared

SIZE = 64


def stamped(sequence: int, publisher: int = 0) -> bytes:
    return publisher.to_bytes(4, "big") + bytes(4) + sequence.to_bytes(8, "big") + bytes(8) + body(SIZE)[24:]


def as_delivered(protocol: str, message: bytes) -> bytes:
    """One message as a broker of that protocol hands it to a subscriber."""
    if protocol == "nats":
        return b"MSG bench.t000000 1 %d\r\n%s\r\n" % (len(message), message)
    if protocol == "mqtt":
        return bytes([0x30, 2 + 13 + len(message)]) + (13).to_bytes(2, "big") + b"bench/t000000" + message
    if protocol == "resp":
        return b"*3\r\n$7\r\nmessage\r\n$13\r\nbench/t000000\r\n$%d\r\n%s\r\n" % (len(message), message)
    if protocol == "zmtp":
        return bytes([0, 14 + len(message)]) + b"bench/t000000\0" + message
    return b"\x02" + (12 + len(message)).to_bytes(3, "big") + bytes(12) + message


def beside(protocol: str) -> bytes:
    """What a broker sends between messages."""
    return {
        "nats": b"PING\r\n+OK\r\n",
        "mqtt": b"\xd0\x00",
        "resp": b":3\r\n+OK\r\n",
        "zmtp": b"\x04\x05\x04PING",
        "chappe": b"\x04\x00\x00\x10" + bytes(range(16)) + b"\x12\x00\x00\x07" + bytes(4) + b"s\0a",
    }[protocol]


PROTOCOLS = ["nats", "mqtt", "resp", "zmtp", "chappe"]


@pytest.fixture
def shared() -> Shared:
    return Shared(2)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_messages_cut_anywhere_are_counted_once(protocol: str, shared: Shared) -> None:
    between = [beside(protocol) if i % 7 == 0 else b"" for i in range(500)]
    stream = b"".join(as_delivered(protocol, stamped(i)) + between[i] for i in range(500))
    chance = random.Random(7)
    receiver = Subscriber(protocol, [-1], 1, SIZE, shared.words)
    at = 0
    while at < len(stream):
        step = chance.choice((1, 2, 3, 50, 200, 5000))
        receiver.feed(0, stream[at : at + step])
        at += step
    counts = receiver.result()["connections"][0]
    assert counts == {"received": 500, "reordered": 0, "gaps": 0, "wrong": 0, "dropped": 0}
    assert shared.received(0) == 500


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_losses_repeats_and_damage_are_told_apart(protocol: str, shared: Shared) -> None:
    receiver = Subscriber(protocol, [-1], 2, SIZE, shared.words)
    for sequence in (0, 1, 4, 3, 4):
        receiver.feed(0, as_delivered(protocol, stamped(sequence)))
    receiver.feed(0, as_delivered(protocol, stamped(0, publisher=1)))
    receiver.feed(0, as_delivered(protocol, stamped(0, publisher=9)))
    counts = receiver.result()["connections"][0]
    assert counts == {"received": 6, "reordered": 2, "gaps": 2, "wrong": 1, "dropped": 0}


@pytest.mark.parametrize("protocol", ["nats", "chappe"])
def test_heartbeats_are_answered(protocol: str, shared: Shared) -> None:
    receiver = Subscriber(protocol, [-1], 1, SIZE, shared.words)
    receiver.feed(0, beside(protocol))
    expected = {"nats": b"PONG\r\n", "chappe": b"\x14\x00\x00\x10" + bytes(range(16))}
    assert receiver.take_reply(0) == expected[protocol]
    assert receiver.take_reply(0) == b""


@pytest.mark.parametrize(
    ("protocol", "damage"),
    [("nats", b"MSG x y\r\n"), ("mqtt", b"\x30\xff\xff\xff\xff\x01"), ("resp", b"*3\r\n!"), ("zmtp", b"\xff\x00")],
)
def test_bytes_that_break_a_protocol_are_refused(protocol: str, damage: bytes, shared: Shared) -> None:
    with pytest.raises(ValueError, match="breaks its protocol"):
        Subscriber(protocol, [-1], 1, SIZE, shared.words).feed(0, damage)


def test_a_loss_frame_of_the_node_is_reported(shared: Shared) -> None:
    receiver = Subscriber("chappe", [-1], 1, SIZE, shared.words)
    receiver.feed(0, b"\x15\x00\x00\x10" + (3).to_bytes(8, "big") + (4).to_bytes(8, "big"))
    assert receiver.result()["connections"][0]["dropped"] == 7


def test_status_records_are_noted_and_captured(shared: Shared) -> None:
    records = b"".join(bytes(8) + (i + 1).to_bytes(4, "big") + bytes(4) + i.to_bytes(8, "big") for i in range(10))
    frame = b"\x01" + len(records).to_bytes(3, "big") + records
    receiver = Subscriber("status", [-1], 1, 24, shared.words)
    receiver.feed(0, frame)
    assert receiver.result()["connections"][0]["received"] == 10
    keeper = Subscriber("status", [-1], 1, 24, shared.words, 1, None, 4096)
    keeper.feed(0, frame)
    assert keeper.captured(0) == records


def test_a_publisher_stays_within_its_window_and_credit(shared: Shared) -> None:
    frame = as_delivered("chappe", body(SIZE))
    sender = Publisher(
        "chappe",
        [-1],
        [frame],
        (16, 24, 32, 12),
        shared.words,
        1,
        SIZE,
        batch_bytes=800,
        window=40,
        credits=[20 * 80 + 4],
    )
    batches = [sender.next_batch(0, 1000) for _ in range(4)]
    assert [len(batch) // 80 for batch in batches] == [10, 10, 0, 0]
    assert sender.feed(0, b"\x25\x00\x00\x08" + (10_000).to_bytes(8, "big")) == b""
    assert len(sender.next_batch(0, 25)) // 80 == 5  # the rate allows 25 in all
    sequences = [int.from_bytes(batches[1][i * 80 + 24 : i * 80 + 32], "big") for i in range(10)]
    assert sequences == list(range(10, 20))
    receiver = Subscriber("chappe", [-1], 1, SIZE, Shared(1).words)
    receiver.feed(0, b"".join(batches))
    assert receiver.result()["connections"][0] == {"received": 20, "reordered": 0, "gaps": 0, "wrong": 0, "dropped": 0}


def test_quantiles_are_within_a_bucket() -> None:
    values = [100, 1_000, 10_000, 1_000_000, 7_000_000_000]
    counts = histogram(values)
    for share, value in zip((0.2, 0.4, 0.6, 0.8, 1.0), values, strict=True):
        assert value <= quantile(counts, share) <= value * 1.04
    assert quantile([0] * 2048, 0.5) == 0


@pytest.mark.parametrize("protocol", ["nats", "chappe"])
def test_an_answer_never_lands_inside_a_half_written_batch(protocol: str) -> None:
    """The peer asks while its socket is full: the stream is still whole messages, the answer between two of them."""
    shared = Shared(1)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        ours.setblocking(False)
        theirs.settimeout(10)
        frame = as_delivered("chappe", body(SIZE)) if protocol == "chappe" else b"PUB t 64\r\n" + body(SIZE) + b"\r\n"
        at = 16 if protocol == "chappe" else 10
        places = (at, at + 8, at + 16, 12 if protocol == "chappe" else -1)
        count = 5_000
        sender = Publisher(protocol, [ours.fileno()], [frame], places, shared.words, 0, SIZE, limit=count)

        def publish_all() -> None:
            sender.run()
            ours.shutdown(socket.SHUT_WR)

        running = threading.Thread(target=publish_all)
        running.start()
        shared.phase = RUN
        question = b"PING\r\n" if protocol == "nats" else b"\x04\x00\x00\x10" + bytes(range(16))
        answer = b"PONG\r\n" if protocol == "nats" else b"\x14\x00\x00\x10" + bytes(range(16))
        stream, asked = b"", 0
        theirs.sendall(question)  # nothing was read yet: the publisher is stuck in its first batch
        while chunk := theirs.recv(1024):
            stream += chunk
            if len(stream) > asked * 32768 and asked < 8:
                theirs.sendall(question)
                asked += 1
        running.join()
    sequences, answers, position = [], 0, 0
    while position < len(stream):
        if stream.startswith(answer, position):
            answers += 1
            position += len(answer)
            continue
        assert stream[position : position + 4] == frame[:4]
        sequences.append(int.from_bytes(stream[position + places[1] : position + places[1] + 8], "big"))
        position += len(frame)
    assert sequences == list(range(count))
    assert answers > 0
