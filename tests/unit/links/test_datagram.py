from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.links._datagram import DatagramSession, DatagramSocket, siphash128
from chappe.links._socket import Flusher
from chappe.links.options import LinkOptions, apply
from tests.unit.links.tapes import Tape

KEY = bytes(range(16))
SESSION = 77
FRAME = b"\x04\0\0\x10" + bytes(16)


@pytest.mark.parametrize(
    ("size", "tag"),
    [  # of the reference implementation: key 00..0f, input 00, 01, …
        (0, "a3817f04ba25a8e66df67214c7550293"),
        (1, "da87c1d86b99af44347659119b22fc45"),
        (7, "a1f1ebbed8dbc153c0b84aa61ff08239"),
        (8, "3b62a9ba6258f5610f83e264f31497b4"),
        (15, "5493e99933b0a8117e08ec0f97cfc3d9"),
        (16, "6ee2a4ca67b054bbfd3315bf85230577"),
        (63, "5150d1772f50834a503e069a973fbd7c"),
    ],
)
def test_siphash_gives_the_reference_tags(size: int, tag: str) -> None:
    assert siphash128(KEY, bytes(range(size))).hex() == tag


def datagram(sequence: int, frame: bytes = FRAME, *, session: int = SESSION, key: bytes = KEY) -> bytes:
    start = session.to_bytes(4, "big") + sequence.to_bytes(8, "big") + frame
    return start + siphash128(key, start)


@dataclass
class Side:
    """One bound UDP socket with its tape."""

    sock: socket.socket
    socket: DatagramSocket
    session: DatagramSession
    tape: Any

    @property
    def address(self) -> tuple[str, int]:
        place: tuple[str, int] = self.sock.getsockname()
        return place

    def counted(self) -> dict[str, int]:
        quiet = {"received", "reads", "writes", "written", "paths", "challenges", "moves"}
        return {name: count for name, count in self.socket.counters().items() if count and name not in quiet}


def side(*, opener: bool, peer: tuple[str, int] | None = None, options: LinkOptions | None = None) -> Side:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    apply(sock, options or LinkOptions())
    sock.bind(("127.0.0.1", 0))
    tape = Tape()
    carried = DatagramSocket(sock.fileno(), Flusher(tape))
    return Side(sock, carried, carried.bind(SESSION, tape, 4, KEY, opener=opener, peer=peer), tape)


def answer(sock: socket.socket, node: Side, sequence: int) -> None:
    """What the other side does about the path frame of a node: it sends the bytes back."""
    sock.settimeout(5.0)  # on loopback it is there already, or nobody asks
    asked = sock.recv(2000)
    assert asked[12:16] == b"\x44\0\0\x08"
    sock.sendto(datagram(sequence, b"\x54\0\0\x08" + asked[16:24]), node.address)
    node.socket.readable()


@pytest.fixture
def node() -> Iterator[Side]:
    made = side(opener=False)
    yield made
    made.sock.close()


@pytest.fixture
def client(node: Side) -> Iterator[Side]:
    made = side(opener=True, peer=node.address)
    yield made
    made.sock.close()


@pytest.mark.spec("NS-009", "GS-003")
def test_frames_go_both_ways_in_batches(node: Side, client: Side) -> None:
    frames = [b"\x01\0\0\x18" + number.to_bytes(24, "big") for number in range(150)]
    client.tape.queue_datagrams(4, list(frames))
    assert client.session.writable()
    assert client.socket.writes == 3
    assert node.session.peer is None
    assert node.socket.readable() == 150 * (28 + 12 + 16)
    assert node.tape.datagrams[4] == frames
    assert node.socket.reads == 3
    assert node.session.peer is None  # until the client has answered from there
    client.socket.readable()
    node.socket.readable()
    assert node.session.peer == client.address
    node.tape.queue_datagrams(4, [FRAME])
    assert node.session.writable()
    client.socket.readable()
    assert client.tape.datagrams[4] == [FRAME]
    assert node.counted() == {"accepted": 151}


def test_frames_wait_until_the_other_side_was_heard(node: Side, client: Side) -> None:
    node.tape.queue_datagrams(4, [FRAME])
    assert node.session.writable()
    assert node.tape.pending(4) == 1
    client.tape.queue_datagrams(4, [FRAME])
    client.session.writable()
    node.socket.readable()
    assert node.session.writable()
    assert node.tape.pending(4) == 1  # nothing goes to an address from which no answer came
    client.socket.readable()
    node.socket.readable()
    assert node.session.writable()
    assert node.tape.pending(4) == 0


