"""Blocks of a parallel link: in order, once, and again when a connection is lost."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chappe.errors import ProtocolError
from chappe.links.striping import (
    BLOCK_SIZE,
    HEAD,
    WINDOW,
    Block,
    BlockReader,
    Preface,
    Receiving,
    Sending,
    read_preface,
)


def taken(receiving: Receiving) -> bytes:
    got = b""
    while (block := receiving.take()) is not None:
        got += block[1]
    return got


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(2, 8), losses=st.integers(0, 7), cut=st.integers(1, 4000))
def test_whatever_is_lost_on_the_way_the_stream_arrives_whole(seed: int, count: int, losses: int, cut: int) -> None:
    """Connections deliver in order, each at its own pace, and all but one may break anywhere with bytes under way."""
    rng = random.Random(seed)
    sending, receiving = Sending(), Receiving()
    wires: dict[int, bytearray] = {index: bytearray() for index in range(count)}
    readers = {index: BlockReader() for index in range(count)}
    wanted = rng.randbytes(20_000)
    left, got = wanted, b""
    losses = min(losses, count - 1)
    while got != wanted:
        action = rng.random()
        if left and action < 0.5:
            piece, left = left[: rng.randint(1, 900)], left
            left = left[len(piece) :]
            index = rng.choice(list(wires))
            wires[index] += sending.put(index, piece)
        elif losses and action > 0.97:
            losses -= 1
            index = rng.choice(list(wires))
            del wires[index], readers[index]
            for number in sending.lost(index):
                other = rng.choice(list(wires))
                wires[other] += sending.again(number, other)
        else:
            index = rng.choice(list(wires))
            data = bytes(wires[index][:cut])
            del wires[index][:cut]
            for kind, number, payload in readers[index].feed(data):
                receiving.put(kind, number, payload)
            got += taken(receiving)
            if rng.random() < 0.3:
                sending.confirmed(receiving.wanted)
    sending.confirmed(receiving.wanted)
    assert sending.done
    assert sending.unconfirmed == receiving.waiting == 0


def test_a_block_that_comes_twice_counts_once() -> None:
    receiving = Receiving()
    receiving.put(Block.DATA, 2, b"b")
    receiving.put(Block.DATA, 2, b"x")
    assert receiving.take() is None
    receiving.put(Block.DATA, 1, b"a")
    assert taken(receiving) == b"ab"
    receiving.put(Block.DATA, 1, b"a")
    assert taken(receiving) == b""


def test_more_than_the_window_is_refused() -> None:
    receiving = Receiving()
    most = 2 * WINDOW // BLOCK_SIZE
    for number in range(2, most + 2):
        receiving.put(Block.DATA, number, bytes(BLOCK_SIZE))
    with pytest.raises(ProtocolError, match="may be"):
        receiving.put(Block.DATA, most + 2, bytes(BLOCK_SIZE))
    with pytest.raises(ProtocolError):
        Receiving().put(Block.DATA, 1 << 60, b"")


def test_a_confirmation_of_what_was_never_sent_is_refused() -> None:
    sending = Sending()
    sending.put(0, b"a")
    with pytest.raises(ProtocolError, match="block 3"):
        sending.confirmed(3)
    assert sending.room == WINDOW - 1


@pytest.mark.parametrize(
    "data", [b"CHAPPE\x01\x02" + bytes(9), HEAD.pack(1, 1, BLOCK_SIZE + 1), HEAD.pack(2, 1, 4), HEAD.pack(0, 1, 0)]
)
def test_bytes_that_are_no_block_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="parallel link"):
        list(BlockReader().feed(data))


def test_the_first_bytes_say_which_connection_of_which_link_this_is() -> None:
    preface = Preface(b"l" * 16, 1, 4)
    assert read_preface(preface.encode(), 64) == preface
    for wrong in (Preface(b"l" * 16, 4, 4), Preface(b"l" * 16, 0, 1), Preface(b"l" * 16, 0, 65)):
        with pytest.raises(ProtocolError, match="2 to 64"):
            read_preface(wrong.encode(), 64)
    with pytest.raises(ProtocolError, match="serves nothing else"):
        read_preface(b"G" * 26, 64)
