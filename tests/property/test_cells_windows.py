"""Laws of flows between cells: exactly once, in order, within bounds, whatever the network and the other end do."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chappe.cells._arrivals import ReceiveFlow
from chappe.cells._flow import SendFlow
from chappe.cells._outgoing import Outgoing
from chappe.errors import ProtocolError
from tests.support.flows import MS, Pipe, numbers, parcel_of

SIZES = st.lists(st.integers(0, 5000), min_size=1, max_size=60)
LIMIT = 262_144


@pytest.mark.spec("BF-27", "BF-41")
@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 1 << 32),
    sizes=SIZES,
    loss=st.sampled_from([0.0, 0.02, 0.1]),  # at 0.3 the acknowledgements of 30 s are all lost once in fifty times
    double=st.sampled_from([0.0, 0.2]),
    delays_ms=st.lists(st.sampled_from([0.1, 5.0, 60.0, 300.0]), min_size=1, max_size=4),
)
def test_messages_arrive_exactly_once_and_in_order_over_a_network_that_loses_doubles_and_reorders(
    seed: int, sizes: list[int], loss: float, double: float, delays_ms: list[float]
) -> None:
    pipe = Pipe(seed, loss=loss, double=double, delays_ms=delays_ms, limit=LIMIT)
    bodies = [pipe.rng.randbytes(size) for size in sizes]
    outgoing = [Outgoing(body) for body in bodies]
    for message in outgoing:
        pipe.sender.send(message)
    pipe.run(lambda: len(pipe.finished) == len(sizes))
    assert pipe.finished == outgoing
    assert all(message.done for message in outgoing)
    assert [b"".join(message.take()) for message in pipe.messages] == bodies
    assert pipe.most_held <= LIMIT
    assert pipe.sender.idle
    assert pipe.sender.unconfirmed == 0


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 1 << 32),
    count=st.integers(5, 40),
    restarts=st.lists(st.integers(1, 200), min_size=1, max_size=3),
)
@pytest.mark.spec("BF-27")
def test_a_receiver_that_is_started_anew_gets_every_unconfirmed_message_again(
    seed: int, count: int, restarts: list[int]
) -> None:
    pipe = Pipe(seed, delays_ms=[1.0, 9.0], loss=0.05)
    bodies = [pipe.rng.randbytes(pipe.rng.randrange(8, 20_000)) for _ in range(count)]
    for body in bodies:
        pipe.sender.send(Outgoing(body))
    reset = struct.pack(">BBIQIQB", 1, 1, 0, 0, 0, 0, 0)
    for steps in restarts:
        for _ in range(steps):
            pipe.step()
        if not pipe.sender.idle:
            confirmed = len(pipe.finished)
            pipe.receivers.clear()
            before = [message for message in pipe.messages if message.complete]
            assert len(before) >= confirmed
            pipe.sender.acknowledge(reset, pipe.now_ns)
            assert pipe.sender.sequence == 0
    pipe.run(lambda: pipe.sender.idle)
    got = [b"".join(message.take()) for message in pipe.messages if message.complete]
    first = [got.index(body) for body in bodies]  # every message is there; some may be there again
    assert first == sorted(first)
    assert got[-1] == bodies[-1]


@settings(max_examples=200, deadline=None)
@given(body=st.binary(max_size=80) | st.builds(
    lambda flags, following, room, newest, ranges: struct.pack(
        f">BBIQIQB{2 * len(ranges)}I", 1, flags, following, room, newest, 0, len(ranges),
        *(number for each in ranges for number in each),
    ),
    st.sampled_from([0, 0, 0, 8, 128]), st.integers(0, 40) | st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1),
    st.integers(0, 2**32 - 1),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=3),
))  # fmt: skip
def test_an_acknowledgement_that_cannot_be_raises_and_changes_nothing(body: bytes) -> None:
    flow = SendFlow("a", "b", numbers(), parcel_bytes=1000)
    message = Outgoing(bytes(20_000))
    flow.send(message)
    assert len(flow.take(MS)) == 20
    before = (flow.unconfirmed, flow.sequence, message.confirmed, flow.reach)
    try:
        flow.acknowledge(body, 2 * MS)
    except ProtocolError:
        assert (flow.unconfirmed, flow.sequence, message.confirmed, flow.reach) == before
    else:
        assert message.confirmed <= 20_000
        assert flow.unconfirmed >= 0
        assert flow.reach <= flow.sent_to + (16 << 20)
    flow.tick(3 * MS)
    flow.take(3 * MS)


@settings(max_examples=100, deadline=None)
@given(
    parcels=st.lists(
        st.tuples(st.integers(0, 100) | st.integers(0, 2**32 - 1), st.integers(0, 3), st.integers(0, 40_000)),
        max_size=100,
    )
)
def test_hostile_parcels_never_take_more_than_the_room(parcels: list[tuple[int, int, int]]) -> None:
    flow = ReceiveFlow(7, "a", "b", limit=LIMIT)
    for at, (sequence, flags, size) in enumerate(parcels):
        flow.receive(sequence, flags, bytes(size), at * MS)
        assert 0 <= flow.held <= LIMIT
        frame = flow.acknowledgement(at * MS)
        assert frame is None or len(parcel_of(frame).body) <= 27 + 8 * 32
    for message in flow.take_messages()[0]:
        message.take()
    flow.end(RuntimeError("over"))
    with contextlib.suppress(StopIteration):
        assert flow.held <= LIMIT


@pytest.mark.spec("BF-41")
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1 << 32), pauses=st.lists(st.integers(1, 60), min_size=1, max_size=20))
def test_a_slow_reader_stops_the_sender_and_gets_everything(seed: int, pauses: list[int]) -> None:
    pipe = Pipe(seed, loss=0.02, delays_ms=[1.0, 20.0], limit=LIMIT, parcel_bytes=8000)
    bodies = [pipe.rng.randbytes(50_000) for _ in range(40)]
    for body in bodies:
        pipe.sender.send(Outgoing(body))
    got: list[bytes] = []
    for pause in pauses:
        for _ in range(pause):
            pipe.step()
            assert pipe.most_held <= LIMIT
        got += [b"".join(message.take()) for message in pipe.messages]
        pipe.messages.clear()
    for _ in range(100_000):
        if len(got) == len(bodies):
            break
        pipe.step()
        got += [b"".join(message.take()) for message in pipe.messages]
        pipe.messages.clear()
    assert got == bodies