@pytest.mark.spec("GS-161")
@pytest.mark.parametrize(
    ("bad", "counter"),
    [
        (datagram(5)[:-1] + b"\0", "bad_tag"),
        (datagram(5, key=b"k" * 16), "bad_tag"),
        (datagram(5)[:20] + b"\x01" + datagram(5)[21:], "bad_tag"),
        (datagram(5, session=78), "unknown_session"),
        (datagram(2), "replayed"),
        (datagram(0), "replayed"),
        (datagram(5)[:31], "too_short"),
        (b"", "too_short"),
        (datagram(5 | 1 << 63), "reflected"),
    ],
)
def test_what_is_not_authentic_and_new_is_counted_and_dropped(node: Side, bad: bytes, counter: str) -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as honest,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as thief,
    ):
        honest.bind(("127.0.0.1", 0))
        honest.sendto(datagram(2), node.address)
        node.socket.readable()
        answer(honest, node, 3)
        thief.sendto(bad, node.address)
        node.socket.readable()
        assert node.tape.datagrams[4] == [FRAME]
        assert node.counted() == {"accepted": 2, counter: 1}
        assert node.session.peer == honest.getsockname()  # the thief's address was not believed
        honest.sendto(datagram(4), node.address)
        node.socket.readable()
        assert len(node.tape.datagrams[4]) == 2


@pytest.mark.spec("GS-161")
def test_a_datagram_sent_back_to_its_sender_is_not_taken(node: Side, client: Side) -> None:
    client.tape.queue_datagrams(4, [FRAME])
    client.session.writable()
    captured = node.sock.recv(2000)
    node.sock.sendto(captured, client.address)
    client.socket.readable()
    assert client.counted() == {"reflected": 1}


def test_the_address_moves_when_an_answer_has_come_from_it(node: Side) -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as first,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as second,
    ):
        first.sendto(datagram(1), node.address)
        node.socket.readable()
        answer(first, node, 2)
        assert node.session.peer == ("127.0.0.1", first.getsockname()[1])
        second.sendto(datagram(4), node.address)
        node.socket.readable()
        assert node.session.peer == ("127.0.0.1", first.getsockname()[1])
        answer(second, node, 5)
        assert node.session.peer == ("127.0.0.1", second.getsockname()[1])
        first.sendto(datagram(3), node.address)  # a late one, from where the peer was before
        node.socket.readable()
        assert (node.session.accepted, node.session.challenges, node.session.moves) == (5, 2, 2)


def test_a_copied_datagram_sends_nothing_to_where_it_was_sent_from(node: Side) -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as honest,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as thief,
    ):
        for sock in (honest, thief):
            sock.setblocking(False)
            sock.bind(("127.0.0.1", 0))
        honest.sendto(datagram(1), node.address)
        node.socket.readable()
        answer(honest, node, 2)
        for sequence in range(3, 50):  # datagrams of the honest side that the thief got hold of first
            thief.sendto(datagram(sequence), node.address)
        node.socket.readable()
        asked = thief.recv(2000)
        with pytest.raises(BlockingIOError):
            thief.recv(2000)  # one small datagram, however many were sent
        thief.sendto(datagram(50, b"\x54\0\0\x08" + asked[16:24], key=b"k" * 16), node.address)
        thief.sendto(asked, node.address)
        node.socket.readable()
        assert node.session.peer == honest.getsockname()
        node.tape.queue_datagrams(4, [FRAME])
        assert node.session.writable()
        assert honest.recv(2000)[12:-16] == FRAME


def test_an_answer_counts_from_the_address_that_was_asked_and_with_what_it_was_asked(node: Side) -> None:
    """Authentic answers to other questions can be copied, too, and sent from anywhere."""
    kinds = socket.AF_INET, socket.SOCK_DGRAM
    with socket.socket(*kinds) as honest, socket.socket(*kinds) as thief, socket.socket(*kinds) as third:
        honest.sendto(datagram(1), node.address)
        node.socket.readable()
        answer(honest, node, 2)
        thief.sendto(datagram(3), node.address)
        node.socket.readable()
        thief.settimeout(5.0)
        token = thief.recv(2000)[16:24]
        old = bytes(8) if token != bytes(8) else b"\1" * 8
        thief.sendto(datagram(4, b"\x54\0\0\x08" + old), node.address)  # an answer to another question
        third.sendto(datagram(5, b"\x54\0\0\x08" + token), node.address)  # from where nobody was asked
        node.socket.readable()
        assert (node.session.peer, node.session.moves) == (("127.0.0.1", honest.getsockname()[1]), 1)


