from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from chappe.errors import ProtocolError
from chappe.links._socket import Flusher, StreamSocket, collect, feed
from tests.unit.links.tapes import Tape

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    one, other = socket.socketpair()
    one.setblocking(False)
    other.settimeout(5)
    yield one, other
    one.close()
    other.close()


def test_what_arrives_is_fed_once_for_each_buffer(pair: Pair) -> None:
    tape = Tape()
    carried = StreamSocket(tape, 3, pair[0].fileno())
    assert carried.readable() == 0
    pair[1].sendall(b"x" * 5000)
    pair[1].sendall(b"y" * 5000)
    before = time.monotonic_ns()
    assert carried.readable() == 10_000
    assert tape.fed[3] == b"x" * 5000 + b"y" * 5000
    assert tape.feeds[3] == 1
    assert before <= tape.mono_ns <= time.monotonic_ns()
    assert abs(tape.wall_ns - time.time_ns()) < 10**9
    assert (carried.bytes_in, carried.reads) == (10_000, 2)


def test_one_callback_reads_no_more_than_its_budget(pair: Pair) -> None:
    tape = Tape()
    carried = StreamSocket(tape, 0, pair[0].fileno(), budget=1000)
    pair[1].sendall(b"z" * 2500)
    assert [carried.readable() for _ in range(4)] == [1000, 1000, 500, 0]


def test_the_end_of_the_stream_is_minus_one_after_the_last_bytes(pair: Pair) -> None:
    tape = Tape()
    carried = StreamSocket(tape, 0, pair[0].fileno())
    pair[1].sendall(b"last")
    pair[1].close()
    assert carried.readable() == 4
    assert carried.readable() == -1
    assert tape.fed[0] == b"last"


def test_a_broken_frame_is_raised(pair: Pair) -> None:
    carried = StreamSocket(Tape(reject=0xFF), 0, pair[0].fileno())
    pair[1].sendall(b"good\xffbad")
    with pytest.raises(ProtocolError, match="0xff"):
        carried.readable()


def test_a_bad_descriptor_is_an_os_error() -> None:
    tape = Tape()
    tape.queue(0, b"x")
    carried = StreamSocket(tape, 0, -1)
    with pytest.raises(OSError, match="Bad file"):
        carried.readable()
    with pytest.raises(OSError, match="Bad file"):
        carried.writable()


def test_a_full_socket_is_written_in_parts_without_losing_or_repeating_a_byte(pair: Pair) -> None:
    pair[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    tape = Tape(pieces=777)
    wanted = bytes(range(256)) * 1000
    tape.queue(1, wanted)
    carried = StreamSocket(tape, 1, pair[0].fileno())
    got = bytearray()
    rounds = 0
    while not carried.writable():
        assert carried.blocked
        rounds += 1
        got += pair[1].recv(100_000)
    pair[0].close()
    while part := pair[1].recv(100_000):
        got += part
    assert bytes(got) == wanted
    assert rounds > 10
    assert carried.bytes_out == len(wanted)


def test_writing_to_a_closed_socket_is_an_error_and_no_signal(pair: Pair) -> None:
    tape = Tape()
    tape.queue(0, b"x")
    pair[1].close()
    with pytest.raises(BrokenPipeError):
        StreamSocket(tape, 0, pair[0].fileno()).writable()


def test_a_flush_writes_every_dirty_port_and_names_the_full_ones(pair: Pair) -> None:
    left, right = socket.socketpair()
    with left, right:
        left.setblocking(False)
        left.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        tape = Tape()
        flusher = Flusher(tape)
        full = StreamSocket(tape, 2, left.fileno())
        flusher.bind(0, StreamSocket(tape, 0, pair[0].fileno()))
        flusher.bind(2, full)
        tape.queue(0, b"small")
        tape.queue(2, b"L" * 500_000)
        tape.queue(7, b"nobody carries this port")
        assert flusher.flush() == [2]
        assert pair[1].recv(100) == b"small"
        writes = full.writes
        tape.queue(2, b"more")
        assert flusher.flush() == []  # its writer callback is at work
        assert full.writes == writes


def test_a_port_that_gets_its_socket_later_is_written_then(pair: Pair) -> None:
    tape = Tape()
    flusher = Flusher(tape)
    tape.queue(5, b"early")
    assert flusher.flush() == []
    flusher.bind(5, StreamSocket(tape, 5, pair[0].fileno()))
    assert flusher.flush() == []
    assert pair[1].recv(100) == b"early"
    flusher.unbind(5)
    tape.queue(5, b"late")
    flusher.flush()
    assert tape.pending(5) == 4


def test_a_broken_socket_does_not_keep_others_from_being_written(pair: Pair) -> None:
    tape = Tape()
    flusher = Flusher(tape)
    flusher.bind(0, StreamSocket(tape, 0, -1))
    flusher.bind(1, StreamSocket(tape, 1, pair[0].fileno()))
    tape.queue(0, b"x")
    tape.queue(1, b"y")
    assert flusher.flush() == []
    assert pair[1].recv(10) == b"y"
    failures = dict(flusher.take_failures())
    assert list(failures) == [0]
    assert isinstance(failures[0], OSError)
    assert flusher.take_failures() == []


def test_a_callable_can_carry_a_port_and_anything_else_can_not() -> None:
    tape = Tape()
    flusher = Flusher(tape)
    written: list[bytes] = []
    flusher.bind(0, lambda: written.append(collect(tape, 0, 3)) is None and tape.pending(0) == 0)
    tape.queue(0, b"abcd")
    assert flusher.flush() == [0]  # woken by `bind`: not complete; then again because it is dirty: complete
    assert written == [b"abc", b"d"]
    with pytest.raises(TypeError, match="can not carry a port"):
        flusher.bind(1, 7)
    with pytest.raises(ValueError, match="not negative"):
        flusher.bind(-1, print)


def test_one_run_is_scheduled_however_often_it_is_asked_for(pair: Pair) -> None:
    tape = Tape()
    flusher = Flusher(tape)
    asked: list[object] = []

    def run() -> None: ...

    flusher.schedule_on(asked.append, run)
    flusher.soon()
    flusher.soon()
    assert asked == [run]
    flusher.flush()
    flusher.soon()
    assert asked == [run, run]


def test_much_input_in_one_tick_is_flushed_before_its_end(pair: Pair) -> None:
    """Else the queue of a subscriber overflows although its socket has room."""
    tape = Tape(echo=True)
    flusher = Flusher(tape)
    asked: list[object] = []
    flusher.schedule_on(asked.append, print)
    flusher.bind(0, StreamSocket(tape, 0, pair[0].fileno()))
    tape.queue(0, b"x")
    flusher.fed_bytes(1 << 20)
    assert tape.pending(0) == 1
    flusher.fed_bytes(1)
    assert tape.pending(0) == 0
    assert pair[1].recv(10) == b"x"
    assert len(asked) == 1


def test_feed_and_collect_for_transports() -> None:
    tape = Tape(pieces=4)
    feed(tape, 1, bytearray(b"abcdef"), 4)
    assert tape.fed[1] == b"abcd"
    with pytest.raises(ValueError, match="buffer has 2 bytes"):
        feed(tape, 1, bytearray(2), 3)
    tape.queue(1, b"0123456789")
    assert collect(tape, 1, 7) == b"0123456"
    assert collect(tape, 1, 7) == b"789"
    assert collect(tape, 1, 7) == b""