@given(
    st.lists(st.one_of(st.integers(1, 3000), st.integers(1, 2**63 - 1), st.integers(2**40, 2**40 + 1100)), max_size=60)
)
def test_the_window_takes_each_number_once_and_nothing_older_than_1024(sequences: list[int]) -> None:
    made = side(opener=False)
    with made.sock, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        seen: set[int] = set()
        expected: list[bytes] = []
        newest = 0
        for sequence in sequences:
            frame = b"\x04\0\0\x08" + sequence.to_bytes(8, "big")
            sender.sendto(datagram(sequence, frame), made.address)
            made.socket.readable()
            if sequence not in seen and sequence > newest - 1024:
                expected.append(frame)
                seen.add(sequence)
                newest = max(newest, sequence)
        assert made.tape.datagrams.get(4, []) == expected
        assert made.session.replayed == len(sequences) - len(expected)


@pytest.mark.spec("GS-006")
def test_what_the_kernel_drops_is_counted() -> None:
    made = side(opener=False, options=LinkOptions(receive_buffer=4096))
    with made.sock, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for sequence in range(1, 201):
            sender.sendto(datagram(sequence), made.address)
        made.socket.readable()
        accepted = made.session.accepted
        assert 0 < accepted < 200
        sender.sendto(datagram(201), made.address)  # the kernel tells its count with the next datagram
        made.socket.readable()
        assert made.socket.kernel_drops == 200 - accepted


@pytest.mark.spec("GS-006")
def test_the_effective_buffer_size_can_be_read() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sizes = apply(sock, LinkOptions(send_buffer=100_000, receive_buffer=200_000))
        assert (sizes.send, sizes.receive) == (100_000, 200_000)
        most = apply(sock, LinkOptions(receive_buffer=1 << 30)).receive
        assert most < 1 << 30


def test_a_frame_that_fits_no_datagram_is_dropped_alone(node: Side, client: Side) -> None:
    client.tape.queue_datagrams(4, [FRAME, bytes(70_000), FRAME])
    assert client.session.writable()
    node.socket.readable()
    assert node.tape.datagrams[4] == [FRAME, FRAME]
    assert client.counted() == {"send_errors": 1}


def test_a_frame_the_stack_rejects_is_counted_and_the_rest_of_the_batch_is_fed(client: Side) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        sock.bind(("127.0.0.1", 0))
        tape = Tape(reject=0xEE)
        carried = DatagramSocket(sock.fileno())
        session = carried.bind(SESSION, tape, 0, KEY, opener=False)
        for sequence, frame in enumerate([FRAME, b"\xee" * 8, FRAME], 1):
            client.sock.sendto(datagram(sequence, frame), sock.getsockname())
        carried.readable()
        assert (session.accepted, session.bad_frame) == (3, 1)
        assert len(tape.datagrams[0]) == 3


def test_an_ended_session_is_unknown_and_its_counts_stay(node: Side, client: Side) -> None:
    for _ in range(2):
        client.tape.queue_datagrams(4, [FRAME])
        client.session.writable()
        node.socket.readable()
        node.socket.unbind(SESSION)
    assert node.counted() == {"accepted": 1, "unknown_session": 1}


def test_wrong_bindings_are_refused(node: Side) -> None:
    with pytest.raises(ValueError, match="5 bytes, not 16"):
        node.socket.bind(1, node.tape, 0, b"short", opener=True)
    with pytest.raises(ValueError, match="bound already"):
        node.socket.bind(SESSION, node.tape, 0, KEY, opener=True)
    with pytest.raises(ValueError, match="resolve the name"):
        node.socket.bind(2, node.tape, 0, KEY, opener=True, peer=("localhost", 1))


def test_ipv6() -> None:
    with (
        socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock,
        socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as far,
    ):
        for each in (sock, far):
            each.setblocking(False)
            each.bind(("::1", 0))
        tape = Tape()
        carried = DatagramSocket(sock.fileno())
        session = carried.bind(SESSION, tape, 0, KEY, opener=True, peer=far.getsockname()[:2])
        tape.queue_datagrams(0, [FRAME])
        assert session.writable()
        assert far.recv(2000) == datagram(1)
        far.sendto(datagram(1 | 1 << 63), sock.getsockname())
        carried.readable()
        assert session.peer == far.getsockname()[:2]
        assert tape.datagrams[0] == [FRAME]


@pytest.mark.spec("GS-161")
@given(st.integers(0, len(datagram(1)) - 1), st.integers(1, 255), st.integers(0, 40))
def test_no_changed_or_cut_datagram_reaches_the_stack(place: int, flip: int, cut: int) -> None:
    made = side(opener=False)
    with made.sock, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        bad = bytearray(datagram(1))
        bad[place] ^= flip
        sender.sendto(bad, made.address)
        sender.sendto(datagram(1)[: len(bad) - 1 - cut], made.address)
        made.socket.readable()
        assert made.tape.datagrams == {}
        assert made.socket.received == 2
        counted = made.counted()
        assert sum(counted.values()) == 2
